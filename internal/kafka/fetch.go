package kafka

import (
	"context"
	"fmt"
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

// run plans requests and carries each one out in a goroutine of its own, until ctx ends.
func (f *Fetcher) run(ctx context.Context) {
	defer close(f.done)
	var flight sync.WaitGroup
	defer flight.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		requests, unknown, next := f.plan(time.Now())
		for _, r := range requests {
			flight.Go(func() { f.exchange(ctx, r) })
		}
		if len(unknown) > 0 {
			flight.Go(func() { f.findLeaders(ctx, unknown) })
		}
		timer.Reset(next)
		select {
		case <-f.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// plan takes the requests to send now, the partitions whose leader is to be looked up now, and when to plan again at the latest.
func (f *Fetcher) plan(now time.Time) (requests []*fetchRequest, unknown []*fetchPartition, next time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next = time.Hour
	behind := map[fetchSlot][]*fetchPartition{}
	atEnd := map[fetchSlot][]*fetchPartition{}
	joining := map[fetchSlot]bool{} // some partition is about to join the tail request
	for _, p := range f.order {
		if p.paused || p.stopped {
			continue
		}
		tail := fetchSlot{node: p.leader, iso: p.iso, tail: true}
		if p.inflight || p.waiting {
			joining[tail] = true
			continue
		}
		if wait := p.retryAt.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		if p.leader < 0 {
			unknown = append(unknown, p)
			continue
		}
		if p.atEnd {
			atEnd[tail] = append(atEnd[tail], p)
		} else {
			catchUp := fetchSlot{node: p.leader, iso: p.iso}
			behind[catchUp] = append(behind[catchUp], p)
			joining[tail] = true
		}
	}
	if f.resolving {
		unknown = nil
	}
	f.resolving = f.resolving || len(unknown) > 0

	late := map[fetchSlot][]*fetchPartition{} // at their end, but too late for the tail request
	for tail, parts := range atEnd {
		switch running := f.slots[tail]; {
		case running == nil:
			wait := f.cfg.MaxWait
			if joining[tail] {
				wait = min(wait, shortWait)
			}
			requests = append(requests, f.open(tail, parts, wait))
		case running.wait > shortWait:
			catchUp := fetchSlot{node: tail.node, iso: tail.iso}
			late[catchUp] = parts
			behind[catchUp] = append(behind[catchUp], nil...)
		}
	}
	for catchUp, parts := range behind {
		if f.slots[catchUp] != nil {
			continue
		}
		wait := shortWait
		if len(parts) > 0 {
			wait = 0
		}
		// Those that are behind fill their share: no more of them than the answer can hold.
		limit := min(len(parts), max(1, int(f.cfg.MaxBytes/f.cfg.PartitionMaxBytes)))
		requests = append(requests, f.open(catchUp, append(parts[:limit:limit], late[catchUp]...), wait))
	}
	return requests, unknown, next
}

// open builds a request and marks its partitions as under way.
func (f *Fetcher) open(slot fetchSlot, parts []*fetchPartition, wait time.Duration) *fetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(wait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = f.cfg.MaxBytes
	req.IsolationLevel = int8(slot.iso)
	req.SessionID, req.SessionEpoch = 0, -1
	for _, p := range parts {
		p.inflight = true
		i := slices.IndexFunc(req.Topics, func(t kmsg.FetchRequestTopic) bool { return t.Topic == p.tp.Topic })
		if i < 0 {
			t := kmsg.NewFetchRequestTopic()
			t.Topic = p.tp.Topic
			i = len(req.Topics)
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition = p.tp.Partition
		rp.FetchOffset = p.position
		rp.PartitionMaxBytes = f.cfg.PartitionMaxBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	r := &fetchRequest{slot: slot, parts: parts, wait: wait, req: req}
	f.slots[slot] = r
	return r
}

// fetchOutcome is what came of one partition in a request.
type fetchOutcome struct {
	Fetched
	transient error // to be tried again
	moved     bool  // the leader is to be looked up again
	left      bool  // the answer says nothing of it
}

func (f *Fetcher) exchange(ctx context.Context, r *fetchRequest) {
	resp, err := f.c.call(ctx, r.slot.node, r.req, -1, 0)
	var answers map[TopicPartition]*kmsg.FetchResponseTopicPartition
	if err == nil {
		answers, err = fetchAnswers(resp.(*kmsg.FetchResponse))
	}
	outcomes := make([]fetchOutcome, len(r.parts))
	for i, p := range r.parts {
		o := &outcomes[i]
		o.Fetched = Fetched{TopicPartition: p.tp, Next: p.position, HighWatermark: -1, LastStable: -1, LogStart: -1}
		switch a := answers[p.tp]; {
		case err != nil && retriable(actionFor(int16(kmsg.Fetch), err)):
			o.transient, o.moved = err, true
		case err != nil:
			o.Err = err
		case a == nil && len(answers) > 0: // the embedded broker leaves out those that no bytes are left for
			o.left = true
		case a == nil:
			o.transient = fmt.Errorf("fetch: the answer of broker %d lacks partition %s", r.slot.node, p.tp)
		default:
			f.read(ctx, p, a, o)
		}
	}
	f.finish(ctx, r, outcomes)
}

func fetchAnswers(resp *kmsg.FetchResponse) (map[TopicPartition]*kmsg.FetchResponseTopicPartition, error) {
	if resp.ErrorCode != 0 {
		return nil, &Error{API: resp.Key(), Code: Code(resp.ErrorCode)}
	}
	answers := map[TopicPartition]*kmsg.FetchResponseTopicPartition{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			answers[TopicPartition{t.Topic, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	return answers, nil
}

// read turns the answer for a partition into its outcome. p's tp, iso and position do not change while it is under way.
func (f *Fetcher) read(ctx context.Context, p *fetchPartition, a *kmsg.FetchResponseTopicPartition, o *fetchOutcome) {
	if code := Code(a.ErrorCode); code != 0 {
		e := &Error{API: int16(kmsg.Fetch), Code: code, Resource: "partition " + p.tp.String()}
		switch actionFor(int16(kmsg.Fetch), e) {
		case ActRetry:
			o.transient = e
		case ActMetadata:
			o.transient, o.moved = e, true
		case ActReset:
			e.Message = f.outOfRange(ctx, p)
			o.Err = e
		default:
			o.Err = e
		}
		return
	}
	o.HighWatermark, o.LastStable, o.LogStart = a.HighWatermark, a.LastStableOffset, a.LogStartOffset
	walk := batchWalk{tp: p.tp, from: p.position, iso: p.iso, control: f.cfg.Control}
	for _, t := range a.AbortedTransactions {
		walk.aborted = append(walk.aborted, abortedTxn{producer: t.ProducerID, first: t.FirstOffset})
	}
	o.Records, o.Next, o.Err = walk.walk(nil, a.RecordBatches)
}

// outOfRange says what is there instead of the offset that was asked for: the answer itself does not tell.
func (f *Fetcher) outOfRange(ctx context.Context, p *fetchPartition) string {
	var bounds [2]int64
	for i, at := range [2]int64{EarliestOffset, LatestOffset} {
		offsets, err := f.c.ListOffsets(ctx, []TopicPartition{p.tp}, at, p.iso)
		if err != nil {
			return fmt.Sprintf("offset %d was asked for; the range of the log could not be had: %v", p.position, err)
		}
		bounds[i] = offsets[p.tp]
	}
	return fmt.Sprintf("offset %d was asked for, the log holds %d to %d", p.position, bounds[0], bounds[1])
}

// finish takes the outcomes of a request into the fetcher's state.
func (f *Fetcher) finish(ctx context.Context, r *fetchRequest, outcomes []fetchOutcome) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.slots, r.slot)
	for i, p := range r.parts {
		p.inflight = false
		o := &outcomes[i]
		if p.removed || o.left {
			continue
		}
		if o.transient != nil {
			f.failed(p, o.transient, o.moved)
			continue
		}
		p.tries, p.trouble = 0, nil
		f.deliver(p, o.Fetched)
	}
	notify(f.wake)
}

func (f *Fetcher) deliver(p *fetchPartition, r Fetched) {
	p.position = r.Next
	p.stopped = r.Err != nil
	p.atEnd = r.Err == nil && r.Next >= r.End(p.iso)
	p.waiting = len(r.Records) > 0 || r.Err != nil
	// An answer without records does not keep its partition from being fetched, so one of those may be there already.
	if i := slices.IndexFunc(f.results, func(o Fetched) bool { return o.TopicPartition == p.tp }); i >= 0 {
		f.results[i] = r
	} else {
		f.results = append(f.results, r)
	}
	if len(r.Records) > 0 {
		f.order = append(slices.DeleteFunc(f.order, func(o *fetchPartition) bool { return o == p }), p)
	}
	notify(f.ready)
}

// failed sets a partition back after an error that may pass.
func (f *Fetcher) failed(p *fetchPartition, err error, moved bool) {
	now := time.Now()
	if p.trouble == nil {
		p.since = now
	}
	p.trouble = err
	p.tries++
	p.retryAt = now.Add(f.c.backoff(p.tries))
	if moved {
		p.leader = -1
		f.c.forgetRoute(Leader(p.tp))
	}
	f.c.log.Debug("fetch failed, trying again", "partition", p.tp.String(), "try", p.tries, "error", err)
}

// findLeaders looks up the leaders of partitions, whose leader nobody else sets in the meantime.
func (f *Fetcher) findLeaders(ctx context.Context, parts []*fetchPartition) {
	leaders := make([]int32, len(parts))
	errs := make([]error, len(parts))
	for i, p := range parts {
		leaders[i], errs[i] = f.c.leader(ctx, p.tp)
	}
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resolving = false
	for i, p := range parts {
		switch {
		case p.removed:
		case errs[i] == nil:
			p.leader = leaders[i]
		case retriable(actionFor(int16(kmsg.Fetch), errs[i])):
			f.failed(p, errs[i], true)
		default:
			f.deliver(p, Fetched{TopicPartition: p.tp, Next: p.position, HighWatermark: -1, LastStable: -1, LogStart: -1, Err: errs[i]})
		}
	}
	notify(f.wake)
}
