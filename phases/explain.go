package phases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
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
}

func (c crash) String() string {
	return fmt.Sprintf("instance %s (pid %d), last heard of at %s,", c.name, c.pid, c.lastSeen.Format(time.RFC3339))
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
				open[e.Instance] = crash{e.Instance, e.Started.PID, e.Time}
			}
		case e.Stopped != nil:
			delete(open, e.Instance)
		case running:
			c.lastSeen = e.Time
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
	return found, nil
}

// Explain returns what verify says about counts that are too high: which instances were killed. Under at least once their successors process
// again what they had not committed. It is an explanation and no excuse, the verdict stays; so journals that cannot be read change none either.
func (c Config) Explain() func(verify.Difference) string {
	killed, err := crashes(c.Workspace)
	if err != nil {
		c.Logger.Warn("the journals explain nothing", "error", err)
	}
	why := becauseKilled(killed)
	return func(d verify.Difference) string {
		if d.Got <= d.Want {
			return ""
		}
		return why
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
