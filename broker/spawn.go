package broker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/process"
)

// spawned is a background process that was started here, and from where on its log is its own.
type spawned struct {
	*exec.Cmd
	log     string
	logFrom int64
	reaped  bool
}

// spawn starts the program that serves, with more arguments, in a session of its own. Its output goes to the end of the log.
func (c Config) spawn(f files, log string, args ...string) (_ *spawned, err error) {
	argv := c.Command
	if len(argv) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the lab's own program: %w", err)
		}
		argv = []string{self, "broker", "serve"}
	}
	argv = append(slices.Clone(argv), "--dir", f.workspace())
	argv = append(argv, args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = f.workspace()
	// The variables of the global flags that choose a broker are for the parent, which has decided.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "LAB_BOOTSTRAP=") || strings.HasPrefix(kv, "LAB_BROKER=") || strings.HasPrefix(kv, "LAB_NODES=")
	})

	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	info, err := out.Stat()
	if err != nil {
		return nil, err
	}
	// Stdin stays nil, the null device. Nothing of the parent's is inherited, or `lab phase 1 | tee` would not end before the broker.
	cmd.Stdout, cmd.Stderr = out, out
	if err := errors.Join(keepInherited(), process.Detach(cmd)); err != nil {
		return nil, fmt.Errorf("detaching the broker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the broker: %w", err)
	}
	return &spawned{Cmd: cmd, log: log, logFrom: info.Size()}, nil
}

// exited reaps a process that has ended, and returns how it ended, with the end of its log.
func (s *spawned) exited() error {
	// To be too late is the normal case. A process that is seen as ended and has not would be waited for without end.
	if err := ignoreExit(s.Process.Kill()); err != nil {
		return err
	}
	how := s.Wait()
	s.reaped = true
	if how == nil {
		how = errors.New("exit status 0")
	}
	return fmt.Errorf("%w: %w; the end of %s:\n%s", ErrExited, how, s.log, tail(s.log, s.logFrom))
}

// kill ends and reaps the process, unless it has ended.
func (s *spawned) kill() error {
	if s.reaped {
		return nil
	}
	s.reaped = true
	return errors.Join(ignoreExit(s.Process.Kill()), ignoreExit(s.Wait()))
}
