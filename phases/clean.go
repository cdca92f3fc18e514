package phases

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/provision"
)

// cleanTimeout is how long an instance may take to stop before it is killed, which loses nothing but its local state, and that goes anyway.
const cleanTimeout = 20 * time.Second

// ErrLeftOver says that something of the workspace is still there after it was cleaned.
var ErrLeftOver = errors.New("something is left")

// Clean stops everything of the workspace, removes all but the evidence, and then looks whether anything is left. On a broker that the lab
// did not start it deletes the topics and groups that the workspace's record knows as its own.
func Clean(ctx context.Context, cfg Config) (err error) {
	lock, err := cfg.Workspace.LockPhase()
	if err != nil {
		return err
	}
	// The lock's file goes with the rest. Who opened it before that finds out that it is gone, see filelock.
	defer func() { err = errors.Join(err, lock.Release()) }()
	processes, err := stopInstances(ctx, cfg)
	if err != nil {
		return err
	}
	if err := deleteElsewhere(ctx, cfg); err != nil {
		return err
	}
	own, err := broker.New(broker.Config{Dir: cfg.Workspace.Dir()})
	if err != nil {
		return err
	}
	record, err := own.Status(ctx)
	if err == nil {
		processes = append(processes, record.ID)
		cfg.Console.Printf("stopping the broker, pid %d", record.PID)
		err = own.Down(ctx, false)
	}
	if err != nil && !errors.Is(err, broker.ErrNotRunning) {
		return err
	}
	if err := cfg.Workspace.Remove(); err != nil {
		return err
	}
	return proveClean(cfg, processes)
}

// stopInstances stops all instances of the workspace, also those that a user started, and returns who they were.
func stopInstances(ctx context.Context, cfg Config) ([]process.ID, error) {
	instances, err := cfg.Workspace.Instances()
	if err != nil {
		return nil, err
	}
	var processes []process.ID
	for _, in := range instances {
		processes = append(processes, in.ID)
		cfg.Console.Printf("stopping instance %s of %s, pid %d", in.Name, in.Application, in.PID)
		if err := in.Terminate(); err != nil && !errors.Is(err, process.ErrGone) {
			return nil, fmt.Errorf("stop instance %s: %w", in.Name, err)
		}
	}
	for _, in := range instances {
		waiting, cancel := context.WithTimeout(ctx, cleanTimeout)
		err := in.Wait(waiting)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			cfg.Console.Warnf("instance %s did not stop within %s and is killed", in.Name, cleanTimeout)
			if err = in.Kill(); errors.Is(err, process.ErrGone) {
				err = nil
			}
			err = errors.Join(err, in.Wait(ctx))
		}
		if err != nil {
			return nil, err
		}
	}
	return processes, nil
}

// deleteElsewhere deletes the lab's topics and groups from a cluster that the lab did not start.
func deleteElsewhere(ctx context.Context, cfg Config) error {
	at := cfg.Connect
	if at.Bootstrap == "" {
		progress, ok, err := cfg.Workspace.Progress()
		if err != nil {
			return err
		}
		if !ok || progress.Broker != string(broker.Existing) {
			return nil
		}
		at.Bootstrap = progress.Bootstrap
	}
	at.Kind, at.Port = string(broker.Existing), 0
	conn, err := connect.Find(ctx, at)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		cfg.Console.Warnf("the lab's topics on %s stay, as it does not answer: %v", at.Bootstrap, err)
		return nil
	}
	defer conn.Close()
	deleted, err := provision.Delete(ctx, conn, cfg.Workspace)
	if err != nil {
		return err
	}
	if len(deleted) > 0 {
		cfg.Console.Printf("deleted on %s: %s", at.Bootstrap, strings.Join(deleted, ", "))
	} else {
		cfg.Console.Printf("nothing on %s is known to be this workspace's: left alone", at.Bootstrap)
	}
	return nil
}

// proveClean looks instead of assuming: at the processes that were there, and at the folders.
func proveClean(cfg Config, processes []process.ID) error {
	var errs []error
	left := 0
	for _, id := range processes {
		running, err := id.Running()
		if err != nil {
			return err
		}
		if running {
			left++
			errs = append(errs, fmt.Errorf("%w: process %d", ErrLeftOver, id.PID))
		}
	}
	cfg.Console.Printf("processes %d", left)
	cfg.Console.Printf("containers 0") // this version starts none
	for _, folder := range []struct{ name, path string }{{".lab", cfg.Workspace.Lab()}, {"state", cfg.Workspace.State()}} {
		switch _, err := os.Lstat(folder.path); {
		case errors.Is(err, fs.ErrNotExist):
			cfg.Console.Printf("%s: no such directory", folder.name)
		case err == nil:
			cfg.Console.Printf("%s: still there", folder.name)
			errs = append(errs, fmt.Errorf("%w: %s", ErrLeftOver, folder.path))
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
