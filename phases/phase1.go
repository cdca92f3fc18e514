package phases

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/topology"
)

// repartitionTopic carries each order to the task that counts its store.
const repartitionTopic = topology.ApplicationID + "-" + topology.Repartition

// pollEvery is how often a step that waits for the brokers' view of things looks.
const pollEvery = 25 * time.Millisecond

func phase1() phase {
	return phase{number: 1, title: "build the topology and feed it", steps: func(r *run) []step {
		return []step{
			{
				"create the lab's topics",
				"A join needs equally many partitions on both sides. Statuses are compacted: each order has one current row.",
				r.createTopics,
			},
			{
				"start instance a",
				"Alone it owns all five tasks: three filter, route and join orders.placed, two count per store.",
				r.startWithTopology,
			},
			{
				"publish the first feed: 300 orders from " + firstBase.Format(time.RFC3339),
				"They fall into one minute of event time, 200 ms apart. Every tenth is CANCELLED, so 270 are to be counted.",
				func(ctx context.Context) error { return r.feed(ctx, firstBase) },
			},
			{
				"wait until all of it is counted",
				"Done is when the group has committed the ends of its inputs: the orders, and the topic that brings them to their store's task.",
				r.counted,
			},
			{
				"save what came of it",
				"Orders of 100000 and more have a topic of their own. A store's first record shows which task owns its count.",
				r.savePhase1,
			},
		}
	}}
}

func (r *run) createTopics(ctx context.Context) error {
	created, err := provision.Create(ctx, r.conn, r.Workspace, "")
	if err != nil {
		return err
	}
	if len(created) == 0 {
		r.Console.Printf("  all there already")
		return nil
	}
	r.Console.Printf("  created %s", strings.Join(created, ", "))
	return nil
}

func (r *run) startWithTopology(ctx context.Context) error {
	if _, err := r.counter(ctx, "a"); err != nil {
		return err
	}
	top, err := topology.Build(topology.Options{})
	if err != nil {
		return err
	}
	return r.write("topology.txt", []byte(top.Describe()))
}

// counted waits until the application has committed all its input, and says so.
func (r *run) counted(ctx context.Context) error {
	err := r.noLag(ctx)
	if err == nil {
		r.Console.Printf("  no lag: everything published is counted and committed")
	}
	return err
}

// noLag waits until the application has committed all its input.
func (r *run) noLag(ctx context.Context) error {
	c, err := r.counter(ctx, "a")
	if err != nil {
		return err
	}
	return r.noLagOf(ctx, c, topology.ApplicationID, eventTimeout)
}

// noLagOf waits until an application, of which c is an instance, has committed all its input.
func (r *run) noLagOf(ctx context.Context, c *counter, application string, timeout time.Duration) error {
	ctx, cancel := c.alive(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		lag, err := r.lagOf(ctx, application)
		if err == nil && lag == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for group %s to have no lag, it has %d: %w", application, lag, context.Cause(ctx))
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// lag is what the application has not committed of its inputs.
func (r *run) lag(ctx context.Context) (int64, error) {
	return r.lagOf(ctx, topology.ApplicationID)
}

// lagOf is the same of another application with the lab's topology.
func (r *run) lagOf(ctx context.Context, application string) (int64, error) {
	return kafkatools.Lag(ctx, r.conn.Client, application, topology.OrdersPlaced, topology.OrdersStatus, application+"-"+topology.Repartition)
}

func (r *run) savePhase1(ctx context.Context) error {
	high, err := r.rows(ctx, topology.HighValueOrders, false)
	if err != nil {
		return err
	}
	if err := r.write("phase-1.txt", high); err != nil {
		return err
	}
	all, firstRecords, err := r.instanceLines()
	if err != nil {
		return err
	}
	for _, line := range firstRecords {
		r.Console.Printf("  %s", line)
	}
	return r.write("phase-1-log.txt", lines(all))
}
