package verify

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// stateOf writes the state of an instance that owned all tasks: what the changelogs come to before the given offsets, or at their ends.
func (m *memory) stateOf(t *testing.T, state, instance string, before map[string]int64) {
	t.Helper()
	for i, store := range []string{"order-status", "orders-per-store", "orders-per-store-minute"} {
		topic := "order-counter-" + store + "-changelog"
		m.topics[topic].id = [16]byte{byte(i + 1)}
		for p, part := range m.topics[topic].parts {
			position, limited := before[store]
			if !limited || position > part.end {
				position = part.end
			}
			dir := filepath.Join(state, instance, defaultApplicationID, fmt.Sprintf("%d_%d", min(i, 1), p))
			inState(t, dir, func(tx *bolt.Tx) error {
				meta, err := tx.CreateBucketIfNotExists([]byte("meta"))
				if err != nil {
					return err
				}
				if err := meta.Put([]byte("format"), binary.BigEndian.AppendUint32(nil, 1)); err != nil {
					return err
				}
				at := binary.BigEndian.AppendUint64(append([]byte{}, m.topics[topic].id[:]...), uint64(position))
				if err := meta.Put([]byte("position/"+store), binary.BigEndian.AppendUint64(at, 1796040000000)); err != nil {
					return err
				}
				for _, r := range part.records {
					if r.Offset < position {
						if err := putRow(tx, store, r); err != nil {
							return err
						}
					}
				}
				return nil
			})
			mark(t, dir, "clean\n")
		}
	}
}

func mark(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "state.mark"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func inState(t *testing.T, dir string, fn func(tx *bolt.Tx) error) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(dir, "state.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func putRow(tx *bolt.Tx, store string, r kafka.Record) error {
	row := append(binary.BigEndian.AppendUint64(nil, uint64(r.Timestamp)), r.Value...)
	if store != "orders-per-store-minute" {
		b, err := tx.CreateBucketIfNotExists([]byte("key-value/" + store))
		if err != nil {
			return err
		}
		return b.Put(append([]byte("k"), r.Key...), row)
	}
	b, err := tx.CreateBucketIfNotExists([]byte("window/" + store))
	if err != nil {
		return err
	}
	segment := binary.BigEndian.AppendUint64(nil, uint64(windowStart(r.Key)/minute))
	if b, err = b.CreateBucketIfNotExists(segment); err != nil {
		return err
	}
	return b.Put(r.Key, row)
}

// listing is the names, sizes and times of all that is in a folder.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		fmt.Fprintln(&b, path, info.Size(), info.ModTime())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Each case is something that an instance, a machine or somebody did to the local state of a run of phase 5 that was right.
func TestLocalState(t *testing.T) {
	counts := func(tx *bolt.Tx) *bolt.Bucket { return tx.Bucket([]byte("key-value/orders-per-store")) }
	minutes := func(tx *bolt.Tx, start int64) *bolt.Bucket {
		return tx.Bucket([]byte("window/orders-per-store-minute")).Bucket(binary.BigEndian.AppendUint64(nil, uint64(start/minute)))
	}
	change := func(fn func(tx *bolt.Tx) error) func(*testing.T, *memory, string) {
		return func(t *testing.T, m *memory, state string) {
			m.stateOf(t, state, "a", nil)
			inState(t, filepath.Join(state, "a", defaultApplicationID, "1_1"), fn)
		}
	}
	task := func(state string) string { return filepath.Join(state, "a", defaultApplicationID, "1_1") }
	const file = "a/order-counter/1_1/state.db, store "
	tests := map[string]struct {
		change func(t *testing.T, m *memory, state string)
		want   Verdict // NotRun: there is no such check
		says   string
	}{
		"none": {func(*testing.T, *memory, string) {}, NotRun, ""},
		"right": {
			func(t *testing.T, m *memory, state string) { m.stateOf(t, state, "a", nil) }, Pass, "22 rows in 5 files",
		},
		"of an earlier owner too": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", map[string]int64{"orders-per-store": 4, "orders-per-store-minute": 3})
				m.stateOf(t, state, "b", nil)
			}, Pass, "rows in 10 files",
		},
		"killed": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", nil)
				mark(t, task(state), "open "+bootID()+"\n")
			}, Pass, "22 rows in 5 files",
		},
		"a row with an older count": {
			change(func(tx *bolt.Tx) error {
				return putRow(tx, "orders-per-store", kafka.Record{Timestamp: afterTakeoverOrder.OccurredAt, Key: []byte("store-17"), Value: []byte(long(107))})
			}), Fail, "1_1/state.db, store orders-per-store at offset 14 of order-counter-orders-per-store-changelog-1: the row of store-17 is not that of offset 13",
		},
		"a row with another time": {
			change(func(tx *bolt.Tx) error {
				return putRow(tx, "orders-per-store", kafka.Record{Timestamp: 1, Key: []byte("store-17"), Value: []byte(long(108))})
			}), Fail, "the row of store-17 is not that of offset 13",
		},
		"a row missing": {
			change(func(tx *bolt.Tx) error { return counts(tx).Delete([]byte("kstore-17")) }), Fail, "store-17 has no row, and offset 13 is one",
		},
		"a row that is in no changelog": {
			change(func(tx *bolt.Tx) error {
				return putRow(tx, "orders-per-store", kafka.Record{Timestamp: 1, Key: []byte("store-99"), Value: []byte(long(1))})
			}), Fail, "store-99 has a row, and no record",
		},
		// The count of an aborted transaction, of a store that had none before it.
		"a row that is written later": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", map[string]int64{"orders-per-store": 1})
				inState(t, task(state), func(tx *bolt.Tx) error { return putRow(tx, "orders-per-store", (*m.records(changelogTopic, 1))[2]) })
			}, Fail, "has a row, and no record",
		},
		"the same where the topic has been compacted": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", map[string]int64{"orders-per-store": 2})
				*m.records(changelogTopic, 1) = (*m.records(changelogTopic, 1))[1:]
			}, Pass, "1 rows whose records have been compacted or deleted",
		},
		"a deleted row": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", nil)
				m.change(t, changelogTopic, holds("store-17", long(108)), func(r *kafka.Record) { r.Value = nil })
			}, Fail, "store-17 has a row, and offset 13 deletes it",
		},
		"a minute that has expired": {
			change(func(tx *bolt.Tx) error { return minutes(tx, ms1000).Delete([]byte(windowBytes("store-17", ms1000))) }), Pass, "22 rows",
		},
		"a minute that has not": {
			change(func(tx *bolt.Tx) error {
				start := floorMinute(afterTakeoverOrder.OccurredAt)
				return minutes(tx, start).Delete([]byte(windowBytes("store-17", start)))
			}), Fail, at1105 + " has no row",
		},
		"ahead of the topic": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", nil)
				p := &m.topics[changelogTopic].parts[1]
				p.records, p.end = p.records[:len(p.records)-1], p.end-1
			}, Fail, file + "orders-per-store at offset 14 of order-counter-orders-per-store-changelog-1: the topic ends at 13",
		},
		"in an open transaction": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", nil)
				m.topics[changelogTopic].parts[1].stable = 10
			}, Unknown, "a transaction is open from 10 on",
		},
		"without a position": {
			change(func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Delete([]byte("position/orders-per-store")) }), Unknown,
			"1_1/state.db cannot be read: its store orders-per-store has no position",
		},
		"of another format": {
			change(func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{0, 0, 0, 2}) }), Unknown, "its format is 00000002",
		},
		"in use": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", nil)
				db, err := bolt.Open(filepath.Join(task(state), "state.db"), 0, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
			}, Pass, "not looked at, as instances have them in use: a/order-counter/1_1/state.db",
		},
		"of another boot": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", nil)
				mark(t, task(state), "open 7\n")
			}, Pass, `1_1/state.db is not looked at: its state.mark says "open 7", so the next start restores it`,
		},
		"of a topic that was deleted": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", nil)
				m.topics[changelogTopic].id = [16]byte{9}
			}, Pass, "its store orders-per-store is of another topic than the order-counter-orders-per-store-changelog that is there now",
		},
		"truncated": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", nil)
				if err := os.Truncate(filepath.Join(task(state), "state.db"), 9000); err != nil {
					t.Fatal(err)
				}
			}, Unknown, "1_1/state.db cannot be read: ",
		},
		"of another application": {
			func(t *testing.T, m *memory, state string) {
				m.stateOf(t, state, "a", nil)
				if err := os.Rename(filepath.Join(state, "a", defaultApplicationID), filepath.Join(state, "a", "other")); err != nil {
					t.Fatal(err)
				}
			}, NotRun, "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m, state := takenOver(t), filepath.Join(t.TempDir(), "state")
			tt.change(t, m, state)
			g := loaded(t, m)
			g.opt.State = state
			before := ""
			if name != "none" {
				before = listing(t, state)
			}
			checks := g.checkState(t.Context())
			if name != "none" && listing(t, state) != before {
				t.Errorf("it was %s, and is %s", before, listing(t, state))
			}
			got, text := NotRun, ""
			for _, c := range checks {
				got, text = worse(got, c.Verdict), strings.Join(slices.Concat(c.Details, []string{c.Got}), "\n")
			}
			if got != tt.want || !strings.Contains(text, tt.says) {
				t.Errorf("%s, want %s with %q:\n%s", got, tt.want, tt.says, text)
			}
		})
	}
}
