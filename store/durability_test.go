package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	noError(t, err)
	return string(b)
}

// The table at the top of mark.go.
func TestDurabilityRule(t *testing.T) {
	closed := func(t *testing.T, db *DB) { noError(t, db.Close()) }
	died := func(t *testing.T, db *DB) { noError(t, db.Abandon()) }
	tests := []struct {
		name       string
		boot, next string // boot ids of the two runs; "" for a system without
		end        func(*testing.T, *DB)
		mark       string // overwrites state.mark between the runs; "-" deletes it
		reason     string // why the file is rebuilt; "" if it is not
	}{
		{name: "closed, same boot", boot: "1", next: "1", end: closed},
		{name: "closed, other boot", boot: "1", next: "2", end: closed},
		{name: "closed, no boot id", boot: "", next: "", end: closed},
		{name: "closed, no boot id any more", boot: "1", next: "", end: closed},
		{name: "died, same boot", boot: "1", next: "1", end: died},
		{name: "died, other boot", boot: "1", next: "2", end: died, reason: "restarted"},
		{name: "died, no boot id", boot: "", next: "", end: died},
		{name: "died, no boot id any more", boot: "1", next: "", end: died, reason: "no boot id"},
		{name: "died, boot id only now", boot: "", next: "1", end: died},
		{name: "mark missing", boot: "1", next: "1", end: closed, mark: "-", reason: "missing"},
		{name: "mark cut off", boot: "1", next: "1", end: closed, mark: "cl", reason: `"cl"`},
		{name: "mark empty", boot: "1", next: "1", end: closed, mark: "\n", reason: "missing"},
		{name: "mark of a boot without id", boot: "1", next: "1", end: died, mark: "open \n", reason: "restarted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			db := mustOpen(t, dir, Options{BootID: bootID(tt.boot)})
			if db.Recovered() != "" {
				t.Errorf("a new file was recovered: %s", db.Recovered())
			}
			put(t, db.KeyValue(kvName), kvOp{key: "a", value: "1"})
			mustCommit(t, db, 4)
			put(t, db.KeyValue(kvName), kvOp{key: "a", value: "uncommitted"})
			tt.end(t, db)
			mark := filepath.Join(dir, markFile)
			switch tt.mark {
			case "":
			case "-":
				noError(t, os.Remove(mark))
			default:
				noError(t, os.WriteFile(mark, []byte(tt.mark), fileMode))
			}

			db = mustOpen(t, dir, Options{BootID: bootID(tt.next), Strict: true})
			if tt.reason == "" && db.Recovered() != "" || !strings.Contains(db.Recovered(), tt.reason) {
				t.Errorf("Recovered() = %q, want %q", db.Recovered(), tt.reason)
			}
			var want []string
			if tt.reason == "" {
				want = []string{`"a"="1"@0`}
			}
			if diff := cmp.Diff(want, rows(t, db)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if _, ok := db.Position(kvName); ok != (tt.reason == "") {
				t.Errorf("has a position: %v", ok)
			}
			put(t, db.KeyValue(kvName), kvOp{key: "b", value: "1"})
			mustCommit(t, db, 5)
			noError(t, db.Close())
			if got := readFile(t, mark); got != "clean\n" {
				t.Errorf("mark after Close = %q", got)
			}
		})
	}
}

// The mark is on disk before the first commit that is not synced, and only then.
func TestMarkIsWrittenBeforeTheFirstCommit(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, markFile)
	db := mustOpen(t, dir, testOptions())
	if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a mark before the first commit: %v", err)
	}
	if !db.file.bolt.NoSync {
		t.Error("commits are synced although there is a boot id")
	}
	mustCommit(t, db, 1)
	if got := readFile(t, mark); got != "open boot-1\n" {
		t.Errorf("mark after a commit = %q", got)
	}
	noError(t, db.Close())

	// A run that writes nothing leaves the file clean, however it ends.
	noError(t, mustOpen(t, dir, testOptions()).Abandon())
	if got := readFile(t, mark); got != "clean\n" {
		t.Errorf("mark = %q", got)
	}
	db = mustOpen(t, dir, Options{BootID: bootID("")})
	if db.file.bolt.NoSync {
		t.Error("commits are not synced although there is no boot id")
	}
	mustCommit(t, db, 2)
	if got := readFile(t, mark); got != "clean\n" {
		t.Errorf("mark of a synced file = %q", got)
	}
}

// A file that is marked clean but damaged is rebuilt or, where the damage does not show at once, lost when it is read; it
// never panics.
func TestDamagedFile(t *testing.T) {
	pageSize := os.Getpagesize()
	type damage struct {
		name string
		do   func([]byte) []byte
	}
	zero := func(from, to int) func([]byte) []byte {
		return func(b []byte) []byte {
			clear(b[min(from, len(b)):min(to, len(b))])
			return b
		}
	}
	damages := []damage{
		{"empty", func([]byte) []byte { return nil }},
		{"one byte", func(b []byte) []byte { return b[:1] }},
		{"text", func([]byte) []byte { return []byte("not a bolt file\n") }},
		{"first meta page", zero(0, pageSize)},
		{"second meta page", zero(pageSize, 2*pageSize)},
		{"both meta pages", zero(0, 2*pageSize)},
		{"all but the meta pages", zero(2*pageSize, 1<<30)},
	}
	dir := t.TempDir()
	db := mustOpen(t, dir, testOptions())
	for i := range 1500 {
		noError(t, db.KeyValue(kvName).Put([]byte{byte(i >> 8), byte(i)}, []byte("value"), 0, nil))
		noError(t, db.Window(winName).Put([]byte{byte(i)}, int64(i%3)*minute, []byte("value"), 0, nil))
	}
	mustCommit(t, db, 1)
	tx, err := db.file.read()
	noError(t, err)
	needed := int(tx.Size())
	noError(t, db.Close())
	image := []byte(readFile(t, db.path))
	damages = append(damages, damage{"last page missing", func(b []byte) []byte { return b[:needed-1] }})
	for page := 2; page*pageSize < len(image); page++ {
		damages = append(damages,
			damage{"page", zero(page*pageSize, (page+1)*pageSize)},
			damage{"cut off", func(b []byte) []byte { return b[:page*pageSize+100] }},
		)
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, stateFile)
			noError(t, os.WriteFile(path, d.do([]byte(string(image))), fileMode))
			noError(t, os.WriteFile(filepath.Join(dir, markFile), []byte("clean\n"), fileMode))

			_ = Inspect(path, func(string, []byte, []byte, int64) {}) // an error or not, but no panic

			db, err := Open(dir, testSpecs(), Options{BootID: bootID("boot-1")})
			noError(t, err)
			if info, err := os.Stat(path); err == nil && d.name == "last page missing" && db.Recovered() == "" {
				t.Errorf("opened with %d of %d bytes", info.Size(), needed)
			}
			n := 0
			lost := db.KeyValue(kvName).Range(func([]byte, []byte, int64) bool { n++; return true })
			if lost == nil {
				lost = db.Window(winName).Range(func([]byte, int64, []byte, int64) bool { n++; return true })
			}
			if lost == nil {
				lost = db.Commit(Commit{Positions: map[string]Position{kvName: {Next: 9}}})
			}
			if lost == nil {
				noError(t, db.Close())
				return
			}
			if !errors.Is(lost, ErrLost) || !strings.Contains(lost.Error(), path) {
				t.Errorf("error = %v", lost)
			}
			if err := db.Abandon(); err != nil {
				t.Error(err)
			}
			db, err = Open(dir, testSpecs(), testOptions())
			noError(t, err)
			if db.Recovered() == "" || !db.Empty(kvName) || !db.Empty(winName) {
				t.Errorf("a lost file was opened again: %q", db.Recovered())
			}
			mustCommit(t, db, 1)
			noError(t, db.Close())
		})
	}
}

// Somebody truncates the file of a running task: reads beyond its end fault, which must not end the process.
func TestFileTruncatedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	opt := Options{BootID: bootID("boot-1"), Budget: NewBudget(0)}
	db := mustOpen(t, dir, opt)
	s := db.KeyValue(kvName)
	put(t, s, kvOp{key: "a", value: "1"})
	mustCommit(t, db, 1)
	if err := os.Truncate(db.path, 0); err != nil {
		t.Skipf("this system does not truncate a mapped file: %v", err)
	}
	if _, _, _, err := s.Get([]byte("a")); !errors.Is(err, ErrLost) {
		t.Errorf("Get = %v", err)
	}
	noError(t, db.Abandon())
	db = mustOpen(t, dir, opt)
	if db.Recovered() == "" || !db.Empty(kvName) {
		t.Errorf("Recovered() = %q", db.Recovered())
	}
}

// A file written for other stores than those declared is rebuilt: its positions would hide what is missing.
func TestChangedSpecs(t *testing.T) {
	tests := []struct {
		name   string
		specs  []Spec
		reason string
	}{
		{"unchanged", testSpecs(), ""},
		{"a store more", append(testSpecs(), Spec{Name: "more", Kind: KeyValueKind}), ""},
		{"a store less", testSpecs()[:1], ""},
		{"same segments", []Spec{{Name: winName, Kind: WindowKind, Retention: retention / 2}}, ""},
		{"other segments", []Spec{{Name: winName, Kind: WindowKind, Retention: 2 * retention}}, "retention"},
		{"other kind", []Spec{{Name: winName, Kind: KeyValueKind}}, "window store"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			db := mustOpen(t, dir, testOptions())
			put(t, db.KeyValue(kvName), kvOp{key: "a", value: "1"})
			noError(t, db.Window(winName).Put([]byte("a"), 0, []byte("1"), 0, nil))
			mustCommit(t, db, 1)
			noError(t, db.Close())
			db, err := Open(dir, tt.specs, testOptions())
			noError(t, err)
			if tt.reason == "" && db.Recovered() != "" || !strings.Contains(db.Recovered(), tt.reason) {
				t.Errorf("Recovered() = %q", db.Recovered())
			}
			for _, spec := range tt.specs[:1] {
				if db.Empty(spec.Name) != (tt.reason != "") {
					t.Errorf("Empty(%s) = %v", spec.Name, db.Empty(spec.Name))
				}
			}
			noError(t, db.Close())
		})
	}
}

func TestSecondOpen(t *testing.T) {
	for _, committed := range []bool{false, true} {
		dir := t.TempDir()
		db := mustOpen(t, dir, testOptions())
		if committed {
			mustCommit(t, db, 1)
		}
		_, err := Open(dir, testSpecs(), testOptions())
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), db.path) {
			t.Errorf("committed %v: second Open = %v", committed, err)
		}
		if err := Inspect(db.path, func(string, []byte, []byte, int64) {}); !errors.Is(err, ErrInUse) {
			t.Errorf("committed %v: Inspect = %v", committed, err)
		}
		put(t, db.KeyValue(kvName), kvOp{key: "a", value: "1"})
		mustCommit(t, db, 2)
		noError(t, db.Close())
		db = mustOpen(t, dir, testOptions())
		if diff := cmp.Diff([]string{`"a"="1"@0`}, rows(t, db)); diff != "" {
			t.Errorf("committed %v: the first DB was disturbed (-want +got):\n%s", committed, diff)
		}
		noError(t, db.Close())
	}
}

// An error of the system in a commit loses the DB, says which file, and the next Open rebuilds.
func TestCommitError(t *testing.T) {
	for _, boot := range []string{"boot-1", ""} {
		dir := t.TempDir()
		opt := Options{BootID: bootID(boot)}
		db := mustOpen(t, dir, opt)
		s := db.KeyValue(kvName)
		put(t, s, kvOp{key: "a", value: "1"})
		mustCommit(t, db, 1)
		put(t, s, kvOp{key: "b", value: "1"})
		flushed(t, db)
		noError(t, db.file.os.Close()) // every write from now on fails
		err := db.Commit(Commit{})
		if !errors.Is(err, ErrLost) || !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), db.path) {
			t.Fatalf("commit = %v", err)
		}
		for name, got := range map[string]error{
			"Commit":  db.Commit(Commit{}),
			"Put":     s.Put([]byte("c"), []byte("1"), 0, nil),
			"Flush":   s.Flush(func(Change) error { return nil }),
			"Range":   s.Range(func([]byte, []byte, int64) bool { return true }),
			"Reset":   db.Reset(kvName),
			"Restore": func() error { _, err := db.Restore(kvName, nil, Position{}); return err }(),
			"Get":     func() error { _, _, _, err := s.Get([]byte("a")); return err }(),
			"Fetch":   db.Window(winName).Fetch(nil, 1, 0, nil),
		} {
			if !errors.Is(got, ErrLost) {
				t.Errorf("%s on a lost DB = %v", name, got)
			}
		}
		db.Rollback() // harmless
		if err := db.Close(); !errors.Is(err, ErrLost) {
			t.Errorf("Close of a lost DB = %v", err)
		}
		db = mustOpen(t, dir, opt)
		if !strings.Contains(db.Recovered(), "lost: commit") || rows(t, db) != nil {
			t.Errorf("Recovered() = %q, rows %v", db.Recovered(), rows(t, db))
		}
	}
}

func TestClosed(t *testing.T) {
	budget := NewBudget(1 << 20)
	opt := testOptions()
	opt.Budget = budget
	db := mustOpen(t, t.TempDir(), opt)
	s := db.KeyValue(kvName)
	put(t, s, kvOp{key: "a", value: "1"})
	mustCommit(t, db, 1)
	put(t, s, kvOp{key: "b", value: "1"})
	noError(t, db.Close())
	if budget.Used() != 0 || budget.Over() || budget.lru.n != 0 {
		t.Errorf("a closed DB still uses %d bytes of the budget", budget.Used())
	}
	if err := s.Put([]byte("a"), nil, 0, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Put = %v", err)
	}
	if _, _, _, err := s.Get([]byte("a")); !errors.Is(err, ErrClosed) {
		t.Errorf("Get = %v", err)
	}
	if err := db.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close = %v", err)
	}
	noError(t, db.Abandon())
}

func TestStreamTimes(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, testOptions())
	if _, ok := db.StreamTime("node"); ok {
		t.Error("a new file has a stream time")
	}
	noError(t, db.Commit(Commit{StreamTimes: map[string]int64{"node": 42, "other": -1}}))
	noError(t, db.Commit(Commit{StreamTimes: map[string]int64{"node": 43}}))
	for range 2 {
		if ms, ok := db.StreamTime("node"); !ok || ms != 43 {
			t.Errorf("stream time = %d, %v", ms, ok)
		}
		if ms, ok := db.StreamTime("other"); !ok || ms != -1 {
			t.Errorf("other stream time = %d, %v", ms, ok)
		}
		noError(t, db.Close())
		db = mustOpen(t, dir, testOptions())
	}
}
