package phases

import (
	"context"
	"errors"
	"time"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/topology"
)

// firstBase is where the feed of phase 1 starts.
var firstBase = time.Date(2026, time.September, 12, 10, 0, 0, 0, time.UTC)

// eventTimeout is how long all that a step published may take to be counted.
const eventTimeout = 60 * time.Second

// event names one event of a feed: the same order id comes again with each feed, at another time.
type event struct {
	orderID    string
	occurredAt int64
}

// published returns which events of a feed are in orders.placed already.
func published(ctx context.Context, client *kafka.Client, base time.Time) (map[event]bool, error) {
	events := map[event]bool{}
	for _, o := range feed.Events(base) {
		events[event{o.OrderID, o.OccurredAt}] = true
	}
	found := map[event]bool{}
	err := kafkatools.Read(ctx, client, kafkatools.ReadConfig{Topic: topology.OrdersPlaced}, func(_ int32, r *kafka.Record) error {
		// What is no order is none of the feed's.
		if o, err := feed.DecodeOrder(r.Value); err == nil && events[event{o.OrderID, o.OccurredAt}] {
			found[event{o.OrderID, o.OccurredAt}] = true
		}
		return nil
	})
	return found, err
}

// Feed publishes the 300 events from base, as `lab feed`. On a broker that the lab started it creates missing topics first.
func Feed(ctx context.Context, cfg Config, base time.Time) error {
	conn, err := connect.Up(ctx, cfg.Connect)
	if err != nil {
		return err
	}
	defer conn.Close()
	if conn.Ours() {
		if _, err := provision.Create(ctx, conn, cfg.Workspace, ""); err != nil {
			return err
		}
	}
	found, err := published(ctx, conn.Client, base)
	if err != nil {
		return err
	}
	at := base.Format(time.RFC3339)
	if len(found) > 0 {
		cfg.Console.Warnf("orders.placed holds %d events from %s already: each of them is counted again", len(found), at)
	}
	if err := feed.Publish(ctx, conn.Client, base, nil); err != nil {
		return err
	}
	cfg.Console.Printf("published %d events from %s", feed.EventCount, at)
	return nil
}

// feed publishes those events from base that are not in orders.placed yet, so that an interrupted feed is completed and not repeated.
func (r *run) feed(ctx context.Context, base time.Time) (err error) {
	found, err := published(ctx, r.conn.Client, base)
	if err != nil {
		return err
	}
	at := base.Format(time.RFC3339)
	if len(found) == feed.EventCount {
		r.Console.Printf("  the %d events from %s are there already", len(found), at)
		return nil
	}
	producer, err := r.conn.NewProducer(ctx, kafka.ProducerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, producer.Close(ctx)) }()
	for _, o := range feed.Events(base) {
		if found[event{o.OrderID, o.OccurredAt}] {
			continue
		}
		if err := producer.Send(ctx, o.Message(time.Now())); err != nil {
			return err
		}
	}
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	r.Console.Printf("  published %d events from %s", feed.EventCount-len(found), at)
	return nil
}
