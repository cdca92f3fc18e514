package streams

import "fmt"

// SkipKind is why a processor dropped a record.
type SkipKind int

// The kinds of Skipped.
const (
	NullKey            SkipKind = iota + 1 // a table source, a windowed aggregation or a repartition
	NullKeyOrValue                         // an aggregation
	NullJoinKeyOrValue                     // a join
	ExpiredWindow                          // a windowed aggregation: too late for one window
)

// Skipped is a record that a processor dropped, for a window if it is ExpiredWindow. Times are in milliseconds
// since 1970.
type Skipped struct {
	Kind      SkipKind
	Node      string
	Topic     string
	Partition int32
	Offset    int64
	Timestamp int64

	WindowStart, WindowEnd int64
	// Expiration is StreamTime less the grace period: windows that end there or before are closed.
	Expiration, StreamTime int64
	// Mover is the record that moved the stream time there. It is zero if that was before the task's last start.
	Mover Mover
}

// Mover is the record with the largest timestamp that a windowed aggregation has seen in its task. A single one from far in the future
// closes every window of the time before.
type Mover struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp int64 // milliseconds since 1970
	Before    int64 // the stream time that it found, -1 if none
}

// String is the warning that Kafka Streams 4.3.1 logs, word for word.
func (s Skipped) String() string {
	at := fmt.Sprintf("topic=[%s] partition=[%d] offset=[%d]", s.Topic, s.Partition, s.Offset)
	switch s.Kind {
	case NullKey:
		return "Skipping record due to null key. " + at
	case NullKeyOrValue:
		return "Skipping record due to null key or value. " + at
	case NullJoinKeyOrValue:
		return "Skipping record due to null join key or value. " + at
	case ExpiredWindow:
		return fmt.Sprintf("Skipping record for expired window. %s timestamp=[%d] window=[%d,%d) expiration=[%d] streamTime=[%d]",
			at, s.Timestamp, s.WindowStart, s.WindowEnd, s.Expiration, s.StreamTime)
	}
	return "Skipping record. " + at
}

func (c *Context) skipped(kind SkipKind) Skipped {
	return Skipped{
		Kind: kind, Node: c.node.name,
		Topic: c.topic, Partition: c.partition, Offset: c.offset, Timestamp: c.timestamp,
	}
}

// OutOfOrder is an update of a table with an older timestamp than the entry it replaces. It is applied all the
// same: the topic's order decides.
type OutOfOrder struct {
	Store                      string
	OldTimestamp, NewTimestamp int64
	Topic                      string
	Partition                  int32
	Offset                     int64
}

// String is the warning that Kafka Streams 4.3.1 logs, word for word.
func (u OutOfOrder) String() string {
	return fmt.Sprintf("Detected out-of-order KTable update for %s, old timestamp=[%d] new timestamp=[%d]. "+
		"topic=[%s] partition=[%d] offset=[%d].", u.Store, u.OldTimestamp, u.NewTimestamp, u.Topic, u.Partition, u.Offset)
}
