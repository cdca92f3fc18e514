package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/process"
)

// TestMain lets the test binary play the process that the tests watch: it waits until its input ends, or a signal stops it.
func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_HALT") != "" {
		defer fmt.Println("a deferred call")
		fmt.Println("before")
		if err := process.Halt(); err != nil {
			fmt.Println(err)
		}
	}
	if os.Getenv("PROCESS_TEST_CHILD") != "" {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What was written before stays, and nothing comes after it.
func TestHalt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROCESS_TEST_HALT=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || string(out) != "before\n" {
		t.Errorf("%v, printed %q", err, out)
	}
}

func child(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROCESS_TEST_CHILD=1")
	process.OwnGroup(cmd)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func running(t *testing.T, id process.ID) bool {
	t.Helper()
	is, err := id.Running()
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func TestSelfIsRunningAndStable(t *testing.T) {
	a, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	if !running(t, a) {
		t.Errorf("%+v: not running", a)
	}
	if b, _ := process.Self(); a != b {
		t.Errorf("identity changed: %+v, %+v", a, b)
	}
}

// A recycled pid must not pass for the process that had it before, and must not be stopped in its place.
func TestAnotherStartIsAnotherProcess(t *testing.T) {
	id, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	id.Start += "0"
	if running(t, id) {
		t.Errorf("%+v passes for this process", id)
	}
	for name, act := range map[string]func() error{"terminate": id.Terminate, "kill": id.Kill} {
		if err := act(); !errors.Is(err, process.ErrGone) {
			t.Errorf("%s: want ErrGone, got %v", name, err)
		}
	}
}

func TestTerminateAndWait(t *testing.T) {
	cmd := child(t)
	id, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := id.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a live process: %v", err)
	}
	if err := id.Terminate(); err != nil {
		t.Fatal(err)
	}
	// Not waited for yet, the child is a zombie where there are zombies: it must count as gone.
	long, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := id.Wait(long); err != nil {
		t.Fatal(err)
	}
	if _, err := process.Of(cmd.Process.Pid); !errors.Is(err, process.ErrGone) {
		t.Errorf("want ErrGone, got %v", err)
	}
	if err := id.Kill(); !errors.Is(err, process.ErrGone) {
		t.Errorf("kill: want ErrGone, got %v", err)
	}
}
