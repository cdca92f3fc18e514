package phases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/internal/workspace"
)

// cleanTimeout is how long an instance may take to stop before it is killed, which loses nothing but its local state, and that goes anyway.
const cleanTimeout = 20 * time.Second

// membersTimeout is how long a group may take to lose members that nobody can take out: Kafka's own session timeout is 45 s.
const membersTimeout = 60 * time.Second

// ErrLeftOver says that something of the workspace is still there after it was cleaned.
var ErrLeftOver = errors.New("something is left")

// Clean stops everything of the workspace, removes all but the evidence, and then looks whether anything is left. On a broker that the lab
// did not start it deletes the topics and groups that the workspace's record knows as its own; while some of those are left, the record stays
// too.
//
// It goes by the locks that processes hold. Their records may be missing, for a broker that is coming up, or damaged.
func Clean(ctx context.Context, cfg Config) error {
	if _, err := os.Stat(cfg.Workspace.Dir()); errors.Is(err, fs.ErrNotExist) {
		return proveClean(ctx, cfg, nil) // a folder that is not there need not be made for that
	}
	processes, err := clean(ctx, cfg)
	if err != nil {
		return err
	}
	return proveClean(ctx, cfg, processes)
}

// clean returns the processes that it stopped.
func clean(ctx context.Context, cfg Config) (processes []process.ID, err error) {
	lock, err := cfg.Workspace.LockPhase()
	if err != nil {
		return nil, err
	}
	// The locks' files go with the rest. Who opened one before that finds out that it is gone, see filelock.
	defer func() { err = errors.Join(err, lock.Release()) }()
	bench, err := benchWorkspace(cfg)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(bench.Workspace.Dir()); err == nil { // a benchmark was killed, or is at work, or its broker was kept
		if processes, err = clean(ctx, quiet(bench)); err != nil {
			return nil, err
		}
	}
	instances, err := stopInstances(ctx, cfg)
	if err != nil {
		return nil, err
	}
	processes = append(processes, instances...)
	cfg.recordLast(ctx)
	if err := deleteElsewhere(ctx, cfg); err != nil {
		return nil, err
	}
	if err := deleteChaosElsewhere(ctx, cfg); err != nil {
		return nil, err
	}
	at := broker.Config{Dir: cfg.Workspace.Dir(), Progress: func(line string) { cfg.Console.Printf("%s", line) }}
	served, release, err := broker.Evict(ctx, at)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := broker.RemoveContainers(ctx, at); err != nil {
		return nil, err
	}
	return append(processes, served...), cfg.Workspace.Remove()
}

// stopInstances stops all instances of the workspace, also those that a user started, and returns who they were.
func stopInstances(ctx context.Context, cfg Config) ([]process.ID, error) {
	instances, err := cfg.Workspace.Instances()
	if !ignoreDamaged(cfg, err) {
		return nil, err
	}
	names := map[process.ID]string{}
	for _, in := range instances {
		names[in.ID] = fmt.Sprintf("instance %s of %s", in.Name, in.Application)
	}
	atWork, err := cfg.Workspace.AtWork()
	if err != nil {
		return nil, err
	}
	for _, id := range atWork {
		if names[id] == "" {
			names[id] = "an instance without a record"
		}
	}
	processes := slices.SortedFunc(maps.Keys(names), func(a, b process.ID) int { return cmp.Compare(names[a], names[b]) })
	for _, id := range processes {
		cfg.Console.Printf("stopping %s, pid %d", names[id], id.PID)
		if err := id.Terminate(); err != nil && !errors.Is(err, process.ErrGone) {
			return nil, fmt.Errorf("stop %s: %w", names[id], err)
		}
	}
	for _, id := range processes {
		waiting, cancel := context.WithTimeout(ctx, cleanTimeout)
		err := id.Wait(waiting)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			cfg.Console.Warnf("%s did not stop within %s and is killed", names[id], cleanTimeout)
			if err = id.Kill(); errors.Is(err, process.ErrGone) {
				err = nil
			}
			err = errors.Join(err, id.Wait(ctx))
		}
		if err != nil {
			return nil, err
		}
	}
	return processes, nil
}

// ignoreDamaged says which records cannot be read, and reports whether that is all that is wrong.
func ignoreDamaged(cfg Config, err error) bool {
	if err == nil {
		return true
	}
	var damaged *workspace.DamagedError
	if !errors.As(err, &damaged) {
		return false
	}
	cfg.Console.Warnf("ignored: %v", err)
	return true
}

// deleteElsewhere deletes the lab's topics and groups from a cluster that the lab did not start.
func deleteElsewhere(ctx context.Context, cfg Config) error {
	progress, ok, err := cfg.Workspace.Progress()
	if !ignoreDamaged(cfg, err) {
		return err
	}
	var clusters []string // that of the command line, and the one that the record names
	if cfg.Connect.Bootstrap != "" {
		clusters = append(clusters, cfg.Connect.Bootstrap)
	}
	if ok && progress.Broker == string(broker.Existing) && !slices.Contains(clusters, progress.Bootstrap) {
		clusters = append(clusters, progress.Bootstrap)
	}
	for _, bootstrap := range clusters {
		if err != nil {
			cfg.Console.Warnf("which topics and groups on %s are this workspace's is not known any more: left alone", bootstrap)
			continue
		}
		found, err := deleteOn(ctx, cfg, bootstrap, progress.Broker == string(broker.Existing))
		if err != nil {
			return err
		}
		if found { // the record is of one cluster, however it is reached
			return nil
		}
		cfg.Console.Printf("nothing on %s is known to be this workspace's: left alone", bootstrap)
	}
	return nil
}

// deleteChaosElsewhere deletes what kept runs of chaos have left on clusters that the lab did not start.
func deleteChaosElsewhere(ctx context.Context, cfg Config) error {
	folders, err := filepath.Glob(filepath.Join(chaosFolder(cfg.Workspace), "*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		w, err := workspace.Open(folder)
		if err != nil {
			return err
		}
		p, ok, err := w.Progress()
		if !ignoreDamaged(cfg, err) {
			return err
		}
		if !ok || p.Broker != string(broker.Existing) {
			continue
		}
		if err := deleteChaosOn(ctx, cfg, w, p); err != nil {
			return fmt.Errorf("%w: topics and group of %s on %s: %w; clean again, or delete %s to forget them",
				ErrLeftOver, filepath.Base(folder), p.Bootstrap, err, folder)
		}
	}
	return nil
}

func deleteChaosOn(ctx context.Context, cfg Config, run *workspace.Workspace, p workspace.Progress) error {
	at := cfg.Connect
	at.Kind, at.Bootstrap, at.Port = string(broker.Existing), p.Bootstrap, 0
	conn, err := connect.Find(ctx, at)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch _, _, cluster, err := conn.Brokers(ctx); {
	case err != nil:
		return err
	case cluster != p.ClusterID:
		cfg.Console.Warnf("%s is another cluster than that of %s: left alone", p.Bootstrap, filepath.Base(run.Dir()))
		return nil
	}
	switch yes, err := cfg.Console.Confirm(ctx, fmt.Sprintf("delete %s, which chaos has kept on %s?", filepath.Base(run.Dir()), p.Bootstrap)); {
	case err != nil:
		return err
	case !yes:
		return errKept
	}
	waiting, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	deleted, err := deleteChaosRun(waiting, conn, run)
	if len(deleted) > 0 {
		cfg.Console.Printf("deleted on %s: %s", p.Bootstrap, strings.Join(deleted, ", "))
	}
	return err
}

// errKept is why something is left that its owner wants to keep.
var errKept = errors.New("kept, as you say")

// deleteOn does that on one cluster, and reports whether there was something. recorded says that there may be.
func deleteOn(ctx context.Context, cfg Config, bootstrap string, recorded bool) (found bool, err error) {
	at := cfg.Connect
	at.Kind, at.Bootstrap, at.Port = string(broker.Existing), bootstrap, 0
	conn, err := connect.Find(ctx, at)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return false, err
	case !recorded:
		cfg.Console.Warnf("%s does not answer: %v", bootstrap, err)
		return false, nil
	default:
		return false, fmt.Errorf("%w: the topics and groups on %s, which does not answer: %w; clean again when it does, or delete %s to forget them",
			ErrLeftOver, bootstrap, err, cfg.Workspace.Lab())
	}
	defer conn.Close()
	traces, err := provision.Find(ctx, conn, cfg.Workspace)
	if err != nil {
		return true, fmt.Errorf("%w on %s: %w", ErrLeftOver, bootstrap, err)
	}
	names := strings.Join(traces.Names(), ", ")
	if names == "" {
		return false, nil
	}
	cfg.Console.Printf("this workspace made on %s: %s", bootstrap, names)
	switch yes, err := cfg.Console.Confirm(ctx, "delete them there?"); {
	case err != nil:
		return true, err
	case !yes:
		return true, fmt.Errorf("%w on %s, as you say: %s", ErrLeftOver, bootstrap, names)
	}
	waiting, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	deleted, err := provision.Delete(waiting, conn, cfg.Workspace, traces, func(e *provision.MemberError) {
		cfg.Console.Printf("waiting up to %s for the end of %d members of group %s", membersTimeout, len(e.Members), e.Group)
	})
	if len(deleted) > 0 {
		cfg.Console.Printf("deleted on %s: %s", bootstrap, strings.Join(deleted, ", "))
	}
	if err != nil {
		return true, fmt.Errorf("%w on %s: %w", ErrLeftOver, bootstrap, err)
	}
	return true, nil
}

// proveClean looks instead of assuming: at the processes that were there, at Docker's containers, and at the folders.
func proveClean(ctx context.Context, cfg Config, processes []process.ID) error {
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
	containers, asked, err := broker.Containers(ctx, broker.Config{Dir: cfg.Workspace.Dir()})
	if err != nil {
		return err
	}
	for _, c := range containers {
		errs = append(errs, fmt.Errorf("%w: container %s (%s)", ErrLeftOver, c.Name, c.ID))
	}
	if !asked {
		cfg.Console.Printf("no Docker answers here, and no container was made with one")
	}
	cfg.Console.Printf("processes %d", left)
	cfg.Console.Printf("containers %d", len(containers))
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
