package streams_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The engine can be imported: a program in a module of its own, testdata/wordcount, is built without a network and counts.
func TestWordCountModule(t *testing.T) {
	binary := buildModule(t, "testdata/wordcount")
	c := newCounting(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary,
		"-bootstrap", c.bootstrap, "-input", c.in, "-output", c.out, "-application", c.app, "-state", c.dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() error {
		if runtime.GOOS == "windows" { // no interrupt for another process there
			return errors.Join(cmd.Process.Kill(), ignoreExit(cmd.Wait()))
		}
		return errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait())
	}
	defer func() {
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", stdout.String(), stderr.String())
		}
	}()
	c.send("to be or not to be", "Be", "that is the question")
	c.awaitCounts(map[string]string{"to": "2", "be": "3", "or": "1", "not": "1", "that": "1", "is": "1", "the": "1", "question": "1"})
	if err := stop(); err != nil {
		t.Errorf("clean stop: %v", err)
	}
	if out := stdout.String(); !strings.HasPrefix(out, "Topologies:\n") || !strings.Contains(out, "RUNNING\n") {
		t.Error("the program printed neither its topology nor its states")
	}
}

func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// buildModule builds the program in dir from go.mod and go.sum as they are and returns the binary. With -mod=mod it passed as long as sums of
// the engine's newer dependencies could be looked up, and failed on a machine without that network.
func buildModule(t *testing.T, dir string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	binary := filepath.Join(t.TempDir(), "wordcount.exe") // the suffix that Windows needs does no harm elsewhere
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-o", binary, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build in %s: %v\n%s", dir, err, out)
	}
	return binary
}
