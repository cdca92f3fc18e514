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

// published returns which of some orders are in orders.placed already, and when they were first sent.
func published(ctx context.Context, client *kafka.Client, orders []feed.Order) (map[event]time.Time, error) {
	events := map[event]bool{}
	for _, o := range orders {
		events[eventOf(o)] = true
	}
	found := map[event]time.Time{}
	err := kafkatools.Read(ctx, client, kafkatools.ReadConfig{Topic: topology.OrdersPlaced}, func(_ int32, r *kafka.Record) error {
		// What is no order is none of them.
		o, err := feed.DecodeOrder(r.Value)
		if err != nil || !events[eventOf(o)] {
			return nil
		}
		if _, again := found[eventOf(o)]; !again {
			found[eventOf(o)] = time.UnixMilli(r.Timestamp)
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
	found, err := published(ctx, conn.Client, feed.Events(base))
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
	found, err := published(ctx, r.conn.Client, feed.Events(base))
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
		if _, there := found[eventOf(o)]; there {
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
