package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What can become of a transaction besides success. Errors of Send, Flush, Commit and Abort wrap one of them where it applies.
var (
	// ErrFenced means that another producer has taken the transactional id, or that the coordinator has aborted the transaction at its
	// timeout. Init begins anew. What was committed is to be read from the group's offsets, never to be inferred.
	ErrFenced = errors.New("the producer is fenced")
	// ErrAbortable means that the transaction cannot be committed. Abort ends it, after which the producer is good again.
	ErrAbortable = errors.New("the transaction has to be aborted")
	// ErrUnknownOutcome means that the end of the transaction was asked for and that no answer came: it may be committed or not. Init settles
	// it one way or the other; the group's offsets tell which.
	ErrUnknownOutcome = errors.New("the outcome of the transaction is not known")
)

var errNotTransactional = errors.New("the producer has no transactional id")

// txnState is the part of a transactional producer's state that belongs to its transaction.
type txnState struct {
	v2        bool // the flow of KIP-890 part 2, see Producer.Commit
	open      bool // something was sent since the last end
	touched   bool // the coordinator may know of the transaction: it has to be ended
	enlisting bool // AddPartitionsToTxn is under way
	lost      bool // a batch with a sequence was dropped: the broker may have it or not
}

// Flows of a transaction. Version 1: AddPartitionsToTxn before the first produce to a partition, AddOffsetsToTxn before the offsets, and an
// epoch that lasts. Version 2 (KIP-890, the cluster's finalized feature transaction.version of 2): a produce request of version 12 and
// TxnOffsetCommit of version 5 tell the coordinator themselves, and each EndTxn gives a new epoch, so that a request that comes late cannot
// slip into the next transaction. The request version says which flow it is: the two must not be mixed.
const (
	produceV1         = 11
	initProducerIDV1  = 4
	txnOffsetCommitV1 = 3
	endTxnV1          = 3
)

// limit caps a request's version under flow 1.
func (t *txnState) limit(v1 int16) *int16 {
	if t.v2 {
		return nil
	}
	return &v1
}

func (p *Producer) produceLimit() int16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if limit := p.txn.limit(produceV1); limit != nil {
		return *limit
	}
	return -1
}

// Init starts over: it drops all records that are not acknowledged, forgets a failure and gets a producer id. With a transactional id, that
// aborts a transaction which is still open under it and fences its former user. NewProducer has called it already.
func (p *Producer) Init(ctx context.Context) error {
	version, err := p.c.TransactionVersion(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.drop()
	p.txn.v2 = version >= 2
	p.mu.Unlock()
	producer, err := p.initProducerID(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.fail(err) // until a later Init
		return err
	}
	p.producer = producer
	p.begin()
	p.txn.lost = false
	p.err = nil
	return nil
}

// begin makes way for a new transaction.
func (p *Producer) begin() {
	p.txn = txnState{v2: p.txn.v2, enlisting: p.txn.enlisting, lost: p.txn.lost}
	for _, part := range p.parts {
		part.inTxn = false
	}
	notify(p.wake)
}

func (p *Producer) initProducerID(ctx context.Context) (producerID, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	req.TransactionTimeoutMillis = int32(p.cfg.TransactionTimeout.Milliseconds())
	r := Request{Route: AnyBroker(), Req: req, Check: func(resp kmsg.Response) error {
		return p.codeError(req.Key(), resp.(*kmsg.InitProducerIDResponse).ErrorCode)
	}}
	if p.cfg.TransactionalID != "" {
		req.TransactionalID = &p.cfg.TransactionalID
		r.Route = TxnCoordinator(p.cfg.TransactionalID)
		p.mu.Lock()
		r.Limit = p.txn.limit(initProducerIDV1)
		p.mu.Unlock()
	}
	resp, err := p.c.Do(ctx, r)
	if err != nil {
		return producerID{}, p.classify(actionFor(req.Key(), err), err)
	}
	a := resp.(*kmsg.InitProducerIDResponse)
	return producerID{id: a.ProducerID, epoch: a.ProducerEpoch}, nil
}

// drop forgets all records that are not acknowledged. A batch under way is released when its answer comes.
func (p *Producer) drop() {
	for _, part := range p.parts {
		if part.open != nil {
			p.release(part.open)
			part.open = nil
		}
		for _, b := range part.sealed {
			p.txn.lost = p.txn.lost || b.stamped
			if b == part.flying {
				b.dropped = true
			} else {
				p.release(b)
			}
		}
		clear(part.sealed)
		part.sealed = part.sealed[:0]
		part.tries, part.lastErr = 0, nil
	}
	p.broadcast()
}

// InTransaction tells that something was sent since the last Commit, Abort or Init.
func (p *Producer) InTransaction() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.txn.open || p.txn.touched
}

// Commit flushes, adds offsets of meta's group to the transaction, and commits it. It does nothing if nothing was sent and there are no
// offsets. A transaction begins by itself with the first Send after its end.
//
// An error that wraps none of ErrAbortable, ErrFenced and ErrUnknownOutcome is ctx's, and came before the end was asked for, or is a lasting
// one such as a missing permission: the transaction is still open, and Abort or Init have to follow.
func (p *Producer) Commit(ctx context.Context, offsets map[TopicPartition]Offset, meta GroupMeta) error {
	if err := p.SendOffsets(ctx, offsets, meta); err != nil {
		return err
	}
	return p.end(ctx, true)
}

// SendOffsets is the part of Commit that comes before the end of the transaction: it flushes, and adds the offsets. A Commit without offsets
// ends it. Errors are those of Commit, save that the outcome is always known.
func (p *Producer) SendOffsets(ctx context.Context, offsets map[TopicPartition]Offset, meta GroupMeta) error {
	if p.cfg.TransactionalID == "" {
		return errNotTransactional
	}
	if err := p.Flush(ctx); err != nil {
		return err
	}
	if len(offsets) == 0 {
		return nil
	}
	err := p.sendOffsets(ctx, offsets, meta)
	if err != nil && ctx.Err() == nil {
		p.mu.Lock()
		p.fail(err)
		p.mu.Unlock()
	}
	return err
}

// Abort drops what is not sent yet and aborts the transaction, after which a failure that wrapped ErrAbortable is forgotten. It does nothing
// if nothing was sent.
func (p *Producer) Abort(ctx context.Context) error {
	if p.cfg.TransactionalID == "" {
		return errNotTransactional
	}
	p.mu.Lock()
	if errors.Is(p.err, ErrFenced) || errors.Is(p.err, ErrUnknownOutcome) {
		defer p.mu.Unlock()
		return p.err // only Init helps
	}
	p.drop()
	// In flow 1 the epoch lasts, so a produce request still under way could end up in the next transaction.
	for !p.txn.v2 && (p.txn.enlisting || slices.ContainsFunc(p.parts, func(part *producerPartition) bool { return part.flying != nil })) {
		if err := p.wait(ctx); err != nil {
			p.mu.Unlock()
			return err
		}
	}
	p.mu.Unlock()
	if err := p.end(ctx, false); err != nil {
		return err
	}
	p.mu.Lock()
	lost := p.txn.lost && !p.txn.v2
	p.err = nil
	p.mu.Unlock()
	if lost {
		return p.Init(ctx) // the sequences of flow 1 go on over transactions, and are not known now
	}
	return nil
}

// end asks the coordinator to end the transaction, if it may know of one: it refuses to end an empty one.
func (p *Producer) end(ctx context.Context, commit bool) error {
	p.mu.Lock()
	producer, touched, v2 := p.producer, p.txn.touched, p.txn.v2
	limit := p.txn.limit(endTxnV1)
	p.mu.Unlock()
	if touched {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID = p.cfg.TransactionalID
		req.ProducerID, req.ProducerEpoch = producer.id, producer.epoch
		req.Commit = commit
		check := func(resp kmsg.Response) error { return p.codeError(req.Key(), resp.(*kmsg.EndTxnResponse).ErrorCode) }
		resp, err := p.c.Do(ctx, Request{Route: TxnCoordinator(p.cfg.TransactionalID), Req: req, Limit: limit, Check: check})
		if err != nil {
			act := actionFor(req.Key(), err)
			var answer *Error
			if retriable(act) || !errors.As(err, &answer) {
				err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
			} else {
				err = p.classify(act, err)
			}
			p.mu.Lock()
			p.fail(err)
			p.mu.Unlock()
			return err
		}
		// In flow 2 the answer has the id and epoch of the next transaction.
		if a := resp.(*kmsg.EndTxnResponse); v2 && a.ProducerID >= 0 && a.ProducerEpoch >= 0 {
			producer = producerID{id: a.ProducerID, epoch: a.ProducerEpoch}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.producer = producer
	p.begin()
	return nil
}

// mustEnlist tells that a partition has to be added to the transaction before its first produce request.
func (p *Producer) mustEnlist(part *producerPartition) bool {
	return p.cfg.TransactionalID != "" && !p.txn.v2 && !part.inTxn
}

// enlist adds partitions to the transaction (flow 1).
func (p *Producer) enlist(ctx context.Context, parts []*producerPartition) {
	p.mu.Lock()
	producer := p.producer
	p.mu.Unlock()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID = p.cfg.TransactionalID
	req.ProducerID, req.ProducerEpoch = producer.id, producer.epoch
	for _, part := range parts {
		i := slices.IndexFunc(req.Topics, func(t kmsg.AddPartitionsToTxnRequestTopic) bool { return t.Topic == part.tp.Topic })
		if i < 0 {
			t := kmsg.NewAddPartitionsToTxnRequestTopic()
			t.Topic = part.tp.Topic
			i = len(req.Topics)
			req.Topics = append(req.Topics, t)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, part.tp.Partition)
	}
	_, err := p.c.Do(ctx, Request{Route: TxnCoordinator(p.cfg.TransactionalID), Req: req, Check: func(resp kmsg.Response) error {
		return addPartitionsError(resp.(*kmsg.AddPartitionsToTxnResponse))
	}})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.txn.enlisting = false
	switch {
	case ctx.Err() != nil:
	case producer != p.producer: // Init has come in between
	case err != nil:
		p.fail(p.classify(actionFor(req.Key(), err), err))
	default:
		for _, part := range parts {
			part.inTxn = true
		}
	}
	p.broadcast()
	notify(p.wake)
}

// operationNotAttempted is the code of partitions that are fine, beside one that is not.
const operationNotAttempted Code = 55

func addPartitionsError(resp *kmsg.AddPartitionsToTxnResponse) error {
	for _, t := range resp.Topics {
		for _, a := range t.Partitions {
			if code := Code(a.ErrorCode); code != 0 && code != operationNotAttempted {
				return &Error{API: resp.Key(), Code: code, Resource: "partition " + TopicPartition{t.Topic, a.Partition}.String()}
			}
		}
	}
	return nil
}

// sendOffsets makes offsets part of the transaction.
func (p *Producer) sendOffsets(ctx context.Context, offsets map[TopicPartition]Offset, meta GroupMeta) error {
	p.mu.Lock()
	producer, v2 := p.producer, p.txn.v2
	limit := p.txn.limit(txnOffsetCommitV1)
	p.txn.touched = true
	p.mu.Unlock()
	if !v2 {
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID = p.cfg.TransactionalID
		req.ProducerID, req.ProducerEpoch = producer.id, producer.epoch
		req.Group = meta.Group
		_, err := p.c.Do(ctx, Request{Route: TxnCoordinator(p.cfg.TransactionalID), Req: req, Check: func(resp kmsg.Response) error {
			return p.codeError(req.Key(), resp.(*kmsg.AddOffsetsToTxnResponse).ErrorCode)
		}})
		if err != nil {
			return p.txnError(ctx, req.Key(), err)
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = p.cfg.TransactionalID, meta.Group
	req.ProducerID, req.ProducerEpoch = producer.id, producer.epoch
	req.Generation, req.MemberID = meta.Generation, meta.MemberID
	if meta.InstanceID != "" {
		req.InstanceID = &meta.InstanceID
	}
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), TopicPartition.Compare) {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewTxnOffsetCommitRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		o := offsets[tp]
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = tp.Partition, o.Offset, o.LeaderEpoch
		rp.Metadata = &o.Metadata
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, rp)
	}
	_, err := p.c.Do(ctx, Request{Route: GroupCoordinator(meta.Group), Req: req, Limit: limit, Check: func(resp kmsg.Response) error {
		return txnOffsetError(meta.Group, resp.(*kmsg.TxnOffsetCommitResponse))
	}})
	if err != nil {
		return p.txnError(ctx, req.Key(), err)
	}
	return nil
}

func txnOffsetError(group string, resp *kmsg.TxnOffsetCommitResponse) error {
	for _, t := range resp.Topics {
		for _, a := range t.Partitions {
			if a.ErrorCode != 0 {
				return &Error{API: resp.Key(), Code: Code(a.ErrorCode), Resource: "group " + group,
					Message: "partition " + TopicPartition{t.Topic, a.Partition}.String()}
			}
		}
	}
	return nil
}

func (p *Producer) codeError(api, code int16) error {
	if code == 0 {
		return nil
	}
	e := &Error{API: api, Code: Code(code)}
	if p.cfg.TransactionalID != "" {
		e.Resource = "transactional id " + p.cfg.TransactionalID
	}
	return e
}

// txnError is classify for errors of requests inside a transaction.
func (p *Producer) txnError(ctx context.Context, api int16, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return p.classify(actionFor(api, err), err)
}

// classify says by one of the errors above what a failure means for the transaction. It leaves errors of an idempotent producer and those
// that neither Abort nor Init can mend as they are.
func (p *Producer) classify(act Action, err error) error {
	if p.cfg.TransactionalID == "" {
		return err
	}
	switch act {
	case ActFenced:
		return fmt.Errorf("%w: %w", ErrFenced, err)
	case ActUnauthorized, ActFatal:
		return err
	default:
		return fmt.Errorf("%w: %w", ErrAbortable, err)
	}
}

// EndTransaction aborts what is open under a transactional id, and fences the producer that has it: whoever uses the id next must begin with
// InitProducerId. timeout is the transaction timeout that the coordinator is to remember.
func (c *Client) EndTransaction(ctx context.Context, id string, timeout time.Duration) error {
	p := &Producer{c: c, cfg: ProducerConfig{TransactionalID: id, TransactionTimeout: timeout}}
	version, err := c.TransactionVersion(ctx)
	if err != nil {
		return err
	}
	p.txn.v2 = version >= 2
	_, err = p.initProducerID(ctx)
	return err
}
