package broker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/windowed-order-counter/lab/internal/process"
)

const (
	// pollEvery is how often a starting broker is looked at.
	pollEvery = 20 * time.Millisecond
	// logTail is how much of the log an error shows.
	logTail = 2048
)

// embedded is the broker that Serve runs in a process of its own, see there. It outlives the command that started it.
type embedded struct {
	cfg   Config
	files files
}

func (e embedded) Status(ctx context.Context) (Record, error) {
	if err := e.files.checkStored(Embedded); err != nil {
		return Record{}, err
	}
	r, err := liveRecord(ctx, e.files)
	if err != nil {
		return Record{}, err
	}
	return r, r.agrees(e.cfg)
}

// Up starts the process unless one runs. A broker that is on its way out is waited for.
func (e embedded) Up(ctx context.Context) (_ Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.StartTimeout)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(e.files.record), 0o755); err != nil {
		return Record{}, err
	}
	lock, err := acquire(ctx, e.files.upLock)
	if err != nil {
		return Record{}, fmt.Errorf("waiting for another command that is starting the broker: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()

	if err := e.files.checkStored(Embedded); err != nil {
		return Record{}, err
	}
	// The command that started a broker may have been killed before that had written its record.
	r, err := e.await(ctx, process.ID{})
	if !notRunning(err) {
		return r, err
	}
	return e.start(ctx)
}

// start runs the serving process and waits until it answers.
func (e embedded) start(ctx context.Context) (Record, error) {
	child, err := e.cfg.spawn(e.files, e.files.log, "--port", strconv.Itoa(cmp.Or(e.cfg.Port, DefaultPort)))
	if err != nil {
		return Record{}, err
	}
	id, err := process.Of(child.Process.Pid)
	var r Record
	if err == nil {
		r, err = e.await(ctx, id)
	}
	switch {
	case notRunning(err), errors.Is(err, process.ErrGone):
		return Record{}, child.exited()
	case err != nil:
		// Half a broker must not stay behind: it has written nothing yet that a kill could tear.
		return Record{}, errors.Join(err, child.kill())
	case r.ID != id:
		// Another one was on its way. The one started here waits for its lock, or has given up.
		return r, child.kill()
	}
	e.cfg.Progress(r.announce())
	return r, child.Process.Release()
}

// await returns the record of the process that serves the workspace once it answers. That need not be the child, the one that was started
// here (the zero ID: none was): a broker whose starter was killed goes on by itself. It is ErrNotRunning once there is none that could still
// answer: the child is gone and nobody holds the serving lock.
func (e embedded) await(ctx context.Context, child process.ID) (Record, error) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	last := errors.New("it has not written its record")
	for {
		// The child first: it may take the lock, write its record and end between two of these looks.
		starting, err := runs(child)
		if err != nil {
			return Record{}, err
		}
		r, err := readRecord(e.files.record)
		if err != nil && !notRunning(err) {
			return Record{}, err
		}
		serving, err := runs(r.ID)
		if err != nil {
			return Record{}, err
		}
		if serving {
			if last = e.cfg.Probe(ctx, r.Bootstrap); last == nil {
				return r, r.agrees(e.cfg)
			}
		}
		holder := cmp.Or(r.PID, child.PID)
		if !starting && !serving {
			var held bool
			if holder, held, err = lockHolder(e.files.serveLock); err != nil {
				return Record{}, err
			}
			if !held {
				return Record{}, errors.Join(ErrNotRunning, removeStale(ctx, e.files, r.ID))
			}
		}
		select {
		case <-ctx.Done():
			return Record{}, timedOut(ctx, fmt.Errorf("pid %d does not answer: %w (%w)", holder, last, ctx.Err()))
		case <-ticker.C:
		}
	}
}

// runs is false for the zero ID too.
func runs(id process.ID) (bool, error) {
	if id == (process.ID{}) {
		return false, nil
	}
	return id.Running()
}

// Down asks the process to end and waits for it. kfake writes its indexes and producer states on the way out, so a kill, which can
// leave a transaction half written, only comes when forced and only after asking.
func (e embedded) Down(ctx context.Context, force bool) error {
	r, err := e.Status(ctx)
	if err != nil {
		return err
	}
	if err := requestStop(e.files, r.ID); err != nil && !errors.Is(err, process.ErrGone) {
		return fmt.Errorf("stopping the broker, pid %d: %w", r.PID, err)
	}
	waiting, cancel := context.WithTimeout(ctx, e.cfg.StopTimeout)
	defer cancel()
	err = r.Wait(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		if !force {
			return fmt.Errorf("%w: pid %d still runs %s after it was asked to end", ErrTimeout, r.PID, e.cfg.StopTimeout)
		}
		if err := r.Kill(); err != nil && !errors.Is(err, process.ErrGone) {
			return fmt.Errorf("killing the broker, pid %d: %w", r.PID, err)
		}
		err = r.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("waiting for the broker, pid %d, to end: %w", r.PID, err)
	}
	return removeStale(ctx, e.files, r.ID)
}

// announce says where the broker is, and why not where it was wanted.
func (r Record) announce() string {
	line := "broker " + r.String()
	if r.Port != r.Asked {
		line += fmt.Sprintf(" (port %d is taken)", r.Asked)
	}
	return line
}

// ignoreExit drops the error that only says that a process ended badly, or before it was killed.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// tail returns the end of what was written to a file from an offset on.
func tail(path string, from int64) []byte {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Append(nil, err)
	}
	raw = raw[min(from, int64(len(raw))):]
	if len(raw) > logTail {
		raw = raw[len(raw)-logTail:]
	}
	return bytes.TrimSpace(raw)
}

// remove removes a file that may not be there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
