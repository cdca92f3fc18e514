package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// arrival is an order as it came to be counted.
type arrival struct {
	id         string // "" if the record is none of an order
	at         place  // in the repartition topic
	occurredAt int64
	content    uint64
}

func arrived(tp kafka.TopicPartition, r *kafka.Record) arrival {
	a := arrival{at: place{tp, r.Offset}, occurredAt: r.Timestamp, content: fingerprint(r.Value, r.Timestamp)}
	if o, err := readOrder(r.Value); err == nil {
		a.id = o.ID
	}
	return a
}

func (a arrival) String() string {
	id := a.id
	if id == "" {
		id = "a record that is no order"
	}
	return fmt.Sprintf("%s of %s (%s)", id, instant(a.occurredAt), a.at)
}

// closer is an order that closed minutes: with it stream time reached the end of a minute and the grace.
type closer struct {
	arrival
	before   int64 // stream time without it, -1 if it was the first of its task
	boundary int64 // the latest such point in time that it reached
}

// closers are those of one task, in their order, which is that of their boundaries. There are no more than minutes.
type closers []closer

// boundaryOf is the latest point at or before ms at which a minute closes.
func boundaryOf(ms int64) int64 { return floorMinute(ms-grace) + grace }

// of is the one that closed the minute with that start.
func (cs closers) of(start int64) *closer {
	i := sort.Search(len(cs), func(i int) bool { return cs[i].boundary >= start+minute+grace })
	c := cs[i]
	return &c
}

// lateGroup are the orders that came too late because of one other.
type lateGroup struct {
	closer *closer
	n      int64
	first  []arrival // up to maxSamples of them
	// How they and the closer stand in orders.placed.
	sent, closedBy []origin
}

// origin is where an order stands in orders.placed, and when it was sent.
type origin struct {
	place
	sentAt int64
}

// noteLate takes a record that was just counted, or that came too late, with the stream time before it.
func (rs *repartition) noteLate(tp kafka.TopicPartition, r *kafka.Record, before int64, late bool) {
	cs := rs.closers[tp.Partition]
	if !late {
		boundary := boundaryOf(r.Timestamp)
		if n := len(cs); r.Timestamp > before && (n == 0 || cs[n-1].boundary < boundary) {
			rs.closers[tp.Partition] = append(cs, closer{arrived(tp, r), before, boundary})
		}
		return
	}
	c := cs.of(floorMinute(r.Timestamp))
	g := rs.groups[c.at]
	if g == nil {
		g = &lateGroup{closer: c}
		rs.groups[c.at] = g
	}
	g.n++
	if len(g.first) < maxSamples {
		g.first = append(g.first, arrived(tp, r))
	}
	if len(rs.dropouts) < maxLedger {
		rs.dropouts[fingerprint(r.Value, r.Timestamp)] = g
	}
}

// maxGroups bounds the reasons that are told.
const maxGroups = 4

// whyLate explains the orders that came too late for their minutes: which they are, and which order had closed those minutes. An order that
// was sent after that one was really late. One that was sent before it was not: the tasks that read the input went on at their own pace, and
// Kafka Streams, which takes a task's own partitions in the order of time, does nothing of the kind between tasks.
func (g *grader) whyLate(ctx context.Context) ([]string, error) {
	return g.late.get(func() ([]string, error) {
		rs, err := g.readRepartition(ctx)
		if err != nil || len(rs.groups) == 0 {
			return nil, err
		}
		if err := g.findOrigins(ctx, rs); err != nil {
			return nil, err
		}
		groups := make([]*lateGroup, 0, len(rs.groups))
		var late, total int64
		for _, group := range rs.groups {
			groups = append(groups, group)
			late += group.n
		}
		for _, k := range rs.stores {
			total += k.n
		}
		slices.SortFunc(groups, func(a, b *lateGroup) int {
			at, other := a.closer.at, b.closer.at
			return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(at.Partition, other.Partition), cmp.Compare(at.offset, other.offset))
		})
		notes := []string{fmt.Sprintf("%d of %d orders came too late for their minute and are in the running count alone", late, total)}
		for _, group := range groups[:min(len(groups), maxGroups)] {
			notes = append(notes, group.String())
		}
		if more := len(groups) - maxGroups; more > 0 {
			notes = append(notes, fmt.Sprintf("and %d more orders closed minutes too early for others", more))
		}
		return notes, nil
	})
}

// findOrigins looks in the input for the orders that came late and for those that closed their minutes.
func (g *grader) findOrigins(ctx context.Context, rs *repartition) error {
	closed := map[uint64][]*lateGroup{}
	for _, group := range rs.groups {
		closed[group.closer.content] = append(closed[group.closer.content], group)
	}
	return g.read(ctx, topicPlaced, func(tp kafka.TopicPartition, r *kafka.Record) {
		o, err := readOrder(r.Value)
		if err != nil {
			return
		}
		content := fingerprint(r.Value, o.OccurredAt)
		from := origin{place{tp, r.Offset}, r.Timestamp}
		if group := rs.dropouts[content]; group != nil {
			group.sent = append(group.sent, from)
		}
		for _, group := range closed[content] {
			group.closedBy = append(group.closedBy, from)
		}
	})
}

func (l *lateGroup) String() string {
	from := "its first"
	if l.closer.before >= 0 {
		from = instant(l.closer.before)
	}
	names := make([]string, len(l.first))
	for i, a := range l.first {
		names[i] = fmt.Sprintf("%s of %s (offset %d)", a.id, instant(a.occurredAt), a.at.offset)
	}
	list := strings.Join(names, ", ")
	if more := l.n - int64(len(names)); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	to := instant(l.closer.occurredAt)
	return joinNonEmpty("; ", fmt.Sprintf("%d came after %s had moved stream time from %s to %s: %s", l.n, l.closer, from, to, list), l.reason())
}

// reason tells from when the orders were sent why that one was counted before them.
func (l *lateGroup) reason() string {
	if len(l.closedBy) != 1 { // not to be told from its twin
		return ""
	}
	by := l.closedBy[0]
	later := 0
	var partitions []int32
	for _, o := range l.sent {
		if o.sentAt > by.sentAt {
			later++
		} else if o.Partition != by.Partition {
			partitions = insert(partitions, o.Partition)
		}
	}
	var parts []string
	if later > 0 {
		parts = append(parts, fmt.Sprintf("sent after it: %d", later))
	}
	if len(partitions) > 0 {
		parts = append(parts, fmt.Sprintf("sent before it: %d, but it is %s and they are in partition %s, and its task went ahead of those that read them",
			len(l.sent)-later, by.place, join(partitions)))
	}
	return strings.Join(parts, "; ")
}
