package phases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
	"github.com/windowed-order-counter/lab/verify"
)

// The processing guarantees by their names in Kafka Streams. Under atLeastOnce a crash can make counts too high.
const (
	atLeastOnce = "at_least_once"
	exactlyOnce = "exactly_once_v2"
)

// crash is an instance that ended without a word.
type crash struct {
	name     string
	pid      int
	lastSeen time.Time // its last event
	doing    string    // what it said it died of, if it was told to
	owned    *journal.Tasks
	// successor is when another one opened the task of each input partition after it: by then it was dead.
	successor map[string]time.Time
}

func (c crash) String() string {
	text := fmt.Sprintf("instance %s (pid %d), last heard of at %s", c.name, c.pid, c.lastSeen.Format(time.RFC3339))
	if c.doing != "" {
		text += ": " + c.doing
	}
	return text + ","
}

// crashes lists the instances at least once that were killed: their journals have no end, and they do not run any more.
func crashes(w *workspace.Workspace) ([]crash, error) {
	events, err := journal.ReadAll(w.Journals(), topology.ApplicationID)
	if err != nil {
		return nil, err
	}
	var found []crash
	open := map[string]crash{} // by name; an instance of a name is alone
	for i := range events {
		e := &events[i]
		c, running := open[e.Instance]
		switch {
		case e.Started != nil:
			if running {
				found = append(found, c)
			}
			delete(open, e.Instance)
			if e.Started.Guarantee == atLeastOnce {
				open[e.Instance] = crash{name: e.Instance, pid: e.Started.PID, lastSeen: e.Time}
			}
		case e.Stopped != nil:
			delete(open, e.Instance)
		case running:
			c.lastSeen = e.Time
			if e.Tasks != nil {
				c.owned = e.Tasks
			}
			if e.Halted != nil || e.CrashPoint != nil {
				c.doing = e.Line()
			}
			open[e.Instance] = c
		}
	}
	live, err := w.Instances()
	if err != nil {
		return nil, err
	}
	for _, c := range open {
		if !slices.ContainsFunc(live, func(in workspace.Instance) bool { return in.Name == c.name && in.PID == c.pid }) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b crash) int { return a.lastSeen.Compare(b.lastSeen) })
	inputs := taskInputs(topology.ApplicationID, "")
	for i := range found {
		found[i].succeed(events, inputs)
	}
	return found, nil
}

// succeed notes who opened the tasks next.
func (c *crash) succeed(events []journal.Event, inputs map[string]kafka.TopicPartition) {
	c.successor = map[string]time.Time{}
	for i := range events {
		e := &events[i]
		if e.RestoreStart == nil || !e.Time.After(c.lastSeen) {
			continue
		}
		if input, ok := inputs[e.RestoreStart.Partition]; ok {
			if first, known := c.successor[input.String()]; !known || e.Time.Before(first) {
				c.successor[input.String()] = e.Time
			}
		}
	}
}

// mayHaveLeft tells whether the instance can have processed a record and died before that was committed: it owned the partition, and it was
// not yet replaced when the record was sent.
func (c crash) mayHaveLeft(r verify.Repeat) bool {
	input := r.String()
	replaced, known := c.successor[input]
	return owns(c.owned, input) && (!known || r.SentAt.Before(replaced))
}

// Explain returns what verify says about counts that are too high: which instances were killed. At least once, their successors process
// again what they had not committed. Of several only those are named that owned what came again. It is an explanation and no excuse, the
// verdict stays; so journals that cannot be read change none either.
func (c Config) Explain() func(verify.Difference, []verify.Repeat) string {
	killed, err := crashes(c.Workspace)
	if err != nil {
		c.Logger.Warn("the journals explain nothing", "error", err)
	}
	return func(d verify.Difference, again []verify.Repeat) string {
		if d.Got <= d.Want {
			return ""
		}
		owners := slices.DeleteFunc(slices.Clone(killed), func(c crash) bool { return !slices.ContainsFunc(again, c.mayHaveLeft) })
		if len(owners) > 0 {
			return becauseKilled(owners)
		}
		return becauseKilled(killed)
	}
}

// becauseKilled is "" if nobody was.
func becauseKilled(killed []crash) string {
	if len(killed) == 0 {
		return ""
	}
	names := make([]string, len(killed))
	for i, c := range killed {
		names[i] = c.String()
	}
	return strings.Join(names, " and ") + " was killed: at least once, what it had not committed was processed again"
}
