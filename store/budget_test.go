package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Clean entries give way, least recently used first, also to entries of another task; dirty ones never do.
func TestBudgetEviction(t *testing.T) {
	// "a" with a one-byte value: 1 + 24 + 1 + (1 + 8) + 20 bytes.
	const entrySize = 55
	budget := NewBudget(4 * entrySize)
	opt := testOptions()
	opt.Budget = budget
	first, second := mustOpen(t, t.TempDir(), opt), mustOpen(t, t.TempDir(), opt)
	s := first.KeyValue(kvName)
	cached := func() (keys string) {
		for _, key := range []string{"a", "b", "c", "d"} {
			if s.t.overlay.entries[key] != nil {
				keys += key
			}
		}
		return keys
	}
	check := func(when, want string, used int64, over bool) {
		t.Helper()
		if got := cached(); got != want || budget.Used() != used*entrySize || budget.Over() != over {
			t.Errorf("%s: cached %s, used %d, over %v; want %s, %d, %v", when, got, budget.Used(), budget.Over(), want, used*entrySize, over)
		}
	}
	put(t, s, kvOp{key: "a", value: "1"}, kvOp{key: "b", value: "1"}, kvOp{key: "c", value: "1"}, kvOp{key: "d", value: "1"})
	check("full of dirty entries", "abcd", 4, false)
	mustCommit(t, first, 1)
	check("full of clean entries", "abcd", 4, false)
	if _, _, _, err := s.Get([]byte("a")); err != nil { // the oldest becomes the latest
		t.Fatal(err)
	}
	other := second.KeyValue(kvName)
	put(t, other, kvOp{key: "x", value: "1"}, kvOp{key: "y", value: "1"})
	check("two dirty entries of another task", "ad", 4, false)
	put(t, s, kvOp{key: "a", value: "2"}, kvOp{key: "b", value: "2"}, kvOp{key: "c", value: "2"})
	check("too many dirty entries", "abc", 5, true)
	first.Rollback()
	check("rolled back", "", 2, false)
	if diff := cmp.Diff([]string{`"a"="1"@0`, `"b"="1"@0`, `"c"="1"@0`, `"d"="1"@0`}, rows(t, first)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
