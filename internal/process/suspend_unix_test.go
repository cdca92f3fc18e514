//go:build unix

package process_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/process"
)

// A suspended process does nothing, whatever it is sent, until it may go on. It can be killed meanwhile.
func TestSuspend(t *testing.T) {
	start := func() (*exec.Cmd, process.ID, io.Closer) {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "PROCESS_TEST_CHILD=1")
		process.OwnGroup(cmd)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		id, err := process.Of(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return cmd, id, in
	}

	cmd, id, in := start()
	if err := id.Suspend(); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil { // for which it would end
		t.Fatal(err)
	}
	still, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := id.Wait(still); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("suspended, and it ended: %v", err)
	}
	if err := id.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("resumed: %v", err)
	}
	if err := id.Resume(); !errors.Is(err, process.ErrGone) {
		t.Errorf("of a process that is gone: %v", err)
	}

	cmd, id, _ = start()
	if err := errors.Join(id.Suspend(), id.Kill()); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("killed while suspended: %v", err)
	}
}
