package phases

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/workspace"
)

const storePartition = "order-counter-orders-by-store-repartition-1"

// story writes down what instances reported, a second apart.
type story struct {
	now    time.Time
	events []journal.Event
}

func newStory() *story { return &story{now: time.Unix(1_800_000_000, 0).UTC()} }

func (s *story) tell(instance string, e journal.Event) *story {
	s.now = s.now.Add(time.Second)
	e.Time, e.Instance = s.now, instance
	s.events = append(s.events, e)
	return s
}

func (s *story) start(instance string, pid int) *story {
	return s.tell(instance, journal.Event{Started: &journal.Started{PID: pid, Properties: []string{"session.timeout.ms=6000"}}})
}

func (s *story) state(instance, to string) *story {
	return s.tell(instance, journal.Event{State: &journal.State{To: to}})
}

// assign gives tasks by their ids; task 1_1 has the store.
func (s *story) assign(instance string, ids ...string) *story {
	p := &journal.Tasks{}
	for _, id := range ids {
		partition := "orders.placed-" + id[2:]
		if id[0] == '1' {
			partition = "order-counter-orders-by-store-repartition-" + id[2:]
		}
		p.Active = append(p.Active, journal.Task{ID: id, Partitions: []string{partition}})
	}
	return s.tell(instance, journal.Event{Tasks: p})
}

func running(name string, pid int) workspace.Instance {
	return workspace.Instance{ID: process.ID{PID: pid}, Name: name}
}

// The owner is who says so in the latest assignment, and runs.
func TestMembers(t *testing.T) {
	alone := func() *story {
		return newStory().start("a", 1).state("a", "REBALANCING").assign("a", "0_0", "0_1", "1_0", "1_1").state("a", "RUNNING")
	}
	joined := func() *story { return alone().start("b", 2).state("b", "REBALANCING").state("a", "REBALANCING") }
	both := func() *story {
		return joined().assign("a", "0_0", "1_0").state("a", "RUNNING").assign("b", "0_1", "1_1").state("b", "RUNNING")
	}
	tests := map[string]struct {
		story  *story
		live   []workspace.Instance
		owner  string // "": nobody, or not known
		shared bool
	}{
		"one alone":            {alone(), []workspace.Instance{running("a", 1)}, "a", false},
		"another joins":        {joined(), []workspace.Instance{running("a", 1), running("b", 2)}, "a", false},
		"both have tasks":      {both(), []workspace.Instance{running("b", 2), running("a", 1)}, "b", true},
		"the second is killed": {both(), []workspace.Instance{running("a", 1)}, "", false},
		"told by both for a moment": {
			joined().assign("b", "0_1", "1_1").state("b", "RUNNING").state("a", "RUNNING"),
			[]workspace.Instance{running("a", 1), running("b", 2)}, "", false,
		},
		"the second has none": {
			joined().assign("a", "0_0", "1_1").state("a", "RUNNING").assign("b").state("b", "RUNNING"),
			[]workspace.Instance{running("a", 1), running("b", 2)}, "a", false,
		},
		"started again": {
			both().tell("b", journal.Event{Stopped: &journal.Stopped{}}).start("b", 3),
			[]workspace.Instance{running("a", 1), running("b", 3)}, "", false,
		},
		"one that runs has not begun its journal": {both(), []workspace.Instance{running("a", 1), running("b", 9)}, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			list := members(tt.story.events, tt.live)
			owner := ""
			if m := ownerOf(list, storePartition); m != nil {
				owner = m.name
				if m.millis("session.timeout.ms") != 6*time.Second || m.millis("commit.interval.ms") != 0 {
					t.Errorf("properties of %s: %v", m.name, m.properties)
				}
			}
			if owner != tt.owner || shared(list, "a", "b") != tt.shared {
				t.Errorf("owner %q, shared %t; want %q, %t", owner, shared(list, "a", "b"), tt.owner, tt.shared)
			}
		})
	}
}

// Each stage ends with an event of the survivor, and what went before the kill does not count.
func TestFindTakeover(t *testing.T) {
	s := newStory().start("a", 1).state("a", "REBALANCING").assign("a", "0_0", "1_1").state("a", "RUNNING")
	killed := s.now.Add(500 * time.Millisecond)
	at := func(seconds int) time.Time {
		return killed.Add(time.Duration(seconds)*time.Second - 500*time.Millisecond)
	}
	tests := map[string]struct {
		story *story
		found bool
		want  takeover
	}{
		"nothing yet": {newStory(), false, takeover{}},
		"assigned, not restored": {
			(&story{now: s.now}).state("a", "REBALANCING").assign("a", "0_0", "1_1"), false, takeover{},
		},
		"taken over": {
			(&story{now: s.now}).state("a", "REBALANCING").assign("a", "0_0", "1_1").state("a", "RUNNING"), true,
			takeover{Survivor: "a", Killed: killed, Noticed: at(1), Assigned: at(2), Running: at(3)},
		},
		"at the second attempt": {
			(&story{now: s.now}).state("a", "REBALANCING").assign("a", "0_0").state("a", "RUNNING").
				state("a", "REBALANCING").assign("a", "0_0", "1_1").state("a", "RUNNING"), true,
			takeover{Survivor: "a", Killed: killed, Noticed: at(4), Assigned: at(5), Running: at(6)},
		},
		"assigned anew before it was restored": {
			(&story{now: s.now}).state("a", "REBALANCING").assign("a", "0_0", "1_1").assign("a", "0_0", "1_1").state("a", "RUNNING"), true,
			takeover{Survivor: "a", Killed: killed, Noticed: at(1), Assigned: at(2), Running: at(4)},
		},
		"by one of two": {
			(&story{now: s.now}).state("a", "REBALANCING").state("c", "REBALANCING").assign("a", "0_0").assign("c", "1_1").
				state("a", "RUNNING").state("c", "RUNNING"), true,
			takeover{Survivor: "c", Killed: killed, Noticed: at(2), Assigned: at(4), Running: at(6)},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := findTakeover(append(s.events, tt.story.events...), killed, storePartition)
			if diff := cmp.Diff(tt.want, got); diff != "" || found != tt.found {
				t.Errorf("found %t\n%s", found, diff)
			}
		})
	}
}

func TestTakeoverReport(t *testing.T) {
	killed := time.Unix(1_800_000_000, 0)
	after := func(ms int) time.Time { return killed.Add(time.Duration(ms) * time.Millisecond) }
	seen := takeover{
		Owner: "b", PID: 7, Session: 6 * time.Second, Heartbeat: 2 * time.Second, Survivor: "a", Killed: killed, Noticed: after(7000), Assigned: after(7020), Running: after(7050),
		FirstOutput: 30 * time.Millisecond,
	}
	want := `kill -9 7, instance b with session.timeout.ms=6000 heartbeat.interval.ms=2000
stage             from → to                             ms
detection         kill -9 of b → a is REBALANCING       7000
rebalance         REBALANCING → tasks assigned          20
restore           tasks assigned → RUNNING              30
takeover          kill -9 → RUNNING                     7050
first output      ord-2006 sent → its count is visible  30
beyond detection  rebalance + restore + first output    80
`
	if diff := cmp.Diff(want, seen.report()); diff != "" {
		t.Error(diff)
	}
	seen.FirstOutput = 0
	if got := seen.report(); strings.Contains(got, "beyond detection") || !strings.Contains(got, "not measured") {
		t.Errorf("without a first output:\n%s", got)
	}
}

func TestTakeoverRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".lab", "phase-5.json")
	if _, ok, err := readTakeoverRecord(path, "x"); ok || err != nil {
		t.Errorf("none: %t, %v", ok, err)
	}
	want := takeoverRecord{
		OrdersID: "x", Began: time.Unix(1_800_000_000, 0).UTC(), Parts: []part{{partBefore, "store-17\t107\n"}},
		Takeover: &takeover{Owner: "b", Survivor: "a", Killed: time.Unix(1_800_000_001, 0).UTC(), FirstOutput: time.Millisecond},
	}
	if err := want.write(path); err != nil {
		t.Fatal(err)
	}
	got, ok, err := readTakeoverRecord(path, "x")
	if diff := cmp.Diff(want, got); diff != "" || !ok || err != nil {
		t.Errorf("%t, %v\n%s", ok, err, diff)
	}
	if text, ok := got.part(partBefore); !ok || text != "store-17\t107\n" {
		t.Errorf("part %q, %t", text, ok)
	}
	if _, ok, err := readTakeoverRecord(path, "y"); ok || err != nil {
		t.Errorf("of other topics: %t, %v", ok, err)
	}
}

func TestUnchanged(t *testing.T) {
	got := unchanged([]string{
		"application.id=order-counter", "bootstrap.servers=h:1", "client.id=", "state.dir=/s", "commit.interval.ms=1000", "processing.guarantee=exactly_once_v2",
	})
	if diff := cmp.Diff([]string{"commit.interval.ms=1000", "processing.guarantee=exactly_once_v2"}, got); diff != "" {
		t.Error(diff)
	}
}
