package verify

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// joinLog is what the logs tell about the join: of each order id that had a status, the statuses, the placed orders, and the rows that came of
// them, each in the order of its topic. It holds up to maxLedger of them.
type joinLog struct {
	ids   map[string]*joinedID
	parts map[placedUnder][]int32 // the partitions of each of the orders
	sizes map[int]bool            // the lengths of their values
	size  int
	whole bool // the topic of the statuses still has each record that was ever written to it
	rows  int
	lone  []string // rows of other ids
	wrong []string // rows on the wrong partition
}

type joinedID struct {
	statuses   []statusRecord
	orders     []orderRecord
	rows       []rowRecord
	takenBack  bool // a status was deleted
	incomplete bool // an order is among the dead letters, which leaves open whether it was joined
}

// placedUnder is an order under its id.
type placedUnder struct {
	*joinedID
	content uint64
}

type statusRecord struct {
	status    string
	partition int32
}

type orderRecord struct {
	content uint64
	source  string
	place
}

type rowRecord struct {
	status  string
	content uint64
	place
}

// checkJoinLog holds each joined row to the logs of the two inputs. A task takes the orders of a partition in their order, and the statuses too,
// so of one order id
//
//   - each row is one of its orders, with one of its statuses, of the same partition;
//   - no order is joined more often than it was published;
//   - once one was joined, all later ones are, unless a status was deleted: so the rows are the last of its orders, in their order;
//   - no row has a status from before that of the row before it. Where the statuses have been compacted, older ones may be missing.
//
// Which status an order found, and whether it found one at all, the logs do not tell: a task takes what it has read of the two inputs by time,
// and the status of an order is mostly younger than the order. At least once after a crash, statuses come again too, so there the rows must be
// of orders with one of their statuses, and no more.
func (g *grader) checkJoinLog(ctx context.Context) Check {
	const name, want = "joined rows by the log", "of each order id its last orders, in their order, with its statuses in theirs"
	l, err := g.joinLog.get(func() (*joinLog, error) { return g.readJoinLog(ctx) })
	if err != nil {
		return unread(name, want, err)
	}
	f := findings{wrong: slices.Clone(l.wrong)}
	for _, topic := range []string{g.output(topicJoined), topicStatus} {
		if gone := g.deleted(topic); gone != "" {
			f.unknown = append(f.unknown, gone)
		}
	}
	if l.size >= maxLedger {
		f.unknownf("%d records are more than are looked at one by one", l.size)
		return g.check(name, g.output(topicJoined), want, fmt.Sprintf("%d rows", l.rows), f)
	}
	if len(l.ids) == 0 {
		f.unknownf("%s holds no row: has a status been published?", topicStatus)
	}
	for _, at := range l.lone {
		if l.whole {
			f.wrongf("%s, and no status of it was published", at)
		} else {
			f.unknownf("%s, and %s, which has been compacted, has no status of it", at, topicStatus)
		}
	}
	joined := 0
	for _, id := range slices.Sorted(maps.Keys(l.ids)) {
		k := l.ids[id]
		if len(k.rows) > 0 {
			joined++
		}
		k.judgeOrders(&f, id, g.again, l.whole)
		if text := l.judgeStatuses(k, id, g.again); text != "" && l.whole {
			f.wrong = append(f.wrong, text)
		} else if text != "" {
			f.notef("%s: the topic of the statuses has been compacted", text)
		}
	}
	return g.check(name, g.output(topicJoined), want, fmt.Sprintf("%d rows of %d order ids", l.rows, joined), f)
}

// readJoinLog reads the statuses, the orders of their ids, and the rows.
func (g *grader) readJoinLog(ctx context.Context) (*joinLog, error) {
	l := &joinLog{ids: map[string]*joinedID{}, parts: map[placedUnder][]int32{}, sizes: map[int]bool{}}
	full := func() bool {
		l.size++
		return l.size >= maxLedger
	}
	err := g.read(ctx, topicStatus, func(tp kafka.TopicPartition, r *kafka.Record) {
		if r.Key == nil || full() {
			return
		}
		k := l.ids[string(r.Key)]
		if k == nil {
			k = &joinedID{}
			l.ids[string(r.Key)] = k
		}
		if r.Value == nil {
			k.takenBack = true
			return
		}
		k.statuses = append(k.statuses, statusRecord{string(r.Value), tp.Partition})
	})
	if err != nil {
		return nil, err
	}
	if l.whole, err = g.whole(ctx, topicStatus); err != nil {
		return nil, err
	}
	err = g.read(ctx, topicPlaced, func(tp kafka.TopicPartition, r *kafka.Record) {
		k := l.ids[string(r.Key)]
		if k == nil || r.Key == nil || full() {
			return
		}
		at := place{tp, r.Offset}
		o, err := readOrder(r.Value)
		if err != nil || !o.Placed {
			return
		}
		_, buried := g.in.letters.kinds[at]
		k.incomplete = k.incomplete || buried
		source := fmt.Sprintf("%s of %s", o.ID, instant(o.OccurredAt))
		content := fingerprint(r.Value, o.OccurredAt)
		k.orders = append(k.orders, orderRecord{content, source, at})
		l.parts[placedUnder{k, content}] = insert(l.parts[placedUnder{k, content}], tp.Partition)
		l.sizes[len(r.Value)] = true
	})
	if err != nil {
		return nil, err
	}
	return l, g.read(ctx, g.output(topicJoined), func(tp kafka.TopicPartition, r *kafka.Record) {
		l.rows++
		if full() {
			return
		}
		at := place{tp, r.Offset}
		if text := g.misplaced(tp, r); text != "" {
			l.wrong = append(l.wrong, text)
		}
		k := l.ids[string(r.Key)]
		if k == nil {
			l.lone = append(l.lone, fmt.Sprintf("%s is joined (%s)", text(r.Key), at))
			return
		}
		status, content := l.split(k, r)
		k.rows = append(k.rows, rowRecord{status, content, at})
	})
}

// split takes a row apart, with the content of the order that it holds. Both a status and an order may hold a | with a brace behind it, so the
// order is the part that is one of the orders.
func (l *joinLog) split(k *joinedID, r *kafka.Record) (status string, content uint64) {
	sep := []byte("|{")
	for from := 0; ; {
		i := bytes.Index(r.Value[from:], sep)
		if i < 0 {
			return status, content
		}
		i += from
		value := r.Value[i+1:]
		known := false
		if from == 0 || l.sizes[len(value)] {
			c := fingerprint(value, r.Timestamp)
			_, known = l.parts[placedUnder{k, c}]
			if from == 0 || known {
				status, content = string(r.Value[:i]), c
			}
		}
		if known {
			return status, content
		}
		from = i + 1
	}
}

// apart tells whether the orders and statuses of an id are in more than one partition, so that more than one task joins them.
func (k *joinedID) apart() bool {
	var parts []int32
	for _, s := range k.statuses {
		parts = insert(parts, s.partition)
	}
	for _, o := range k.orders {
		parts = insert(parts, o.Partition)
	}
	return len(parts) > 1
}

// judgeOrders pairs the rows of an id with its orders, from the last to the first: that way the orders that came before a status are left over.
// Where the topic of the statuses is not whole, one may have been deleted between two orders.
func (k *joinedID) judgeOrders(f *findings, id string, again, whole bool) {
	published, joined := map[uint64]int{}, map[uint64]int{}
	for _, o := range k.orders {
		published[o.content]++
	}
	right := !again && !k.apart()
	repeated := 0
	for _, r := range k.rows {
		joined[r.content]++
		switch n := published[r.content]; {
		case n == 0:
			f.wrongf("%s: a row of %s that is none of its placed orders, byte by byte and with its time", r.place, id)
			right = false
		case joined[r.content] > n && again:
			repeated++
		case joined[r.content] > n:
			f.wrongf("%s: a row of %s for the %d. time, and the order was published %d times", r.place, id, joined[r.content], n)
			right = false
		}
	}
	if repeated > 0 {
		f.notef("rows of %s that were written again: %d", id, repeated)
	}
	if !right || len(k.rows) == 0 {
		return
	}
	next := len(k.orders)
	for _, r := range slices.Backward(k.rows) {
		at := next - 1
		for at >= 0 && k.orders[at].content != r.content {
			at--
		}
		if at < 0 {
			f.wrongf("%s: the row of %s stands behind that of a later order", r.place, id)
			return
		}
		if !k.takenBack && !k.incomplete {
			for _, o := range k.orders[at+1 : next] {
				text := fmt.Sprintf("%s (%s) was not joined, and one before it was (%s)", o.source, o.place, r.place)
				if whole {
					f.shortf("%s: at least once, a crash before the commit can lead to that", text)
				} else {
					f.unknownf("%s: %s, which has been compacted, may have deleted its status between them", text, topicStatus)
				}
			}
		}
		next = at
	}
}

// judgeStatuses says what is wrong with the statuses of an id's rows; "": nothing.
func (l *joinLog) judgeStatuses(k *joinedID, id string, again bool) string {
	apart := k.apart()
	known := map[statusRecord]bool{}
	for _, s := range k.statuses {
		known[s] = true
	}
	pos := 0
	for _, r := range k.rows {
		parts, ok := l.parts[placedUnder{k, r.content}]
		if !ok {
			continue // that it is of no order is said
		}
		if !slices.ContainsFunc(parts, func(p int32) bool { return known[statusRecord{r.status, p}] }) {
			return fmt.Sprintf("%s: a row of %s with %q, and %s holds no such status of it in the order's partition", r.place, id, r.status, topicStatus)
		}
		if apart || again {
			continue
		}
		i := slices.Index(k.statuses[pos:], statusRecord{r.status, parts[0]})
		if i < 0 {
			return fmt.Sprintf("%s: a row of %s with %q, and a row before it has a later status", r.place, id, r.status)
		}
		pos += i
	}
	return ""
}

// whole tells whether a topic still has each record that was ever written to it.
func (g *grader) whole(ctx context.Context, topic string) (bool, error) {
	missing := int64(0)
	for _, tp := range g.partitions(topic) {
		missing += g.bounds[tp].end
	}
	err := g.logOf(ctx, topic, func(kafka.TopicPartition, *kafka.Record) { missing-- })
	return missing == 0, err
}
