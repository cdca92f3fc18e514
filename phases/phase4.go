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

// The orders of phase 4. The first two are of one id, the third's never gets a status.
var (
	whilePaid    = byHand("ord-1042", 210*time.Second)
	whileShipped = byHand("ord-1042", 220*time.Second)
	noStatus     = byHand("ord-2005", 230*time.Second)
)

// enriched is a status and the order that has to find it.
type enriched struct {
	status string
	order  feed.Order
	// why of the two steps
	whyStatus, whyOrder string
}

// joinRun is phase 4 at work.
type joinRun struct {
	*run
	began time.Time
	watch *watch
}

func phase4() phase {
	return phase{number: 4, title: "the stream-table join", steps: func(r *run) []step {
		j := &joinRun{run: r, began: time.Now()}
		steps := []step{{
			"see that instance a runs and has nothing left to count",
			"A join looks the status up when the order is processed, so it matters what came first.",
			j.start,
		}}
		for _, e := range []enriched{
			{
				"PAID", whilePaid,
				"A row of the table alone puts nothing out. It has to be in the table before the order comes.",
				"The order finds PAID and comes out with it.",
			},
			{
				"SHIPPED", whileShipped,
				"It replaces the row. What was joined with PAID stays as it is.",
				"The same order id at a later time finds the row as it is now.",
			},
		} {
			steps = append(steps,
				step{
					fmt.Sprintf("publish the status %s|%s", e.order.OrderID, e.status), e.whyStatus,
					func(ctx context.Context) error { return j.apply(ctx, e) },
				},
				step{
					fmt.Sprintf("send %s, which occurred at %s", e.order.OrderID, clock(e.order)), e.whyOrder,
					func(ctx context.Context) error { return j.join(ctx, e) },
				})
		}
		return append(steps,
			step{
				fmt.Sprintf("send %s, which has no status", noStatus.OrderID),
				"An inner join puts nothing out for it. It is counted like the others.",
				j.unmatched,
			},
			step{
				"read the joined orders and save what was seen",
				"Two rows: each order with the status that the table held at its time.",
				j.save,
			})
	}}
}

func clock(o feed.Order) string { return time.UnixMilli(o.OccurredAt).UTC().Format(time.TimeOnly) }

func (j *joinRun) start(ctx context.Context) error {
	c, err := j.counter(ctx, "a")
	if err != nil {
		return err
	}
	j.watch = j.run.watch(c)
	return j.counted(ctx)
}

// apply publishes a status, unless an interrupted run has, and waits until it is in the table.
func (j *joinRun) apply(ctx context.Context, e enriched) error {
	found, err := published(ctx, j.conn.Client, []feed.Order{e.order})
	if err != nil {
		return err
	}
	if len(found) > 0 {
		j.Console.Printf("  the order that needs it is in %s already", topology.OrdersPlaced)
		return nil
	}
	if err := j.watch.look(); err != nil {
		return err
	}
	from := len(j.watch.events)
	sent, err := j.sendStatus(ctx, e.order.OrderID, e.status)
	if err != nil {
		return err
	}
	if !sent {
		from = 0
	}
	return j.reported(ctx, from, &journal.TableApplied{Key: e.order.OrderID, Value: e.status})
}

// join sends an order, unless it is there, and waits until it has found its status.
func (j *joinRun) join(ctx context.Context, e enriched) error {
	if err := j.watch.look(); err != nil {
		return err
	}
	from := len(j.watch.events)
	sent, err := j.send(ctx, e.order)
	if err != nil {
		return err
	}
	if !sent {
		from = 0
	}
	return j.reported(ctx, from, &journal.Joined{Key: e.order.OrderID, Value: e.status + "|" + string(feed.AppendOrder(nil, e.order))})
}

// reported waits until an instance reports just that, in an event from the given one on, and until it is committed.
func (j *joinRun) reported(ctx context.Context, from int, want journal.Payload) error {
	line := want.Line(&journal.Event{})
	var found *journal.Event
	err := j.watch.await(ctx, fmt.Sprintf("an instance to report %q", line), func() bool {
		found = j.watch.event(from, func(e *journal.Event) bool { return e.Line() == line })
		return found != nil
	})
	if err != nil {
		return err
	}
	j.Console.Printf("  %s", found.Line())
	return j.noLag(ctx)
}

// unmatched sends the order without a status. That nothing comes of it in the join is known once it is committed.
func (j *joinRun) unmatched(ctx context.Context) error {
	if _, err := j.send(ctx, noStatus); err != nil {
		return err
	}
	return j.counted(ctx)
}

func (j *joinRun) save(ctx context.Context) error {
	joined, err := j.rows(ctx, topology.OrdersWithStatus, false)
	if err != nil {
		return err
	}
	for row := range bytes.Lines(joined) {
		j.Console.Printf("  %s", bytes.TrimSpace(row))
	}
	if err := j.write("phase-4.txt", joined); err != nil {
		return err
	}
	if err := j.watch.look(); err != nil {
		return err
	}
	first := j.watch.event(0, func(e *journal.Event) bool { return e.TableApplied != nil && e.TableApplied.Key == whilePaid.OrderID })
	if first != nil && first.Time.Before(j.began) {
		j.began = first.Time
	}
	all, err := j.linesSince(j.began)
	if err != nil {
		return err
	}
	counts, err := j.showCounts(ctx)
	if err != nil {
		return err
	}
	minutes, err := j.rows(ctx, topology.OrdersPerStoreMinute, true)
	if err != nil {
		return err
	}
	log := [][]byte{
		lines(all),
		section(fmt.Sprintf("running count after %s, last value per key", noStatus.OrderID), counts),
		section(fmt.Sprintf("minute counts after %s, last value per key", noStatus.OrderID), minutes),
	}
	if n := bytes.Count(joined, []byte{'\n'}); n > 2 {
		why, err := j.excess(fmt.Sprintf("%d rows are joined and not two", n))
		if err != nil {
			return err
		}
		log = append(log, section(why, joined))
	}
	return j.write("phase-4-log.txt", bytes.Join(log, []byte{'\n'}))
}
