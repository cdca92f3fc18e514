package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/windowed-order-counter/lab/internal/atomicfile"
)

// jvmLayout is .lab/broker/jvm.json: what the nodes of a cluster keep from one start to the next. It is written before the first node is
// started, and is there for as long as the data is, so it also says whose data that is.
type jvmLayout struct {
	ClusterID string `json:"cluster_id"`
	// Asked is the client port that was wanted for the first node.
	Asked int       `json:"asked"`
	Nodes []jvmNode `json:"nodes"`
}

// jvmNode is one process, broker and controller in one. Number is its node.id, from 1.
type jvmNode struct {
	Number     int `json:"node"`
	Port       int `json:"port"`
	Controller int `json:"controller_port"`
}

// dockerLayout is .lab/broker/docker.json: the container with the data. It is written before the container is made, and stays until that is
// removed.
type dockerLayout struct {
	Name  string `json:"name"`
	Asked int    `json:"asked"`
	Port  int    `json:"port"`
	// ID is the container's, "" while it is being made.
	ID string `json:"id"`
}

// stored returns the kind of broker whose data the workspace holds, "" if there is none. Data of one kind is of no use to another.
func (f files) stored() (Kind, error) {
	entries, err := os.ReadDir(f.data)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		switch e.Name() {
		case filepath.Base(f.jvm):
			return JVM, nil
		case filepath.Base(f.docker):
			return Docker, nil
		}
	}
	return Embedded, nil
}

// Kept returns the kind, nodes and port with which a new broker of a workspace is like the one that it has, running or not; of an embedded one
// the port is known while it runs. The zero values say that there is none.
func Kept(dir string) (kind Kind, nodes, port int, err error) {
	f, err := filesOf(dir)
	if err != nil {
		return "", 0, 0, err
	}
	if kind, err = f.stored(); err != nil {
		return "", 0, 0, err
	}
	switch kind {
	case JVM:
		l, err := readLayout[jvmLayout](f.jvm)
		return kind, len(l.Nodes), l.Asked, err
	case Docker:
		l, err := readLayout[dockerLayout](f.docker)
		return kind, 0, l.Asked, err
	default:
		r, err := readRecord(f.record)
		if notRunning(err) {
			err = nil
		}
		return kind, 0, r.Asked, err
	}
}

// checkStored refuses to use the data of another kind of broker.
func (f files) checkStored(want Kind) error {
	have, err := f.stored()
	if err != nil || have == "" || have == want {
		return err
	}
	return fmt.Errorf("--broker %s %w the %s broker whose topics this workspace holds: `lab clean` removes them, another --dir has its own",
		want, ErrContradiction, have)
}

// writeLayout stores one of the layouts.
func writeLayout[T jvmLayout | dockerLayout](path string, layout T) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteJSON(path, layout)
}

// readLayout reads what writeLayout stored. The error is fs.ErrNotExist if there is nothing.
func readLayout[T jvmLayout | dockerLayout](path string) (T, error) {
	var layout T
	raw, err := os.ReadFile(path)
	if err != nil {
		return layout, err
	}
	if err := json.Unmarshal(raw, &layout); err != nil {
		return layout, fmt.Errorf("%w %s: %w; %s", ErrDamagedRecord, path, err, cure)
	}
	return layout, nil
}
