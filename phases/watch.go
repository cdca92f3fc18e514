package phases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/topology"
)

// stepTimeout is how long what must come of one order may take. An instance of the lab commits as soon as it is idle, and every second at
// most; the rest is room for a slow broker.
const stepTimeout = 30 * time.Second

// outputRow is a record of an output topic.
type outputRow struct{ key, value string }

func (o outputRow) String() string { return o.key + "\t" + o.value }

// count is the row's value as a count, 0 if it is none.
func (o outputRow) count() int64 {
	n, err := strconv.ParseInt(o.value, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// consumer reads a topic in the background and keeps its rows, as a console consumer in a second terminal would show them.
type consumer struct {
	cancel context.CancelFunc
	done   chan struct{} // closed once it has ended

	mu   sync.Mutex
	rows []outputRow
	err  error
}

// consume starts a consumer and returns once it waits for what comes. Unless it starts at the end, it has then read all that was there.
func (r *run) consume(ctx context.Context, topic string, tail bool) (*consumer, error) {
	reading, cancel := context.WithCancel(ctx)
	c := &consumer{cancel: cancel, done: make(chan struct{})}
	ready := make(chan struct{})
	go func() { // waited for by stop
		defer close(c.done)
		cfg := kafkatools.ReadConfig{Topic: topic, Tail: tail, Follow: true, Ready: func() { close(ready) }}
		err := kafkatools.Read(reading, r.conn.Client, cfg, func(_ int32, rec *kafka.Record) error {
			c.add(outputRow{string(rec.Key), string(rec.Value)})
			return nil
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = err
	}()
	timer := time.NewTimer(stepTimeout)
	defer timer.Stop()
	var err error
	select {
	case <-ready:
		return c, nil
	case <-c.done:
		_, err = c.seen()
	case <-timer.C:
		err = fmt.Errorf("not ready within %s", stepTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.stop()
	return nil, fmt.Errorf("consumer of %s: %w", topic, err)
}

func (c *consumer) add(row outputRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = append(c.rows, row)
}

// seen returns the rows so far, and why there will be no more.
func (c *consumer) seen() ([]outputRow, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.rows), c.err
}

func (c *consumer) stop() {
	c.cancel()
	<-c.done
}

// watch is what the steps of a phase look at while they wait for what comes of an order: what the instances of the application report, and
// what a consumer of an output topic has seen. It goes on for as long as the phase, so that a later step can look back.
type watch struct {
	counter   *counter
	instances *journal.Follower // of all instances here: any of them may own the task
	consumer  *consumer         // nil: none

	events []journal.Event // so far
	rows   []outputRow     // so far
}

// watch begins with what the instances of earlier runs reported. It ends with the run.
func (r *run) watch(c *counter) *watch {
	w := &watch{counter: c, instances: journal.FollowAll(r.Workspace.Journals(), topology.ApplicationID)}
	r.watches = append(r.watches, w)
	return w
}

func (w *watch) stop() error {
	if w.consumer != nil {
		w.consumer.stop()
	}
	return w.instances.Close()
}

// look takes in what has come.
func (w *watch) look() error {
	events, err := w.instances.Next()
	w.events = append(w.events, events...)
	if err != nil || w.consumer == nil {
		return err
	}
	w.rows, err = w.consumer.seen()
	return err
}

// await looks again and again until done finds what it wants. It ends with a *journal.WaitError after stepTimeout or with the instance.
func (w *watch) await(ctx context.Context, what string, done func() bool) error {
	return w.awaitWithin(ctx, stepTimeout, what, done)
}

// awaitWithin is await with another limit.
func (w *watch) awaitWithin(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	start := time.Now()
	ctx, cancel := w.counter.alive(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		// Looked at before the rest: what came before the end counts.
		ended := context.Cause(ctx)
		err := w.look()
		if err == nil && done() {
			return nil
		}
		if errors.Is(ended, context.DeadlineExceeded) {
			ended = fmt.Errorf("the limit is %s: %w", limit, ended)
		}
		if err = cmp.Or(err, ended); err != nil {
			return &journal.WaitError{What: what, Spent: time.Since(start), Last: w.instances.Last(), Err: err}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// event returns the first event that match accepts, of those from the given one on.
func (w *watch) event(from int, match func(*journal.Event) bool) *journal.Event {
	for i := from; i < len(w.events); i++ {
		if match(&w.events[i]) {
			return &w.events[i]
		}
	}
	return nil
}

// row returns the index of the first row of a key with at least that count, of those from the given one on; -1: there is none. A higher
// count than the one that an order leads to comes from orders that were counted twice, or together with it.
func (w *watch) row(from int, key string, least int64) int {
	for i := from; i < len(w.rows); i++ {
		if w.rows[i].key == key && w.rows[i].count() >= least {
			return i
		}
	}
	return -1
}
