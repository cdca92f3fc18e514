package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
)

type kvOp struct {
	key, value string // value "-" deletes
	ts         int64
	headers    []Header
}

func put(t testing.TB, s *KeyValue, ops ...kvOp) {
	t.Helper()
	for _, op := range ops {
		value := []byte(op.value)
		if op.value == "-" {
			value = nil
		}
		noError(t, s.Put([]byte(op.key), value, op.ts, op.headers))
	}
}

func TestKeyValueFlush(t *testing.T) {
	tests := []struct {
		name      string
		committed []kvOp // before the operations, in a commit of their own
		flushedOp []kvOp // then flushed, but not committed
		ops       []kvOp
		want      []string
	}{
		{name: "nothing"},
		{
			name: "a key comes at the place of its last update, with its last value, timestamp and headers",
			ops: []kvOp{
				{key: "s1", value: "1", ts: 100, headers: []Header{{Key: "h", Value: []byte("first")}}},
				{key: "s1", value: "2", ts: 50},
				{key: "s2", value: "1", ts: 59999, headers: []Header{{Key: "h", Value: []byte("x")}, {Key: "n"}}},
				{key: "s1", value: "3", ts: 60000},
				{key: "s1", value: "4", ts: 60000},
			},
			want: []string{`"s2"="1"@59999 h:"x" n:""`, `"s1"="4"@60000`},
		},
		{
			name:      "a committed key comes again when it is put again",
			committed: []kvOp{{key: "a", value: "1"}, {key: "b", value: "1"}},
			ops:       []kvOp{{key: "b", value: "2", ts: 7}},
			want:      []string{`"b"="2"@7`},
		},
		{
			name:      "a deletion of a committed key is reported with its own timestamp",
			committed: []kvOp{{key: "a", value: "1", ts: 1}},
			ops:       []kvOp{{key: "a", value: "-", ts: 9}},
			want:      []string{`"a" deleted@9`},
		},
		{
			name: "a deletion of a key that never was is dropped",
			ops:  []kvOp{{key: "a", value: "-"}, {key: "b", value: "1"}, {key: "b", value: "-"}},
		},
		{
			name:      "a deletion of a key that only the changelog has seen is reported",
			flushedOp: []kvOp{{key: "a", value: "1"}},
			ops:       []kvOp{{key: "a", value: "-"}},
			want:      []string{`"a" deleted@0`},
		},
		{
			name:      "a deletion is reported once",
			committed: []kvOp{{key: "a", value: "1"}},
			flushedOp: []kvOp{{key: "a", value: "-"}},
			ops:       []kvOp{{key: "a", value: "-"}},
		},
		{
			name: "empty keys and empty values are keys and values",
			ops:  []kvOp{{key: "", value: "", ts: -1}},
			want: []string{`""=""@-1`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			db := mustOpen(t, t.TempDir(), testOptions())
			s := db.KeyValue(kvName)
			put(t, s, tt.committed...)
			mustCommit(t, db, 1)
			put(t, s, tt.flushedOp...)
			flushed(t, db)
			put(t, s, tt.ops...)
			if diff := cmp.Diff(tt.want, flushed(t, db)); diff != "" {
				t.Errorf("flush (-want +got):\n%s", diff)
			}
			if again := flushed(t, db); again != nil {
				t.Errorf("a second flush gave %v", again)
			}
		})
	}
}

// The whole way of a committed state: read through the overlay, through Bolt after a reopen, and by Inspect.
func TestKeyValueReads(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, testOptions())
	s := db.KeyValue(kvName)
	put(t, s, kvOp{key: "", value: "empty key", ts: 1}, kvOp{key: "b", value: "", ts: -5})
	put(t, s, kvOp{key: "c", value: "gone"}, kvOp{key: "d", value: "d"})
	mustCommit(t, db, 1)
	put(t, s, kvOp{key: "c", value: "-"}, kvOp{key: "a", value: "new", ts: 3}, kvOp{key: "d", value: "changed", ts: 4})

	want := []string{`""="empty key"@1`, `"a"="new"@3`, `"b"=""@-5`, `"d"="changed"@4`}
	check := func(when string, db *DB) {
		t.Helper()
		if diff := cmp.Diff(want, rows(t, db)); diff != "" {
			t.Errorf("%s: range (-want +got):\n%s", when, diff)
		}
		for key, value := range map[string]string{"": "empty key", "a": "new", "b": "", "c": "-", "d": "changed", "e": "-"} {
			got, _, ok, err := db.KeyValue(kvName).Get([]byte(key))
			noError(t, err)
			if ok != (value != "-") || ok && (got == nil || string(got) != value) {
				t.Errorf("%s: Get(%q) = %q, %v", when, key, got, ok)
			}
		}
	}
	check("uncommitted", db)
	mustCommit(t, db, 2)
	check("committed", db)
	noError(t, db.Close())
	db = mustOpen(t, dir, testOptions())
	check("reopened", db)

	first := 0
	noError(t, db.KeyValue(kvName).Range(func(_, _ []byte, _ int64) bool {
		first++
		return false
	}))
	if first != 1 {
		t.Errorf("a range that was told to stop went on for %d rows", first)
	}
}

func TestPutCopies(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	s := db.KeyValue(kvName)
	key, value, header := []byte("key"), []byte("value"), []byte("header")
	noError(t, s.Put(key, value, 1, []Header{{Key: "h", Value: header}}))
	copy(key, "xxx")
	copy(value, "xxxxx")
	copy(header, "xxxxxx")
	if diff := cmp.Diff([]string{`"key"="value"@1 h:"header"`}, flushed(t, db)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// A value may be changed in place and put again.
	got, _, _, err := s.Get([]byte("key"))
	noError(t, err)
	got[0] = 'V'
	noError(t, s.Put([]byte("key"), got, 2, nil))
	if diff := cmp.Diff([]string{`"key"="Value"@2`}, flushed(t, db)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFlushError(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	s := db.KeyValue(kvName)
	put(t, s, kvOp{key: "a", value: "1"}, kvOp{key: "b", value: "1"}, kvOp{key: "c", value: "1"})
	broken := errors.New("no leader")
	err := s.Flush(func(c Change) error {
		if string(c.Key) == "b" {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Fatalf("flush error = %v", err)
	}
	if err := db.Commit(Commit{}); !errors.Is(err, ErrUnflushed) || !strings.Contains(err.Error(), kvName) {
		t.Fatalf("commit after a broken flush = %v", err)
	}
	if diff := cmp.Diff([]string{`"b"="1"@0`, `"c"="1"@0`}, flushed(t, db)); diff != "" {
		t.Errorf("flush goes on at the entry that failed (-want +got):\n%s", diff)
	}
	noError(t, db.Commit(Commit{}))
}

// A processor downstream may come back to the same key.
func TestPutInsideFlush(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	s := db.KeyValue(kvName)
	put(t, s, kvOp{key: "a", value: "1"})
	var got []string
	noError(t, s.Flush(func(c Change) error {
		got = append(got, renderChange(c))
		if len(got) == 1 {
			return s.Put([]byte("a"), []byte("2"), 1, nil)
		}
		return nil
	}))
	if diff := cmp.Diff([]string{`"a"="1"@0`, `"a"="2"@1`}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	noError(t, db.Commit(Commit{}))
}

func TestKeyTooLarge(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	long := make([]byte, bolt.MaxKeySize)
	tests := []struct {
		name string
		put  func(n int) error
		max  int
	}{
		{"key-value", func(n int) error { return db.KeyValue(kvName).Put(long[:n], []byte("v"), 0, nil) }, MaxKeyBytes},
		{"window", func(n int) error { return db.Window(winName).Put(long[:n], 0, []byte("v"), 0, nil) }, MaxKeyBytes},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			noError(t, tt.put(tt.max))
			if err := tt.put(tt.max + 1); !errors.Is(err, ErrKeyTooLarge) {
				t.Errorf("error = %v", err)
			}
		})
	}
	mustCommit(t, db, 1) // the largest keys do fit
}

func TestUnknownStores(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	if db.KeyValue(winName) != nil || db.KeyValue("x") != nil || db.Window(kvName) != nil || db.Window("x") != nil {
		t.Error("a store of another kind or name was returned")
	}
	if err := db.Commit(Commit{Positions: map[string]Position{"x": {}}}); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("commit of a position of no store = %v", err)
	}
	if _, err := db.Restore("x", nil, Position{}); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("restore of no store = %v", err)
	}
	if err := db.Reset("x"); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("reset of no store = %v", err)
	}
}

func TestInvalidSpecs(t *testing.T) {
	for _, specs := range [][]Spec{
		{{Kind: KeyValueKind}},
		{{Name: "a"}},
		{{Name: "a", Kind: WindowKind}},
		{{Name: "a", Kind: KeyValueKind}, {Name: "a", Kind: WindowKind, Retention: retention}},
	} {
		if db, err := Open(t.TempDir(), specs, testOptions()); err == nil {
			t.Errorf("Open(%v) succeeded", specs)
			noError(t, db.Close())
		}
	}
}
