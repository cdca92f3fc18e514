package streams

import (
	"fmt"

	"github.com/windowed-order-counter/lab/store"
)

// Table is the latest value of each key in the making of a topology: a topic read by ReadTable, an aggregate, or
// either of them seen through Filter and MapTableValues.
//
// A table with a store forwards its changes at commits only, one per key: the latest (Kafka Streams' record
// cache). A deleted key is a record with NullValue.
type Table[K, V any] struct {
	b       *Builder
	v       *vertex
	keys    Serde[K]
	values  Serde[V]
	sources []*node
	// materialize asks for the store below, and view looks a key up in it; nil where a join cannot.
	materialize func() *storeSpec
	view        func(*binding, *node) lookup[K, V]
	// previous is the value of the key at work before the change at work, where remember has told the store below to hand
	// it over. It says whether the store could.
	previous lookup[K, V]
	remember func() bool
}

// lookup is a table's value of a key. A failure is ctx's.
type lookup[K, V any] func(ctx *Context, key K) (V, bool)

// viewOf looks up in a store itself.
func viewOf[K, V any](spec *storeSpec, keys Serde[K], values Serde[V]) func(*binding, *node) lookup[K, V] {
	return func(b *binding, _ *node) lookup[K, V] {
		st := b.rt.keyValue(spec.Name)
		kb := newScratch(keys)
		return func(ctx *Context, key K) (V, bool) {
			v, _, ok := getValue(ctx, st, kb, values, spec.Name, key)
			return v, ok
		}
	}
}

// getValue reads and decodes an entry; its key stays encoded in kb.
func getValue[K, V any](
	ctx *Context, st *store.KeyValue, kb *scratch[K], values Serde[V], name string, key K,
) (v V, ts int64, ok bool) {
	k, err := kb.encode(key)
	if err != nil {
		ctx.fail(ctx.problem(fmt.Errorf("encode the key for store %s: %w", name, err)))
		return v, 0, false
	}
	raw, ts, ok, err := st.Get(k)
	if err != nil {
		ctx.fail(ctx.problem(fmt.Errorf("store %s: %w", name, err)))
		return v, 0, false
	}
	if !ok {
		return v, 0, false
	}
	if v, err = values.Decode(raw); err != nil {
		ctx.fail(ctx.problem(fmt.Errorf("decode the value in store %s: %w", name, err)))
		return v, 0, false
	}
	return v, ts, true
}

// ToStream is the table's changes as a stream.
func (t *Table[K, V]) ToStream(opts ...NodeOption) *Stream[K, V] {
	v := attach(t.b, t.b.nodeName(named(opts), "KTABLE-TOSTREAM-"), pass[K, V], t.v)
	return &Stream[K, V]{b: t.b, v: v, keys: t.keys, values: t.values, sources: t.sources}
}

// previousOf decodes what the flush of a store hands over.
func previousOf[K, V any](spec *storeSpec, values Serde[V]) lookup[K, V] {
	return func(ctx *Context, _ K) (v V, ok bool) {
		if ctx.old == nil {
			return v, false
		}
		v, err := values.Decode(ctx.old)
		if err != nil {
			ctx.fail(ctx.problem(fmt.Errorf("decode the value in store %s: %w", spec.Name, err)))
			return v, false
		}
		return v, true
	}
}

// remember makes the flush of a store hand over old values, if the store is kept by now: a later call of Join that asks for
// it changes no Filter before it (Kafka Streams 4.3.1, KTableImpl.enableSendingOldValues).
func (s *storeSpec) remember() bool {
	if s.materialized {
		s.OldValues = true
	}
	return s.OldValues
}

// Filter is the table of the entries for which keep is true. A change to one that does not pass is forwarded as a
// deletion if the entry before it passed, or if that is not known because the table has no store.
func (t *Table[K, V]) Filter(keep func(K, V) bool, opts ...NodeOption) *Table[K, V] {
	return t.filtered(keep, true, opts)
}

// FilterNot is the table of the entries for which drop is false.
func (t *Table[K, V]) FilterNot(drop func(K, V) bool, opts ...NodeOption) *Table[K, V] {
	return t.filtered(drop, false, opts)
}

func (t *Table[K, V]) filtered(pred func(K, V) bool, want bool, opts []NodeOption) *Table[K, V] {
	remembers := t.remember()
	through := func(get lookup[K, V]) lookup[K, V] {
		return func(ctx *Context, key K) (V, bool) {
			got, ok := get(ctx, key)
			if ok && pred(key, got) == want {
				return got, true
			}
			var null V
			return null, false
		}
	}
	f := *t
	f.previous = through(t.previous)
	f.remember = func() bool {
		remembers = remembers || t.remember()
		return remembers
	}
	if t.view != nil {
		f.view = func(b *binding, n *node) lookup[K, V] { return through(t.view(b, n)) }
	}
	f.v = attach(t.b, t.b.nodeName(named(opts), "KTABLE-FILTER-"), func(n *node, out process[K, V]) process[K, V] {
		return func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			if r.NullValue || pred(r.Key, r.Value) != want {
				if remembers {
					if _, passed := f.previous(ctx, r.Key); !passed {
						return
					}
				}
				var null V
				r.Value, r.NullValue = null, true
			}
			out(ctx, r)
		}
	}, t.v)
	return &f
}

// MapTableValues is the table with every value turned into another. Deletions stay deletions.
func MapTableValues[K, V, V2 any](t *Table[K, V], fn func(V) V2, opts ...NodeOption) *Table[K, V2] {
	v := attach(t.b, t.b.nodeName(named(opts), "KTABLE-MAPVALUES-"), mapValues[K](fn), t.v)
	through := func(get lookup[K, V]) lookup[K, V2] {
		return func(ctx *Context, key K) (V2, bool) {
			got, ok := get(ctx, key)
			if !ok {
				var null V2
				return null, false
			}
			return fn(got), true
		}
	}
	m := &Table[K, V2]{
		b: t.b, v: v, keys: t.keys, sources: t.sources,
		materialize: t.materialize, previous: through(t.previous), remember: t.remember,
	}
	if t.view != nil {
		m.view = func(b *binding, n *node) lookup[K, V2] { return through(t.view(b, n)) }
	}
	return m
}

// bindTableSource keeps a topic's latest values in the node's store, or forwards them at once if no one asked for
// the store. Updates are applied in offset order, also one with an older timestamp than the entry it replaces
// (Kafka Streams 4.3.1, KTableSource).
func bindTableSource[K, V any](n *node, keys Serde[K], values Serde[V]) func(*binding) any {
	return func(b *binding) any {
		if n.store == nil {
			out := forwardTo[K, V](b, n)
			return observeBefore(b, n, func(ctx *Context, r Record[K, V]) {
				ctx.node = n
				if r.NullKey {
					b.rt.skipped(ctx, ctx.skipped(NullKey))
					return
				}
				out(ctx, r)
			})
		}
		spec := n.store
		st := b.rt.keyValue(spec.Name)
		kb, vb := newScratch(keys), newScratch(values)
		afterPut := b.registerFlush(n, flushKeyValue(b, n, keys, values, nil))
		done := observeAfter(b, n, fanOut[K, V](nil))
		return observeBefore(b, n, func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			if r.NullKey {
				b.rt.skipped(ctx, ctx.skipped(NullKey))
				return
			}
			key, err := kb.encode(r.Key)
			if err != nil {
				ctx.fail(ctx.problem(fmt.Errorf("encode the key for store %s: %w", spec.Name, err)))
				return
			}
			_, old, ok, err := st.Get(key)
			if err != nil {
				ctx.fail(ctx.problem(fmt.Errorf("store %s: %w", spec.Name, err)))
				return
			}
			if ok && r.Timestamp < old {
				b.rt.outOfOrder(ctx, OutOfOrder{
					Store: spec.Name, OldTimestamp: old, NewTimestamp: r.Timestamp,
					Topic: ctx.topic, Partition: ctx.partition, Offset: ctx.offset,
				})
			}
			var value []byte
			if !r.NullValue {
				if value, err = vb.encode(r.Value); err != nil {
					ctx.fail(ctx.problem(fmt.Errorf("encode the value for store %s: %w", spec.Name, err)))
					return
				}
			}
			if err := st.Put(key, value, r.Timestamp, r.Headers); err != nil {
				ctx.fail(ctx.problem(fmt.Errorf("store %s: %w", spec.Name, err)))
				return
			}
			if afterPut(ctx); ctx.err == nil {
				done(ctx, r)
			}
		})
	}
}

// flushKeyValue empties the dirty entries of the node's store: for each the changelog record, then the change to
// the nodes below.
func flushKeyValue[K, V any](
	b *binding, n *node, keys Serde[K], values Serde[V], first func() ([]byte, error),
) func(*Context) error {
	st := b.rt.keyValue(n.store.Name)
	entry := flushEntry(b, n, values, func(key []byte) (K, error) { return keys.Decode(key) }, first)
	return func(ctx *Context) error {
		return st.Flush(func(c store.Change) error { return entry(ctx, c) })
	}
}

// flushEntry logs one change and forwards it under the key that decodeKey makes of the changelog's. first, if not nil, is
// the old value of a key that has none.
func flushEntry[K, V any](
	b *binding, n *node, values Serde[V], decodeKey func([]byte) (K, error), first func() ([]byte, error),
) func(*Context, store.Change) error {
	log := b.rt.changelog(n.store.Name)
	out := children[K, V](b, n)
	return func(ctx *Context, c store.Change) error {
		if err := log(c.Key, c.Value, c.Timestamp); err != nil {
			return fmt.Errorf("changelog of store %s: %w", n.store.Name, err)
		}
		ctx.node, ctx.timestamp, ctx.old = n, c.Timestamp, c.Old
		if first != nil && n.store.OldValues && c.Old == nil {
			initial, err := first()
			if err != nil {
				return fmt.Errorf("encode the initial value of store %s: %w", n.store.Name, err)
			}
			ctx.old = initial
		}
		r := Record[K, V]{Timestamp: c.Timestamp, Headers: c.Headers, NullValue: c.Deleted}
		var err error
		if r.Key, err = decodeKey(c.Key); err != nil {
			return fmt.Errorf("decode the key in store %s: %w", n.store.Name, err)
		}
		if !c.Deleted {
			if r.Value, err = values.Decode(c.Value); err != nil {
				return fmt.Errorf("decode the value in store %s: %w", n.store.Name, err)
			}
		}
		out(ctx, r)
		return ctx.err
	}
}
