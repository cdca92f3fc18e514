//go:build unix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// TryFile takes an exclusive lock on the file, the one that bbolt takes on its files, and reports whether it got it. The
// system releases it when the descriptor is closed, so kill -9 leaves no lock behind.
func TryFile(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return true, nil
}

// Unlock releases the lock of TryFile or of bbolt. Closing the descriptor does too, unless a memory map keeps the file open.
func Unlock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return nil
}

// KeepAcrossExec passes the lock on to the program that this process is about to become by exec. It then ends with that.
func (l *Lock) KeepAcrossExec() error {
	if _, err := unix.FcntlInt(l.file.Fd(), unix.F_SETFD, 0); err != nil {
		return &os.PathError{Op: "fcntl", Path: l.file.Name(), Err: err}
	}
	return nil
}
