package phases

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
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
				write(t, w, "a", p.pid, p.did, &clock)
			}
			explain := Config{Workspace: w}.Explain()
			got := explain(verify.Difference{Topic: topology.OrdersPerStore, Key: "store-17", Want: 54, Got: 55}, nil)
			if (got != "") != (tt.says != "") || !strings.Contains(got, tt.says) || tt.silent != "" && strings.Contains(got, tt.silent) {
				t.Errorf("says %q", got)
			}
			if got := explain(verify.Difference{Want: 54, Got: 53}, nil); got != "" {
				t.Errorf("a count that is too low: %q", got)
			}
		})
	}
}

// Of several killed instances the one is named that owned what came again and that nobody had replaced when it was sent; all, if none did.
func TestExplainNamesTheOwner(t *testing.T) {
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	owned := func(partition string) *journal.Tasks {
		return &journal.Tasks{Active: []journal.Task{{ID: "0_1", Partitions: []string{partition}}}}
	}
	clock := time.Unix(60, 0).UTC()
	start := func(instance string, pid int, then ...journal.Payload) {
		write(t, w, instance, pid, append([]journal.Payload{&journal.Started{PID: pid, Guarantee: atLeastOnce}}, then...), &clock)
	}
	start("a", 1, owned("orders.placed-1"))                                                            // heard of until 62 s
	start("b", 2, owned("orders.placed-2"), &journal.Halted{Store: "store-17", Record: 20})            // until 65 s
	start("c", 3, &journal.RestoreStart{Partition: "order-counter-order-status-changelog-1", From: 0}) // it has the task of a from 67 s on
	start("c", 4, owned("orders.placed-1"), owned("order-counter-orders-by-store-repartition-0"))      // until 70 s
	start("d", 5, &journal.RestoreStart{Partition: "order-counter-orders-per-store-changelog-0"}, &journal.Stopped{})

	again := func(topic string, partition int32, second int64) verify.Repeat {
		r := verify.Repeat{TopicPartition: kafka.TopicPartition{Topic: topic, Partition: partition}}
		if second > 0 {
			r.SentAt = time.Unix(second, 0)
		}
		return r
	}
	tests := map[string]struct {
		again []verify.Repeat
		names []string // the instances that it names, each by its pid
	}{
		"owned by one":                   {[]verify.Repeat{again(topology.OrdersPlaced, 2, 63)}, []string{"2"}},
		"replaced when it was sent":      {[]verify.Repeat{again(topology.OrdersPlaced, 1, 68)}, []string{"1", "2", "3", "4"}},
		"not yet replaced":               {[]verify.Repeat{again(topology.OrdersPlaced, 1, 66)}, []string{"1"}},
		"at the counting stage":          {[]verify.Repeat{again("order-counter-"+topology.Repartition, 0, 0)}, []string{"4"}},
		"two owners":                     {[]verify.Repeat{again(topology.OrdersPlaced, 2, 63), again(topology.OrdersPlaced, 1, 63)}, []string{"1", "2"}},
		"nobody knows what came again":   {nil, []string{"1", "2", "3", "4"}},
		"none of them owned what did so": {[]verify.Repeat{again(topology.OrdersPlaced, 0, 63)}, []string{"1", "2", "3", "4"}},
	}
	explain := Config{Workspace: w}.Explain()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := explain(verify.Difference{Want: 54, Got: 55}, tt.again)
			for _, pid := range []string{"1", "2", "3", "4", "5"} {
				if named := strings.Contains(got, "(pid "+pid+")"); named != slices.Contains(tt.names, pid) {
					t.Errorf("names pid %s: %v: %s", pid, named, got)
				}
			}
			if slices.Contains(tt.names, "2") && !strings.Contains(got, "00:01:05Z: halting before counting store-17 record 20,") {
				t.Errorf("does not say what pid 2 died of: %s", got)
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

func write(t *testing.T, w *workspace.Workspace, instance string, pid int, payloads []journal.Payload, clock *time.Time) {
	t.Helper()
	j, err := journal.Create(journal.Path(w.Journals(), topology.ApplicationID, instance, pid), topology.ApplicationID, instance, func() time.Time {
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
