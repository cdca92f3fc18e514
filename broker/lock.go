package broker

import (
	"context"
	"errors"
	"time"

	"github.com/windowed-order-counter/lab/internal/filelock"
)

// lockRetry is how often acquire looks again: file locks cannot be waited for with a deadline.
const lockRetry = 20 * time.Millisecond

// acquire takes the lock on path, waiting for its holder until ctx ends.
func acquire(ctx context.Context, path string) (*filelock.Lock, error) {
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	for {
		lock, err := filelock.Try(path)
		var held *filelock.HeldError
		if !errors.As(err, &held) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-ticker.C:
		}
	}
}

// lockHolder tells whether a lock is held, and by whom as far as its file says. Looking takes it for a moment.
func lockHolder(path string) (pid int, held bool, err error) {
	lock, err := filelock.Try(path)
	var h *filelock.HeldError
	if errors.As(err, &h) {
		return h.PID, true, nil
	}
	if err != nil {
		return 0, false, err
	}
	return 0, false, lock.Release()
}
