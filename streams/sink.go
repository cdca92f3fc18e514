package streams

import "fmt"

// To writes the stream to a topic, under each record's own timestamp and headers.
func (s *Stream[K, V]) To(topic string, keys Serde[K], values Serde[V], opts ...NodeOption) {
	b := s.b
	n := &node{name: b.nodeName(named(opts), "KSTREAM-SINK-"), kind: sinkNode, topic: topic}
	if err := checkName(topic); err != nil {
		b.fail(n.name, fmt.Errorf("topic: %w", err))
	}
	needSerde(b, n.name, "key", keys, "give it to To")
	needSerde(b, n.name, "value", values, "give it to To")
	n.bind = bindSink(n, keys, values)
	b.add(single(n), s.v)
}

func bindSink[K, V any](n *node, keys Serde[K], values Serde[V]) func(*binding) any {
	return func(b *binding) any {
		send := b.rt.sink(n.topic, n.repart != nil, keys.partitionBy)
		done := forwardTo[K, V](b, n)
		kb, vb := newScratch(keys), newScratch(values)
		return observeBefore(b, n, func(ctx *Context, r Record[K, V]) {
			ctx.node = n
			var key, value []byte
			var err error
			if !r.NullKey {
				if key, err = kb.encode(r.Key); err != nil {
					ctx.fail(ctx.problem(fmt.Errorf("encode the key for topic %s: %w", n.topic, err)))
					return
				}
			}
			if !r.NullValue {
				if value, err = vb.encode(r.Value); err != nil {
					ctx.fail(ctx.problem(fmt.Errorf("encode the value for topic %s: %w", n.topic, err)))
					return
				}
			}
			if send(ctx, key, value, r.Timestamp, r.Headers); ctx.err == nil {
				done(ctx, r)
			}
		})
	}
}

// scratch encodes into a buffer of its own that is used again for the next value.
type scratch[T any] struct {
	serde Serde[T]
	buf   []byte
}

func newScratch[T any](s Serde[T]) *scratch[T] {
	return &scratch[T]{serde: s, buf: make([]byte, 0, 64)}
}

// encode never returns nil: an empty key or value is not null.
func (s *scratch[T]) encode(v T) ([]byte, error) {
	b, err := s.serde.Append(s.buf[:0], v)
	if err != nil {
		return nil, err
	}
	if b == nil {
		b = s.buf[:0]
	}
	s.buf = b
	return b, nil
}
