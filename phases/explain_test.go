package phases

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
	"github.com/windowed-order-counter/lab/verify"
)

// A count that is too high is explained by instances that ended without a word, and by no others.
func TestExplain(t *testing.T) {
	type process struct {
		pid int
		did []journal.Payload
	}
	started := func(pid int, guarantee string) *journal.Started {
		return &journal.Started{PID: pid, Guarantee: guarantee}
	}
	tests := map[string]struct {
		processes []process // of instance a, one after another
		says      string    // "": nothing
		silent    string
	}{
		"nothing ran":     {},
		"stopped cleanly": {processes: []process{{1, []journal.Payload{started(1, atLeastOnce), &journal.Stopped{}}}}},
		"failed":          {processes: []process{{1, []journal.Payload{started(1, atLeastOnce), &journal.Stopped{Error: "no broker"}}}}},
		"runs":            {processes: []process{{os.Getpid(), []journal.Payload{started(os.Getpid(), atLeastOnce)}}}},
		"killed": {
			[]process{{1, []journal.Payload{started(1, atLeastOnce), &journal.State{To: "RUNNING"}}}},
			"instance a (pid 1), last heard of at 1970-01-01T00:01:02Z, was killed: at least once", "",
		},
		"killed, and another after it": {
			[]process{{1, []journal.Payload{started(1, atLeastOnce)}}, {2, []journal.Payload{started(2, atLeastOnce), &journal.Stopped{}}}},
			"instance a (pid 1)", "pid 2",
		},
		"killed under exactly once": {processes: []process{{1, []journal.Payload{started(1, "exactly_once_v2")}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := workspace.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			addSelf(t, w)
			clock := time.Unix(60, 0).UTC()
			for _, p := range tt.processes {
				write(t, w, p.pid, p.did, &clock)
			}
			explain := Config{Workspace: w}.Explain()
			got := explain(verify.Difference{Topic: topology.OrdersPerStore, Key: "store-17", Want: 54, Got: 55})
			if (got != "") != (tt.says != "") || !strings.Contains(got, tt.says) || tt.silent != "" && strings.Contains(got, tt.silent) {
				t.Errorf("says %q", got)
			}
			if got := explain(verify.Difference{Want: 54, Got: 53}); got != "" {
				t.Errorf("a count that is too low: %q", got)
			}
		})
	}
}

// addSelf makes this process an instance a that runs.
func addSelf(t *testing.T, w *workspace.Workspace) {
	t.Helper()
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AddInstance(workspace.Instance{ID: self, Application: topology.ApplicationID, Name: "a"}); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, w *workspace.Workspace, pid int, payloads []journal.Payload, clock *time.Time) {
	t.Helper()
	j, err := journal.Create(journal.Path(w.Journals(), topology.ApplicationID, "a", pid), topology.ApplicationID, "a", func() time.Time {
		*clock = clock.Add(time.Second)
		return *clock
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range payloads {
		j.Write(p)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
