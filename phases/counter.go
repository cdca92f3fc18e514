package phases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/topology"
)

const (
	// startTimeout is how long an instance may take until it is RUNNING, beside the session timeout that a phase has set: a group keeps the
	// place of a member that was killed until its session ends.
	startTimeout = 90 * time.Second
	// stopTimeout is how long an instance may take to stop: its own limit is 10 s.
	stopTimeout = 15 * time.Second
)

// StopAtEOF is the counter's flag for: your input is a pipe, and its end is your end. A phase's counter ends with the phase even if that is
// killed, and on systems without SIGTERM.
const StopAtEOF = "stop-at-eof"

// counter is an instance that a phase works with.
type counter struct {
	name     string
	pid      int
	journal  string
	follower *journal.Follower
	child    *child // nil if a user started it
}

// child is a counter that this process started.
type child struct {
	cmd  *exec.Cmd
	pipe io.Closer     // its input; closing it stops it
	log  string        // what it printed
	done chan struct{} // closed once it has ended
	exit error         // after done
}

// counter returns the running instance of that name, and starts it if there is none. It is RUNNING when counter returns.
func (r *run) counter(ctx context.Context, name string) (*counter, error) {
	for _, c := range r.counters {
		if c.name == name {
			return c, nil
		}
	}
	c, err := r.running(ctx, name)
	if err == nil && c == nil {
		c, err = r.start(name)
	}
	if err != nil {
		return nil, err
	}
	_, err = r.join(ctx, c)
	return c, err
}

// join makes an instance one of the run's, and waits until it is RUNNING.
func (r *run) join(ctx context.Context, c *counter) (running journal.Event, err error) {
	c.follower = journal.Follow(c.journal)
	r.counters = append(r.counters, c)
	running, err = c.wait(ctx, startTimeout+r.SessionTimeout, fmt.Sprintf("instance %s to be RUNNING", c.name), isRunning)
	if err == nil {
		r.Console.Printf("  instance %s is RUNNING, pid %d", c.name, c.pid)
	}
	return running, err
}

// The states that a phase waits for, in Kafka Streams' words.
const (
	stateRunning     = "RUNNING"
	stateRebalancing = "REBALANCING"
)

func isRunning(e *journal.Event) bool { return e.State != nil && e.State.To == stateRunning }

// running finds an instance that a user started. One whose phase was killed is about to stop: it is waited for.
func (r *run) running(ctx context.Context, name string) (*counter, error) {
	in, ok, err := r.Workspace.Instance(topology.ApplicationID, name)
	if err != nil || !ok {
		return nil, err
	}
	if in.Parent != nil {
		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		if err := in.Wait(ctx); err != nil {
			return nil, fmt.Errorf("instance %s of an interrupted run: %w", name, err)
		}
		return nil, nil
	}
	if in.Bootstrap != r.conn.Bootstrap() {
		return nil, fmt.Errorf("instance %s (pid %d) is at work on %s, not on %s: stop it first", name, in.PID, in.Bootstrap, r.conn.Bootstrap())
	}
	r.Console.Printf("  instance %s runs already (pid %d, not started here): the phase uses it", name, in.PID)
	return &counter{name: name, pid: in.PID, journal: in.Journal}, nil
}

func (r *run) start(name string, properties ...string) (*counter, error) {
	return r.startOf(topology.ApplicationID, name, properties...)
}

// startOf starts an instance of an application. Its id must be among the properties if it is not the lab's own.
func (r *run) startOf(application, name string, properties ...string) (_ *counter, err error) {
	argv, err := r.executable()
	if err != nil {
		return nil, err
	}
	argv = append(argv, "counter", name, "--"+StopAtEOF, "--dir", r.Workspace.Dir())
	if r.conn.Broker.Kind == broker.Existing {
		argv = append(argv, "--bootstrap", r.conn.Bootstrap())
	}
	if r.SessionTimeout > 0 {
		argv = append(argv, fmt.Sprintf("session.timeout.ms=%d", r.SessionTimeout.Milliseconds()))
	}
	argv = append(argv, properties...)

	path := r.Workspace.Log(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = r.Workspace.Dir()
	cmd.Env = append(os.Environ(), r.Connect.Environment(r.conn)...)
	cmd.Stdout, cmd.Stderr = log, log
	process.OwnGroup(cmd)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start instance %s: %w", name, err)
	}
	c := &child{cmd: cmd, pipe: pipe, log: path, done: make(chan struct{})}
	go func() { // waited for by stop
		defer close(c.done)
		c.exit = cmd.Wait()
	}()
	pid := cmd.Process.Pid
	return &counter{name: name, pid: pid, child: c, journal: journal.Path(r.Workspace.Journals(), application, name, pid)}, nil
}

// wait waits for an event of the instance, and no longer than the instance lives.
func (c *counter) wait(ctx context.Context, timeout time.Duration, what string, match func(*journal.Event) bool) (journal.Event, error) {
	ctx, cancel := c.alive(ctx, timeout)
	defer cancel()
	return c.follower.Wait(ctx, what, match)
}

// crashed waits for the end of a child that is to crash by itself. It is not among the run's counters any more after that.
func (r *run) crashed(ctx context.Context, c *counter) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-c.child.done:
	case <-ctx.Done():
		return fmt.Errorf("instance %s has not ended: %w", c.name, context.Cause(ctx))
	}
	err := r.forget(c)
	if perr := c.child.pipe.Close(); !errors.Is(perr, os.ErrClosed) {
		err = errors.Join(err, perr)
	}
	if c.child.exit == nil {
		err = errors.Join(err, fmt.Errorf("instance %s ended cleanly and did not crash", c.name))
	}
	return err
}

// alive returns a context that ends with the child, saying so, or after a timeout.
func (c *counter) alive(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancelTimeout := context.WithTimeout(ctx, timeout)
	if c.child == nil {
		return ctx, cancelTimeout
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-c.child.done:
			cancel(fmt.Errorf("instance %s has ended (%v), see %s", c.name, c.child.cmd.ProcessState, c.child.log))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-watched
		cancelTimeout()
	}
}

// stop stops the instance if a phase started it.
func (c *counter) stop() error {
	err := c.follower.Close()
	if c.child == nil {
		return err
	}
	return errors.Join(err, c.child.stop(c.name))
}

func (c *child) stop(name string) error {
	err := c.pipe.Close()
	if errors.Is(err, os.ErrClosed) { // the child has ended before
		err = nil
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		err = errors.Join(err, fmt.Errorf("instance %s did not stop within %s and was killed", name, stopTimeout), c.cmd.Process.Kill())
		<-c.done
	}
	if c.exit != nil {
		err = errors.Join(err, fmt.Errorf("instance %s: %w, see %s", name, c.exit, c.log))
	}
	return err
}
