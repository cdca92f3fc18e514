package process_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/process"
)

func init() {
	if os.Getenv("PROCESS_TEST_HEADLESS") != "" {
		runtime.LockOSThread() // which is the process's first one
		playHeadless()
	}
}

// playHeadless ends the first thread of the process, and the process itself when its input ends.
func playHeadless() {
	go func() {
		runtime.LockOSThread()
		_, _ = syscall.Read(0, make([]byte, 1))
		syscall.Exit(0)
	}()
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

// A process that had just called exec from another thread than its first was taken for dead in that moment, and waited for without end.
func TestProcessWithoutItsFirstThreadRuns(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROCESS_TEST_HEADLESS=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-ticker.C {
		raw, err := os.ReadFile(stat)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte(") Z ")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("its first thread did not end: %s", raw)
		}
	}
	id, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !running(t, id) {
		t.Error("it does not run")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if running(t, id) {
		t.Error("it runs after it was waited for")
	}
}
