package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/internal/filelock"
	"github.com/windowed-order-counter/lab/internal/process"
)

// Evict stops the embedded broker of a workspace and keeps another one from coming up until release is called, for whoever is about to
// remove the workspace. It does not depend on the record, which is missing while a broker starts and may be damaged: who serves, or starts
// one that will, holds a lock. stopped are the processes that it stopped.
func Evict(ctx context.Context, cfg Config) (stopped []process.ID, release func() error, err error) {
	cfg = cfg.withDefaults()
	f, err := filesOf(cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Dir(f.record), 0o755); err != nil {
		return nil, nil, err
	}
	starting, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	up, err := acquire(starting, f.upLock)
	if err != nil {
		return nil, nil, fmt.Errorf("waiting for another command that is starting the broker: %w", err)
	}
	if _, err := readRecord(f.record); errors.Is(err, ErrDamagedRecord) {
		cfg.Progress(fmt.Sprintf("ignored: %v", err))
	}
	serve, stopped, err := stopServing(ctx, cfg, f)
	if err != nil {
		return stopped, nil, errors.Join(err, up.Release())
	}
	return stopped, func() error { return errors.Join(serve.Release(), up.Release()) }, nil
}

// stopServing stops whoever holds the serving lock, and returns with it.
func stopServing(ctx context.Context, cfg Config, f files) (lock *filelock.Lock, stopped []process.ID, err error) {
	waiting, cancel := context.WithTimeout(ctx, cfg.StopTimeout)
	defer cancel()
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	before := 0
	for {
		lock, err := filelock.Try(f.serveLock)
		var held *filelock.HeldError
		if !errors.As(err, &held) {
			for _, id := range stopped { // it gives the lock back a moment before it ends
				err = errors.Join(err, id.Wait(waiting))
			}
			if err != nil && lock != nil {
				return nil, stopped, errors.Join(err, lock.Release())
			}
			return lock, stopped, err
		}
		// A command that only looks at the lock holds it for a moment, and before a new holder has signed, the file names the one before. Who
		// is there twice in a row is neither.
		if held.PID != 0 && held.PID == before {
			if stopped, err = askToStop(cfg, f, held.PID, stopped); err != nil {
				return nil, stopped, err
			}
		}
		before = held.PID
		select {
		case <-waiting.Done():
			return nil, stopped, fmt.Errorf("%w: waiting for the broker to end: %w", ErrTimeout, errors.Join(held, context.Cause(waiting)))
		case <-ticker.C:
		}
	}
}

// askToStop asks a process to end that has not been asked before. It returns all that were.
func askToStop(cfg Config, f files, pid int, asked []process.ID) ([]process.ID, error) {
	id, err := process.Of(pid)
	if errors.Is(err, process.ErrGone) || err == nil && slices.Contains(asked, id) {
		return asked, nil
	}
	if err == nil {
		cfg.Progress(fmt.Sprintf("stopping the broker, pid %d", pid))
		err = requestStop(f, id)
	}
	if err != nil && !errors.Is(err, process.ErrGone) {
		return asked, fmt.Errorf("stopping the broker, pid %d: %w", pid, err)
	}
	return append(asked, id), nil
}
