package phases

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/topology"
)

// The orders of phase 3. Two are late: one within the grace period of its minute, and one after it.
var (
	nextMinute  = byHand("ord-2001", 65*time.Second)
	lateInGrace = byHand("ord-2002", 30*time.Second)
	jumpAhead   = byHand("ord-2003", 180*time.Second)
	tooLate     = byHand("ord-2004", 45*time.Second)
)

// windowed is an order of phase 3 that has to come out as a minute count.
type windowed struct {
	order feed.Order
	what  string
	why   string
	count int64 // of its minute, with it
}

// claim is a row that an order was waiting for, with the count that the order leads to. The row's own may be higher.
type claim struct {
	row  int
	want int64
}

// lateRun is phase 3 at work.
type lateRun struct {
	*run
	began   time.Time
	watch   *watch
	feed    map[string]int64 // the minute counts of the first feed
	claimed []claim          // the consumer's rows that an order was waiting for
	drop    *journal.Event   // the warning about the order that came too late
}

func phase3() phase {
	return phase{number: 3, title: "late orders", steps: func(r *run) []step {
		l := &lateRun{run: r, began: time.Now(), feed: minuteCounts(feed.Events(firstBase))}
		steps := []step{
			{
				"see that instance a runs and has nothing left to count",
				"Counting depends on the order in which orders come, so each of the next four meets a counter that waits for it.",
				l.start,
			},
			{
				"start a consumer of " + topology.OrdersPerStoreMinute + " at its end",
				"It shows updates only: each line is a minute whose count an order has changed.",
				l.consume,
			},
		}
		for _, o := range []windowed{
			{
				nextMinute, "it opens the minute 10:01",
				"Stream time, the largest time seen, moves to 10:01:05. The minute 10:00 stays open until 10:01:30.", 1,
			},
			{
				lateInGrace, "late, but in time",
				"It occurred at 10:00:30, and 10:00 is still open: an earlier result is revised under the same key.",
				l.feed[minuteKey(lateInGrace)] + 1,
			},
			{
				jumpAhead, "it opens the minute 10:03",
				"Stream time moves to 10:03:00. That closes 10:00, as it is past 10:01:30.", 1,
			},
		} {
			steps = append(steps, step{
				fmt.Sprintf("send %s: %s", o.order.OrderID, o.what), o.why,
				func(ctx context.Context) error { return l.revise(ctx, o) },
			})
		}
		return append(steps,
			step{
				fmt.Sprintf("send %s: too late", tooLate.OrderID),
				"It occurred at 10:00:45, and 10:00 is closed: no minute counts it, and the instance warns. A count without a window takes it.",
				l.dropped,
			},
			step{
				"read the running counts and save what was seen",
				"All four are in the running count of " + byHandStore + ": a count without a window never closes.",
				l.save,
			})
	}}
}

// minuteKey is the key of the minute count that an order belongs to, as the topology writes it: store-17|2026-09-12T10:01:00Z.
func minuteKey(o feed.Order) string {
	start := time.UnixMilli(o.OccurredAt).UTC().Truncate(topology.WindowSize)
	return o.StoreID + "|" + start.Format(time.RFC3339)
}

func minuteCounts(orders []feed.Order) map[string]int64 {
	counts := map[string]int64{}
	for _, o := range orders {
		if o.Status == feed.Placed {
			counts[minuteKey(o)]++
		}
	}
	return counts
}

func (l *lateRun) start(ctx context.Context) error {
	c, err := l.counter(ctx, "a")
	if err != nil {
		return err
	}
	l.watch = l.run.watch(c)
	return l.counted(ctx)
}

// consume starts the consumer. It begins at the end, unless an interrupted run has sent some of the orders: then what came of them is there
// already, and it begins at the front and leaves out what the feed made.
func (l *lateRun) consume(ctx context.Context) error {
	found, err := published(ctx, l.conn.Client, []feed.Order{nextMinute, lateInGrace, jumpAhead, tooLate})
	if err != nil {
		return err
	}
	tail := len(found) == 0
	l.watch.consumer, err = l.run.consume(ctx, topology.OrdersPerStoreMinute, tail)
	if err != nil {
		return err
	}
	if tail {
		l.Console.Printf("  ready")
	} else {
		l.Console.Printf("  ready; an interrupted run has sent %d of the orders, so it shows what the topic holds since the feed", len(found))
	}
	return nil
}

// revise sends an order, unless it is there, and waits for the minute count that it leads to.
func (l *lateRun) revise(ctx context.Context, o windowed) error {
	if err := l.watch.look(); err != nil {
		return err
	}
	from := len(l.watch.rows)
	sent, err := l.send(ctx, o.order)
	if err != nil {
		return err
	}
	if !sent {
		from = 0
	}
	key, found := minuteKey(o.order), -1
	what := fmt.Sprintf("%s %d on %s, which %s leads to", key, o.count, topology.OrdersPerStoreMinute, o.order.OrderID)
	err = l.watch.await(ctx, what, func() bool {
		found = l.watch.row(from, key, o.count)
		return found >= 0
	})
	if err != nil {
		return err
	}
	l.claimed = append(l.claimed, claim{found, o.count})
	l.Console.Printf("  %s", l.watch.rows[found])
	return l.noLag(ctx)
}

// dropped sends the order that comes too late, unless it is there, and waits for the warning. A counter that met an interrupted run's orders
// all at once may have taken them in the order of their times, and then none was late: its minute shows it.
func (l *lateRun) dropped(ctx context.Context) error {
	if err := l.watch.look(); err != nil {
		return err
	}
	events, rows := len(l.watch.events), len(l.watch.rows)
	sent, err := l.send(ctx, tooLate)
	if err != nil {
		return err
	}
	if !sent {
		events, rows = 0, 0
	}
	key, found := minuteKey(tooLate), -1
	accepted := l.feed[key] + 2
	err = l.watch.await(ctx, fmt.Sprintf("an instance to drop %s, which is too late for its minute", tooLate.OrderID), func() bool {
		l.drop = l.watch.event(events, isDropOf(tooLate))
		found = l.watch.row(rows, key, accepted)
		return l.drop != nil || found >= 0
	})
	if err != nil {
		return err
	}
	if l.drop != nil {
		l.Console.Printf("  %s", l.drop.Line())
	} else {
		l.Console.Warnf("%s was counted: %s", tooLate.OrderID, l.watch.rows[found])
	}
	return l.noLag(ctx)
}

// isDropOf tells the drop of an order from others. It comes from the repartition topic, whose records have the orders' times.
func isDropOf(o feed.Order) func(*journal.Event) bool {
	start := time.UnixMilli(o.OccurredAt).Truncate(topology.WindowSize).UnixMilli()
	return func(e *journal.Event) bool {
		return e.Skipped != nil && e.Skipped.Late != nil && e.Skipped.Late.Timestamp == o.OccurredAt && e.Skipped.Late.WindowStart == start
	}
}

func (l *lateRun) save(ctx context.Context) error {
	if err := l.watch.look(); err != nil {
		return err
	}
	var lines, more bytes.Buffer
	over := 0
	for _, c := range l.claimed {
		fmt.Fprintln(&lines, l.watch.rows[c.row])
		if l.watch.rows[c.row].count() > c.want {
			over++
		}
	}
	for _, row := range l.unclaimed() {
		fmt.Fprintln(&more, row)
		over++
	}
	sections := [][]byte{section("consumer of "+topology.OrdersPerStoreMinute, lines.Bytes())}
	if l.drop != nil {
		sections = append(sections, section("instance "+l.drop.Instance, []byte(l.drop.Line())))
	}
	last, err := l.showCounts(ctx)
	if err != nil {
		return err
	}
	sections = append(sections, section("running count, last value per key", last))
	if over > 0 {
		why, err := l.excess(fmt.Sprintf("%d lines beyond what the orders lead to", over))
		if err != nil {
			return err
		}
		sections = append(sections, section(why, more.Bytes()))
	}
	if err := l.write("phase-3.txt", bytes.Join(sections, []byte{'\n'})); err != nil {
		return err
	}
	return l.saveLog(ctx)
}

func (l *lateRun) saveLog(ctx context.Context) error {
	began, err := l.since(ctx, l.began, nextMinute)
	if err != nil {
		return err
	}
	all, err := l.linesSince(began)
	if err != nil {
		return err
	}
	return l.write("phase-3-log.txt", lines(all))
}

// unclaimed are the consumer's rows that no order was waiting for. Those up to the counts of the feed are the feed's.
func (l *lateRun) unclaimed() []outputRow {
	claimed := map[int]bool{}
	for _, c := range l.claimed {
		claimed[c.row] = true
	}
	var rest []outputRow
	for i, row := range l.watch.rows {
		if !claimed[i] && row.count() > l.feed[row.key] {
			rest = append(rest, row)
		}
	}
	return rest
}
