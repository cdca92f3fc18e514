package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// TryFile takes an exclusive lock on the file, the one that bbolt takes on its files, and reports whether it got it. It
// covers one byte at the far end, so that the contents stay readable. The system releases it when the handle is closed.
func TryFile(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "LockFileEx", Path: f.Name(), Err: err}
	}
	return true, nil
}

// Unlock releases the lock of TryFile or of bbolt.
func Unlock(f *os.File) error {
	if err := windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte()); err != nil {
		return &os.PathError{Op: "UnlockFileEx", Path: f.Name(), Err: err}
	}
	return nil
}

func lockedByte() *windows.Overlapped {
	const far = 1<<32 - 1
	return &windows.Overlapped{Offset: far, OffsetHigh: far}
}
