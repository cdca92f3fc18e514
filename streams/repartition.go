package streams

import "fmt"

// repartitionSpec is an internal topic that carries records to the task that owns their new key.
type repartitionSpec struct {
	name       string // raw: the runtime prefixes the application id
	partitions int32  // 0: as many as the sources above it have
	// nullKeys: a left join below takes records with a null key, which are dropped here otherwise, since nothing
	// else below would use them (KIP-962; Java drops them silently, here they are reported as skipped).
	nullKeys bool
}

// Repartition writes the stream to an internal topic, partitioned by its key, and reads it back: the topic
// <application.id>-<name>-repartition. partitions 0 takes the largest count of the topics that feed it; name ""
// generates one. The timestamps it carries are the extracted ones.
func (s *Stream[K, V]) Repartition(name string, partitions int, keys Serde[K], values Serde[V]) *Stream[K, V] {
	b := s.b
	if name == "" {
		name = b.nodeName("", "KSTREAM-REPARTITION-")
	}
	names := b.repartitionNames(name)
	if partitions < 0 || partitions > 1<<31-1 {
		b.fail(names.sink, fmt.Errorf("%d partitions: at least 1, or 0 for as many as the sources have", partitions))
	}
	v := newRepartition(b, names, int32(partitions), keys, values, "give it to Repartition")
	b.add(v, s.v)
	return &Stream[K, V]{b: b, v: v, keys: keys, values: values, sources: []*node{v.exit}}
}

// newRepartition makes the three nodes; the caller adds the vertex.
func newRepartition[K, V any](
	b *Builder, names repartitionNames, partitions int32, keys Serde[K], values Serde[V], remedy string,
) *vertex {
	needSerde(b, names.sink, "key", keys, remedy)
	needSerde(b, names.sink, "value", values, remedy)
	if b.repartitions[names.topic] {
		b.fail(names.sink, fmt.Errorf("repartition topic %s: an earlier operator has one of this name", names.topic))
	}
	b.repartitions[names.topic] = true
	spec := &repartitionSpec{name: names.topic, partitions: partitions}

	filter := &node{name: names.filter, kind: processorNode}
	sink := &node{name: names.sink, kind: sinkNode, topic: names.topic, parents: []*node{filter}, repart: spec}
	sink.bind = bindSink(sink, keys, values)
	filter.bind = func(bd *binding) any {
		out := forwardTo[K, V](bd, filter)
		return observeBefore(bd, filter, func(ctx *Context, r Record[K, V]) {
			ctx.node = filter
			if r.NullKey && !spec.nullKeys {
				bd.rt.skipped(ctx, ctx.skipped(NullKey))
				return
			}
			out(ctx, r)
		})
	}
	source := sourceOf[K, V](names.source, names.topic, true, keys, values, nil)
	return &vertex{nodes: []*node{filter, sink, source}, entry: filter, exit: source, repart: spec}
}
