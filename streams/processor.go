package streams

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/store"
)

// Processor is a step written by hand: it may keep state, forward any number of records for each that it gets, and be
// called at times. Every task has one of its own, which only the task's goroutine calls.
//
// An error, like a panic, ends the application with a *ProcessingError that names the node.
type Processor[K, V, K2, V2 any] interface {
	// Init comes first, once the task's stores are complete. It opens stores, schedules, and keeps ctx.
	Init(ctx *ProcessorContext[K2, V2]) error
	// Process takes one record. A null key or value is told by r.NullKey and r.NullValue.
	Process(r Record[K, V]) error
}

// ProcessOption sets something about Process: WithName, or a *KeyValueStore that the processor uses.
type ProcessOption interface{ applyProcess(*processOptions) }

type processOptions struct {
	name   string
	stores []processorStore
}

// processorStore is a KeyValueStore without its types.
type processorStore struct {
	b    *Builder
	spec *storeSpec
}

func (n Name) applyProcess(o *processOptions) { o.name = string(n) }

// Process hands the stream's records to a processor that supplier makes, anew for each task, and is the stream of what
// it forwards. Each store that the processor uses is an option of the call; processors with a store in common are in one
// sub-topology, and each task has its own part of the store.
//
// The key may have been changed, so an aggregation or join below needs a repartition topic. Unlike all other operators a
// processor with a name uses up no index (Kafka Streams 4.3.1, KStreamImpl.process).
func Process[K, V, K2, V2 any](
	s *Stream[K, V], supplier func() Processor[K, V, K2, V2], opts ...ProcessOption,
) *Stream[K2, V2] {
	var o processOptions
	for _, opt := range opts {
		opt.applyProcess(&o)
	}
	b := s.b
	if o.name == "" {
		o.name = b.nodeName("", "KSTREAM-PROCESSOR-")
	}
	n := &node{name: o.name, kind: processorNode}
	for _, st := range o.stores {
		if st.b != b {
			b.fail(n.name, fmt.Errorf("store %s: %w", st.spec.Name, errBuilders))
		}
		if !slices.Contains(n.uses, st.spec) {
			n.uses = append(n.uses, st.spec)
		}
	}
	n.bind = bindProcessor(n, supplier)
	v := single(n)
	b.add(v, s.v)
	return &Stream[K2, V2]{b: b, v: v, sources: s.sources, rekeyed: true}
}

var errNoProcessor = errors.New("its supplier returned no processor")

func bindProcessor[K, V, K2, V2 any](n *node, supplier func() Processor[K, V, K2, V2]) func(*binding) any {
	return func(b *binding) any {
		p := supplier()
		if p == nil {
			b.errs = append(b.errs, fmt.Errorf("node %s: %w", n.name, errNoProcessor))
			return process[K, V](nil)
		}
		c := &ProcessorContext[K2, V2]{node: n, rt: b.rt, out: forwardTo[K2, V2](b, n)}
		b.starts[n] = func(ctx *Context) error {
			c.ctx = ctx
			return p.Init(c)
		}
		if len(n.uses) > 0 {
			b.flushes[n] = flushLogged(b, n)
		}
		return observeBefore(b, n, func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			if err := p.Process(r); err != nil {
				ctx.fail(ctx.problem(err))
			}
		})
	}
}

// flushLogged marks what a processor put into its stores as flushed. KeyValue logged each change when it was made. A
// store of several processors is flushed by each of them, since the later ones may put into it while tables flush.
func flushLogged(b *binding, n *node) func(*Context) error {
	stores := make([]*store.KeyValue, len(n.uses))
	for i, spec := range n.uses {
		stores[i] = b.rt.keyValue(spec.Name)
	}
	return func(*Context) error {
		for _, st := range stores {
			if err := st.Flush(func(store.Change) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	}
}

// ProcessorContext is a processor's way to what surrounds it. It must not be used from another goroutine, nor outside of
// a call of the processor or one of its punctuations.
type ProcessorContext[K, V any] struct {
	node *node
	rt   runtime
	ctx  *Context
	out  process[K, V]
}

// Forward sends a record to the nodes below, and returns when they are done with it. r.Timestamp and r.Headers travel
// with it: a record made from another one usually keeps those. After a failure below, which ends the application,
// Forward does nothing.
func (c *ProcessorContext[K, V]) Forward(r Record[K, V]) {
	if c.ctx.err != nil {
		return
	}
	if r.Timestamp < 0 {
		c.ctx.fail(c.ctx.problem(fmt.Errorf("forwards a record with timestamp %d: it must not be negative", r.Timestamp)))
		return
	}
	at := c.ctx.timestamp
	c.ctx.timestamp = r.Timestamp // what is below sees the record's own (Kafka Streams 4.3.1, ProcessorContextImpl.forward)
	c.out(c.ctx, r)
	c.ctx.node, c.ctx.timestamp = c.node, at
}

// Schedule calls fn again and again until the punctuation is cancelled or the task moves away: every interval, at least
// 1 ms, of the given time. now is that time. See StreamTime and WallClock for when the first call is.
func (c *ProcessorContext[K, V]) Schedule(interval time.Duration, by PunctuationType, fn func(now int64) error) (*Punctuation, error) {
	return c.rt.punctuations().schedule(c.node, interval, by, fn)
}

// Context is the record at work; while Init or a punctuation runs it has no topic, partition -1 and offset -1, and its
// timestamp is the time of the punctuation, in Init the wall clock.
func (c *ProcessorContext[K, V]) Context() *Context { return c.ctx }

// StreamTime is the task's stream time in milliseconds since 1970: the largest timestamp of its records up to
// the one at work, or -1. It survives restarts with the committed offsets.
func (c *ProcessorContext[K, V]) StreamTime() int64 { return c.rt.punctuations().streamTime }

// KeyValueStore is a store for processors, part of a topology. It is Java's keyValueStoreBuilder over a
// persistentKeyValueStore with its defaults: plain, that is without timestamps beside the values; not cached; and logged,
// so each change is a record of the changelog topic <application.id>-<name>-changelog at once, with the timestamp of the
// record or punctuation at work. Keys are ordered by their bytes.
type KeyValueStore[K, V any] struct {
	processorStore
	keys   Serde[K]
	values Serde[V]
}

// NewKeyValueStore declares a store. It is kept if a processor uses it.
func NewKeyValueStore[K, V any](b *Builder, name string, keys Serde[K], values Serde[V]) *KeyValueStore[K, V] {
	spec := b.declareStore(name, store.KeyValueKind)
	spec.materialized = true
	if !keys.known() || !values.known() {
		b.errs = append(b.errs, fmt.Errorf("store %s: no serdes", name))
	}
	return &KeyValueStore[K, V]{processorStore{b, spec}, keys, values}
}

func (s *KeyValueStore[K, V]) applyProcess(o *processOptions) {
	o.stores = append(o.stores, s.processorStore)
}

// OpenStore is the task's part of a store, for a processor's Init. The store must have been an option of Process.
func OpenStore[K, V, K2, V2 any](c *ProcessorContext[K2, V2], s *KeyValueStore[K, V]) (*KeyValue[K, V], error) {
	name := s.spec.Name
	if !slices.Contains(c.node.uses, s.spec) {
		return nil, fmt.Errorf("processor %s has no access to store %s: give the store to Process", c.node.name, name)
	}
	return &KeyValue[K, V]{
		name: name, ctx: c.ctx, st: c.rt.keyValue(name), log: c.rt.changelog(name),
		key: newScratch(s.keys), upper: newScratch(s.keys), value: newScratch(s.values),
	}, nil
}

// KeyValue is one task's part of a KeyValueStore. Its values are never null: Put with a value, Delete without. A failure
// ends the application even if the processor goes on.
type KeyValue[K, V any] struct {
	name       string
	ctx        *Context
	st         *store.KeyValue
	log        sinkLogFunc
	key, upper *scratch[K]
	value      *scratch[V]
}

// fail makes err the context's error and says which store it is of.
func (s *KeyValue[K, V]) fail(doing string, err error) error {
	err = fmt.Errorf("%s store %s: %w", doing, s.name, err)
	s.ctx.fail(s.ctx.problem(err))
	return err
}

// Get is the value of a key, and whether there is one.
func (s *KeyValue[K, V]) Get(key K) (value V, ok bool, err error) {
	k, err := s.key.encode(key)
	if err != nil {
		return value, false, s.fail("encode the key for", err)
	}
	raw, _, ok, err := s.st.Get(k)
	if err != nil {
		return value, false, s.fail("read", err)
	}
	if !ok {
		return value, false, nil
	}
	if value, err = s.value.serde.Decode(raw); err != nil {
		return value, false, s.fail("decode a value of", err)
	}
	return value, true, nil
}

// Put sets the value of a key.
func (s *KeyValue[K, V]) Put(key K, value V) error {
	v, err := s.value.encode(value)
	if err != nil {
		return s.fail("encode the value for", err)
	}
	return s.set(key, v)
}

// Delete removes a key. It is logged even if the key is not there, as in Java.
func (s *KeyValue[K, V]) Delete(key K) error { return s.set(key, nil) }

func (s *KeyValue[K, V]) set(key K, value []byte) error {
	k, err := s.key.encode(key)
	if err != nil {
		return s.fail("encode the key for", err)
	}
	if err := s.st.Put(k, value, s.ctx.timestamp, nil); err != nil {
		return s.fail("write", err)
	}
	if err := s.log(k, value, s.ctx.timestamp); err != nil {
		return s.fail("log a change of", err)
	}
	return nil
}

// Range calls fn for each entry whose key is, by its bytes, not less than from and not greater than to, in the order of
// the keys, until fn returns false. fn may change the store; whether a change of a key ahead shows is open.
func (s *KeyValue[K, V]) Range(from, to K, fn func(K, V) bool) error {
	lower, err := s.key.encode(from)
	if err != nil {
		return s.fail("encode the key for", err)
	}
	upper, err := s.upper.encode(to)
	if err != nil {
		return s.fail("encode the key for", err)
	}
	// fn may encode other keys meanwhile.
	return s.each(slices.Clone(lower), append([]byte{}, upper...), fn)
}

// All calls fn for each entry in the order of the keys' bytes, until fn returns false. fn may change the store, as in
// Range.
func (s *KeyValue[K, V]) All(fn func(K, V) bool) error { return s.each(nil, nil, fn) }

func (s *KeyValue[K, V]) each(from, to []byte, fn func(K, V) bool) error {
	var failed error
	err := s.st.Between(from, to, func(key, value []byte, _ int64) bool {
		k, err := s.key.serde.Decode(key)
		if err != nil {
			failed = s.fail("decode a key of", err)
			return false
		}
		v, err := s.value.serde.Decode(value)
		if err != nil {
			failed = s.fail("decode a value of", err)
			return false
		}
		return fn(k, v)
	})
	if err != nil {
		return s.fail("read", err)
	}
	return failed
}
