package streams

import (
	"container/heap"
	"fmt"
	"time"
)

// PunctuationType is the time that a punctuation goes by.
type PunctuationType int

const (
	// StreamTime moves with the timestamps of the records that the task processes, and stands still without them. The
	// first call comes with the first record; calls are aligned to 1970, so that an interval of a minute gives a call
	// after the record that reaches a new minute.
	StreamTime PunctuationType = iota + 1
	// WallClock moves by itself. The first call comes once the interval has passed. Its punctuations run between records,
	// so they may be late.
	WallClock
)

// Punctuation is a call that a processor has scheduled.
type Punctuation struct {
	node      *node
	at        int64 // when it is due next
	interval  int64
	fn        func(now int64) error
	cancelled bool
}

// Cancel ends the punctuation. It may be called from within.
func (p *Punctuation) Cancel() { p.cancelled = true }

// punctuations are the scheduled calls of one task. Missed ones are made up for by one call: after a gap the next is due
// at the next multiple of the interval (Kafka Streams 4.3.1, PunctuationQueue, PunctuationSchedule.next).
type punctuations struct {
	clock      func() int64 // wall clock, ms
	streamTime int64        // noTime until known
	stream     punctuationQueue
	wall       punctuationQueue
}

func newPunctuations(clock func() int64) punctuations {
	return punctuations{clock: clock, streamTime: noTime}
}

func (p *punctuations) schedule(n *node, interval time.Duration, by PunctuationType, fn func(int64) error) (*Punctuation, error) {
	s := &Punctuation{node: n, interval: interval.Milliseconds(), fn: fn}
	if s.interval < 1 {
		return nil, fmt.Errorf("node %s: a punctuation every %s: at least every 1 ms", n.name, interval)
	}
	switch by {
	case StreamTime:
		heap.Push(&p.stream, s)
	case WallClock:
		s.at = p.clock() + s.interval
		heap.Push(&p.wall, s)
	default:
		return nil, fmt.Errorf("node %s: a punctuation by %d: StreamTime or WallClock", n.name, by)
	}
	return s, nil
}

// see takes a record's timestamp into the stream time, before the record is processed (Kafka Streams 4.3.1, PartitionGroup.nextRecord).
func (p *punctuations) see(timestamp int64) { p.streamTime = max(p.streamTime, timestamp) }

// advance makes the calls that are due by the stream time.
func (p *punctuations) advance(ctx *Context) (called bool, err error) {
	return p.stream.run(ctx, p.streamTime)
}

// tick makes the calls that are due by the wall clock.
func (p *punctuations) tick(ctx *Context) (called bool, err error) {
	if len(p.wall) == 0 {
		return false, nil
	}
	return p.wall.run(ctx, p.clock())
}

// nextTick is when tick has something to do next.
func (p *punctuations) nextTick() (at int64, ok bool) {
	if len(p.wall) == 0 {
		return 0, false
	}
	return p.wall[0].at, true
}

// punctuationQueue is a heap by due time. Punctuations due at the same time come in the order of the heap, which is that
// of java.util.PriorityQueue.
type punctuationQueue []*Punctuation

func (q punctuationQueue) Len() int           { return len(q) }
func (q punctuationQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q punctuationQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *punctuationQueue) Push(x any) { *q = append(*q, x.(*Punctuation)) }

// Pop implements heap.Interface.
func (q *punctuationQueue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return p
}

func (q *punctuationQueue) run(ctx *Context, now int64) (called bool, err error) {
	for len(*q) > 0 && (*q)[0].at <= now {
		p := heap.Pop(q).(*Punctuation)
		if p.cancelled {
			continue
		}
		called = true
		if err := p.call(ctx, now); err != nil {
			return called, err
		}
		if !p.cancelled {
			p.at += ((now-p.at)/p.interval + 1) * p.interval
			heap.Push(q, p)
		}
	}
	return called, nil
}

// call is one punctuation: no record is at work, and what it puts and forwards has its time.
func (p *Punctuation) call(ctx *Context, now int64) error {
	return ctx.outsideRecord("punctuating", now, p.node, func(*Context) error { return p.fn(now) })
}
