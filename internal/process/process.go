// Package process deals with other processes by pid: whether the one that a record names still runs, how to ask it to stop, and how to
// start one that a terminal's Ctrl-C does not reach.
//
// A pid alone does not name a process: systems use numbers again. So a record holds the pid with a start token, and both must match.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrGone says that the process does not run (any more).
var ErrGone = errors.New("no such process")

// pollEvery is how often Wait looks: a process that is not a child can only be polled for.
const pollEvery = 20 * time.Millisecond

// ID names one process for as long as the machine is up.
type ID struct {
	PID int `json:"pid"`
	// Start tells processes with the same pid apart. It is the system's own start time, in the system's own unit.
	Start string `json:"process_start"`
}

// Of returns the identity of the process that has the pid now. It is ErrGone if there is none; a zombie is none.
func Of(pid int) (ID, error) {
	start, err := startToken(pid)
	if err != nil {
		return ID{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return ID{PID: pid, Start: start}, nil
}

// Self returns the identity of this process.
func Self() (ID, error) { return Of(os.Getpid()) }

// Running reports whether that very process still runs. The error says that the system would not tell.
func (id ID) Running() (bool, error) {
	now, err := Of(id.PID)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	return now == id, err
}

// Wait waits until the process is gone or ctx ends.
func (id ID) Wait(ctx context.Context) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		running, err := id.Running()
		if err != nil || !running {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("process %d still runs: %w", id.PID, context.Cause(ctx))
		}
	}
}

// Terminate asks the process to stop: SIGTERM, or Ctrl-Break on Windows. It is ErrGone if the process is gone.
func (id ID) Terminate() error { return id.act(terminate) }

// Kill ends the process without asking. It is ErrGone if the process is gone.
func (id ID) Kill() error { return id.act((*os.Process).Kill) }

// Halt ends this process as hard as another one's Kill would: nothing is flushed, closed or told to anybody. It does not return, unless with
// an error.
func Halt() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := self.Kill(); err != nil {
		return err
	}
	select {} // the signal may reach another thread first
}

func (id ID) act(do func(*os.Process) error) error {
	running, err := id.Running()
	if err != nil {
		return err
	}
	if !running {
		return fmt.Errorf("process %d: %w", id.PID, ErrGone)
	}
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return err
	}
	err = errors.Join(do(p), p.Release())
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("process %d: %w", id.PID, ErrGone)
	}
	return err
}
