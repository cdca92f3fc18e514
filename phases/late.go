package phases

import (
	"fmt"
	"io"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
)

// maxLate is how many entries of the late ledger are shown.
const maxLate = 5

// LateStatus is the late ledger: the records that came after their minute had closed, as the instances of this workspace reported them.
type LateStatus struct {
	Count int         `json:"count"`
	Last  []LateOrder `json:"last"` // up to five, oldest first
}

// LateOrder is one of them.
type LateOrder struct {
	Instance  string    `json:"instance"`
	Dropped   time.Time `json:"dropped"`
	Partition string    `json:"partition"` // of the repartition topic, whose records have the orders' times
	Offset    int64     `json:"offset"`
	journal.Late
}

// lateOrders reads the ledger. A record that was dropped again after a restart counts once, as what its last drop was like.
func lateOrders(w *workspace.Workspace) (LateStatus, error) {
	events, err := journal.ReadAll(w.Journals(), topology.ApplicationID)
	s := LateStatus{Last: []LateOrder{}}
	if err != nil {
		return s, err
	}
	type record struct {
		partition string
		offset    int64
	}
	seen := map[record]bool{}
	for i := len(events) - 1; i >= 0; i-- {
		e := &events[i]
		if e.Skipped == nil || e.Skipped.Late == nil || seen[record{e.Skipped.Partition, e.Skipped.Offset}] {
			continue
		}
		seen[record{e.Skipped.Partition, e.Skipped.Offset}] = true
		if s.Count++; s.Count <= maxLate {
			s.Last = append([]LateOrder{{e.Instance, e.Time, e.Skipped.Partition, e.Skipped.Offset, *e.Skipped.Late}}, s.Last...)
		}
	}
	return s, nil
}

// write prints the ledger into a table of two columns.
func (s LateStatus) write(t io.Writer) {
	fmt.Fprintf(t, "late records\t%d\n", s.Count)
	for _, l := range s.Last {
		fmt.Fprintf(t, "late\t%s@%d of %s: its window from %s to %s closes at %s, and stream time was %s\n", l.Partition, l.Offset,
			moment(l.Timestamp), moment(l.WindowStart), moment(l.WindowEnd), moment(l.Closes), moment(l.StreamTime))
		switch m := l.Mover; {
		case m == nil:
			fmt.Fprintln(t, "\tit was there before the instance started")
		case m.Before < 0:
			fmt.Fprintf(t, "\t%s@%d set it, the first record%s\n", m.Partition, m.Offset, l.ahead())
		default:
			fmt.Fprintf(t, "\t%s@%d moved it there from %s, by %s%s\n", m.Partition, m.Offset, moment(m.Before),
				time.UnixMilli(m.Timestamp).Sub(time.UnixMilli(m.Before)), l.ahead())
		}
	}
}

// ahead blames a record from the future: it closes every minute up to its own, whatever orders are still to come for them.
func (l LateOrder) ahead() string {
	if !time.UnixMilli(l.Mover.Timestamp).After(l.Dropped) {
		return ""
	}
	return ": a record from the future, which closes every window up to it"
}

// moment prints epoch milliseconds.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z07:00") }
