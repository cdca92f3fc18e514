package streams

import (
	"errors"
	"iter"
	"strconv"
)

// Stream is an unbounded sequence of records in the making of a topology. Its operators add nodes; those that
// change a type are functions of the package, since Go's methods take no type parameters.
//
// A stream carries the serdes of its key and value as far as they are known: from a source or Repartition
// through operators that keep the type. WithSerdes gives them after one that changes it.
type Stream[K, V any] struct {
	b       *Builder
	v       *vertex
	keys    Serde[K]
	values  Serde[V]
	sources []*node
	rekeyed bool // an aggregation or join below needs a repartition topic
	joined  *joinRepartition
}

// joinRepartition is the repartition that the latest join of a stream made; the copies that WithSerdes makes share it.
type joinRepartition struct{ v *vertex }

// WithSerdes is the same stream with known serdes, which an automatic repartition or a store needs. It adds no
// node.
func (s *Stream[K, V]) WithSerdes(keys Serde[K], values Serde[V]) *Stream[K, V] {
	if s.joined == nil {
		s.joined = &joinRepartition{}
	}
	known := *s
	known.keys, known.values = keys, values
	return &known
}

// operator makes an operator's step for one task: what it does with a record, forwarding to out.
type operator[K, V, K2, V2 any] func(n *node, out process[K2, V2]) process[K, V]

// attach adds a processor below parents.
func attach[K, V, K2, V2 any](b *Builder, name string, op operator[K, V, K2, V2], parents ...*vertex) *vertex {
	n := &node{name: name, kind: processorNode}
	n.bind = func(bd *binding) any { return observeBefore(bd, n, op(n, forwardTo[K2, V2](bd, n))) }
	v := single(n)
	b.add(v, parents...)
	return v
}

// next is the stream of operators that keep key and value types.
func (s *Stream[K, V]) next(v *vertex) *Stream[K, V] {
	return &Stream[K, V]{b: s.b, v: v, keys: s.keys, values: s.values, sources: s.sources, rekeyed: s.rekeyed}
}

// Filter keeps the records for which keep is true.
func (s *Stream[K, V]) Filter(keep func(K, V) bool, opts ...NodeOption) *Stream[K, V] {
	name := s.b.nodeName(named(opts), "KSTREAM-FILTER-")
	return s.next(attach(s.b, name, filter(keep, true), s.v))
}

// FilterNot keeps the records for which drop is false.
func (s *Stream[K, V]) FilterNot(drop func(K, V) bool, opts ...NodeOption) *Stream[K, V] {
	name := s.b.nodeName(named(opts), "KSTREAM-FILTER-")
	return s.next(attach(s.b, name, filter(drop, false), s.v))
}

func filter[K, V any](pred func(K, V) bool, want bool) operator[K, V, K, V] {
	return func(n *node, out process[K, V]) process[K, V] {
		return func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			if pred(r.Key, r.Value) == want {
				out(ctx, r)
			}
		}
	}
}

// Map gives every record a new key and value. A null value stays null; the key is what fn returns.
func Map[K, V, K2, V2 any](s *Stream[K, V], fn func(K, V) (K2, V2), opts ...NodeOption) *Stream[K2, V2] {
	name := s.b.nodeName(named(opts), "KSTREAM-MAP-")
	v := attach(s.b, name, func(n *node, out process[K2, V2]) process[K, V] {
		return func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			m := Record[K2, V2]{Timestamp: r.Timestamp, Headers: r.Headers, NullValue: r.NullValue}
			m.Key, m.Value = fn(r.Key, r.Value)
			if m.NullValue {
				var null V2
				m.Value = null
			}
			out(ctx, m)
		}
	}, s.v)
	return &Stream[K2, V2]{b: s.b, v: v, sources: s.sources, rekeyed: true}
}

// MapValues gives every record a new value under the same key. A null value stays null without a call of fn.
func MapValues[K, V, V2 any](s *Stream[K, V], fn func(V) V2, opts ...NodeOption) *Stream[K, V2] {
	name := s.b.nodeName(named(opts), "KSTREAM-MAPVALUES-")
	v := attach(s.b, name, mapValues[K](fn), s.v)
	return &Stream[K, V2]{b: s.b, v: v, keys: s.keys, sources: s.sources, rekeyed: s.rekeyed}
}

func mapValues[K, V, V2 any](fn func(V) V2) operator[K, V, K, V2] {
	return func(n *node, out process[K, V2]) process[K, V] {
		return func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			var v V2
			if !r.NullValue {
				v = fn(r.Value)
			}
			out(ctx, withValue(&r, v))
		}
	}
}

// FlatMap turns every record into any number of records. From a null value come null values, under the keys that
// fn yields.
func FlatMap[K, V, K2, V2 any](s *Stream[K, V], fn func(K, V) iter.Seq2[K2, V2], opts ...NodeOption) *Stream[K2, V2] {
	name := s.b.nodeName(named(opts), "KSTREAM-FLATMAP-")
	v := attach(s.b, name, func(n *node, out process[K2, V2]) process[K, V] {
		return func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			for k, v := range fn(r.Key, r.Value) {
				m := Record[K2, V2]{Key: k, Timestamp: r.Timestamp, Headers: r.Headers, NullValue: r.NullValue}
				if !r.NullValue {
					m.Value = v
				}
				if out(ctx, m); ctx.err != nil {
					return
				}
				ctx.node = n
			}
		}
	}, s.v)
	return &Stream[K2, V2]{b: s.b, v: v, sources: s.sources, rekeyed: true}
}

// FlatMapValues turns every value into any number of values under the same key. A null value stays one null value
// without a call of fn.
func FlatMapValues[K, V, V2 any](s *Stream[K, V], fn func(V) iter.Seq[V2], opts ...NodeOption) *Stream[K, V2] {
	name := s.b.nodeName(named(opts), "KSTREAM-FLATMAPVALUES-")
	v := attach(s.b, name, func(n *node, out process[K, V2]) process[K, V] {
		return func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			if r.NullValue {
				var null V2
				out(ctx, withValue(&r, null))
				return
			}
			for v := range fn(r.Value) {
				if out(ctx, withValue(&r, v)); ctx.err != nil {
					return
				}
				ctx.node = n
			}
		}
	}, s.v)
	return &Stream[K, V2]{b: s.b, v: v, keys: s.keys, sources: s.sources, rekeyed: s.rekeyed}
}

// SelectKey gives every record a new key.
func SelectKey[K, V, K2 any](s *Stream[K, V], fn func(K, V) K2, opts ...NodeOption) *Stream[K2, V] {
	return selectKey(s, s.b.nodeName(named(opts), "KSTREAM-KEY-SELECT-"), fn)
}

func selectKey[K, V, K2 any](s *Stream[K, V], name string, fn func(K, V) K2) *Stream[K2, V] {
	v := attach(s.b, name, func(n *node, out process[K2, V]) process[K, V] {
		return func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			out(ctx, Record[K2, V]{
				Key: fn(r.Key, r.Value), Value: r.Value,
				Timestamp: r.Timestamp, Headers: r.Headers, NullValue: r.NullValue,
			})
		}
	}, s.v)
	return &Stream[K2, V]{b: s.b, v: v, values: s.values, sources: s.sources, rekeyed: true}
}

// Peek shows every record to fn and forwards it unchanged.
func (s *Stream[K, V]) Peek(fn func(Record[K, V]), opts ...NodeOption) *Stream[K, V] {
	name := s.b.nodeName(named(opts), "KSTREAM-PEEK-")
	return s.next(attach(s.b, name, peek(fn), s.v))
}

// ForEach ends the branch with fn.
func (s *Stream[K, V]) ForEach(fn func(Record[K, V]), opts ...NodeOption) {
	name := s.b.nodeName(named(opts), "KSTREAM-FOREACH-")
	attach(s.b, name, peek(fn), s.v)
}

func peek[K, V any](fn func(Record[K, V])) operator[K, V, K, V] {
	return func(n *node, out process[K, V]) process[K, V] {
		return func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			fn(r)
			out(ctx, r)
		}
	}
}

// Merge is the records of both streams, each as it comes.
func (s *Stream[K, V]) Merge(other *Stream[K, V], opts ...NodeOption) *Stream[K, V] {
	name := s.b.nodeName(named(opts), "KSTREAM-MERGE-")
	if s.b != other.b {
		s.b.fail(name, errBuilders)
	}
	m := s.next(attach(s.b, name, pass[K, V], s.v, other.v))
	m.sources = union(s.sources, other.sources)
	m.rekeyed = s.rekeyed || other.rekeyed
	return m
}

var errBuilders = errors.New("its inputs come from two builders")

func pass[K, V any](n *node, out process[K, V]) process[K, V] {
	return func(ctx *Context, r Record[K, V]) {
		ctx.node = n
		out(ctx, r)
	}
}

// union is a and what of c it lacks, in order.
func union(a, c []*node) []*node {
	all := append([]*node(nil), a...)
	for _, n := range c {
		found := false
		for _, have := range all {
			found = found || have == n
		}
		if !found {
			all = append(all, n)
		}
	}
	return all
}

// Split sends each record down the first branch that takes it.
type Split[K, V any] struct {
	s        *Stream[K, V]
	v        *vertex
	name     string
	branches []branch[K, V]
	fallback *node
}

type branch[K, V any] struct {
	takes func(K, V) bool
	node  *node
}

// Split starts branches off the stream. Their nodes are named after the split's: a number, or the branch's name,
// is appended to it.
func (s *Stream[K, V]) Split(opts ...NodeOption) *Split[K, V] {
	sp := &Split[K, V]{s: s, name: s.b.nodeName(named(opts), "KSTREAM-BRANCH-")}
	n := &node{name: sp.name, kind: processorNode}
	n.bind = func(b *binding) any { return observeBefore(b, n, sp.bind(b, n)) }
	sp.v = single(n)
	s.b.add(sp.v, s.v)
	return sp
}

// Branch is the stream of the records that takes is true for and no earlier branch took.
func (sp *Split[K, V]) Branch(takes func(K, V) bool, opts ...NodeOption) *Stream[K, V] {
	v := sp.child(len(sp.branches)+1, opts)
	if sp.fallback != nil {
		sp.s.b.fail(v.exit.name, errors.New("a branch after the default one"))
	}
	sp.branches = append(sp.branches, branch[K, V]{takes, v.exit})
	return sp.s.next(v)
}

// Default is the stream of the records that no branch took. Without it they are dropped.
func (sp *Split[K, V]) Default(opts ...NodeOption) *Stream[K, V] {
	v := sp.child(0, opts)
	if sp.fallback != nil {
		sp.s.b.fail(v.exit.name, errors.New("a second default branch"))
	}
	sp.fallback = v.exit
	return sp.s.next(v)
}

func (sp *Split[K, V]) child(index int, opts []NodeOption) *vertex {
	b := sp.s.b
	suffix := named(opts)
	b.index++ // a branch uses up an index that no name shows
	if suffix == "" {
		suffix = strconv.Itoa(index)
	}
	return attach(b, sp.name+suffix, pass[K, V], sp.v)
}

func (sp *Split[K, V]) bind(b *binding, n *node) process[K, V] {
	type bound struct {
		takes func(K, V) bool
		next  process[K, V]
	}
	branches := make([]bound, len(sp.branches))
	for i, br := range sp.branches {
		branches[i] = bound{br.takes, observeAfter(b, n, boundTo[K, V](b, br.node))}
	}
	var fallback process[K, V]
	if sp.fallback != nil {
		fallback = observeAfter(b, n, boundTo[K, V](b, sp.fallback))
	}
	return func(ctx *Context, r Record[K, V]) {
		ctx.node = n
		for i := range branches {
			if branches[i].takes(r.Key, r.Value) {
				branches[i].next(ctx, r)
				return
			}
		}
		if fallback != nil {
			fallback(ctx, r)
		}
	}
}
