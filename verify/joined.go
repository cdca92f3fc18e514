package verify

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// joinedRow is a row of the join: an order under its id, with the status that it found in front.
type joinedRow struct {
	status string
	order  order
}

func (r joinedRow) String() string {
	return fmt.Sprintf("%s of %s, which occurred at %s", r.status, r.order.ID, instant(r.order.OccurredAt))
}

// written of a joined row, in the order of the topic.
type joinedRecord struct {
	row       joinedRow
	timestamp int64
	at        place
}

// joinedRows is the content of the topic of joined orders: the rows of the ids that phases 4 and 5 are about, one by one, and what is wrong with
// any.
type joinedRows struct {
	rows  []joinedRecord
	wrong []string // up to maxDetails
}

func (rs *joinedRows) add(tp kafka.TopicPartition, r *kafka.Record) {
	at := place{tp, r.Offset}
	// A status may hold a |, the JSON of an order begins with a brace.
	i := bytes.Index(r.Value, []byte("|{"))
	var o order
	err := errNoOrder
	if i >= 0 {
		o, err = readOrder(r.Value[i+1:])
	}
	switch {
	case err != nil:
		rs.wrongf("%s: %q is no status with an order", at, text(r.Value))
	case string(r.Key) != o.ID:
		rs.wrongf("%s: the key is %s, and the order %s", at, text(r.Key), o.ID)
	case !o.Placed:
		rs.wrongf("%s: %s is cancelled", at, o.ID)
	case r.Timestamp != o.OccurredAt:
		rs.wrongf("%s: timestamp %d, want %d, the order's own", at, r.Timestamp, o.OccurredAt)
	}
	if err == nil && slices.Contains([]string{paidOrder.ID, noStatusOrder.ID, afterTakeoverOrder.ID}, o.ID) {
		rs.rows = append(rs.rows, joinedRecord{joinedRow{string(r.Value[:i]), o}, r.Timestamp, at})
	}
}

func (rs *joinedRows) wrongf(format string, args ...any) {
	if len(rs.wrong) < maxDetails {
		rs.wrong = append(rs.wrong, fmt.Sprintf(format, args...))
	}
}

// joins are the joined rows up to the last order of a phase.
type joins struct {
	want []joinedRow
	// upTo tells the orders that were sent up to then from later ones.
	upTo func(g *grader, o order) bool
}

var (
	joinsOfPhase4 = joins{[]joinedRow{{"PAID", paidOrder}, {"SHIPPED", shippedOrder}}, (*grader).upToPhase4}
	// The second feed holds an order of that id too, and the status is still there.
	joinsOfPhase5 = joins{append(slices.Clone(joinsOfPhase4.want), joinedRow{"SHIPPED", feedEvent(secondBase, 42)}), (*grader).upToPhase5}
)

// checkJoined looks at the joined rows of the orders up to the last of a phase: each order once, with the status that was current when it came.
// Rows of later orders of the same ids, such as those of the next feed, are not looked at.
func (g *grader) checkJoined(ctx context.Context, js joins) Check {
	const name = "joined orders"
	wants := make([]string, len(js.want))
	for i, w := range js.want {
		wants[i] = w.status + "|" + w.order.ID
	}
	want := strings.Join(wants, ", ")
	rs, err := g.readJoined(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	statuses, err := g.readStatuses(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	catchUp, err := g.caughtUp(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	f := findings{wrong: slices.Clone(rs.wrong)}
	var got []string
	records := map[joinedRow][]joinedRecord{}
	for _, r := range rs.rows {
		if !js.upTo(g, r.row.order) {
			continue
		}
		got = append(got, r.row.status+"|"+r.row.order.ID)
		records[r.row] = append(records[r.row], r)
		if slices.Contains(js.want, r.row) {
			continue
		}
		switch t := statuses[r.row.order.ID]; {
		case t == nil && g.deleted(topicStatus) != "":
			f.unknownf("extra: %s (%s); %s", r.row, r.at, g.deleted(topicStatus))
		case t == nil:
			f.wrongf("extra: %s (%s), and no status of it was published", r.row, r.at)
		case !slices.Contains([]string{"PAID", "SHIPPED"}, t.last):
			f.unknownf("extra: %s (%s): statuses other than the lab's were published, the last is %s", r.row, r.at, t.last)
		default:
			f.wrongf("extra: %s (%s)", r.row, r.at)
		}
	}
	for _, w := range js.want {
		switch n := len(records[w]); {
		case n > 1:
			text := fmt.Sprintf("duplicated: %s is there %d times (at least once may write again after a crash), at last %s", w, n, records[w][n-1].at)
			f.wrong = append(f.wrong, g.explain(ctx, Difference{topicJoined, w.order.ID, 1, int64(n)}, text))
		case n == 0 && catchUp && len(got) == 0:
			f.unknownf("missing: %s, but it was counted together with later orders: in a catch-up an order is processed before the "+
				"status, whose time is that of its sending", w)
		case n == 0:
			f.shortf("missing: %s", w)
		}
	}
	for i, w := range js.want[1:] {
		before, after := records[js.want[i]], records[w]
		switch {
		case len(before) != 1 || len(after) != 1: // said above
		case before[0].at.TopicPartition != after[0].at.TopicPartition:
			f.wrongf("rows of one order id are in partitions %d and %d", before[0].at.Partition, after[0].at.Partition)
		case before[0].at.offset > after[0].at.offset:
			f.wrongf("%s stands before %s", after[0].row, before[0].row)
		}
	}
	if len(got) == 0 {
		got = []string{"none"}
	}
	return g.check(name, topicJoined, want, strings.Join(got, ", "), f)
}

func (g *grader) upToPhase4(o order) bool {
	return slices.Contains(phase3Orders, o) || slices.Contains(phase4Orders, o) || ofFeed(g.in.feed1().base, o)
}

func (g *grader) upToPhase5(o order) bool {
	return g.upToPhase4(o) || slices.Contains(phase5Orders, o) || ofFeed(secondBase, o)
}

// ofFeed tells the events of a feed from other orders.
func ofFeed(base int64, o order) bool {
	i := feedIndex(o.ID)
	return i >= 0 && o == feedEvent(base, i)
}

// caughtUp tells whether the orders of the join were counted in one commit with later ones: nobody waited for one before the next was sent.
func (g *grader) caughtUp(ctx context.Context) (bool, error) {
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return false, err
	}
	counts, err := g.readCounts(ctx)
	if err != nil {
		return false, err
	}
	for _, w := range joinsOfPhase4.want {
		r := counts.reached(rs.moments[w.order].count)
		if r.self.value > 0 || r.higher.value == 0 {
			return false, nil
		}
	}
	return true, nil
}

// table is what a topic of rows by key comes to.
type table map[string]*tableRow

// tableRow is the last row of a key.
type tableRow struct {
	last      string // null if it was deleted
	timestamp int64
	at        place
}

func (t table) add(tp kafka.TopicPartition, r *kafka.Record) {
	t[text(r.Key)] = &tableRow{text(r.Value), r.Timestamp, place{tp, r.Offset}}
}

// checkStatusLog compares the table's changelog with the topic that the table is read from. Topology optimization is off, so the table has one
// of its own; a task owns the same partition of both.
func (g *grader) checkStatusLog(ctx context.Context) Check {
	topic := g.internal(suffixStatusChangelog)
	const name, want = "changelog of the statuses", "the last row of each order, as in " + topicStatus
	rows, err := g.readStatuses(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	log, err := g.readStatusLog(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	f := g.incomplete(topicStatus)
	if len(rows) == 0 {
		f.unknownf("%s holds no row: has a status been published?", topicStatus)
	}
	right := 0
	keys := unionKeys(rows, log, strings.Compare)
	for _, key := range keys {
		r, l := rows[key], log[key]
		switch {
		case key == "null":
			right++ // the table has no place for it
		case r == nil && g.deleted(topicStatus) != "": // said above
		case r == nil:
			f.wrongf("%s is %s in %s, and no status of it was published", key, l.last, l.at)
		case l == nil && r.last == "null":
			right++ // deleted before it was there
		case l == nil:
			f.shortf("%s is %s in %s, and has no entry in %s", key, r.last, r.at, topic)
		case l.last != r.last || l.timestamp != r.timestamp:
			f.shortf("%s is %s at time %d (%s) and %s at time %d (%s)", key, l.last, l.timestamp, l.at, r.last, r.timestamp, r.at)
		case l.at.Partition != r.at.Partition:
			f.wrongf("%s is in partition %d of %s and in %d of %s", key, r.at.Partition, topicStatus, l.at.Partition, topic)
		default:
			right++
		}
	}
	return g.check(name, topic, want, fmt.Sprintf("%d of %d orders", right, len(keys)), f)
}
