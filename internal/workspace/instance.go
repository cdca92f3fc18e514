package workspace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/internal/filelock"
	"github.com/windowed-order-counter/lab/internal/process"
)

// Instance is the record of a running instance.
type Instance struct {
	process.ID
	Application string    `json:"application"`
	Name        string    `json:"name"`
	Bootstrap   string    `json:"bootstrap"`
	Guarantee   string    `json:"guarantee"`
	Journal     string    `json:"journal"`
	Started     time.Time `json:"started"`
	// Parent is the phase that started it and stops it; nil if a user did.
	Parent *process.ID `json:"parent,omitempty"`
}

// RunningError says that an instance of that name is at work already.
type RunningError struct{ Instance Instance }

func (e *RunningError) Error() string {
	return fmt.Sprintf("instance %s of %s is running already (pid %d)", e.Instance.Name, e.Instance.Application, e.Instance.PID)
}

// BusyError says that another command runs a phase in this workspace.
type BusyError struct {
	Dir string
	PID int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("process %d is running a phase in %s: wait for it, or use another --dir", e.PID, e.Dir)
}

// LockPhase makes the caller the only one to run a phase or to clean here, until the lock is released or the process ends.
func (w *Workspace) LockPhase() (*filelock.Lock, error) {
	l, err := filelock.Try(filepath.Join(w.Lab(), "phase.lock"))
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil, &BusyError{Dir: w.dir, PID: held.PID}
	}
	return l, err
}

func (w *Workspace) instanceFile(application, name string) string {
	return filepath.Join(w.Lab(), "run", application+"."+name+".json")
}

// AddInstance records a running instance. Of two with the same application and name the second gets a *RunningError.
func (w *Workspace) AddInstance(in Instance) (err error) {
	path := w.instanceFile(in.Application, in.Name)
	// Without the lock two processes could both find no record.
	lock, err := filelock.Try(path + ".lock")
	var held *filelock.HeldError
	if errors.As(err, &held) {
		in.PID = held.PID
		return &RunningError{Instance: in}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	var damaged *DamagedError // tells of nobody; two that run at once are kept apart by their state folder too
	if old, err := readInstance(path); err == nil {
		running, err := old.Running()
		if err != nil {
			return err
		}
		if running {
			return &RunningError{Instance: old}
		}
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &damaged) {
		return err
	}
	return writeJSON(path, in)
}

// RemoveInstance takes the record of an instance away when it ends. One that has been removed with the whole workspace is no error.
func (w *Workspace) RemoveInstance(in Instance) error {
	path := w.instanceFile(in.Application, in.Name)
	old, err := readInstance(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && old.ID != in.ID {
		return nil
	}
	var damaged *DamagedError
	if err != nil && !errors.As(err, &damaged) {
		return err
	}
	return os.Remove(path)
}

// Instances lists the instances that run, by application and name. Records of killed ones are skipped. Those that cannot be read are
// *DamagedErrors, joined, beside a list of the others.
func (w *Workspace) Instances() ([]Instance, error) {
	paths, err := filepath.Glob(filepath.Join(w.Lab(), "run", "*.json"))
	if err != nil {
		return nil, err
	}
	var live []Instance
	var unread []error
	for _, path := range paths {
		in, err := readInstance(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		var damaged *DamagedError
		if errors.As(err, &damaged) {
			unread = append(unread, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		running, err := in.Running()
		if err != nil {
			return nil, err
		}
		if running {
			live = append(live, in)
		}
	}
	slices.SortFunc(live, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.Application, b.Application), cmp.Compare(a.Name, b.Name))
	})
	return live, errors.Join(unread...)
}

// AtWork are the processes that hold a state folder of an instance, whatever the records say.
func (w *Workspace) AtWork() ([]process.ID, error) {
	locks, err := filepath.Glob(filepath.Join(w.State(), "*", "*", "lock"))
	if err != nil {
		return nil, err
	}
	var found []process.ID
	for _, path := range locks {
		lock, err := filelock.Try(path)
		var held *filelock.HeldError
		switch {
		case err == nil:
			err = lock.Release()
		case errors.As(err, &held):
			var id process.ID
			if id, err = process.Of(held.PID); err == nil {
				found = append(found, id)
			} else if errors.Is(err, process.ErrGone) {
				err = nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Instance returns the running instance of that application and name; ok is false if there is none.
func (w *Workspace) Instance(application, name string) (in Instance, ok bool, err error) {
	all, err := w.Instances()
	if err != nil {
		return Instance{}, false, err
	}
	i := slices.IndexFunc(all, func(in Instance) bool { return in.Application == application && in.Name == name })
	if i < 0 {
		return Instance{}, false, nil
	}
	return all[i], true, nil
}

func readInstance(path string) (Instance, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Instance{}, err
	}
	var in Instance
	if err := json.Unmarshal(raw, &in); err != nil {
		return Instance{}, &DamagedError{path, err}
	}
	return in, nil
}
