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
	again, err := filelock.Try(path)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}
