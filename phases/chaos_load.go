package phases

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

// The orders of a chaos run. What matters of them: many stores and minutes, so that each count is small enough for one order more or less to
// show; event times that go back and forth around the grace period, so that some orders are late and most are not; and statuses.
const (
	chaosStores = 100
	// chaosSpeed is how much faster event time goes than the clock. An owner that is away for some seconds is then away for about the grace
	// period: more, and most orders that it comes with would be late.
	chaosSpeed = 8
	// One order in statusEvery has a status before any order is published, and as many get another one on the way.
	statusEvery = 8
	// firstStatus and secondStatus are what they say.
	firstStatus, secondStatus = "PAID", "SHIPPED"
)

// chaosOrders draws the orders of a seed.
type chaosOrders struct {
	rnd  *rand.Rand
	n    int
	step time.Duration
}

// newChaosOrders are n orders, to be published at a rate a second.
func newChaosOrders(seed uint64, n int, rate float64) *chaosOrders {
	return &chaosOrders{rand.New(rand.NewPCG(seed, 1)), n, time.Duration(chaosSpeed / rate * float64(time.Second))}
}

func chaosOrderID(i int) string { return "ord-" + strconv.Itoa(i) }

// clock is the event time that order i is about.
func (c *chaosOrders) clock(i int) time.Time { return firstBase.Add(time.Duration(i) * c.step) }

// order is order i; they are drawn one after another. Most come a little late, one in five by up to 40 s, which is beyond a minute's grace for
// some, and one in a hundred by minutes.
func (c *chaosOrders) order(i int) feed.Order {
	back := c.rnd.Int64N(2000)
	switch kind := c.rnd.IntN(100); {
	case kind == 0:
		back = c.rnd.Int64N(180_000)
	case kind < 20:
		back = c.rnd.Int64N(40_000)
	}
	o := feed.Order{
		OrderID: chaosOrderID(i), StoreID: "store-" + strconv.Itoa(c.rnd.IntN(chaosStores)), Status: feed.Placed,
		Amount: 5000 + 25000*c.rnd.Int64N(7), OccurredAt: c.clock(i).UnixMilli() - back,
	}
	if c.rnd.IntN(10) == 0 {
		o.Status = feed.Cancelled
	}
	return o
}

// restatus is the status to publish after order i, if there is one: of an order that has one already and that may come soon or have come.
func (c *chaosOrders) restatus(i int) (feed.StatusRow, bool) {
	if i%statusEvery != 0 {
		return feed.StatusRow{}, false
	}
	other := max(0, min(c.n-1, i+c.rnd.IntN(4000)-2000))
	return feed.StatusRow{OrderID: chaosOrderID(other - other%statusEvery), Status: secondStatus}, true
}

// loadEvery is how often the load publishes what is due.
const loadEvery = 10 * time.Millisecond

// hurryFactor is how much faster what is left after the last strike is published.
const hurryFactor = 5

// load publishes the orders of a run in the background, at a steady rate.
type load struct {
	prefix string
	rate   float64 // orders a second
	orders *chaosOrders

	limit     atomic.Int64 // up to how many may be published for now
	hurry     atomic.Bool  // nothing more will be struck
	published atomic.Int64 // handed to the producer
	done      chan struct{}
	cancel    context.CancelFunc
	err       error // after done
}

// message makes a record of a user topic one of the run's.
func (l *load) message(m kafka.Message) kafka.Message {
	m.Topic = l.prefix + m.Topic
	return m
}

// statuses publishes the status that an order has before it comes. They are older than any order, and have to be in the table before the first
// one comes, so that there is only one right result of the join.
func (l *load) statuses(ctx context.Context, client *kafka.Client) (err error) {
	p, err := client.NewProducer(ctx, kafka.ProducerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	before := firstBase.Add(-time.Hour)
	for i := 0; i < l.orders.n; i += statusEvery {
		if err := p.Send(ctx, l.message(feed.StatusRow{OrderID: chaosOrderID(i), Status: firstStatus}.Message(before))); err != nil {
			return err
		}
	}
	return nil
}

// start begins to publish. stop waits for its end.
func (l *load) start(ctx context.Context, client *kafka.Client) {
	ctx, l.cancel = context.WithCancel(ctx)
	l.done = make(chan struct{})
	go func() { // waited for by stop
		defer close(l.done)
		l.err = l.publish(ctx, client)
	}()
}

func (l *load) stop() {
	l.cancel()
	<-l.done
}

func (l *load) publish(ctx context.Context, client *kafka.Client) (err error) {
	p, err := client.NewProducer(ctx, kafka.ProducerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	ticker := time.NewTicker(loadEvery)
	defer ticker.Stop()
	last, due := time.Now(), 0.0
	for i := 0; i < l.orders.n; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now := time.Now()
		rate := l.rate
		if l.hurry.Load() {
			rate *= hurryFactor
		}
		due += rate * now.Sub(last).Seconds()
		last = now
		// What the limit keeps back is not made up for in a burst later.
		due = min(due, float64(l.limit.Load()))
		for ; i < int(due); i++ {
			if err := l.send(ctx, p, i, now); err != nil {
				return err
			}
		}
		l.published.Store(int64(i))
	}
	return nil
}

func (l *load) send(ctx context.Context, p *kafka.Producer, i int, now time.Time) error {
	if err := p.Send(ctx, l.message(l.orders.order(i).Message(now))); err != nil {
		return err
	}
	row, ok := l.orders.restatus(i)
	if !ok {
		return nil
	}
	return p.Send(ctx, l.message(row.Message(l.orders.clock(i))))
}

// share lets the load go on up to a share of all orders.
func (l *load) share(part, of int) {
	l.limit.Store(int64(l.orders.n) * int64(part) / int64(of))
}

// finish lets all that is left through. A load whose rate was asked for keeps it.
func (l *load) finish(hurry bool) {
	l.hurry.Store(hurry)
	l.share(1, 1)
}

// more lets another second's orders through, for who waits for something that only comes of orders.
func (l *load) more() {
	l.limit.Store(min(int64(l.orders.n), l.limit.Load()+int64(l.rate)))
}

// waiting reports whether the limit keeps the load back.
func (l *load) waiting() bool { return l.published.Load() >= l.limit.Load() }

// over reports whether all orders are published.
func (l *load) over() bool { return l.published.Load() == int64(l.orders.n) }
