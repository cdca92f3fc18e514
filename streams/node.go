package streams

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/windowed-order-counter/lab/store"
)

// node is one vertex of a built topology, what describe prints as a source, processor or sink. It is immutable
// once Build returned; everything that a task changes lives in the closures that bind makes.
type node struct {
	name  string
	kind  nodeKind
	topic string // of a source or sink, raw
	// store is read or written by the node; nil for most. uses are the stores of a Processor, in the order in which
	// describe prints them.
	store *storeSpec
	uses  []*storeSpec
	// parents in the order they were declared, children in the order they were built: a record goes to the
	// children depth first in that order (Kafka Streams 4.3.1, ProcessorContextImpl.forward).
	parents, children []*node

	// bind makes the node's process[K, V] for one task; nil for a source, which source.bind makes.
	bind func(*binding) any
	// src is set for a source.
	src *source
	// repart is set for the sink of a repartition topic.
	repart *repartitionSpec
}

type nodeKind int

const (
	sourceNode nodeKind = iota
	processorNode
	sinkNode
)

// process is one step of a bound topology. It must set ctx.node before it runs a user function, and stop when
// ctx.err is set.
type process[K, V any] func(ctx *Context, r Record[K, V])

// runtime is what a bound topology needs of the task it runs in.
type runtime interface {
	keyValue(store string) *store.KeyValue
	window(store string) *store.Window
	// sink resolves a topic once, at bind time; internal topics are raw names that the runtime decorates. The partition is
	// chosen by partitionBy(key), or if that is nil by the key.
	sink(topic string, internal bool, partitionBy func(key []byte) []byte) sinkFunc
	changelog(store string) sinkLogFunc
	// uncached says that each put is to be flushed at once.
	uncached() bool
	// onFlush registers what each commit calls, in this order: it empties the store's dirty entries into the
	// changelog and downstream, per entry and the changelog first (Kafka Streams 4.3.1, CachingKeyValueStore).
	onFlush(node string, fn func(*Context) error)
	// onStart registers what is called, in this order, once the stores are complete and before the first record.
	onStart(node string, fn func(*Context) error)
	punctuations() *punctuations
	// registerStreamTime makes a window aggregate's stream time part of the task's committed state; -1 is none.
	registerStreamTime(key string, restore func(int64), current func() int64)
	observer(node string) *Observer
	skipped(ctx *Context, s Skipped)
	outOfOrder(ctx *Context, u OutOfOrder)
}

// sinkFunc sends a record; a nil key or value is null. It copies what it keeps and fails through ctx.
type sinkFunc func(ctx *Context, key, value []byte, ts int64, headers []Header)

// sinkLogFunc sends a changelog record to the task's own partition, without headers; a nil value deletes.
type sinkLogFunc func(key, value []byte, ts int64) error

// input is a record as the runtime hands it to a source; a nil key or value is null.
type input struct {
	topic      string // as on the broker, so decorated if internal
	partition  int32
	offset     int64
	timestamp  int64
	key, value []byte
	headers    []Header
}

// boundSource is one source in one task: the typed head of a partition's queue.
type boundSource interface {
	// load decodes in as the new head and extracts its timestamp; partitionTime is the largest timestamp of the
	// partition before it, -1 if none. The error is a *RecordError. in is not kept.
	load(in *input, partitionTime int64) (ts int64, err error)
	// process runs the head through the graph and returns the context's error. A panic of a user function comes
	// back as a *ProcessingError that names its node.
	process(ctx *Context) error
}

// binding ties a sub-topology to one task. A node with two parents is bound once.
type binding struct {
	rt   runtime
	memo map[*node]any
	// flushes and starts by node: bind walks depth first, but they are called in build order.
	flushes, starts map[*node]func(*Context) error
	errs            []error
}

// newBinding binds every node of sub and registers its stores' flushes in build order.
func newBinding(rt runtime, sub *subtopology) (*binding, error) {
	b := &binding{rt: rt, memo: map[*node]any{}, flushes: map[*node]func(*Context) error{}, starts: map[*node]func(*Context) error{}}
	for _, n := range sub.nodes {
		if n.kind != sourceNode {
			b.bound(n)
		}
	}
	for _, n := range sub.nodes {
		if fn, ok := b.flushes[n]; ok {
			rt.onFlush(n.name, flushing(n, fn))
		}
		if fn, ok := b.starts[n]; ok {
			rt.onStart(n.name, starting(rt, n, fn))
		}
	}
	for _, s := range sub.sources { // a source's observer may still be of the wrong type
		s.bind(b)
	}
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return b, nil
}

func (b *binding) bound(n *node) any {
	p, ok := b.memo[n]
	if !ok {
		p = n.bind(b)
		b.memo[n] = p
	}
	return p
}

// registerFlush makes flush what each commit calls for the node, and gives what the node is to call after each put: nothing,
// or without a cache flush too, so that each input has its changelog record and its output (statestore.cache.max.bytes=0).
func (b *binding) registerFlush(n *node, flush func(*Context) error) (afterPut func(*Context)) {
	b.flushes[n] = flush
	if !b.rt.uncached() {
		return func(*Context) {}
	}
	return func(ctx *Context) {
		timestamp, old := ctx.timestamp, ctx.old
		if err := flush(ctx); err != nil {
			ctx.fail(ctx.problem(err))
		}
		ctx.node, ctx.timestamp, ctx.old = n, timestamp, old
	}
}

func boundTo[K, V any](b *binding, n *node) process[K, V] {
	return b.bound(n).(process[K, V])
}

// children is n's children in build order as one step.
func children[K, V any](b *binding, n *node) process[K, V] {
	next := make([]process[K, V], len(n.children))
	for i, c := range n.children {
		next[i] = boundTo[K, V](b, c)
	}
	return fanOut(next)
}

// forwardTo is what n calls with each record it forwards: its children, then its After observer.
func forwardTo[K, V any](b *binding, n *node) process[K, V] {
	return observeAfter(b, n, children[K, V](b, n))
}

func fanOut[K, V any](next []process[K, V]) process[K, V] {
	switch len(next) {
	case 0:
		return func(*Context, Record[K, V]) {}
	case 1:
		return next[0]
	}
	return func(ctx *Context, r Record[K, V]) {
		for _, p := range next {
			if p(ctx, r); ctx.err != nil {
				return
			}
		}
	}
}

// Context is the record at work in a task, for observers and errors. It belongs to the task's goroutine.
type Context struct {
	taskID    string
	topic     string
	partition int32
	offset    int64
	timestamp int64
	node      *node
	err       error
	// doing is what goes on while no record is at work.
	doing string
	// old is the value that the table entry at work had before; nil if it had none, or none is asked for.
	old []byte
}

// TaskID is <sub-topology>_<partition>.
func (c *Context) TaskID() string { return c.taskID }

// Topic is the topic the record at work was read from; empty while a commit flushes stores or a processor punctuates.
func (c *Context) Topic() string { return c.topic }

// Partition is the partition of the record at work, -1 if Topic is empty.
func (c *Context) Partition() int32 { return c.partition }

// Offset is the offset of the record at work, -1 if Topic is empty.
func (c *Context) Offset() int64 { return c.offset }

// Timestamp is the extracted timestamp of the record at work, or the one it was forwarded with, or the time of a
// punctuation, in milliseconds since 1970.
func (c *Context) Timestamp() int64 { return c.timestamp }

// fail keeps the first error; processors stop when there is one.
func (c *Context) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// problem is err at the record and node at work.
func (c *Context) problem(err error) *ProcessingError {
	e := &ProcessingError{TaskID: c.taskID, Topic: c.topic, Partition: c.partition, Offset: c.offset, Err: err}
	if c.node != nil {
		e.Node = c.node.name
	}
	if e.Topic == "" {
		e.During = c.doing
	}
	return e
}

// recovered turns a panic of a user function into the context's error. It must be deferred itself.
func (c *Context) recovered() {
	if v := recover(); v != nil {
		e := c.problem(nil)
		e.Panic, e.Stack = v, debug.Stack()
		if err, ok := v.(error); ok {
			e.Err = err
		}
		c.fail(e)
	}
}

// outsideRecord runs a node's fn while no record is at work. A panic, also one further down, names its node.
func (c *Context) outsideRecord(doing string, timestamp int64, n *node, fn func(*Context) error) error {
	c.topic, c.partition, c.offset, c.timestamp, c.node, c.doing = "", -1, -1, timestamp, n, doing
	func() {
		defer c.recovered()
		if err := fn(c); err != nil {
			c.fail(c.problem(err))
		}
	}()
	return c.err
}

// flushing is a flush as the runtime calls it; each entry brings its own timestamp.
func flushing(n *node, fn func(*Context) error) func(*Context) error {
	return func(ctx *Context) error { return ctx.outsideRecord("flushing stores", noTime, n, fn) }
}

// starting is a start as the runtime calls it (Kafka Streams 4.3.1, StreamTask.initializeTopology).
func starting(rt runtime, n *node, fn func(*Context) error) func(*Context) error {
	return func(ctx *Context) error { return ctx.outsideRecord("starting", rt.punctuations().clock(), n, fn) }
}

// ProcessingError is a failure while a record went through the topology: a user function that panicked, a value
// that could not be encoded, a store that failed.
type ProcessingError struct {
	Node      string
	TaskID    string
	Topic     string // empty if no record was at work
	Partition int32
	During    string // what went on then: "flushing stores", "punctuating" or "starting"
	Offset    int64
	Panic     any    // what the user function panicked with, if it did
	Stack     []byte // of the panic
	Err       error
}

func (e *ProcessingError) Error() string {
	at := "while " + e.During
	if e.Topic != "" {
		at = fmt.Sprintf("topic %s, partition %d, offset %d", e.Topic, e.Partition, e.Offset)
	}
	if e.Panic != nil {
		return fmt.Sprintf("node %s panicked: task %s, %s: %v", e.Node, e.TaskID, at, e.Panic)
	}
	return fmt.Sprintf("node %s: task %s, %s: %v", e.Node, e.TaskID, at, e.Err)
}

func (e *ProcessingError) Unwrap() error { return e.Err }

// Reason is why a record cannot be processed.
type Reason int

// The reasons of a RecordError. All but KeyTooLarge are known before the record is processed.
const (
	BadKey Reason = iota + 1
	BadValue
	BadTimestamp      // the extractor failed
	NegativeTimestamp // the extracted timestamp, or the record's own, is below zero
	TimestampTooLarge // it is so far ahead that the end of a window after it could not be computed
	KeyTooLarge       // no store can hold the key
)

func (r Reason) String() string {
	switch r {
	case BadKey:
		return "key cannot be decoded"
	case BadValue:
		return "value cannot be decoded"
	case BadTimestamp:
		return "timestamp cannot be extracted"
	case NegativeTimestamp:
		return "negative timestamp"
	case TimestampTooLarge:
		return "timestamp too large"
	case KeyTooLarge:
		return "key too large for a store"
	}
	return fmt.Sprintf("Reason(%d)", int(r))
}

// RecordError is an input record that its source cannot take, or whose key is too large for a store. What becomes of it is the runtime's
// policy, see ErrorHandler.
type RecordError struct {
	Node      string
	Topic     string
	Partition int32
	Offset    int64
	Reason    Reason
	Err       error
}

func (e *RecordError) Error() string {
	s := fmt.Sprintf("node %s: topic %s, partition %d, offset %d: %s", e.Node, e.Topic, e.Partition, e.Offset, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *RecordError) Unwrap() error { return e.Err }
