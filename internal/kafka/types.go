package kafka

import (
	"cmp"
	"fmt"
)

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// Compare orders by topic, then by partition.
func (tp TopicPartition) Compare(o TopicPartition) int {
	return cmp.Or(cmp.Compare(tp.Topic, o.Topic), cmp.Compare(tp.Partition, o.Partition))
}

// Header is one record header. Kafka allows a key to repeat, and a nil value.
type Header struct {
	Key   string
	Value []byte
}

// Record is a record as a broker gave it. Key and Value are nil for Kafka's null and alias the fetch answer's buffer: they stay valid as
// long as they are referenced, and must not be written to.
type Record struct {
	Offset      int64
	Timestamp   int64 // milliseconds since the epoch; -1 means none
	LeaderEpoch int32
	Control     ControlType // None for a data record; others only if the fetcher was asked for control records
	// Who wrote it, and whether in a transaction; told only if the fetcher was asked for control records. -1: a producer without an id.
	Transactional bool
	ProducerEpoch int16
	ProducerID    int64
	Key, Value    []byte
	Headers       []Header
}

// ControlType tells a transaction marker from a data record.
type ControlType int8

// The kinds of records in a log.
const (
	ControlNone ControlType = iota
	ControlCommit
	ControlAbort
)

// Isolation is the isolation level of fetches and offset lookups.
type Isolation int8

// ReadUncommitted reads to the high watermark, ReadCommitted to the last stable offset and without aborted records.
const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

// Offset is a committed position of a group in one partition.
type Offset struct {
	Offset      int64 // the next offset to read
	LeaderEpoch int32 // of the last record read; -1 if unknown
	Metadata    string
}

// GroupMeta is what a commit says about the member that sends it, so that the coordinator can refuse a member of an older generation.
type GroupMeta struct {
	Group      string
	Generation int32
	MemberID   string
	InstanceID string // "" for dynamic members
}
