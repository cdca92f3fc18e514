package streams

import "errors"

var errNotJoinable = errors.New("the table of a windowed aggregation cannot be joined by key")

// Join joins each record of the stream with the table's value of its key at that moment: the table's side is read
// when the record is processed, and a change of the table triggers nothing. The result has the stream record's
// timestamp. Records with a null key or value are skipped, those without a match dropped silently (Kafka Streams
// 4.3.1, KStreamKTableJoin).
//
// If the stream's key was changed, it is repartitioned first. WithName names the node and that topic.
func Join[K, V, W, R any](s *Stream[K, V], t *Table[K, W], fn func(V, W) R, opts ...NodeOption) *Stream[K, R] {
	return join(s, t, func(v V, w W, _ bool) R { return fn(v, w) }, false, opts)
}

// LeftJoin is Join that also forwards the records without a match: fn then gets the zero W and false. A null key
// has no match; a null value is skipped.
func LeftJoin[K, V, W, R any](
	s *Stream[K, V], t *Table[K, W], fn func(v V, w W, matched bool) R, opts ...NodeOption,
) *Stream[K, R] {
	return join(s, t, fn, true, opts)
}

func join[K, V, W, R any](
	s *Stream[K, V], t *Table[K, W], fn func(V, W, bool) R, left bool, opts []NodeOption,
) *Stream[K, R] {
	b, given := s.b, named(opts)
	from := s
	if s.rekeyed {
		from = s.repartitionForJoin(given)
	}
	prefix := "KSTREAM-JOIN-"
	if left {
		prefix = "KSTREAM-LEFTJOIN-"
	}
	n := &node{name: b.nodeName(given, prefix), kind: processorNode}
	joined := &Stream[K, R]{b: b, v: single(n), keys: from.keys, sources: union(from.sources, t.sources)}
	switch {
	case t.b != b:
		b.fail(n.name, errBuilders)
		return joined
	case t.view == nil:
		b.fail(n.name, errNotJoinable)
		return joined
	}
	n.store = t.materialize()
	n.bind = func(bd *binding) any {
		out := forwardTo[K, R](bd, n)
		return observeBefore(bd, n, joinWith(bd, n, t.view(bd, n), fn, left, out))
	}
	joined.v.relaxed = left
	b.add(joined.v, from.v)
	b.groups = append(b.groups, joined.sources)
	return joined
}

func joinWith[K, V, W, R any](
	b *binding, n *node, get lookup[K, W], fn func(V, W, bool) R, left bool, out process[K, R],
) process[K, V] {
	return func(ctx *Context, r Record[K, V]) {
		ctx.node = n
		if r.NullValue || r.NullKey && !left {
			b.rt.skipped(ctx, ctx.skipped(NullJoinKeyOrValue))
			return
		}
		var w W
		matched := false
		if !r.NullKey {
			w, matched = get(ctx, r.Key)
		}
		if ctx.err == nil && (matched || left) {
			out(ctx, withValue(&r, fn(r.Value, w, matched)))
		}
	}
}

// repartitionForJoin is the stream read back from a repartition topic named after the join, or else after the
// stream's node, whose repartition later joins use again.
func (s *Stream[K, V]) repartitionForJoin(given string) *Stream[K, V] {
	prefix := given
	if prefix == "" {
		prefix = s.v.exit.name
	}
	names := s.b.repartitionNames(prefix)
	if s.joined == nil {
		s.joined = &joinRepartition{}
	}
	if s.joined.v == nil || prefix != s.v.exit.name {
		s.joined.v = newRepartition(s.b, names, 0, s.keys, s.values, "give it by WithSerdes before joining")
		s.b.add(s.joined.v, s.v)
	}
	v := s.joined.v
	return &Stream[K, V]{b: s.b, v: v, keys: s.keys, values: s.values, sources: []*node{v.exit}}
}
