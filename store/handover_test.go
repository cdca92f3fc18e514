package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A standby's open file becomes a task's, in a thread with another budget, and goes back: what is committed stays, nothing of it is counted
// in the budget that it left, and what is not committed is not handed over.
func TestSetBudget(t *testing.T) {
	first, second := NewBudget(1<<20), NewBudget(1<<20)
	opt := testOptions()
	opt.Budget = first
	db := mustOpen(t, t.TempDir(), opt)
	noError(t, db.KeyValue(kvName).Put([]byte("a"), []byte("1"), 10, nil))
	if err := db.SetBudget(second); !errors.Is(err, ErrUncommitted) {
		t.Errorf("with a change that is not committed: %v", err)
	}
	mustCommit(t, db, 1)
	if first.Used() == 0 {
		t.Fatal("the committed entry is not in memory, so this test shows nothing")
	}
	noError(t, db.SetBudget(second))
	if first.Used() != 0 || second.Used() != 0 {
		t.Errorf("%d bytes in the budget that was left, %d in the new one", first.Used(), second.Used())
	}
	noError(t, db.KeyValue(kvName).Put([]byte("b"), []byte("2"), 11, nil))
	if first.Used() != 0 || second.Used() == 0 {
		t.Errorf("after a put %d bytes in the budget that was left, %d in the new one", first.Used(), second.Used())
	}
	mustCommit(t, db, 2)
	if diff := cmp.Diff([]string{`"a"="1"@10`, `"b"="2"@11`}, rows(t, db)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	noError(t, db.Close())
	if err := db.SetBudget(first); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// The positions of files that nobody has open are read without changing anything. What Open would throw away tells none.
func TestPositionsIn(t *testing.T) {
	dir := t.TempDir()
	if positions, err := PositionsIn(filepath.Join(dir, "none")); err != nil || len(positions) > 0 {
		t.Errorf("no folder: %v, %v", positions, err)
	}
	opt := testOptions()
	opt.BootID = nil // PositionsIn asks the system
	db := mustOpen(t, dir, opt)
	want := map[string]Position{
		kvName:  {TopicID: [16]byte{1}, Next: 7, CommittedAt: time.UnixMilli(1789207200123)},
		winName: {TopicID: [16]byte{2}, Next: 9, CommittedAt: time.UnixMilli(1789207200123)},
	}
	noError(t, db.Commit(Commit{Positions: want, At: time.UnixMilli(1789207200123)}))
	if diff := cmp.Diff(want, db.Positions()); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
	if _, err := PositionsIn(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("in use: %v", err)
	}
	noError(t, db.Abandon()) // as a killed process leaves it
	for _, when := range []string{"killed", "closed"} {
		got, err := PositionsIn(dir)
		noError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		db = mustOpen(t, dir, opt)
		noError(t, db.Close())
	}
	for _, mark := range []string{"lost: a test", "open another-boot"} {
		noError(t, os.WriteFile(filepath.Join(dir, markFile), []byte(mark+"\n"), fileMode))
		if got, err := PositionsIn(dir); err != nil || len(got) > 0 {
			t.Errorf("%s: %v, %v", mark, got, err)
		}
	}
	noError(t, os.WriteFile(filepath.Join(dir, markFile), []byte(markClean+"\n"), fileMode))
	noError(t, os.WriteFile(filepath.Join(dir, stateFile), []byte("no Bolt file"), fileMode))
	if got, err := PositionsIn(dir); err != nil || len(got) > 0 {
		t.Errorf("damaged: %v, %v", got, err)
	}
}
