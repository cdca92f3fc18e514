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

const groupRemedy = "give it by WithSerdes before grouping"

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

// aggregator is the next aggregate of a key: ok tells whether there is an old one.
type aggregator[K, V, A any] func(key K, value V, old A, ok bool) A

func counted[K, V any](_ K, _ V, old int64, _ bool) int64 { return old + 1 }

// Count counts the records of each key in the named store; a name "" generates one. Records with a null key or
// value are skipped. A count's timestamp is the largest of its records'.
//
// Without a name it is Java's count(), which uses up two indices. count(Materialized.with(...)), which Java cannot tell from
// an unnamed store, uses up a third and has no equivalent here: name the store where the indices must be the same.
func Count[K, V any](g *Grouped[K, V], storeName string, opts ...NodeOption) *Table[K, int64] {
	return aggregate(g, "KSTREAM-AGGREGATE-", storeName, Int64(), counted[K, V], opts)
}

// Reduce combines the values of each key: the first value as it is, then fn of the value so far and the next.
// Records with a null key or value are skipped.
func (g *Grouped[K, V]) Reduce(storeName string, fn func(old, value V) V, opts ...NodeOption) *Table[K, V] {
	return aggregate(g, "KSTREAM-REDUCE-", storeName, g.s.values, func(_ K, value, old V, ok bool) V {
		if !ok {
			return value
		}
		return fn(old, value)
	}, opts)
}

// Aggregate folds the values of each key into an aggregate that starts as initial() and is kept by its serde.
// Records with a null key or value are skipped.
func Aggregate[K, V, A any](
	g *Grouped[K, V], storeName string, initial func() A, fn func(K, V, A) A, aggregates Serde[A], opts ...NodeOption,
) *Table[K, A] {
	return aggregate(g, "KSTREAM-AGGREGATE-", storeName, aggregates, func(k K, v V, old A, ok bool) A {
		if !ok {
			old = initial()
		}
		return fn(k, v, old)
	}, opts)
}

// aggregateNode names and places an aggregation. The order of indices is Java's: the store if unnamed, the node,
// the repartition.
func aggregateNode[K, V any](
	g *Grouped[K, V], prefix, storeName string, kind store.Kind, opts []NodeOption,
) (n *node, v *vertex, sources []*node) {
	b := g.s.b
	spec := b.newStore(storeName, prefix, kind)
	spec.materialized = true
	n = &node{name: b.nodeName(named(opts), prefix), kind: processorNode, store: spec}
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
	n, v, sources := aggregateNode(g, prefix, storeName, store.KeyValueKind, opts)
	keys, spec := g.s.keys, n.store
	needSerde(g.s.b, n.name, "aggregate", aggregates, "give it to the aggregation, or by WithSerdes before grouping")
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
		b.flushes[n] = flushKeyValue(b, n, keys, aggregates)
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
			result := withValue(&r, fn(r.Key, r.Value, old, ok))
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
			done(ctx, result)
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
func CountWindows[K, V any](w *WindowedGroup[K, V], storeName string, opts ...NodeOption) *Table[Windowed[K], int64] {
	b := w.g.s.b
	n, v, sources := aggregateNode(w.g, "KSTREAM-AGGREGATE-", storeName, store.WindowKind, opts)
	n.store.Retention = w.w.size + w.w.grace
	if err := w.w.validate(); err != nil {
		b.fail(n.name, err)
	}
	n.bind = bindWindowAggregate(n, w.w, w.g.s.keys, Int64(), counted[K, V])
	return &Table[Windowed[K], int64]{
		b: b, v: v, values: Int64(), sources: sources,
		previous: previousOf[Windowed[K]](n.store, Int64()), remember: n.store.remember,
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
		})
		b.flushes[n] = func(ctx *Context) error {
			return a.store.Flush(func(c store.Change) error { return entry(ctx, c) })
		}
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
	result := Record[Windowed[K], A]{
		Key: Windowed[K]{Key: r.Key, Start: start, End: start + a.size}, Value: a.fn(r.Key, r.Value, old, ok),
		Timestamp: max(ts, r.Timestamp), Headers: r.Headers,
	}
	value, err := a.value.encode(result.Value)
	if err != nil {
		a.fail(ctx, "encode the value for", err)
		return
	}
	if err := a.store.Put(key, start, value, result.Timestamp, r.Headers); err != nil {
		a.fail(ctx, "write", err)
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
