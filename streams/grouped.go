package streams

import (
	"fmt"

	"github.com/windowed-order-counter/lab/store"
)

// Grouped is a stream grouped by its key, ready to be aggregated. If the key was changed since the stream was last
// read from a topic, each aggregation gets a repartition topic, named after its store; WithName names one topic
// that all aggregations of the group share.
type Grouped[K, V any] struct {
	s      *Stream[K, V]
	name   string
	repart *vertex
}

// GroupByKey groups the stream by the key it has. It adds no node.
func (s *Stream[K, V]) GroupByKey(opts ...NodeOption) *Grouped[K, V] {
	return &Grouped[K, V]{s: s, name: named(opts)}
}

// GroupBy groups the stream by a new key. WithName names the node and the repartition topic.
func GroupBy[K, V, K2 any](s *Stream[K, V], fn func(K, V) K2, keys Serde[K2], opts ...NodeOption) *Grouped[K2, V] {
	name := named(opts)
	keyed := selectKey(s, s.b.nodeName(name, "KSTREAM-KEY-SELECT-"), fn).WithSerdes(keys, s.values)
	return &Grouped[K2, V]{s: keyed, name: name}
}

const (
	groupRemedy     = "give it by WithSerdes before grouping"
	aggregateRemedy = "give it to the aggregation, or by WithSerdes before grouping"
)

// input is what an aggregation with that store reads: the stream, or its repartition.
func (g *Grouped[K, V]) input(storeName string) (*vertex, []*node) {
	s := g.s
	if !s.rekeyed {
		return s.v, s.sources
	}
	prefix := g.name
	if prefix == "" {
		prefix = storeName
	}
	names := s.b.repartitionNames(prefix)
	if g.repart == nil || g.name == "" {
		g.repart = newRepartition(s.b, names, 0, s.keys, s.values, groupRemedy)
	}
	s.b.add(g.repart, s.v)
	return g.repart, []*node{g.repart.exit}
}

// aggregator says how the aggregate of a key, or of a key and window, comes about.
type aggregator[K, V, A any] struct {
	// initial is what the first record is added to; nil if the first value is the aggregate.
	initial func() A
	// next is the aggregate with one more record in it. ok tells whether there was one before, and some whether there is
	// one now. null is a null value, which only windowed aggregations add.
	next func(key K, value V, null bool, old A, ok bool) (aggregate A, some bool)
}

func counting[K, V any]() aggregator[K, V, int64] {
	return aggregator[K, V, int64]{
		initial: func() int64 { return 0 },
		next:    func(_ K, _ V, _ bool, old int64, _ bool) (int64, bool) { return old + 1, true },
	}
}

func reducing[K, V any](fn func(old, value V) V) aggregator[K, V, V] {
	return aggregator[K, V, V]{next: func(_ K, value V, null bool, old V, ok bool) (V, bool) {
		if !ok {
			return value, !null
		}
		return fn(old, value), true
	}}
}

func folding[K, V, A any](initial func() A, fn func(K, V, A) A) aggregator[K, V, A] {
	return aggregator[K, V, A]{initial: initial, next: func(key K, value V, _ bool, old A, ok bool) (A, bool) {
		if !ok {
			old = initial()
		}
		return fn(key, value, old), true
	}}
}

// first is the value that a key had before its first record, where there is no cache: the initial one, and not none
// (Kafka Streams 4.3.1, KStreamAggregate, whose cached twin reads the old value from the store).
func (a aggregator[K, V, A]) first(b *binding, aggregates Serde[A]) func() ([]byte, error) {
	if a.initial == nil || !b.rt.uncached() {
		return nil
	}
	return func() ([]byte, error) { return aggregates.Append([]byte{}, a.initial()) }
}

// Count counts the records of each key in the named store; a name "" generates one. Records with a null key or
// value are skipped. A count's timestamp is the largest of its records'.
//
// Without a name it is Java's count(), which uses up two indices. count(Materialized.with(...)), which Java cannot tell from
// an unnamed store, uses up a third and has no equivalent here: name the store where the indices must be the same.
func Count[K, V any](g *Grouped[K, V], storeName string, opts ...NodeOption) *Table[K, int64] {
	return aggregate(g, "KSTREAM-AGGREGATE-", storeName, Int64(), counting[K, V](), opts)
}

// Reduce combines the values of each key: the first value as it is, then fn of the value so far and the next.
// Records with a null key or value are skipped.
func (g *Grouped[K, V]) Reduce(storeName string, fn func(old, value V) V, opts ...NodeOption) *Table[K, V] {
	return aggregate(g, "KSTREAM-REDUCE-", storeName, g.s.values, reducing[K](fn), opts)
}

// Aggregate folds the values of each key into an aggregate that starts as initial() and is kept by its serde.
// Records with a null key or value are skipped.
func Aggregate[K, V, A any](
	g *Grouped[K, V], storeName string, initial func() A, fn func(K, V, A) A, aggregates Serde[A], opts ...NodeOption,
) *Table[K, A] {
	return aggregate(g, "KSTREAM-AGGREGATE-", storeName, aggregates, folding(initial, fn), opts)
}

// aggregateNode names and places an aggregation. The order of indices is Java's: the store if unnamed, the node,
// the repartition.
func aggregateNode[K, V any](
	g *Grouped[K, V], prefix, storeName string, kind store.Kind, given string,
) (n *node, v *vertex, sources []*node) {
	b := g.s.b
	spec := b.newStore(storeName, prefix, kind)
	spec.materialized = true
	n = &node{name: b.nodeName(given, prefix), kind: processorNode, store: spec}
	spec.owner = n
	needSerde(b, n.name, "key", g.s.keys, groupRemedy)
	parent, sources := g.input(spec.Name)
	v = single(n)
	b.add(v, parent)
	return n, v, sources
}

func aggregate[K, V, A any](
	g *Grouped[K, V], prefix, storeName string, aggregates Serde[A], fn aggregator[K, V, A], opts []NodeOption,
) *Table[K, A] {
	n, v, sources := aggregateNode(g, prefix, storeName, store.KeyValueKind, named(opts))
	keys, spec := g.s.keys, n.store
	needSerde(g.s.b, n.name, "aggregate", aggregates, aggregateRemedy)
	n.bind = bindAggregate(n, keys, aggregates, fn)
	return &Table[K, A]{
		b: g.s.b, v: v, keys: keys, values: aggregates, sources: sources,
		materialize: func() *storeSpec { return spec },
		view:        viewOf(spec, keys, aggregates), previous: previousOf[K](spec, aggregates), remember: spec.remember,
	}
}

// bindAggregate is Kafka Streams 4.3.1's KStreamAggregate and KStreamReduce.
func bindAggregate[K, V, A any](n *node, keys Serde[K], aggregates Serde[A], fn aggregator[K, V, A]) func(*binding) any {
	return func(b *binding) any {
		name := n.store.Name
		st := b.rt.keyValue(name)
		kb, vb := newScratch(keys), newScratch(aggregates)
		afterPut := b.registerFlush(n, flushKeyValue(b, n, keys, aggregates, fn.first(b, aggregates)))
		done := observeAfter(b, n, fanOut[K, A](nil))
		return observeBefore(b, n, func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			if r.NullKey || r.NullValue {
				b.rt.skipped(ctx, ctx.skipped(NullKeyOrValue))
				return
			}
			old, ts, ok := getValue(ctx, st, kb, aggregates, name, r.Key)
			if ctx.err != nil {
				return
			}
			ts = max(ts, r.Timestamp) // without an old one ts is 0, and a timestamp is never negative
			next, _ := fn.next(r.Key, r.Value, false, old, ok)
			result := withValue(&r, next)
			result.Timestamp = ts
			value, err := vb.encode(result.Value)
			if err != nil {
				ctx.fail(ctx.problem(fmt.Errorf("encode the value for store %s: %w", name, err)))
				return
			}
			if err := st.Put(kb.buf, value, ts, r.Headers); err != nil {
				ctx.fail(ctx.problem(fmt.Errorf("store %s: %w", name, err)))
				return
			}
			if afterPut(ctx); ctx.err == nil {
				done(ctx, result)
			}
		})
	}
}

// WindowedGroup is a group whose aggregates are kept per window of event time.
type WindowedGroup[K, V any] struct {
	g *Grouped[K, V]
	w Windows
}

// WindowedBy divides the aggregates of each key into windows.
func (g *Grouped[K, V]) WindowedBy(w Windows) *WindowedGroup[K, V] {
	return &WindowedGroup[K, V]{g: g, w: w}
}

// CountWindows counts the records of each key and window in the named window store; a name "" generates one.
// Unlike Count it counts null values; records with a null key are skipped. A record is too late for a window, and
// skipped for it, once the stream time, the largest timestamp this node has seen in its task, has reached the
// window's end plus grace.
func CountWindows[K, V any](w *WindowedGroup[K, V], storeName string, opts ...WindowOption) *Table[Windowed[K], int64] {
	return aggregateWindows(w, "KSTREAM-AGGREGATE-", storeName, Int64(), counting[K, V](), opts)
}

// ReduceWindows combines the values of each key and window: the first value as it is, then fn of the value so far and the
// next. Which records are skipped is as in CountWindows. A null value leaves a window that has none without one, and is
// otherwise handed to fn as the zero value.
func ReduceWindows[K, V any](
	w *WindowedGroup[K, V], storeName string, fn func(old, value V) V, opts ...WindowOption,
) *Table[Windowed[K], V] {
	return aggregateWindows(w, "KSTREAM-REDUCE-", storeName, w.g.s.values, reducing[K](fn), opts)
}

// AggregateWindows folds the values of each key and window into an aggregate that starts as initial() and is kept by its
// serde. Which records are skipped is as in CountWindows. A null value is handed to fn as the zero value.
func AggregateWindows[K, V, A any](
	w *WindowedGroup[K, V], storeName string, initial func() A, fn func(K, V, A) A, aggregates Serde[A], opts ...WindowOption,
) *Table[Windowed[K], A] {
	return aggregateWindows(w, "KSTREAM-AGGREGATE-", storeName, aggregates, folding(initial, fn), opts)
}

func aggregateWindows[K, V, A any](
	w *WindowedGroup[K, V], prefix, storeName string, aggregates Serde[A], fn aggregator[K, V, A], opts []WindowOption,
) *Table[Windowed[K], A] {
	var o windowOptions
	for _, opt := range opts {
		opt.applyWindow(&o)
	}
	b := w.g.s.b
	n, v, sources := aggregateNode(w.g, prefix, storeName, store.WindowKind, o.name)
	needSerde(b, n.name, "aggregate", aggregates, aggregateRemedy)
	if err := w.w.validate(); err != nil {
		b.fail(n.name, err)
	}
	var err error
	if n.store.Retention, err = w.w.keep(n.store.Name, o.retention); err != nil {
		b.fail(n.name, err)
	}
	n.store.windowSize = w.w.size
	n.bind = bindWindowAggregate(n, w.w, w.g.s.keys, aggregates, fn)
	return &Table[Windowed[K], A]{
		b: b, v: v, keys: TimeWindowed(w.g.s.keys, w.w.size), values: aggregates, sources: sources,
		previous: previousOf[Windowed[K]](n.store, aggregates), remember: n.store.remember,
	}
}

// windowAggregate is Kafka Streams 4.3.1's KStreamWindowAggregate in one task.
type windowAggregate[K, V, A any] struct {
	node                 *node
	rt                   runtime
	store                *store.Window
	key                  *scratch[K]
	value                *scratch[A]
	fn                   aggregator[K, V, A]
	size, advance, grace int64 // ms
	// streamTime is the largest timestamp seen, -1 if none; the record at work counts before it is judged.
	streamTime int64
	mover      Mover // the record that moved it there, zero if it was restored
	done       process[Windowed[K], A]
	afterPut   func(*Context)
}

func bindWindowAggregate[K, V, A any](
	n *node, w Windows, keys Serde[K], aggregates Serde[A], fn aggregator[K, V, A],
) func(*binding) any {
	return func(b *binding) any {
		a := &windowAggregate[K, V, A]{
			node: n, rt: b.rt, store: b.rt.window(n.store.Name), key: newScratch(keys), value: newScratch(aggregates), fn: fn,
			size: w.size.Milliseconds(), advance: w.advance.Milliseconds(), grace: w.grace.Milliseconds(), streamTime: -1,
			done: observeAfter(b, n, fanOut[Windowed[K], A](nil)),
		}
		entry := flushEntry(b, n, aggregates, func(key []byte) (Windowed[K], error) {
			raw, start, err := store.SplitWindowKey(key)
			if err != nil {
				return Windowed[K]{}, err
			}
			k, err := keys.Decode(raw)
			return Windowed[K]{Key: k, Start: start, End: start + a.size}, err
		}, fn.first(b, aggregates))
		a.afterPut = b.registerFlush(n, func(ctx *Context) error {
			return a.store.Flush(func(c store.Change) error { return entry(ctx, c) })
		})
		b.rt.registerStreamTime(n.store.Name, func(t int64) { a.streamTime, a.mover = t, Mover{} }, func() int64 { return a.streamTime })
		return observeBefore(b, n, a.process)
	}
}

func (a *windowAggregate[K, V, A]) process(ctx *Context, r Record[K, V]) {
	ctx.node = a.node
	if r.NullKey {
		a.rt.skipped(ctx, ctx.skipped(NullKey))
		return
	}
	if r.Timestamp > a.streamTime {
		a.mover = Mover{Topic: ctx.topic, Partition: ctx.partition, Offset: ctx.offset, Timestamp: r.Timestamp, Before: a.streamTime}
		a.streamTime = r.Timestamp
	}
	key, err := a.key.encode(r.Key)
	if err != nil {
		a.fail(ctx, "encode the key for", err)
		return
	}
	expiration := a.streamTime - a.grace
	for start := firstWindow(r.Timestamp, a.size, a.advance); start <= r.Timestamp; start += a.advance {
		if start+a.size <= expiration {
			s := ctx.skipped(ExpiredWindow)
			s.WindowStart, s.WindowEnd = start, start+a.size
			s.Expiration, s.StreamTime, s.Mover = expiration, a.streamTime, a.mover
			a.rt.skipped(ctx, s)
			continue
		}
		if a.add(ctx, key, r, start); ctx.err != nil {
			return
		}
	}
}

// add takes the record into one window.
func (a *windowAggregate[K, V, A]) add(ctx *Context, key []byte, r Record[K, V], start int64) {
	raw, ts, ok, err := a.store.Get(key, start)
	if err != nil {
		a.fail(ctx, "read", err)
		return
	}
	var old A
	if ok {
		if old, err = a.value.serde.Decode(raw); err != nil {
			a.fail(ctx, "decode the value in", err)
			return
		}
	}
	next, some := a.fn.next(r.Key, r.Value, r.NullValue, old, ok)
	result := Record[Windowed[K], A]{
		Key: Windowed[K]{Key: r.Key, Start: start, End: start + a.size}, Value: next, NullValue: !some,
		Timestamp: max(ts, r.Timestamp), Headers: r.Headers,
	}
	var value []byte
	if some {
		if value, err = a.value.encode(result.Value); err != nil {
			a.fail(ctx, "encode the value for", err)
			return
		}
	}
	if err := a.store.Put(key, start, value, result.Timestamp, r.Headers); err != nil {
		a.fail(ctx, "write", err)
		return
	}
	if a.afterPut(ctx); ctx.err != nil {
		return
	}
	a.done(ctx, result)
	ctx.node = a.node
}

func (a *windowAggregate[K, V, A]) fail(ctx *Context, doing string, err error) {
	ctx.fail(ctx.problem(fmt.Errorf("%s store %s: %w", doing, a.node.store.Name, err)))
}

// firstWindow is the start of the earliest window that holds ts.
func firstWindow(ts, size, advance int64) int64 {
	return max(0, ts-size+advance) / advance * advance
}
