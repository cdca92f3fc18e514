package store

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// Inspect calls fn for each row of a state file: store by store in the order of their bucket names, and in the order of
// the keys. The key of a window is the changelog key, see SplitWindowKey. Windows that have expired but are still in the
// file are shown. The slices are valid until fn returns.
//
// The file is only read. The error wraps ErrInUse if a DB has it open, and ErrLost if the file is damaged.
func Inspect(path string, fn func(store string, key, value []byte, ts int64)) (err error) {
	f, err := openBolt(path, bolt.Options{ReadOnly: true})
	if err != nil {
		if errors.Is(err, errDamaged) {
			err = fmt.Errorf("%w: %w", ErrLost, err)
		}
		return fmt.Errorf("inspect %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.close()) }()

	db := &DB{file: f, path: path, budget: NewBudget(0), log: slog.New(slog.DiscardHandler)}
	if err := db.guardedRead(db.declareFromFile); err != nil {
		return err
	}
	for _, t := range db.tables {
		sc, err := t.scan(nil, nil)
		if err != nil {
			return err
		}
		for {
			ok, err := sc.next()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			fn(t.spec.Name, sc.key, sc.row[timestampLen:], rowTimestamp(sc.row))
		}
	}
	return nil
}

// declareFromFile declares the stores that have a bucket. To be called inside a guard.
func (db *DB) declareFromFile() error {
	tx, err := db.file.read()
	if err != nil {
		return err
	}
	return tx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if store, ok := strings.CutPrefix(string(name), keyValuePrefix); ok {
			db.tables = append(db.tables, newTable(db, Spec{Name: store, Kind: KeyValueKind}))
		} else if store, ok := strings.CutPrefix(string(name), windowPrefix); ok {
			db.tables = append(db.tables, newTable(db, Spec{Name: store, Kind: WindowKind}))
		}
		return nil
	})
}
