package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

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
