package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// shortWait is how long a fetch may be held back by the broker while a partition of the same broker is outside of it, see Fetcher.
const shortWait = 10 * time.Millisecond

// FetcherConfig says how to fetch. The zero value of each field is usable.
type FetcherConfig struct {
	// Isolation of each topic. Default: ReadUncommitted for all.
	Isolation func(topic string) Isolation
	// MaxWait is how long a broker holds back the answer of a fetch that has nothing to give. Default 500 ms.
	MaxWait time.Duration
	// PartitionMaxBytes bounds the records of one partition in an answer, save that a single larger batch still comes. Default 1 MiB.
	PartitionMaxBytes int32
	// MaxBytes bounds an answer. A request asks for no more partitions that are behind than fit into it. Default 16 MiB.
	MaxBytes int32
	// Control asks for transaction markers too, as records with Control set.
	Control bool
}

// Fetched is the answer of one fetch of one partition. It is never written to again.
type Fetched struct {
	TopicPartition
	Records []Record // may be empty: then the other fields tell how things stand
	Next    int64    // the position after this answer, past transaction markers and aborted records
	// Where the log ends for readers of any isolation level, where it ends for ReadCommitted (-1: the broker does not say), where it begins.
	HighWatermark, LastStable, LogStart int64
	// Err is set if the partition cannot be read on: *Error with OffsetOutOfRange, with a missing permission or with another lasting code, or
	// *CorruptBatchError. Records before it are delivered along with it. The partition is not fetched again until Set.
	Err error
}

// End is the position at which a reader of that isolation level has read all there is.
func (f *Fetched) End(iso Isolation) int64 {
	if iso == ReadCommitted && f.LastStable >= 0 {
		return f.LastStable
	}
	return f.HighWatermark
}

// Trouble is a partition that cannot be fetched at the moment, and is tried again and again.
type Trouble struct {
	TopicPartition
	Err   error     // the last one
	Since time.Time // when the first of an unbroken row of errors came
}

// Fetcher reads ahead in a set of partitions: for each, at most one answer with records waits to be polled, and only then is the partition
// fetched again.
//
// Each broker has up to two requests under way for each isolation level, with different partitions in them, so that a partition with records
// to read never waits behind a request that waits for new ones:
//
//   - the tail request asks for the partitions read to their end. The broker holds it back until there is something, for MaxWait, or only
//     for shortWait if another partition of that broker is about to join: one whose answer waits to be polled, or that is in the other
//     request. So a partition that was just read to its end is in a request again within shortWait;
//   - the catch-up request asks for the partitions that are behind or were not fetched since Set, and for those at their end that come while
//     a tail request waits for long.
//
// Fetches are sessionless (session epoch -1, KIP-227): each names all its partitions, and no state is kept on the broker.
//
// A partition's bytes are not starved by the others: brokers fill an answer in the order of the request, and a partition that was given
// records goes to the end of the order.
type Fetcher struct {
	c      *Client
	cfg    FetcherConfig
	wake   chan struct{} // tells the loop that the state below has changed; capacity 1
	ready  chan struct{} // capacity 1
	cancel context.CancelFunc
	done   chan struct{}

	mu        sync.Mutex
	parts     map[TopicPartition]*fetchPartition
	order     []*fetchPartition // the order of partitions in requests
	slots     map[fetchSlot]*fetchRequest
	results   []Fetched
	resolving bool
}

// fetchPartition is a partition from one Set to the next: Set makes a new one, and what still comes for the old one is dropped.
type fetchPartition struct {
	tp      TopicPartition
	iso     Isolation
	removed bool
	paused  bool
	stopped bool // an error was delivered

	position int64
	leader   int32 // -1: to be looked up
	inflight bool
	waiting  bool // an answer with records or an error is in results
	atEnd    bool // the last answer gave all there was

	tries   int
	retryAt time.Time
	trouble error
	since   time.Time
}

type fetchSlot struct {
	node int32
	iso  Isolation
	tail bool
}

// fetchRequest is a fetch under way.
type fetchRequest struct {
	slot  fetchSlot
	parts []*fetchPartition
	wait  time.Duration
	req   *kmsg.FetchRequest
}

// NewFetcher starts a fetcher without partitions. Close ends it.
func (c *Client) NewFetcher(cfg FetcherConfig) *Fetcher {
	if cfg.Isolation == nil {
		cfg.Isolation = func(string) Isolation { return ReadUncommitted }
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 500 * time.Millisecond
	}
	if cfg.PartitionMaxBytes <= 0 {
		cfg.PartitionMaxBytes = 1 << 20
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 16 << 20
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fetcher{
		c:      c,
		cfg:    cfg,
		wake:   make(chan struct{}, 1),
		ready:  make(chan struct{}, 1),
		cancel: cancel,
		done:   make(chan struct{}),
		parts:  map[TopicPartition]*fetchPartition{},
		slots:  map[fetchSlot]*fetchRequest{},
	}
	go f.run(ctx)
	return f
}

// Close ends the fetcher and waits for its goroutines. Answers that were not polled are dropped.
func (f *Fetcher) Close() {
	f.cancel()
	<-f.done
}

// Set starts a partition at offset, or starts it over. Answers for an earlier position, under way or not yet polled, are dropped.
// A partition that was paused is so no more.
func (f *Fetcher) Set(tp TopicPartition, offset int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(tp)
	p := &fetchPartition{tp: tp, iso: f.cfg.Isolation(tp.Topic), position: offset, leader: -1}
	f.parts[tp] = p
	f.order = append(f.order, p)
	notify(f.wake)
}

// Remove forgets partitions with all their answers.
func (f *Fetcher) Remove(tps ...TopicPartition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tp := range tps {
		f.remove(tp)
	}
	notify(f.wake)
}

func (f *Fetcher) remove(tp TopicPartition) {
	p := f.parts[tp]
	if p == nil {
		return
	}
	p.removed = true
	delete(f.parts, tp)
	f.order = slices.DeleteFunc(f.order, func(o *fetchPartition) bool { return o == p })
	f.results = slices.DeleteFunc(f.results, func(r Fetched) bool { return r.TopicPartition == tp })
}

// Pause leaves partitions out of fetches. An answer that is there or under way is still delivered.
func (f *Fetcher) Pause(tps ...TopicPartition) { f.setPaused(true, tps) }

// Resume ends a Pause.
func (f *Fetcher) Resume(tps ...TopicPartition) { f.setPaused(false, tps) }

func (f *Fetcher) setPaused(paused bool, tps []TopicPartition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tp := range tps {
		if p := f.parts[tp]; p != nil {
			p.paused = paused
		}
	}
	notify(f.wake)
}

// Ready receives when Poll has something to give. It may also receive when another Poll has already taken it.
func (f *Fetcher) Ready() <-chan struct{} { return f.ready }

// Poll takes all answers that wait, without blocking, at most one for a partition. Answers without records are among them: they carry the
// watermarks, and so prove that a partition is drained.
func (f *Fetcher) Poll() []Fetched {
	f.mu.Lock()
	defer f.mu.Unlock()
	results := f.results
	f.results = nil
	for i := range results {
		if p := f.parts[results[i].TopicPartition]; p != nil {
			p.waiting = false
		}
	}
	if len(results) > 0 {
		notify(f.wake)
	}
	return results
}

// Troubles lists the partitions that cannot be fetched at the moment.
func (f *Fetcher) Troubles() []Trouble {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []Trouble
	for _, p := range f.order {
		if p.trouble != nil {
			list = append(list, Trouble{TopicPartition: p.tp, Err: p.trouble, Since: p.since})
		}
	}
	return list
}

// notify signals a channel of capacity 1.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
