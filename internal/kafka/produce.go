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

// AnyPartition leaves the choice of the partition to the producer: by the key's hash, or without a key one partition per batch in turn.
const AnyPartition int32 = -1

// maxBatchBytes keeps batches below the brokers' default of message.max.bytes, 1,048,588.
const maxBatchBytes = 1_000_000

// maxProduceBytes bounds the batches of one request, far below the brokers' default of socket.request.max.bytes, 100 MiB.
const maxProduceBytes = 16 << 20

// Message is a record to be sent.
type Message struct {
	Topic      string
	Partition  int32 // or AnyPartition
	Timestamp  int64 // milliseconds since the epoch, written as it is: 0 is 1970, -1 is no timestamp
	Key, Value []byte
	Headers    []Header
	Origin     Origin // kept for RefusedRecord only
}

// Origin is the record that a message was made of; the zero value is none.
type Origin struct {
	TopicPartition
	Offset int64
}

// ProducerConfig says how to send. The zero value of each field is usable.
type ProducerConfig struct {
	// TransactionalID makes the producer transactional (see Commit); else it is idempotent only.
	TransactionalID string
	// TransactionTimeout is how long the coordinator lets a transaction stay open before it aborts it. Default 10 s.
	TransactionTimeout time.Duration
	// BatchBytes is the size at which a batch is full, at most 1,000,000 bytes. A larger record is sent alone. Default 512 KiB.
	BatchBytes int
	// BufferBytes is the size of records not yet acknowledged above which Send waits. Default 32 MiB.
	BufferBytes int
	// Linger is how long a batch that is not full waits for more records. Negative: until Flush. Default 5 ms.
	Linger time.Duration
	// RequestTimeout is how long a leader may wait for its followers. Default 10 s.
	RequestTimeout time.Duration
	// DeliveryTimeout is how long a batch is tried before the producer fails. Default 120 s.
	DeliveryTimeout time.Duration
	// Compression of batches. Default: none.
	Compression Compression
	// MaySend, where set, is asked before each produce request. Its error fails the producer: a member that may have lost its partitions
	// must not write for them.
	MaySend func() error
	// Refused, where set, is told of each record that its broker refuses for what it is, before Flush returns. The record is left out and the
	// others are written, in order. Without it, such a record fails the producer. It must not call the producer.
	Refused func(RefusedRecord)
}

// RecordError is a broker's complaint about one record of a batch.
type RecordError struct {
	Index   int32 // in ProduceError.Records
	Message string
}

// ProduceError is a batch that was not written, and will not be. The producer has failed with it: later batches are not sent, so that no
// record overtakes one of the same partition.
type ProduceError struct {
	TopicPartition
	Code         Code          // 0 if Err is not an answer of the leader
	Records      []Record      // the batch; offsets count from 0
	RecordErrors []RecordError // which of them were refused, if the broker says so
	Err          error
}

func (e *ProduceError) Error() string {
	what := fmt.Sprintf("%d records", len(e.Records))
	if len(e.Records) > 0 {
		what += fmt.Sprintf(", the first with timestamp %d", e.Records[0].Timestamp)
	}
	for _, r := range e.RecordErrors {
		if r.Index >= 0 && int(r.Index) < len(e.Records) {
			what += fmt.Sprintf("; record %d with timestamp %d: %s", r.Index, e.Records[r.Index].Timestamp, r.Message)
		}
	}
	return fmt.Sprintf("partition %s: a batch was not written (%s): %v", e.TopicPartition, what, e.Err)
}

func (e *ProduceError) Unwrap() error { return e.Err }

// ErrProducerClosed is the error of a Send after Close.
var ErrProducerClosed = errors.New("kafka producer is closed")

// Producer sends records. Each partition's records are written in the order of their Send, each once, whatever is sent again after an
// error: batches carry a producer id and a sequence (KIP-98), and each partition has at most one batch under way.
//
// Send copies a record into the open batch of its partition. A loop hands batches that are full, or have waited for Linger, or are flushed
// to produce requests. There is one request under way for each leader, with one batch of each partition that has one; meanwhile the next
// batches fill up. A batch whose leader moved stays at the head of its partition's queue, and so keeps its place.
//
// It is safe for concurrent use, except that Commit, Abort and Init must not overlap with each other or with Send.
type Producer struct {
	c      *Client
	cfg    ProducerConfig
	wake   chan struct{} // tells the loop that the state below has changed; capacity 1
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when a batch is done or the producer fails; nil while nobody waits
	topics   map[string]*producerTopic
	parts    []*producerPartition
	first    int            // where in parts the next plan begins
	busy     map[int32]bool // leaders with a request under way
	free     []*producerBatch
	buffered int    // bytes of records in batches
	nextSeal uint64 // number of the next sealed batch
	err      error  // the producer has failed
	closed   bool
	finding  bool // leaders are being looked up

	producer    producerID
	renewing    bool // a new producer id is wanted and not there yet
	renewWanted bool // and nobody has gone for it

	txn txnState
}

type producerTopic struct {
	parts  []*producerPartition
	sticky int // the partition of the next record without a key
}

type producerPartition struct {
	tp      TopicPartition
	leader  int32 // -1: to be looked up
	open    *producerBatch
	sealed  []*producerBatch // in order
	flying  *producerBatch   // the one under way: the first sealed one, unless that was dropped
	tries   int              // of the first sealed batch
	retryAt time.Time
	lastErr error
	acked   int64 // the offset after the last acknowledged record, 0 if none

	producer producerID // that sequence counts for
	sequence int32      // of the next batch

	inTxn bool // the transaction coordinator knows it, see txn.go
}

type producerBatch struct {
	batchBuilder
	origins  []Origin  // of the records, if Refused is to be told of them
	bytes    int       // of records, before compression
	seal     uint64    // number of sealing, by which Flush knows what to wait for
	started  time.Time // first record
	deadline time.Time
	stamped  bool // has a producer id and a sequence, which it keeps: it may have been written already
	producer producerID
	sequence int32
	dropped  bool // its transaction was given up while it was under way
}

// NewProducer starts a producer, after its producer id was had from the broker. Close ends it.
func (c *Client) NewProducer(ctx context.Context, cfg ProducerConfig) (*Producer, error) {
	if cfg.TransactionTimeout <= 0 {
		cfg.TransactionTimeout = 10 * time.Second
	}
	if cfg.BatchBytes <= 0 {
		cfg.BatchBytes = 512 << 10
	}
	cfg.BatchBytes = min(cfg.BatchBytes, maxBatchBytes)
	if cfg.BufferBytes <= 0 {
		cfg.BufferBytes = 32 << 20
	}
	if cfg.Linger == 0 {
		cfg.Linger = 5 * time.Millisecond
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	if cfg.DeliveryTimeout <= 0 {
		cfg.DeliveryTimeout = 120 * time.Second
	}
	p := &Producer{
		c:        c,
		cfg:      cfg,
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		topics:   map[string]*producerTopic{},
		busy:     map[int32]bool{},
		producer: producerID{id: -1, epoch: -1},
	}
	if err := p.Init(ctx); err != nil {
		return nil, err
	}
	loopCtx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go p.run(loopCtx)
	return p, nil
}

// Send adds a record to the open batch of its partition, and waits only while BufferBytes are unacknowledged or the topic is not known yet.
// Nothing of m is used after it returned. An error means that the record was not taken; an earlier record's failure is reported here too.
func (p *Producer) Send(ctx context.Context, m Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if err := p.usable(); err != nil {
			return err
		}
		part := p.partitionOf(&m)
		if part == nil {
			if err := p.unlocked(func() error { return p.loadTopic(ctx, m.Topic, m.Partition) }); err != nil {
				return err
			}
			continue
		}
		if p.buffered < p.cfg.BufferBytes {
			p.add(part, &m)
			return nil
		}
		p.sealAll() // or records that wait for Flush would fill the buffer for ever
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

func (p *Producer) usable() error {
	if p.err != nil {
		return p.err
	}
	if p.closed {
		return ErrProducerClosed
	}
	return nil
}

// partitionOf returns nil for a topic or partition that is not known.
func (p *Producer) partitionOf(m *Message) *producerPartition {
	t := p.topics[m.Topic]
	if t == nil {
		return nil
	}
	i := m.Partition
	if i == AnyPartition {
		if m.Key != nil {
			i = PartitionFor(m.Key, int32(len(t.parts)))
		} else {
			i = int32(t.sticky)
		}
	}
	if i < 0 || int(i) >= len(t.parts) {
		return nil
	}
	return t.parts[i]
}

// loadTopic learns how many partitions a topic has. It is called without the lock.
func (p *Producer) loadTopic(ctx context.Context, name string, partition int32) error {
	var topic *Topic
	err := p.c.retry(ctx, kmsg.Produce, "topic "+name, func() (err error) {
		p.mu.Lock()
		known := p.topics[name] != nil
		p.mu.Unlock()
		if known { // but not the partition: it may have been added
			p.c.forgetRoute(Leader(TopicPartition{name, partition}))
		}
		topic, err = p.c.topic(ctx, name)
		return err
	})
	if err != nil {
		return err
	}
	if int(partition) >= len(topic.Partitions) || partition < AnyPartition || len(topic.Partitions) == 0 {
		return &Error{API: int16(kmsg.Produce), Code: UnknownTopicOrPartition, Resource: "partition " + TopicPartition{name, partition}.String(),
			Message: fmt.Sprintf("the topic has %d partitions", len(topic.Partitions))}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[name]
	if t == nil {
		t = &producerTopic{}
		p.topics[name] = t
	}
	for i := len(t.parts); i < len(topic.Partitions); i++ {
		part := &producerPartition{tp: TopicPartition{name, int32(i)}, leader: -1, producer: producerID{id: -1, epoch: -1}}
		t.parts = append(t.parts, part)
		p.parts = append(p.parts, part)
	}
	return nil
}

func (p *Producer) add(part *producerPartition, m *Message) {
	p.txn.open = true
	b := part.open
	if b != nil && b.size()+recordBound(m.Key, m.Value, m.Headers) > p.cfg.BatchBytes {
		p.seal(part)
		b = nil
	}
	if b == nil {
		b = p.newBatch()
		part.open = b
		notify(p.wake) // the loop's timer has to know of it
	}
	before := b.size()
	b.append(m.Timestamp, m.Key, m.Value, m.Headers)
	if p.cfg.Refused != nil {
		b.origins = append(b.origins, m.Origin)
	}
	b.bytes += b.size() - before
	p.buffered += b.size() - before
	if b.size() >= p.cfg.BatchBytes {
		p.seal(part)
	}
}

func (p *Producer) newBatch() *producerBatch {
	var b *producerBatch
	if n := len(p.free); n > 0 {
		b, p.free = p.free[n-1], p.free[:n-1]
	} else {
		b = &producerBatch{}
	}
	b.reset()
	*b = producerBatch{batchBuilder: b.batchBuilder, origins: b.origins[:0], started: time.Now()}
	return b
}

// seal puts the open batch of a partition into its queue.
func (p *Producer) seal(part *producerPartition) {
	b := part.open
	part.open = nil
	b.seal = p.nextSeal
	b.deadline = time.Now().Add(p.cfg.DeliveryTimeout)
	p.nextSeal++
	part.sealed = append(part.sealed, b)
	if t := p.topics[part.tp.Topic]; t.sticky == int(part.tp.Partition) {
		t.sticky = (t.sticky + 1) % len(t.parts)
	}
	notify(p.wake)
}

func (p *Producer) sealAll() {
	for _, part := range p.parts {
		if part.open != nil {
			p.seal(part)
		}
	}
}

// release gives a batch's memory back.
func (p *Producer) release(b *producerBatch) {
	p.buffered -= b.bytes
	p.free = append(p.free, b)
}

// Flush sends what was given to Send so far and waits until all of it is acknowledged, or until the producer has failed.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flush(ctx)
}

// Acked is the offset after the last record of a partition that this producer has written and the broker has acknowledged, 0 if there is
// none. After a Flush it is the offset after the last record sent, unless the broker answered that it had the last batch already.
func (p *Producer) Acked(tp TopicPartition) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[tp.Topic]
	if t == nil || int(tp.Partition) >= len(t.parts) {
		return 0
	}
	return t.parts[tp.Partition].acked
}

func (p *Producer) flush(ctx context.Context) error {
	p.sealAll()
	end := p.nextSeal
	for {
		if p.err != nil {
			return p.err
		}
		if !slices.ContainsFunc(p.parts, func(part *producerPartition) bool {
			return len(part.sealed) > 0 && part.sealed[0].seal < end
		}) {
			return nil
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

// wait gives the lock up until something has changed.
func (p *Producer) wait(ctx context.Context) error {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	changed := p.changed
	return p.unlocked(func() error {
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.done:
			return ErrProducerClosed
		}
	})
}

func (p *Producer) unlocked(f func() error) error {
	p.mu.Unlock()
	defer p.mu.Lock()
	return f()
}

func (p *Producer) broadcast() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// fail stops the producer. The first error counts.
func (p *Producer) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.broadcast()
}

// Close ends the producer and waits for its goroutines. Records that were not acknowledged yet are flushed first, for as long as ctx allows;
// an open transaction is aborted instead.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		<-p.done
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	var err error
	if p.cfg.TransactionalID == "" {
		err = p.Flush(ctx)
	} else if p.InTransaction() {
		err = p.Abort(ctx)
	}
	p.cancel()
	<-p.done
	return err
}
