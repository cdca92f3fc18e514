// Package filelock is an exclusive lock on a file that the system gives back when its holder ends, however it ends.
package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// HeldError says that another process has the lock.
type HeldError struct {
	Path string
	PID  int // 0 if the holder has not written it yet
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is locked by another process", e.Path)
	}
	return fmt.Sprintf("%s is locked by process %d", e.Path, e.PID)
}

// Lock is a lock that this process has.
type Lock struct{ file *os.File }

// Try takes the lock at path, creating file and folder as needed, or returns a *HeldError at once. The file names the holder's pid and
// stays behind when the lock is given back.
func Try(path string) (*Lock, error) {
	for {
		l, err := try(path)
		if err != nil {
			return nil, err
		}
		// The holder before may have removed the file after it was opened here: then this is the lock of a file that nobody else sees.
		current, err := l.current(path)
		if err == nil && current {
			if err := l.sign(); err != nil {
				return nil, errors.Join(err, l.Release())
			}
			return l, nil
		}
		if err := errors.Join(err, l.Release()); err != nil {
			return nil, err
		}
	}
}

func try(path string) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	free, err := TryFile(f)
	if err == nil && !free {
		err = &HeldError{Path: path, PID: readPID(f)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{file: f}, nil
}

// readPID returns the holder's pid, 0 if the file does not tell: the holder may be between taking the lock and writing.
func readPID(f *os.File) int {
	var buf [32]byte
	n, _ := f.ReadAt(buf[:], 0) // a short file is the normal case; an unreadable one names nobody
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// current reports whether path still names the locked file.
func (l *Lock) current(path string) (bool, error) {
	mine, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

func (l *Lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// Release gives the lock back. The file names nobody then.
func (l *Lock) Release() error { return errors.Join(l.file.Truncate(0), l.file.Close()) }
