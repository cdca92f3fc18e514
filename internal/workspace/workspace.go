// Package workspace is the folder that `--dir` names: its paths, what the lab remembers in it between commands, and who is at work there.
//
//	observations/                     the evidence that the phases write
//	state/<instance>/                 the local stores of an instance
//	.lab/run.json                     how far the phases have come, and on which cluster
//	.lab/phase-5.json                 what phase 5 has seen of a takeover
//	.lab/run/<application>.<name>.json  a running instance
//	.lab/phase.lock                   held by the phase at work
//	.lab/journal/, .lab/log/          what the instances report: for programs, and for people
//	.lab/broker…                      the background broker's own, see package broker
package workspace

import (
	"fmt"
	"os"
	"path/filepath"
)

// Workspace gives the paths of one workspace. Nothing is created before it is needed.
type Workspace struct{ dir string }

// Open returns the workspace of a folder that need not exist yet.
func Open(dir string) (*Workspace, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", dir, err)
	}
	return &Workspace{dir: abs}, nil
}

// Dir is the absolute path of the workspace.
func (w *Workspace) Dir() string { return w.dir }

// Lab is the folder that the lab keeps for itself.
func (w *Workspace) Lab() string { return filepath.Join(w.dir, ".lab") }

// Journals is the folder of the instances' journals.
func (w *Workspace) Journals() string { return filepath.Join(w.Lab(), "journal") }

// State is the folder of all local state.
func (w *Workspace) State() string { return filepath.Join(w.dir, "state") }

// InstanceState is the folder of an instance's local state.
func (w *Workspace) InstanceState(name string) string { return filepath.Join(w.State(), name) }

// Log is the file that holds what a child instance prints.
func (w *Workspace) Log(name string) string { return filepath.Join(w.Lab(), "log", name+".log") }

// Observation is the path of an evidence file.
func (w *Workspace) Observation(name string) string {
	return filepath.Join(w.dir, "observations", name)
}

// DamagedError is a file of the workspace's own notes that cannot be read.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("damaged record %s: %v; `lab clean` does without it, and removes it", e.Path, e.Err)
}

// Unwrap returns what is wrong with it.
func (e *DamagedError) Unwrap() error { return e.Err }

// Remove deletes everything but the evidence.
func (w *Workspace) Remove() error {
	for _, dir := range []string{w.State(), w.Lab()} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}
