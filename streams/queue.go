package streams

import "github.com/windowed-order-counter/lab/internal/kafka"

// queueState says what is known of an input partition (the engine's time alignment and record choice rest on it).
type queueState uint8

const (
	// unknown: empty, and it is not known that the partition has nothing more: no fetch answer yet, or records are still under way.
	unknown queueState = iota
	// buffered: records wait.
	buffered
	// drained: empty, and the last answer of this assignment reached the end of the partition.
	drained
)

// queue holds the fetched records of one input partition of a task, in offset order. Only the head is decoded.
type queue struct {
	tp     kafka.TopicPartition
	task   *task
	source boundSource

	batches [][]kafka.Record // batches[0][0] is the head; batches are never empty
	length  int
	paused  bool // left out of fetches because it is long enough

	position int64 // the offset after the last fetched record, past markers and aborted records
	end      int64 // where the partition ended at the last answer: high watermark, or last stable offset under read_committed
	fetched  bool  // an answer has come since the assignment

	partitions int32     // how many the topic has, if a join depends on how its records are spread over them; else 0
	misplaced  Misplaced // what was found of that

	committed     int64 // the committed offset, or the start position
	epoch         int32 // leader epoch of the last processed record, -1 if unknown
	partitionTime int64 // largest extracted timestamp of processed records

	// The head, once loaded.
	loaded   bool
	headTime int64 // extracted timestamp
	headKey  int64 // min(headTime, wall clock when it became head): a timestamp in the future starves no other task
	headErr  error // takes effect when the record's turn comes
}

func (q *queue) state() queueState {
	switch {
	case q.length > 0:
		return buffered
	case q.fetched && q.position >= q.end:
		return drained
	default:
		return unknown
	}
}

// add takes over an answer of the fetcher.
func (q *queue) add(f kafka.Fetched, readCommitted bool) {
	if len(f.Records) > 0 {
		q.batches = append(q.batches, f.Records)
		q.length += len(f.Records)
	}
	q.position = f.Next
	q.end = f.HighWatermark
	if readCommitted && f.LastStable >= 0 {
		q.end = f.LastStable
	}
	q.fetched = true
	q.task.unknownSince, q.task.excused = 0, false // it answers: it is waited for again
}

// load decodes the head and extracts its timestamp, if that is not done yet. now is the wall clock in milliseconds.
func (q *queue) load(now int64) {
	if q.loaded {
		return
	}
	r := &q.batches[0][0]
	in := inputOf(q.tp, r)
	q.headTime, q.headErr = q.source.load(&in, q.partitionTime)
	if q.headErr != nil {
		q.headTime = r.Timestamp // its turn comes by what the broker knows of it
	}
	q.headKey = min(q.headTime, now)
	q.loaded = true
}

// pop steps over the head, processed or skipped.
func (q *queue) pop() {
	r := &q.batches[0][0]
	q.epoch = r.LeaderEpoch
	if q.headErr == nil {
		q.partitionTime = max(q.partitionTime, q.headTime)
	}
	q.batches[0] = q.batches[0][1:]
	if len(q.batches[0]) == 0 {
		q.batches[0] = nil // lets the fetch buffer go
		q.batches = q.batches[1:]
	}
	q.length--
	q.loaded, q.headErr = false, nil
}

// next is the offset to commit: the head's, or else the position, which steps over markers, so that lag reaches zero.
func (q *queue) next() int64 {
	if q.length > 0 {
		return q.batches[0][0].Offset
	}
	return q.position
}

func inputOf(tp kafka.TopicPartition, r *kafka.Record) input {
	return input{
		topic: tp.Topic, partition: tp.Partition, offset: r.Offset, timestamp: r.Timestamp,
		key: r.Key, value: r.Value, headers: fromWire(r.Headers),
	}
}

func fromWire(h []kafka.Header) []Header {
	if len(h) == 0 {
		return nil
	}
	out := make([]Header, len(h))
	for i := range h {
		out[i] = Header(h[i])
	}
	return out
}

func toWire(h []Header) []kafka.Header {
	if len(h) == 0 {
		return nil
	}
	out := make([]kafka.Header, len(h))
	for i := range h {
		out[i] = kafka.Header(h[i])
	}
	return out
}
