package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	// Port is where a broker that the lab started listens, the first node of several; Asked is the port that was wanted. They differ if that
	// one was taken.
	Port  int `json:"port,omitempty"`
	Asked int `json:"asked,omitempty"`
	// ID is the process, or that of a single node; zero for several nodes, a container and an existing cluster.
	process.ID
	// Nodes are those of a JVM cluster, also the ones that do not run.
	Nodes []Node `json:"nodes,omitempty"`
	// Container is that of a docker broker.
	Container *Container `json:"container,omitempty"`
	Started   time.Time  `json:"started,omitzero"`
}

// Node is one process of a JVM cluster.
type Node struct {
	Number  int    `json:"node"` // its node.id
	Address string `json:"address"`
	// ID is zero while the node does not run.
	process.ID
}

// Container is a broker in Docker.
type Container struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Image string `json:"image"`
}

// String says what runs and where, on one line.
func (r Record) String() string {
	line := fmt.Sprintf("%s on %s", r.Kind, r.Bootstrap)
	switch {
	case r.Container != nil:
		line += fmt.Sprintf(", container %s (%s)", r.Container.Name, shortID(r.Container.ID))
	case r.PID != 0:
		line += fmt.Sprintf(", pid %d", r.PID)
	case len(r.Nodes) > 0:
		pids := make([]string, len(r.Nodes))
		for i, n := range r.Nodes {
			if pids[i] = strconv.Itoa(n.PID); n.PID == 0 {
				pids[i] = "none"
			}
		}
		line += ", pids " + strings.Join(pids, ", ")
	}
	return line
}

// String says where the node is, and what to do if it is not.
func (n Node) String() string {
	if n.PID == 0 {
		return fmt.Sprintf("node %d on %s does not run; `lab broker up` starts it with its data", n.Number, n.Address)
	}
	return fmt.Sprintf("node %d on %s, pid %d", n.Number, n.Address, n.PID)
}

// files names what the broker keeps in a workspace.
type files struct{ record, log, data, serveLock, upLock, stop, jvm, docker string }

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
		jvm:       filepath.Join(lab, "broker", "jvm.json"),
		docker:    filepath.Join(lab, "broker", "docker.json"),
	}, nil
}

// nodeLock and nodeLog are a node's lock and log. Those of the first one are the embedded broker's, so that only one of the two can serve.
func (f files) nodeLock(number int) string { return numbered(f.serveLock, number) }
func (f files) nodeLog(number int) string  { return numbered(f.log, number) }

// nodeFolder holds a node's settings and data.
func (f files) nodeFolder(number int) string {
	return filepath.Join(f.data, fmt.Sprintf("node-%d", number))
}

func numbered(path string, number int) string {
	if number == 1 {
		return path
	}
	ext := filepath.Ext(path)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ext), number, ext)
}

// workspace returns the folder that all of it is in.
func (f files) workspace() string { return filepath.Dir(filepath.Dir(f.record)) }

// write stores the record, replacing the old one as a whole.
func (r Record) write(path string) error { return atomicfile.WriteJSON(path, r) }

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
	if !r.complete() {
		return Record{}, fmt.Errorf("%w %s: kind %q, bootstrap %q, pid %d; %s",
			ErrDamagedRecord, path, r.Kind, r.Bootstrap, r.PID, cure)
	}
	return r, nil
}

// complete tells whether a record says all that one of its kind has to.
func (r Record) complete() bool {
	switch r.Kind {
	case Embedded:
		return r.Bootstrap != "" && r.PID > 0 && r.Start != ""
	case JVM:
		return r.Bootstrap != "" && len(r.Nodes) > 0
	case Docker:
		return r.Bootstrap != "" && r.Container != nil
	default:
		return false
	}
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
