package store

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/windowed-order-counter/lab/internal/filelock"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	dirMode  = 0o750 // rwxr-x---, as Kafka Streams 4.3.1 makes its state folders
	fileMode = 0o640
	// lockTimeout bounds the wait for Bolt's own file lock. Bolt tries every 50 ms and would otherwise wait for ever.
	lockTimeout = time.Second
)

// errDamaged marks a file that was opened, or could not be, because of what is in it. Such a file is rebuilt.
var errDamaged = errors.New("state file is damaged")

// boltFile is an open Bolt file with at most one read transaction.
//
// Its methods may be called only inside a guard, see guarded: Bolt panics on a damaged page and faults on a page beyond
// the end of a truncated file.
type boltFile struct {
	path string
	bolt *bolt.DB
	os   *os.File // bolt's descriptor, to release it when bolt cannot
	view *bolt.Tx
	gen  uint64 // of the view, so that cursors of an older one are recognised

	// stuck is set while Bolt begins or ends a transaction. If it is still set afterwards Bolt panicked with its locks
	// held, and bolt.Close would wait for them for ever.
	stuck bool
}

// recovered turns a panic into an error. It must be deferred directly.
func recovered(err *error) {
	if p := recover(); p != nil {
		if cause, ok := p.(error); ok {
			*err = fmt.Errorf("%w: %w", errDamaged, cause)
			return
		}
		*err = fmt.Errorf("%w: %v", errDamaged, p)
	}
}

// guarded runs fn so that a panic or a fault on the memory map comes back as an error. No code of a caller of this
// package may run inside, or its panics would pass for damage.
func guarded(fn func() error) (err error) {
	defer recovered(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return fn()
}

// openBolt opens the file, creating it if asked. An error wraps errDamaged if the contents are to blame, and ErrInUse if
// somebody else has the file open.
func openBolt(path string, opt bolt.Options) (*boltFile, error) {
	f := &boltFile{path: path}
	opt.Timeout = lockTimeout
	opt.FreelistType = bolt.FreelistMapType
	opt.NoStatistics = true
	opt.OpenFile = func(name string, flag int, perm os.FileMode) (*os.File, error) {
		var err error
		f.os, err = os.OpenFile(name, flag, perm)
		return f.os, err
	}
	err := guarded(func() error {
		var err error
		if f.bolt, err = bolt.Open(path, fileMode, &opt); err != nil {
			return classifyOpen(err)
		}
		info, err := f.os.Stat()
		if err != nil {
			return err
		}
		tx, err := f.read()
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("%w: %d bytes, its pages need %d", errDamaged, info.Size(), tx.Size())
		}
		return nil
	})
	if err != nil {
		if closeErr := f.close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
		return nil, err
	}
	return f, nil
}

// classifyOpen tells an error of the system, which says nothing about the contents, from one of the contents. Bolt has
// sentinels for some of the latter only, so what is neither a lock nor a system error counts as damage: at worst a store
// is rebuilt from its changelog.
func classifyOpen(err error) error {
	var (
		pathErr *os.PathError
		errno   syscall.Errno
	)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return ErrInUse
	case errors.As(err, &pathErr), errors.As(err, &errno):
		return err
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

// read returns the read transaction, which sees the last commit.
func (f *boltFile) read() (*bolt.Tx, error) {
	if f.view == nil {
		f.stuck = true
		tx, err := f.bolt.Begin(false)
		f.stuck = false
		if err != nil {
			return nil, err
		}
		f.view = tx
		f.gen++
	}
	return f.view, nil
}

// endRead closes the read transaction. Bolt waits for it when it has to grow the file in a write transaction, and cannot
// reuse the pages that it sees.
func (f *boltFile) endRead() {
	if f.view != nil {
		f.stuck = true
		_ = f.view.Rollback() // the only error is "already closed"
		f.stuck = false
		f.view = nil
	}
}

// update runs fn in a write transaction.
func (f *boltFile) update(fn func(tx *bolt.Tx) error) error {
	f.endRead()
	f.stuck = true
	tx, err := f.bolt.Begin(true)
	if err != nil {
		f.stuck = false
		return err
	}
	defer func() { // after a panic too: an open write transaction would block the closing of the file
		_ = tx.Rollback() // the error after a commit is "already closed"
		f.stuck = false
	}()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// close ends the transactions and releases the file and its lock, whatever state Bolt is in.
func (f *boltFile) close() error {
	closed := false
	err := guarded(func() error {
		f.endRead()
		if f.bolt == nil || f.stuck {
			return nil
		}
		err := f.bolt.Close()
		closed = true
		return err
	})
	if closed || f.os == nil {
		return err
	}
	// Bolt could not open the file, or cannot close it. Its memory map stays until the process ends and keeps the
	// descriptor's lock alive, so that closing the descriptor is not enough.
	if closeErr := errors.Join(filelock.Unlock(f.os), f.os.Close()); closeErr != nil && !errors.Is(closeErr, os.ErrClosed) {
		return errors.Join(err, closeErr)
	}
	return err
}
