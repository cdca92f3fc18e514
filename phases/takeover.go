package phases

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/windowed-order-counter/lab/internal/atomicfile"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
)

// member is an instance of the application that runs, as its journal shows it.
type member struct {
	name       string
	pid        int
	properties []string
	state      string
	tasks      *journal.Tasks    // the latest; nil: none yet
	line       string            // with which it told them
	standbys   *journal.Standbys // the latest; nil: there were none yet
}

// members lists the instances that run, by name. What a journal says of an instance that was killed stays there for ever, so a member counts
// only while its process runs.
func members(events []journal.Event, live []workspace.Instance) []*member {
	byName := map[string]*member{}
	for i := range events {
		e := &events[i]
		m := byName[e.Instance]
		switch {
		case e.Started != nil:
			byName[e.Instance] = &member{name: e.Instance, pid: e.Started.PID, properties: e.Started.Properties}
		case m == nil:
		case e.State != nil:
			m.state = e.State.To
		case e.Tasks != nil:
			m.tasks, m.line = e.Tasks, e.Line()
		case e.Standbys != nil:
			m.standbys = e.Standbys
		}
	}
	var list []*member
	for _, in := range live {
		if m := byName[in.Name]; m != nil && m.pid == in.PID {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	return list
}

// live lists the instances of the lab's application that run here.
func (r *run) live() ([]workspace.Instance, error) {
	all, err := r.Workspace.Instances()
	return slices.DeleteFunc(all, func(in workspace.Instance) bool { return in.Application != topology.ApplicationID }), err
}

// known is the run's own instance of that name; nil: none.
func (r *run) known(name string) *counter {
	for _, c := range r.counters {
		if c.name == name {
			return c
		}
	}
	return nil
}

// forget drops an instance that has ended from those that the run stops.
func (r *run) forget(c *counter) error {
	r.counters = slices.DeleteFunc(r.counters, func(other *counter) bool { return other == c })
	return c.follower.Close()
}

// owns reports whether one of the tasks reads a partition.
func owns(t *journal.Tasks, partition string) bool {
	return t != nil && slices.ContainsFunc(t.Active, func(task journal.Task) bool { return slices.Contains(task.Partitions, partition) })
}

// ownerOf is the one member that owns a partition by its latest assignment; nil while there is none, or while two say so.
func ownerOf(list []*member, partition string) *member {
	var owner *member
	for _, m := range list {
		if !owns(m.tasks, partition) {
			continue
		}
		if owner != nil {
			return nil
		}
		owner = m
	}
	return owner
}

// shared reports whether the named members run with tasks and no task is told by two members, as it is for a moment in a rebalance.
func shared(list []*member, names ...string) bool {
	told := map[string]bool{}
	working := 0
	for _, m := range list {
		if m.tasks == nil {
			continue
		}
		for _, t := range m.tasks.Active {
			if told[t.ID] {
				return false
			}
			told[t.ID] = true
		}
		if slices.Contains(names, m.name) && m.state == stateRunning && len(m.tasks.Active) > 0 {
			working++
		}
	}
	return working == len(names)
}

// millis reads a property of a member that is a number of milliseconds; 0 if it has none.
func (m *member) millis(key string) time.Duration {
	for _, pair := range m.properties {
		if value, ok := strings.CutPrefix(pair, key+"="); ok {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0
			}
			return time.Duration(n) * time.Millisecond
		}
	}
	return 0
}

// takeover is how a partition came from a killed instance to another one, by the times in that one's journal.
type takeover struct {
	Owner      string        `json:"owner"` // the killed instance
	PID        int           `json:"pid"`
	Session    time.Duration `json:"session"`   // after which the group took it for dead
	Heartbeat  time.Duration `json:"heartbeat"` // how often it sent a sign of life
	Survivor   string        `json:"survivor"`
	Properties []string      `json:"properties"` // of the survivor
	Killed     time.Time     `json:"killed"`
	Noticed    time.Time     `json:"noticed"` // the survivor is REBALANCING
	Assigned   time.Time     `json:"assigned"`
	Running    time.Time     `json:"running"` // with all that it had to restore
	// FirstOutput is how long the first order sent afterwards took until its count was visible; 0 if an interrupted run has sent it.
	FirstOutput time.Duration `json:"first_output"`
}

// follow takes an event of the survivor-to-be into account, and reports whether it is RUNNING with the partition. A rebalance may take more
// than one attempt: the last beginning before the assignment counts.
func (t *takeover) follow(e *journal.Event, partition string) bool {
	switch {
	case e.State != nil && e.State.To == stateRebalancing:
		t.Noticed, t.Assigned = e.Time, time.Time{}
	case e.Tasks != nil && !owns(e.Tasks, partition):
		t.Assigned = time.Time{}
	case e.Tasks != nil && t.Assigned.IsZero() && !t.Noticed.IsZero():
		t.Assigned = e.Time
	case e.State != nil && e.State.To == stateRunning && !t.Assigned.IsZero():
		t.Running = e.Time
		return true
	}
	return false
}

// findTakeover looks in what was reported after a kill for the instance that took a partition over.
func findTakeover(events []journal.Event, killed time.Time, partition string) (takeover, bool) {
	byName := map[string]*takeover{}
	for i := range events {
		e := &events[i]
		if !e.Time.After(killed) {
			continue
		}
		t := byName[e.Instance]
		if t == nil {
			t = &takeover{Survivor: e.Instance, Killed: killed}
			byName[e.Instance] = t
		}
		if t.follow(e, partition) {
			return *t, true
		}
	}
	return takeover{}, false
}

// beyondDetection is the part of a takeover that does not depend on the session timeout.
func (t *takeover) beyondDetection() time.Duration { return t.Running.Sub(t.Noticed) + t.FirstOutput }

// report breaks the time down.
func (t *takeover) report() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "kill -9 %d, instance %s with session.timeout.ms=%d heartbeat.interval.ms=%d\n",
		t.PID, t.Owner, t.Session.Milliseconds(), t.Heartbeat.Milliseconds())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "stage\tfrom → to\tms")
	row := func(stage, what string, d time.Duration) {
		fmt.Fprintf(w, "%s\t%s\t%d\n", stage, what, d.Milliseconds())
	}
	row("detection", fmt.Sprintf("kill -9 of %s → %s is REBALANCING", t.Owner, t.Survivor), t.Noticed.Sub(t.Killed))
	row("rebalance", "REBALANCING → tasks assigned", t.Assigned.Sub(t.Noticed))
	row("restore", "tasks assigned → RUNNING", t.Running.Sub(t.Assigned))
	row("takeover", "kill -9 → RUNNING", t.Running.Sub(t.Killed))
	if t.FirstOutput > 0 {
		row("first output", fmt.Sprintf("%s sent → its count is visible", afterTakeover.OrderID), t.FirstOutput)
		row("beyond detection", "rebalance + restore + first output", t.beyondDetection())
	} else {
		fmt.Fprintf(w, "first output\tnot measured: an interrupted run has sent %s\t-\n", afterTakeover.OrderID)
	}
	_ = w.Flush() // into memory
	return b.String()
}

// part is a part of an evidence file that was seen and cannot be seen again.
type part struct {
	Title string `json:"title"`
	Text  string `json:"text"`
}

// takeoverRecord is what phase 5 has seen so far. An interrupted run leaves it to the next one, since neither the topics nor the journals tell
// what the group's progress was before the kill, or when that was.
type takeoverRecord struct {
	OrdersID string    `json:"orders_placed_id"` // the topic that it belongs to
	Began    time.Time `json:"began"`
	Takeover *takeover `json:"takeover,omitempty"` // nil: not seen to its end
	Parts    []part    `json:"parts,omitempty"`
}

func (r *takeoverRecord) part(title string) (text string, ok bool) {
	i := slices.IndexFunc(r.Parts, func(p part) bool { return p.Title == title })
	if i < 0 {
		return "", false
	}
	return r.Parts[i].Text, true
}

// readTakeoverRecord reads what an interrupted run left; ok is false if there is nothing, or nothing of these topics.
func readTakeoverRecord(path, ordersID string) (rec takeoverRecord, ok bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return takeoverRecord{}, false, nil
	}
	if err != nil {
		return takeoverRecord{}, false, err
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return takeoverRecord{}, false, fmt.Errorf("damaged record of phase 5, %s: %w; delete it to do without", path, err)
	}
	return rec, rec.OrdersID == ordersID, nil
}

func (r *takeoverRecord) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteJSON(path, r)
}

// unchanged are the properties with which an instance is started again as it was. Where it finds its broker and its state follows from the
// workspace; what is empty is not set.
func unchanged(properties []string) []string {
	return slices.DeleteFunc(slices.Clone(properties), func(pair string) bool {
		key, value, _ := strings.Cut(pair, "=")
		return value == "" || slices.Contains([]string{"application.id", "bootstrap.servers", "state.dir"}, key)
	})
}
