package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/internal/filelock"
	"github.com/windowed-order-counter/lab/internal/process"
)

// nodeGrace is how long a node of Kafka may take to stop before it is killed. One of three waits for a quorum that may be gone already, for five
// minutes; a kill loses nothing but data that is about to be removed.
const nodeGrace = 5 * time.Second

// Evict stops the processes that are the broker of a workspace, and keeps another one from coming up until release is called, for whoever is
// about to remove the workspace. It does not depend on the record, which is missing while a broker starts and may be damaged: who serves, or
// starts one that will, holds a lock. stopped are the processes that it stopped. A container is for RemoveContainers, after that.
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
	if cfg.Kind, err = f.stored(); err != nil {
		return nil, nil, errors.Join(err, up.Release())
	}
	// All nodes are asked at once: each of three waits for the others.
	var telling sync.Mutex
	tell := cfg.Progress
	cfg.Progress = func(line string) {
		telling.Lock()
		defer telling.Unlock()
		tell(line)
	}
	servers := make([]eviction, maxNodes)
	var stopping sync.WaitGroup
	for i := range servers {
		stopping.Go(func() { servers[i].err = servers[i].stop(ctx, cfg, f, f.nodeLock(i+1)) })
	}
	stopping.Wait()
	release = func() error {
		var errs []error
		for _, s := range servers {
			if s.lock != nil {
				errs = append(errs, s.lock.Release())
			}
		}
		return errors.Join(append(errs, up.Release())...)
	}
	for _, s := range servers {
		stopped = append(stopped, s.stopped...)
		err = errors.Join(err, s.err)
	}
	if err != nil {
		return stopped, nil, errors.Join(err, release())
	}
	return stopped, release, nil
}

// eviction is the end of whoever holds one serving lock.
type eviction struct {
	lock    *filelock.Lock
	stopped []process.ID
	err     error
}

// stop stops whoever holds the lock, and takes it.
func (e *eviction) stop(ctx context.Context, cfg Config, f files, path string) error {
	waiting, cancel := context.WithTimeout(ctx, cfg.StopTimeout)
	defer cancel()
	grace, cancelGrace := context.WithTimeout(waiting, nodeGrace)
	defer cancelGrace()
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	before := 0
	for {
		lock, err := filelock.Try(path)
		var held *filelock.HeldError
		if !errors.As(err, &held) {
			for _, id := range e.stopped { // it gives the lock back a moment before it ends
				err = errors.Join(err, id.Wait(waiting))
			}
			if err != nil && lock != nil {
				return errors.Join(err, lock.Release())
			}
			e.lock = lock
			return err
		}
		// A command that only looks at the lock holds it for a moment, and before a new holder has signed, the file names the one before. Who
		// is there twice in a row is neither.
		if held.PID != 0 && held.PID == before {
			if e.stopped, err = askToStop(cfg, f, held.PID, e.stopped); err != nil {
				return err
			}
		}
		if cfg.Kind == JVM && grace.Err() != nil {
			for _, id := range e.stopped {
				if err := id.Kill(); err != nil && !errors.Is(err, process.ErrGone) {
					return fmt.Errorf("killing the broker, pid %d: %w", id.PID, err)
				}
			}
		}
		before = held.PID
		select {
		case <-waiting.Done():
			return fmt.Errorf("%w: waiting for the broker to end: %w", ErrTimeout, errors.Join(held, context.Cause(waiting)))
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
