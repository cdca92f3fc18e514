package workspace

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/internal/atomicfile"
)

// Progress is what .lab/run.json remembers. The identity says whose topics the phases that passed were judged on: a broker that was wiped,
// or another one, has an orders.placed with another id even where its cluster id is the same.
type Progress struct {
	ClusterID string    `json:"cluster_id"`
	Broker    string    `json:"broker"` // the kind of broker
	Bootstrap string    `json:"bootstrap"`
	OrdersID  string    `json:"orders_placed_id,omitempty"` // "" while the topics are being created
	Started   time.Time `json:"started"`
	Passed    []int     `json:"passed"`
	// Created are the topics that were made from here, with their ids; "" while one is being made.
	Created map[string]string `json:"created,omitempty"`
}

// Has reports whether a phase has passed.
func (p Progress) Has(phase int) bool { return slices.Contains(p.Passed, phase) }

// Pass notes that a phase has passed.
func (p *Progress) Pass(phase int) {
	if !p.Has(phase) {
		p.Passed = append(p.Passed, phase)
		slices.Sort(p.Passed)
	}
}

// Note notes that a topic is made from here.
func (p *Progress) Note(topic, id string) {
	if p.Created == nil {
		p.Created = map[string]string{}
	}
	p.Created[topic] = id
}

func (w *Workspace) progressFile() string { return filepath.Join(w.Lab(), "run.json") }

// Progress reads what earlier commands noted; ok is false if there is nothing yet. The error may be a *DamagedError.
func (w *Workspace) Progress() (p Progress, ok bool, err error) {
	raw, err := os.ReadFile(w.progressFile())
	if errors.Is(err, fs.ErrNotExist) {
		return Progress{}, false, nil
	}
	if err != nil {
		return Progress{}, false, err
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return Progress{}, false, &DamagedError{w.progressFile(), err}
	}
	return p, true, nil
}

// SaveProgress replaces what Progress returns.
func (w *Workspace) SaveProgress(p Progress) error { return writeJSON(w.progressFile(), p) }

func writeJSON(path string, v any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteJSON(path, v)
}
