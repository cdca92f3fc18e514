package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/windowed-order-counter/lab/internal/atomicfile"
	"github.com/windowed-order-counter/lab/internal/filelock"
	"github.com/windowed-order-counter/lab/internal/process"
)

// cure is what helps against a damaged record.
const cure = "`lab clean` needs no record to stop the broker, and removes it"

// exitGrace is how long an ended process may still hold its files.
const exitGrace = time.Second

// Record is where a broker answers, and for one that the lab started which process it is.
type Record struct {
	Kind      Kind   `json:"kind"`
	Bootstrap string `json:"bootstrap"`
	// Port is where an embedded broker listens; Asked is the port that was wanted. They differ if that one was taken.
	Port  int `json:"port,omitempty"`
	Asked int `json:"asked,omitempty"`
	process.ID
	Started time.Time `json:"started,omitzero"`
}

// files names what the broker keeps in a workspace.
type files struct{ record, log, data, serveLock, upLock, stop string }

// filesOf returns the paths, absolute, since the process that serves has its own working directory.
func filesOf(dir string) (files, error) {
	lab, err := filepath.Abs(filepath.Join(dir, ".lab"))
	if err != nil {
		return files{}, err
	}
	return files{
		record:    filepath.Join(lab, "broker.json"),
		log:       filepath.Join(lab, "broker.log"),
		data:      filepath.Join(lab, "broker"),
		serveLock: filepath.Join(lab, "broker.lock"),
		upLock:    filepath.Join(lab, "broker.up.lock"),
		stop:      filepath.Join(lab, "broker.stop"),
	}, nil
}

// write stores the record, replacing the old one as a whole.
func (r Record) write(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(raw, '\n'), 0o644)
}

// readRecord reads what write stored, or returns ErrNotRunning if there is nothing.
func readRecord(path string) (Record, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, ErrNotRunning
	}
	if err != nil {
		return Record{}, fmt.Errorf("reading the broker record: %w", err)
	}
	var r Record
	if err := json.Unmarshal(raw, &r); err != nil {
		return Record{}, fmt.Errorf("%w %s: %w; %s", ErrDamagedRecord, path, err, cure)
	}
	if r.Kind != Embedded || r.Bootstrap == "" || r.PID <= 0 || r.Start == "" {
		return Record{}, fmt.Errorf("%w %s: kind %q, bootstrap %q, pid %d; %s",
			ErrDamagedRecord, path, r.Kind, r.Bootstrap, r.PID, cure)
	}
	return r, nil
}

// liveRecord returns the record of a broker whose process runs. The record of one that was killed is removed.
func liveRecord(ctx context.Context, f files) (Record, error) {
	r, err := readRecord(f.record)
	if err != nil {
		return Record{}, err
	}
	running, err := r.Running()
	if err != nil {
		return Record{}, fmt.Errorf("looking for the broker process: %w", err)
	}
	if running {
		return r, nil
	}
	return Record{}, errors.Join(ErrNotRunning, removeStale(ctx, f, r.ID))
}

// removeStale removes the record of a dead process, unless a new broker has written its own meanwhile. Only the holder of the serving
// lock writes records, so holding it keeps the file still. A process can be seen as ended a moment before the kernel has closed its
// files, hence the wait; a lock still held after it belongs to a new broker, which replaces the record by itself.
func removeStale(ctx context.Context, f files, dead process.ID) error {
	waiting, cancel := context.WithTimeout(ctx, exitGrace)
	defer cancel()
	lock, err := acquire(waiting, f.serveLock)
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	now, err := readRecord(f.record)
	if err == nil && now.ID == dead {
		err = os.Remove(f.record)
	}
	if notRunning(err) {
		err = nil
	}
	return errors.Join(err, lock.Release())
}
