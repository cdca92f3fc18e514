package streams_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
)

// ticker counts the punctuations of a wall clock in a store and forwards each count. Records it forwards with the count of
// their key.
type ticker struct {
	store *streams.KeyValueStore[string, int64]
	seen  *streams.KeyValue[string, int64]
	ctx   *streams.ProcessorContext[string, int64]
}

func (p *ticker) Init(ctx *streams.ProcessorContext[string, int64]) (err error) {
	p.ctx = ctx
	if p.seen, err = streams.OpenStore(ctx, p.store); err != nil {
		return err
	}
	_, err = ctx.Schedule(50*time.Millisecond, streams.WallClock, func(now int64) error {
		return p.count("tick-"+ctx.Context().TaskID(), now)
	})
	return err
}

func (p *ticker) Process(r streams.Record[string, string]) error {
	return p.count(r.Value, r.Timestamp)
}

func (p *ticker) count(what string, timestamp int64) error {
	n, _, err := p.seen.Get(what)
	if err != nil {
		return err
	}
	if err := p.seen.Put(what, n+1); err != nil {
		return err
	}
	p.ctx.Forward(streams.Record[string, int64]{Key: what, Value: n + 1, Timestamp: timestamp})
	return nil
}

func (c *counting) ticking() *streams.Topology {
	c.t.Helper()
	b := streams.NewBuilder()
	text := streams.Text()
	seen := streams.NewKeyValueStore(b, "seen", text, streams.Int64())
	counts := streams.Process(streams.Consume(b, c.in, text, text), func() streams.Processor[string, string, string, int64] {
		return &ticker{store: seen}
	}, seen)
	streams.MapValues(counts, func(n int64) string { return strconv.FormatInt(n, 10) }).To(c.out, text, text)
	top, err := b.Build()
	if err != nil {
		c.t.Fatal(err)
	}
	return top
}

// awaitSequence reads the output until each key has been counted up to n, and wants no count twice and none left out.
func (c *counting) awaitSequence(n int64, keys ...string) {
	c.t.Helper()
	f := c.client.NewFetcher(kafka.FetcherConfig{})
	defer f.Close()
	f.Set(kafka.TopicPartition{Topic: c.out}, 0)
	got := map[string]int64{}
	done := func() bool {
		for _, key := range keys {
			if got[key] < n {
				return false
			}
		}
		return true
	}
	limit := time.After(deadline)
	for !done() {
		select {
		case <-f.Ready():
			for _, a := range f.Poll() {
				if a.Err != nil {
					c.t.Fatal(a.Err)
				}
				for _, r := range a.Records {
					count, err := strconv.ParseInt(string(r.Value), 10, 64)
					if err != nil {
						c.t.Fatal(err)
					}
					if key := string(r.Key); count != got[key]+1 {
						c.t.Fatalf("%s counted %d after %d", key, count, got[key])
					} else {
						got[key] = count
					}
				}
			}
		case <-limit:
			c.t.Fatalf("counted %v after %s, want %v up to %d", got, deadline, keys, n)
		}
	}
}

// Punctuations by the wall clock go on without any input. Their results are committed though no offset moves, the next start
// takes that state for what it is, and a start without state restores it.
func TestAppPunctuatesWithoutInput(t *testing.T) {
	c := newCounting(t)
	r := start(t, c.ticking(), c.config())
	r.await(streams.StateRunning)
	c.awaitSequence(5, "tick-0_0", "tick-0_1")
	if err := r.end(); err != nil {
		t.Fatal(err)
	}

	r = start(t, c.ticking(), c.config())
	r.await(streams.StateRunning)
	for range 2 {
		if s, e := <-r.starts, <-r.ends; s.From == 0 || s.From != s.To || e.Restored != 0 || s.Reason != "" {
			t.Errorf("after a clean stop: %+v, %+v", s, e)
		}
	}
	c.send("a", "b", "a", "b", "a", "b")
	c.awaitSequence(3, "a", "b")
	c.awaitSequence(12, "tick-0_0", "tick-0_1")
	if err := r.end(); err != nil {
		t.Fatal(err)
	}

	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	r = start(t, c.ticking(), c.config())
	r.await(streams.StateRunning)
	c.send("a", "b")
	c.awaitSequence(4, "a", "b")
	c.awaitSequence(25, "tick-0_0", "tick-0_1")
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}
