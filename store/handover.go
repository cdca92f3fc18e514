package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// SetBudget moves the DB to the budget of another stream thread, or to one of its own. A thread that takes a standby over goes on with the
// open file in this way, and gives it back in the same one. Its memory is empty afterwards; it must hold nothing that is not committed, and
// the error wraps ErrUncommitted if it does.
func (db *DB) SetBudget(b *Budget) error {
	if db.failed != nil {
		return db.failed
	}
	for _, t := range db.tables {
		if n := t.overlay.uncommitted(); n > 0 {
			return fmt.Errorf("hand over %s: store %s: %w: %d", db.path, t.spec.Name, ErrUncommitted, n)
		}
	}
	for _, t := range db.tables {
		t.overlay.clear()
		t.overlay.budget = b
	}
	db.budget = b
	return nil
}

// Positions tells up to where Bolt has followed the changelogs of its stores, by store. A store without a position is not there.
func (db *DB) Positions() map[string]Position {
	out := make(map[string]Position, len(db.positions))
	for _, t := range db.tables {
		if p, ok := db.positions[t.spec.Name]; ok {
			out[t.spec.Name] = p
		}
	}
	return out
}

// PositionsIn reads the positions in a task's folder that nobody has open, and changes nothing there. There are none in a folder without a
// state file, nor in one whose file Open would rebuild. The error wraps ErrInUse if a DB has the file open.
func PositionsIn(dir string) (positions map[string]Position, err error) {
	path := filepath.Join(dir, stateFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	mark, err := readMark(filepath.Join(dir, markFile))
	if err != nil {
		return nil, fmt.Errorf("positions in %s: %w", path, err)
	}
	if bootID, known := systemBootID(); distrust(mark, bootID, known) != "" {
		return nil, nil
	}
	f, err := openBolt(path, bolt.Options{ReadOnly: true})
	if errors.Is(err, errDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("positions in %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.close()) }()
	db := &DB{file: f, path: path, positions: map[string]Position{}, streamTimes: map[string]int64{}}
	damaged := guarded(func() error {
		tx, err := f.read()
		if err != nil {
			return err
		}
		if meta := tx.Bucket([]byte(metaBucket)); meta != nil {
			return meta.ForEach(db.loadMeta)
		}
		return nil
	})
	if damaged != nil {
		return nil, nil //nolint:nilerr // Open rebuilds the file and says so
	}
	return db.positions, nil
}
