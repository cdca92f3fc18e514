package phases

import (
	"context"
	"time"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/topology"
)

// byHandStore is the store of all the orders that phases 3 and 4 send one by one.
const byHandStore = "store-17"

// byHand is an order that a phase sends by itself, as one would with a console producer. It occurred that long after the first feed's base.
func byHand(id string, after time.Duration) feed.Order {
	return feed.Order{
		OrderID: id, StoreID: byHandStore, Status: feed.Placed, Amount: 5000, OccurredAt: firstBase.Add(after).UnixMilli(),
	}
}

func eventOf(o feed.Order) event { return event{o.OrderID, o.OccurredAt} }

// send publishes an order, unless an interrupted run has left it in orders.placed. It returns whether it did.
func (r *run) send(ctx context.Context, o feed.Order) (sent bool, err error) {
	found, err := published(ctx, r.conn.Client, []feed.Order{o})
	if err != nil {
		return false, err
	}
	if _, there := found[eventOf(o)]; there {
		r.Console.Printf("  %s is in %s already", o.OrderID, topology.OrdersPlaced)
		return false, nil
	}
	m := o.Message(time.Now())
	if err := kafkatools.Send(ctx, r.conn.Client, m); err != nil {
		return false, err
	}
	r.Console.Printf("  sent %s", m.Value)
	return true, nil
}

// sendStatus makes a status the current row of an order, unless it is that already. It returns whether it sent it.
func (r *run) sendStatus(ctx context.Context, orderID, status string) (sent bool, err error) {
	row := orderID + "|" + status
	current := ""
	err = kafkatools.Read(ctx, r.conn.Client, kafkatools.ReadConfig{Topic: topology.OrdersStatus}, func(_ int32, rec *kafka.Record) error {
		if string(rec.Key) == orderID {
			current = string(rec.Value)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if current == status {
		r.Console.Printf("  %s is the current row in %s already", row, topology.OrdersStatus)
		return false, nil
	}
	m := feed.StatusRow{OrderID: orderID, Status: status}.Message(time.Now())
	if err := kafkatools.Send(ctx, r.conn.Client, m); err != nil {
		return false, err
	}
	r.Console.Printf("  sent %s", row)
	return true, nil
}

// since is when a phase began: when this run of it did or, where an interrupted one went before, when that sent the first of the orders.
func (r *run) since(ctx context.Context, began time.Time, orders ...feed.Order) (time.Time, error) {
	found, err := published(ctx, r.conn.Client, orders)
	for _, sent := range found {
		if sent.Before(began) {
			began = sent
		}
	}
	return began, err
}
