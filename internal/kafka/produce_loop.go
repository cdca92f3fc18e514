package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceRequest is a produce request under way: one batch of each of some partitions that a node leads.
type produceRequest struct {
	node    int32
	parts   []*producerPartition
	batches []*producerBatch
	size    int
}

// producePlan is what there is to do now. Each piece of it runs in a goroutine of its own.
type producePlan struct {
	requests []*produceRequest
	leaders  []*producerPartition // whose leader is to be looked up
	enlist   []*producerPartition // to be added to the transaction
	renew    bool                 // get a new producer id
	next     time.Duration        // plan again after that time at the latest
}

// run plans and carries out until ctx ends.
func (p *Producer) run(ctx context.Context) {
	defer close(p.done)
	var flight sync.WaitGroup
	defer flight.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		plan := p.plan(time.Now())
		for _, r := range plan.requests {
			flight.Go(func() { p.exchange(ctx, r) })
		}
		if len(plan.leaders) > 0 {
			flight.Go(func() { p.findLeaders(ctx, plan.leaders) })
		}
		if len(plan.enlist) > 0 {
			flight.Go(func() { p.enlist(ctx, plan.enlist) })
		}
		if plan.renew {
			flight.Go(func() { p.renew(ctx) })
		}
		timer.Reset(plan.next)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Producer) plan(now time.Time) producePlan {
	p.mu.Lock()
	defer p.mu.Unlock()
	plan := producePlan{next: time.Hour}
	if p.err != nil {
		return plan
	}
	byNode := map[int32]*produceRequest{}
	first := p.first
	for i := range p.parts {
		i = (first + i) % len(p.parts)
		part := p.parts[i]
		b, wait := p.head(part, now)
		if b == nil {
			plan.next = min(plan.next, wait)
			continue
		}
		if !now.Before(b.deadline) {
			p.expire(part, b)
			break // what is planned already counts as under way, and so has to be sent
		}
		plan.next = min(plan.next, b.deadline.Sub(now))
		switch {
		case part.leader < 0:
			plan.leaders = append(plan.leaders, part)
		case !b.stamped && p.renewing:
		case p.mustEnlist(part):
			plan.enlist = append(plan.enlist, part)
		case p.busy[part.leader]:
		default:
			r := byNode[part.leader]
			if r == nil {
				r = &produceRequest{node: part.leader}
				byNode[part.leader] = r
			}
			if r.size += b.size(); r.size > maxProduceBytes && len(r.parts) > 0 {
				continue
			}
			p.stamp(part, b)
			part.flying = b
			r.parts = append(r.parts, part)
			r.batches = append(r.batches, b)
			p.first = i + 1 // who is served last begins last
		}
	}
	for node, r := range byNode {
		p.busy[node] = true
		plan.requests = append(plan.requests, r)
	}
	if p.finding {
		plan.leaders = nil
	}
	p.finding = p.finding || len(plan.leaders) > 0
	if p.txn.enlisting {
		plan.enlist = nil
	}
	if len(plan.enlist) > 0 {
		p.txn.enlisting, p.txn.touched = true, true
	}
	plan.renew, p.renewWanted = p.renewWanted, false
	return plan
}

// head returns the batch of a partition that is next to be sent, or how long there will be none.
func (p *Producer) head(part *producerPartition, now time.Time) (*producerBatch, time.Duration) {
	if part.flying != nil {
		return nil, time.Hour
	}
	if len(part.sealed) == 0 {
		if part.open == nil || p.cfg.Linger < 0 {
			return nil, time.Hour
		}
		if wait := part.open.started.Add(p.cfg.Linger).Sub(now); wait > 0 {
			return nil, wait
		}
		p.seal(part)
	}
	if wait := part.retryAt.Sub(now); wait > 0 {
		return nil, wait
	}
	return part.sealed[0], 0
}

// stamp gives a batch its producer id and sequence, once: when it is sent again they must be the same, so that a broker that has it
// already can tell.
func (p *Producer) stamp(part *producerPartition, b *producerBatch) {
	p.txn.touched = p.cfg.TransactionalID != ""
	if b.stamped {
		return
	}
	if part.producer != p.producer {
		part.producer, part.sequence = p.producer, 0
	}
	b.stamped, b.producer, b.sequence = true, p.producer, part.sequence
	part.sequence = nextSequence(part.sequence, b.count)
}

// produceOutcome is what came of one batch.
type produceOutcome struct {
	err     error // nil: written
	base    int64 // offset of the first record, if written
	records []RecordError
}

func (p *Producer) exchange(ctx context.Context, r *produceRequest) {
	outcomes := make([]produceOutcome, len(r.parts))
	if err := p.produce(ctx, r, outcomes); err != nil {
		for i := range outcomes {
			outcomes[i].err = err
		}
	}
	p.finish(ctx, r, outcomes)
}

// produce sends a request once. Until finish, its batches belong to it.
func (p *Producer) produce(ctx context.Context, r *produceRequest, outcomes []produceOutcome) error {
	if p.cfg.MaySend != nil {
		if err := p.cfg.MaySend(); err != nil {
			return err
		}
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = int32(p.cfg.RequestTimeout.Milliseconds())
	limit := int16(-1)
	transactional := p.cfg.TransactionalID != ""
	if transactional {
		req.TransactionID = &p.cfg.TransactionalID
		limit = p.produceLimit()
	}
	for i, part := range r.parts {
		b := r.batches[i]
		raw, err := b.finish(p.cfg.Compression, b.producer, b.sequence, transactional)
		if err != nil {
			return fmt.Errorf("partition %s: %w", part.tp, err)
		}
		t := slices.IndexFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == part.tp.Topic })
		if t < 0 {
			topic := kmsg.NewProduceRequestTopic()
			topic.Topic = part.tp.Topic
			t = len(req.Topics)
			req.Topics = append(req.Topics, topic)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = part.tp.Partition, raw
		req.Topics[t].Partitions = append(req.Topics[t].Partitions, rp)
	}
	resp, err := p.c.call(ctx, r.node, req, limit, 0)
	if err != nil {
		return err
	}
	for i, part := range r.parts {
		a := produceAnswer(resp.(*kmsg.ProduceResponse), part.tp)
		if a == nil {
			outcomes[i].err = &NetworkError{API: req.Key(), Node: r.node, Err: fmt.Errorf("the answer lacks partition %s", part.tp)}
			continue
		}
		if a.ErrorCode == 0 {
			outcomes[i].base = a.BaseOffset
			continue
		}
		e := &Error{API: req.Key(), Code: Code(a.ErrorCode), Resource: "partition " + part.tp.String()}
		if a.ErrorMessage != nil {
			e.Message = *a.ErrorMessage
		}
		outcomes[i].err = e
		for _, rec := range a.ErrorRecords {
			re := RecordError{Index: rec.RelativeOffset}
			if rec.ErrorMessage != nil {
				re.Message = *rec.ErrorMessage
			}
			outcomes[i].records = append(outcomes[i].records, re)
		}
	}
	return nil
}

func produceAnswer(resp *kmsg.ProduceResponse, tp TopicPartition) *kmsg.ProduceResponseTopicPartition {
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic == tp.Topic {
			for j := range t.Partitions {
				if t.Partitions[j].Partition == tp.Partition {
					return &t.Partitions[j]
				}
			}
		}
	}
	return nil
}

// finish takes the outcomes of a request into the producer's state.
func (p *Producer) finish(ctx context.Context, r *produceRequest, outcomes []produceOutcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, r.node)
	for i, part := range r.parts {
		part.flying = nil
		b, o := r.batches[i], &outcomes[i]
		switch {
		case b.dropped:
			p.release(b)
		case o.err == nil:
			part.acked = max(part.acked, o.base+int64(b.count))
			p.written(part, b)
		case ctx.Err() == nil: // else the producer is closing
			p.refused(part, b, o)
		}
	}
	p.broadcast()
	notify(p.wake)
}

func (p *Producer) written(part *producerPartition, b *producerBatch) {
	part.sealed = slices.Delete(part.sealed, 0, 1)
	part.tries, part.lastErr = 0, nil
	p.release(b)
}

func (p *Producer) refused(part *producerPartition, b *producerBatch, o *produceOutcome) {
	transactional := p.cfg.TransactionalID != ""
	act := actionFor(int16(kmsg.Produce), o.err)
	if act == ActFenced && !transactional && errors.Is(o.err, InvalidProducerEpoch) {
		act = ActNewProducer // nobody can fence a producer without a transactional id: its state was lost, as with the other codes
	}
	switch {
	case act == ActDone:
		p.written(part, b)
	case retriable(act):
		p.again(part, o.err)
	case act == ActNewProducer && !transactional:
		// It was not written, so it may go out under another id. Whatever else is under way keeps the old one until it is answered.
		if b.producer == p.producer && !p.renewing {
			p.renewing, p.renewWanted = true, true
			p.c.log.Warn("the broker lost track of this producer: going on with a new producer id", "partition", part.tp.String(), "error", o.err)
		}
		b.stamped = false
		p.again(part, o.err)
	case act == ActRejected && p.cfg.Refused != nil:
		p.leaveOut(part, b, o)
	default:
		p.fail(p.classify(act, p.produceError(part, b, o)))
	}
}

// again lets the first batch of a partition be sent again a little later.
func (p *Producer) again(part *producerPartition, err error) {
	part.tries++
	part.lastErr = err
	pause := p.c.backoff(part.tries)
	if errors.Is(err, ConcurrentTransactions) {
		pause = p.c.cfg.Backoff / 4 // the coordinator writes the last transaction's markers: a matter of milliseconds
	}
	part.retryAt = time.Now().Add(pause)
	var network *NetworkError
	if act := actionFor(int16(kmsg.Produce), err); act == ActMetadata || errors.As(err, &network) {
		part.leader = -1
		p.c.forgetRoute(Leader(part.tp))
	}
	p.c.log.Debug("produce failed, trying again", "partition", part.tp.String(), "try", part.tries, "error", err)
}

// expire fails the producer for a batch that was tried for too long.
func (p *Producer) expire(part *producerPartition, b *producerBatch) {
	err := fmt.Errorf("not acknowledged within %s", p.cfg.DeliveryTimeout)
	if part.lastErr != nil {
		err = fmt.Errorf("%w: %w", err, part.lastErr)
	}
	p.fail(p.classify(ActFail, p.produceError(part, b, &produceOutcome{err: err})))
}

func (p *Producer) produceError(part *producerPartition, b *producerBatch, o *produceOutcome) *ProduceError {
	e := &ProduceError{TopicPartition: part.tp, RecordErrors: o.records, Err: o.err}
	var answer *Error
	if errors.As(o.err, &answer) && kmsg.Key(answer.API) == kmsg.Produce {
		e.Code = answer.Code
	}
	raw, err := b.finish(p.cfg.Compression, b.producer, b.sequence, false)
	if err == nil {
		e.Records, _, err = batchWalk{tp: part.tp}.walk(nil, slices.Clone(raw))
	}
	if err != nil {
		e.Err = errors.Join(e.Err, err)
	}
	return e
}

// findLeaders looks up the leaders of partitions. Only one runs at a time.
func (p *Producer) findLeaders(ctx context.Context, parts []*producerPartition) {
	leaders := make([]int32, len(parts))
	errs := make([]error, len(parts))
	for i, part := range parts {
		leaders[i], errs[i] = p.c.leader(ctx, part.tp)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finding = false
	if ctx.Err() != nil {
		return
	}
	for i, part := range parts {
		if errs[i] == nil {
			part.leader = leaders[i]
			continue
		}
		act := actionFor(int16(kmsg.Produce), errs[i])
		if retriable(act) {
			p.again(part, errs[i])
		} else {
			p.fail(p.classify(act, fmt.Errorf("partition %s: %w", part.tp, errs[i])))
		}
	}
	p.broadcast()
	notify(p.wake)
}

// renew gets a new producer id, under which sequences start at 0 again.
func (p *Producer) renew(ctx context.Context) {
	producer, err := p.initProducerID(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	p.renewing = false
	if err != nil {
		p.fail(fmt.Errorf("a new producer id: %w", err))
		return
	}
	p.producer = producer
	notify(p.wake)
}
