package broker

import (
	"context"
	"errors"
	"fmt"
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

// awaitTurn takes the lock of who starts a broker. The holder may be fetching jars or an image for as long as that takes.
func (f files) awaitTurn(ctx context.Context, progress func(string)) (*filelock.Lock, error) {
	if pid, held, err := lockHolder(f.upLock); err != nil {
		return nil, err
	} else if held {
		progress(fmt.Sprintf("waiting for another command that is starting the broker, pid %d", pid))
	}
	lock, err := acquire(ctx, f.upLock)
	if err != nil {
		return nil, fmt.Errorf("waiting for another command that is starting the broker: %w", err)
	}
	return lock, nil
}
