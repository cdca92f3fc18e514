package filelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/windowed-order-counter/lab/internal/filelock"
)

func TestSecondHolderIsRefusedAndNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "phase.lock")
	first, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = filelock.Try(path)
	var held *filelock.HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Fatalf("want a HeldError naming %d, got %v", os.Getpid(), err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	// Or the next holder would go by this one's name until it has written its own.
	if name, err := os.ReadFile(path); err != nil || len(name) != 0 {
		t.Errorf("after release the file names %q, %v", name, err)
	}
	again, err := filelock.Try(path)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

// Removing the file of a held lock is how a whole workspace is deleted: who comes next must lock a file that others see.
func TestRemovedFileIsLockedAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "phase.lock")
	first, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), first.Release()); err != nil {
		t.Fatal(err)
	}
	second, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Release() //nolint:errcheck // the test is over
	var held *filelock.HeldError
	if _, err := filelock.Try(path); !errors.As(err, &held) {
		t.Errorf("a third holder: %v", err)
	}
}
