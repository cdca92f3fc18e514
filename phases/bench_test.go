package phases

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/verify"
)

// The list of wrong stores ends somewhere, and their number used to end there too.
func TestBenchCountsWrongStores(t *testing.T) {
	b := BenchResult{Records: 100, Stores: 50, WrongStores: 20, Wrong: []string{"store-1: 2 orders, counted \"1\""}, Verdict: verify.Fail}
	var out strings.Builder
	if err := b.Write(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"and 19 more\n", "FAIL 100 orders counted at 0 records/s, 30 of 50 stores right\n"} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("does not say %q:\n%s", says, out.String())
		}
	}
}

// A mistake in a property came out as a failed benchmark, which pointed at a log that it had just deleted.
func TestBenchRefusesPropertiesFirst(t *testing.T) {
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Bench(t.Context(), Config{Workspace: w}, BenchOptions{Records: 1, Stores: 1, Properties: []string{"lab.foo=1"}})
	var usage *args.UsageError
	if !errors.As(err, &usage) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(w.Lab()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it made a workspace: %v", err)
	}
}

func TestFailedBenchShowsItsLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.log")
	failed := errors.New("instance bench has ended")
	if err := withLog(failed, path); !errors.Is(err, failed) || err.Error() != failed.Error() {
		t.Errorf("without a log: %v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("line\n", longestTail)+"the cause\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := withLog(failed, path); !errors.Is(err, failed) || !strings.HasSuffix(err.Error(), "the cause") || len(err.Error()) > 2*longestTail {
		t.Errorf("with a log: %v", err)
	}
	if err := withLog(nil, path); err != nil {
		t.Errorf("without a failure: %v", err)
	}
}
