package store

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRestoreKeyValue(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, testOptions())
	if !db.Empty(kvName) {
		t.Error("a new store is not empty")
	}
	if _, ok := db.Position(kvName); ok {
		t.Error("a new store has a position")
	}
	pos := Position{TopicID: [16]byte{1, 15: 2}, Next: 7, CommittedAt: time.UnixMilli(1789207200123)}
	applied, err := db.Restore(kvName, []Entry{
		{Key: []byte("a"), Value: []byte("1"), Timestamp: 10},
		{Key: []byte("b"), Value: []byte("1"), Timestamp: 11},
		{Key: nil, Value: []byte("no key")},
		{Key: []byte("a"), Value: []byte("2"), Timestamp: 12},
		{Key: []byte("b"), Value: nil, Timestamp: 13},
		{Key: []byte(""), Value: []byte(""), Timestamp: 14},
		{Key: []byte("never there")},
	}, pos)
	noError(t, err)
	if applied != 6 {
		t.Errorf("applied %d, not 6", applied)
	}
	want := []string{`""=""@14`, `"a"="2"@12`}
	for _, when := range []string{"restored", "reopened"} {
		if diff := cmp.Diff(want, rows(t, db)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if got, ok := db.Position(kvName); !ok || !got.CommittedAt.Equal(pos.CommittedAt) || got.Next != pos.Next || got.TopicID != pos.TopicID {
			t.Errorf("%s: position %v, %v", when, got, ok)
		}
		if db.Empty(kvName) || !db.Empty(winName) {
			t.Errorf("%s: Empty is wrong", when)
		}
		noError(t, db.Close())
		db = mustOpen(t, dir, testOptions())
	}
}

// A large batch is written in the order of keys and in several transactions, and leaves what it would leave in its own order.
func TestRestoreLargeBatch(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, testOptions())
	want := map[string]string{}
	var entries []Entry
	for i := range 3 * restoreChunk {
		key := fmt.Sprintf("key-%d", uint32(i%(restoreChunk+7))*2654435761)
		e := Entry{Key: []byte(key), Value: fmt.Append(nil, i), Timestamp: int64(i)}
		want[key] = fmt.Sprintf("%d@%d", i, i)
		if i%11 == 0 {
			e.Value = nil
			delete(want, key)
		}
		entries = append(entries, e)
	}
	first := entries[0].Key
	applied, err := db.Restore(kvName, entries, Position{Next: int64(len(entries))})
	noError(t, err)
	if applied != len(entries) || !bytes.Equal(entries[0].Key, first) {
		t.Errorf("%d of %d applied; the first entry has key %s now", applied, len(entries), entries[0].Key)
	}
	noError(t, db.Close())
	db = mustOpen(t, dir, testOptions())
	got := map[string]string{}
	noError(t, db.KeyValue(kvName).Range(func(key, value []byte, ts int64) bool {
		got[string(key)] = fmt.Sprintf("%s@%d", value, ts)
		return true
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	if pos, ok := db.Position(kvName); !ok || pos.Next != int64(len(entries)) {
		t.Errorf("position %+v, %t", pos, ok)
	}
	noError(t, db.Close())
}

// Restoring over a store in use, as after a transaction of unknown fate: the tail wins over the clean cache.
func TestRestoreTailAfterRollback(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	s := db.KeyValue(kvName)
	put(t, s, kvOp{key: "a", value: "1"}, kvOp{key: "b", value: "1"})
	mustCommit(t, db, 1)
	put(t, s, kvOp{key: "a", value: "2"}, kvOp{key: "c", value: "2"})
	if _, err := db.Restore(kvName, nil, Position{}); !errors.Is(err, ErrUncommitted) {
		t.Fatalf("restore over uncommitted entries = %v", err)
	}
	flushed(t, db)
	if _, err := db.Restore(kvName, nil, Position{}); !errors.Is(err, ErrUncommitted) {
		t.Fatalf("restore over flushed entries = %v", err)
	}
	db.Rollback()
	_, err := db.Restore(kvName, []Entry{{Key: []byte("b"), Value: []byte("2"), Timestamp: 5}}, Position{Next: 2})
	noError(t, err)
	if diff := cmp.Diff([]string{`"a"="1"@0`, `"b"="2"@5`}, rows(t, db)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key, want := range map[string]string{"a": "1", "b": "2"} {
		if got, _, _, err := s.Get([]byte(key)); err != nil || string(got) != want {
			t.Errorf("Get(%s) = %q, %v", key, got, err)
		}
	}
}

func TestRestoreWindow(t *testing.T) {
	entry := func(start int64, value string) Entry {
		e := Entry{Key: WindowKey(nil, []byte("s"), start), Timestamp: start}
		if value != "-" {
			e.Value = []byte(value)
		}
		return e
	}
	tests := []struct {
		name    string
		batches [][]Entry
		applied []int
		max     int64
		want    []string
		kept    int // rows in Bolt, hidden ones included
	}{
		{"nothing", [][]Entry{{}}, []int{0}, -1, nil, 0},
		{
			"in order",
			[][]Entry{{entry(0, "a"), entry(minute, "b"), entry(minute, "c")}},
			[]int{3}, minute, []string{`"s"/0="a"@0`, `"s"/60000="c"@60000`}, 2,
		},
		{
			"a batch expires its own records, also earlier ones",
			[][]Entry{{entry(0, "a"), entry(10*minute, "b"), entry(minute, "c")}},
			[]int{1}, 10 * minute, []string{`"s"/600000="b"@600000`}, 1,
		},
		{
			"a later batch expires earlier ones",
			[][]Entry{
				{entry(0, "a"), entry(minute, "b")},
				{entry(10*minute, "c")},
				{entry(9*minute, "d"), entry(8*minute, "e"), entry(7*minute, "f")},
			},
			[]int{2, 1, 2}, 10 * minute, []string{`"s"/540000="d"@540000`, `"s"/600000="c"@600000`}, 3,
		},
		{
			"a deletion counts for the largest start",
			[][]Entry{{entry(0, "a"), entry(10*minute, "-")}},
			[]int{1}, 10 * minute, nil, 0,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			db := mustOpen(t, dir, testOptions())
			var applied []int
			for i, batch := range tt.batches {
				n, err := db.Restore(winName, batch, Position{Next: int64(i)})
				noError(t, err)
				applied = append(applied, n)
			}
			if diff := cmp.Diff(tt.applied, applied); diff != "" {
				t.Errorf("applied (-want +got):\n%s", diff)
			}
			for _, when := range []string{"restored", "reopened"} {
				if got := db.Window(winName).MaxStart(); got != tt.max {
					t.Errorf("%s: MaxStart %d, not %d", when, got, tt.max)
				}
				if diff := cmp.Diff(tt.want, windowRows(t, db)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", when, diff)
				}
				if got := db.Empty(winName); got != (tt.kept == 0) {
					t.Errorf("%s: Empty = %v", when, got)
				}
				noError(t, db.Close())
				db = mustOpen(t, dir, testOptions())
			}
			noError(t, db.Close())
			kept := 0
			noError(t, Inspect(db.path, func(string, []byte, []byte, int64) { kept++ }))
			if kept != tt.kept {
				t.Errorf("%d rows in Bolt, not %d", kept, tt.kept)
			}
		})
	}
}

// A record that cannot be a changelog record of the store is refused before anything is written.
func TestRestoreMalformedKey(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	_, err := db.Restore(winName, []Entry{
		{Key: WindowKey(nil, []byte("s"), 5*minute), Value: []byte("v")},
		{Key: []byte("short"), Value: []byte("v")},
	}, Position{Next: 3})
	if !errors.Is(err, ErrWindowKey) || errors.Is(err, ErrLost) {
		t.Fatalf("error = %v", err)
	}
	if _, ok := db.Position(winName); ok || !db.Empty(winName) || db.Window(winName).MaxStart() != -1 {
		t.Error("the batch was applied in part")
	}
	mustCommit(t, db, 1)
}

func TestReset(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, testOptions())
	put(t, db.KeyValue(kvName), kvOp{key: "a", value: "1"})
	noError(t, db.Window(winName).Put([]byte("w"), 10*minute, []byte("1"), 0, nil))
	mustCommit(t, db, 5)
	noError(t, db.Window(winName).Put([]byte("w"), 11*minute, []byte("1"), 0, nil))
	noError(t, db.Reset(winName))
	noError(t, db.Reset(winName)) // an empty store too
	for _, when := range []string{"reset", "reopened"} {
		if _, ok := db.Position(winName); ok || !db.Empty(winName) || db.Window(winName).MaxStart() != -1 || windowRows(t, db) != nil {
			t.Errorf("%s: the store is not as new", when)
		}
		if _, ok := db.Position(kvName); !ok || db.Empty(kvName) {
			t.Errorf("%s: the other store was reset too", when)
		}
		noError(t, db.Close())
		db = mustOpen(t, dir, testOptions())
	}
	noError(t, db.Window(winName).Put([]byte("w"), 0, []byte("1"), 0, nil))
	mustCommit(t, db, 6)
	if diff := cmp.Diff([]string{`"w"/0="1"@0`}, windowRows(t, db)); diff != "" {
		t.Errorf("after a reset old windows are new (-want +got):\n%s", diff)
	}
}

func TestUnloggedStore(t *testing.T) {
	db, err := Open(t.TempDir(), []Spec{{Name: "scratch", Kind: KeyValueKind}}, testOptions())
	noError(t, err)
	s := db.KeyValue("scratch")
	put(t, s, kvOp{key: "a", value: "1"})
	noError(t, s.Flush(func(Change) error { return nil }))
	if err := db.Commit(Commit{Positions: map[string]Position{"scratch": {}}}); err == nil {
		t.Error("a store without a changelog took a position")
	}
	noError(t, db.Commit(Commit{}))
	if _, err := db.Restore("scratch", nil, Position{}); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("restore of a store without a changelog = %v", err)
	}
	noError(t, db.Close())
}
