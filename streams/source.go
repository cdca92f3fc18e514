package streams

import (
	"fmt"
)

// source is the entry of a sub-topology.
type source struct {
	name        string
	topics      []string // raw
	repartition bool     // topics are internal
	// bind makes the source for one partition of one task.
	bind func(*binding) boundSource
}

func sourceOf[K, V any](
	name, topic string, internal bool, keys Serde[K], values Serde[V], extract TimestampExtractor[K, V],
) *node {
	n := &node{name: name, kind: sourceNode, topic: topic}
	n.src = &source{name: name, topics: []string{topic}, repartition: internal}
	n.src.bind = func(b *binding) boundSource {
		return &boundStream[K, V]{
			node: n, keys: keys, values: values, extract: extract,
			next: observeBefore(b, n, forwardTo[K, V](b, n)),
		}
	}
	return n
}

// maxTimestamp leaves room for any window size and grace period after it: beyond it, the sums overflow, and a loop over the windows of such a
// record would have no end. Brokers refuse timestamps that far ahead as a rule (message.timestamp.after.max.ms), but an extractor may have any.
const maxTimestamp = 1 << 62

// boundStream is a source in one task, with the decoded head of its partition.
type boundStream[K, V any] struct {
	node    *node
	keys    Serde[K]
	values  Serde[V]
	extract TimestampExtractor[K, V]
	next    process[K, V]

	head      Record[K, V]
	topic     string
	partition int32
	offset    int64
}

func (s *boundStream[K, V]) load(in *input, partitionTime int64) (ts int64, err error) {
	reason := BadKey
	refuse := func(err error) error {
		return &RecordError{
			Node: s.node.name, Topic: in.topic, Partition: in.partition, Offset: in.offset, Reason: reason, Err: err,
		}
	}
	// A serde or an extractor that panics has met a bad record, like one that returns an error.
	defer func() {
		if v := recover(); v != nil {
			ts, err = 0, refuse(fmt.Errorf("panic: %v", v))
		}
	}()
	s.topic, s.partition, s.offset = in.topic, in.partition, in.offset
	s.head = Record[K, V]{
		Timestamp: in.timestamp, Headers: in.headers, NullKey: in.key == nil, NullValue: in.value == nil,
	}
	if in.key != nil {
		if s.head.Key, err = s.keys.Decode(in.key); err != nil {
			return 0, refuse(err)
		}
	}
	reason = BadValue
	if in.value != nil {
		if s.head.Value, err = s.values.Decode(in.value); err != nil {
			return 0, refuse(err)
		}
	}
	reason = BadTimestamp
	if s.extract != nil {
		if s.head.Timestamp, err = s.extract(s.head, partitionTime); err != nil {
			return 0, refuse(err)
		}
	}
	if s.head.Timestamp < 0 {
		reason = NegativeTimestamp
		return 0, refuse(fmt.Errorf("timestamp %d", s.head.Timestamp))
	}
	if s.head.Timestamp > maxTimestamp {
		reason = TimestampTooLarge
		return 0, refuse(fmt.Errorf("timestamp %d, at most %d", s.head.Timestamp, maxTimestamp))
	}
	return s.head.Timestamp, nil
}

func (s *boundStream[K, V]) process(ctx *Context) error {
	ctx.topic, ctx.partition, ctx.offset, ctx.timestamp = s.topic, s.partition, s.offset, s.head.Timestamp
	ctx.node = s.node
	if ctx.err == nil {
		s.run(ctx)
	}
	return ctx.err
}

// run has the one recover of a record.
func (s *boundStream[K, V]) run(ctx *Context) {
	defer ctx.recovered()
	s.next(ctx, s.head)
}
