package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A store that was asked for them hands over old values: what the flush before left, wherever that is by now.
func TestOldValues(t *testing.T) {
	db, err := Open(t.TempDir(), []Spec{
		{Name: "k", Kind: KeyValueKind, Logged: true, OldValues: true},
		{Name: "w", Kind: WindowKind, Logged: true, OldValues: true, Retention: 10 * time.Minute},
		{Name: "plain", Kind: KeyValueKind, Logged: true},
	}, testOptions())
	noError(t, err)
	defer func() { noError(t, db.Close()) }()
	s, w, plain := db.KeyValue("k"), db.Window("w"), db.KeyValue("plain")

	flush := func() (changes []string) {
		t.Helper()
		show := func(c Change) error {
			// What the function itself reads must not change what it was given.
			_, _, _, err := s.Get([]byte("other"))
			noError(t, err)
			old := "none"
			if c.Old != nil {
				old = fmt.Sprintf("%q", c.Old)
			}
			changes = append(changes, fmt.Sprintf("%q=%q was %s", c.Key[:min(len(c.Key), 1)], c.Value, old))
			return nil
		}
		noError(t, s.Flush(show))
		noError(t, w.Flush(show))
		noError(t, plain.Flush(show))
		return changes
	}
	put(t, s, kvOp{key: "other", value: "a longer value than the others"})
	flush()
	mustCommitEmpty(t, db)

	for _, step := range []struct {
		name   string
		ops    []kvOp
		want   []string
		commit bool
	}{
		{"new", []kvOp{{key: "a", value: "1"}, {key: "a", value: "2"}}, []string{`"a"="2" was none`}, false},
		{"flushed, not committed", []kvOp{{key: "a", value: "3"}, {key: "a", value: "4"}}, []string{`"a"="4" was "2"`}, true},
		{"committed, in the overlay", []kvOp{{key: "a", value: ""}}, []string{`"a"="" was "4"`}, true},
		{"an empty one", []kvOp{{key: "a", value: "-"}}, []string{`"a"="" was ""`}, false},
		{"deleted", []kvOp{{key: "a", value: "5"}}, []string{`"a"="5" was none`}, true},
		{"deleted before it was ever flushed", []kvOp{{key: "b", value: "5"}, {key: "b", value: "-"}}, nil, true},
		{"in Bolt alone", []kvOp{{key: "other", value: "x"}}, []string{`"o"="x" was "a longer value than the others"`}, true},
	} {
		put(t, s, step.ops...)
		if diff := cmp.Diff(step.want, flush()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if step.commit {
			mustCommitEmpty(t, db)
		}
	}

	noError(t, w.Put([]byte("a"), 60000, []byte("1"), 60000, nil))
	put(t, plain, kvOp{key: "p", value: "1"})
	flush()
	mustCommitEmpty(t, db)
	noError(t, w.Put([]byte("a"), 60000, []byte("2"), 60001, nil))
	put(t, plain, kvOp{key: "p", value: "2"})
	if diff := cmp.Diff([]string{`"a"="2" was "1"`, `"p"="2" was none`}, flush()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	mustCommitEmpty(t, db)
}

func mustCommitEmpty(t *testing.T, db *DB) {
	t.Helper()
	noError(t, db.Commit(Commit{At: time.UnixMilli(1)}))
}

// A flush that fails hands over the same old value when it is tried again.
func TestOldValueAfterFlushError(t *testing.T) {
	db, err := Open(t.TempDir(), []Spec{{Name: "k", Kind: KeyValueKind, Logged: true, OldValues: true}}, testOptions())
	noError(t, err)
	defer func() { noError(t, db.Close()) }()
	s := db.KeyValue("k")
	put(t, s, kvOp{key: "a", value: "1"})
	noError(t, s.Flush(func(Change) error { return nil }))
	put(t, s, kvOp{key: "a", value: "2"})
	if err := s.Flush(func(Change) error { return ErrInUse }); err == nil {
		t.Fatal("the error of the function was lost")
	}
	noError(t, s.Flush(func(c Change) error {
		if string(c.Old) != "1" {
			t.Errorf("old value %q, want 1", c.Old)
		}
		return nil
	}))
	mustCommitEmpty(t, db)
}

// An empty key or value is empty, not nil: nil is null in Kafka.
func TestFlushHandsOverNoNil(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	put(t, db.KeyValue(kvName), kvOp{key: "", value: ""})
	calls := 0
	noError(t, db.KeyValue(kvName).Flush(func(c Change) error {
		calls++
		if c.Key == nil || c.Value == nil || c.Deleted {
			t.Errorf("%#v", c)
		}
		return nil
	}))
	if calls != 1 {
		t.Errorf("%d changes", calls)
	}
	noError(t, db.Commit(Commit{}))
}

// A range has bounds, both included, and the store may be put meanwhile.
func TestBetween(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	s := db.KeyValue(kvName)
	for _, key := range []string{"a", "b", "bb", "c", "d"} {
		put(t, s, kvOp{key: key, value: key})
	}
	mustCommit(t, db, 1)
	put(t, s, kvOp{key: "bc", value: "new"})
	for _, tt := range []struct{ from, to, want string }{
		{"b", "c", "b bb bc c"}, {"", "aa", "a"}, {"ba", "ba", ""}, {"c", "b", ""},
	} {
		got := ""
		noError(t, s.Between([]byte(tt.from), []byte(tt.to), func(key, _ []byte, _ int64) bool {
			got += " " + string(key)
			return s.Put(key, nil, 1, nil) == nil && s.Put(key, []byte("again"), 1, nil) == nil
		}))
		if len(got) > 0 {
			got = got[1:]
		}
		if got != tt.want {
			t.Errorf("from %q to %q: %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
	noError(t, s.Range(func(key, _ []byte, _ int64) bool { return s.Put(key, nil, 2, nil) == nil }))
	if got := rows(t, db); len(got) != 0 {
		t.Errorf("left after a range that deletes: %v", got)
	}
	flushed(t, db)
	noError(t, db.Commit(Commit{}))
}
