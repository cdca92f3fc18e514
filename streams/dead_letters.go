package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// ErrorHandler says what becomes of an input record that cannot be decoded, has no event time, or yields output that the broker refuses.
type ErrorHandler string

const (
	// DeadLetters puts such a record, as it came, into the topic <application.id>-dead-letters and goes on: no record is lost, and none
	// stops the others.
	DeadLetters ErrorHandler = "dead-letters"
	// FailOnError stops the application at such a record, after a commit of all before it.
	FailOnError ErrorHandler = "fail"
)

// The headers of a dead letter: those of Java (KIP-1034, ExceptionHandlerUtils in 4.3.1), and one of ours for the record's own timestamp,
// since a dead letter carries the time at which it was written.
const (
	HeaderErrorException = "__streams.errors.exception"
	HeaderErrorMessage   = "__streams.errors.message"
	HeaderErrorTopic     = "__streams.errors.topic"
	HeaderErrorPartition = "__streams.errors.partition"
	HeaderErrorOffset    = "__streams.errors.offset"
	HeaderErrorTimestamp = "__streams.errors.timestamp"
)

// DeadLetter is a record that went into the dead-letter topic instead of through the topology.
type DeadLetter struct {
	Topic     string // where it came from, as the two fields that follow
	Partition int32
	Offset    int64
	Timestamp int64  // the record's own, in milliseconds since 1970
	Kind      string // what kind of error it was
	Err       error
}

// deadLetterTopic is the full name of an application's dead-letter topic.
func deadLetterTopic(applicationID string) string { return applicationID + "-dead-letters" }

// deadLetters writes the dead letters of one thread.
type deadLetters struct {
	ready bool            // the topic exists
	said  map[string]bool // kinds that were logged

	mu      sync.Mutex
	refused []kafka.RefusedRecord // output that brokers did not take, since the last call of takeRefused
}

// addRefused is called by the producer's goroutine.
func (d *deadLetters) addRefused(r kafka.RefusedRecord) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = append(d.refused, r)
}

func (d *deadLetters) takeRefused() []kafka.RefusedRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.refused
	d.refused = nil
	return taken
}

// write sends the record with the error in its headers. It goes through the thread's producer and is acknowledged, or committed in the same
// transaction, before the offset moves past the record.
func (d *deadLetters) write(ctx context.Context, th *thread, from kafka.TopicPartition, r *kafka.Record, kind string, cause error) error {
	topic := deadLetterTopic(th.app.cfg.ApplicationID)
	if !d.ready {
		_, err := th.app.client.CreateTopics(ctx, []kafka.TopicSpec{{
			Name: topic, Partitions: 1, Replication: th.app.cfg.ReplicationFactor,
			Configs: []kafka.ConfigEntry{{Name: "retention.ms", Value: "-1"}},
		}})
		if err != nil {
			return fmt.Errorf("create the dead-letter topic: %w", err)
		}
		d.ready = true
	}
	headers := append(r.Headers[:len(r.Headers):len(r.Headers)],
		kafka.Header{Key: HeaderErrorException, Value: []byte(kind)},
		kafka.Header{Key: HeaderErrorMessage, Value: []byte(cause.Error())},
		kafka.Header{Key: HeaderErrorTopic, Value: []byte(from.Topic)},
		kafka.Header{Key: HeaderErrorPartition, Value: strconv.AppendInt(nil, int64(from.Partition), 10)},
		kafka.Header{Key: HeaderErrorOffset, Value: strconv.AppendInt(nil, r.Offset, 10)},
		kafka.Header{Key: HeaderErrorTimestamp, Value: strconv.AppendInt(nil, r.Timestamp, 10)},
	)
	if err := th.send(kafka.Message{Topic: topic, Timestamp: time.Now().UnixMilli(), Key: r.Key, Value: r.Value, Headers: headers}); err != nil {
		return err
	}
	if !d.said[kind] {
		d.said[kind] = true
		th.log.Warn("a record cannot be processed and goes to the dead letters; more of this kind are only counted",
			"kind", kind, "partition", from.String(), "offset", r.Offset, "error", cause, "to", topic)
	}
	th.app.listen(func(l *Listener) {
		if l.DeadLetter != nil {
			l.DeadLetter(DeadLetter{from.Topic, from.Partition, r.Offset, r.Timestamp, kind, cause})
		}
	})
	return nil
}

// flushOutput awaits the acknowledgement of all output. Records that a broker refuses for what they are (too large, dated more than the
// broker allows ahead of its clock) are left out, and the input records that they were made of go to the dead letters, each once, however
// many outputs it had. All of it is acknowledged when flushOutput returns, so that offsets may move.
func (th *thread) flushOutput(ctx context.Context) error {
	if err := th.producer.Flush(ctx); err != nil {
		return err
	}
	refused := th.dead.takeRefused()
	if len(refused) == 0 {
		return nil
	}
	buried := map[kafka.Origin]bool{}
	for _, r := range refused {
		if th.app.cfg.ErrorHandler == FailOnError || r.Topic == deadLetterTopic(th.app.cfg.ApplicationID) {
			return fmt.Errorf("output to %s is refused: %w", r.TopicPartition, r.Err)
		}
		if buried[r.Origin] {
			continue
		}
		kind := "output refused by the broker"
		if r.Origin.Topic == "" { // made by a commit out of many records
			if err := th.dead.write(ctx, th, r.TopicPartition, &r.Record, kind, r.Err); err != nil {
				return err
			}
			continue
		}
		buried[r.Origin] = true
		record, err := th.reread(ctx, r.Origin)
		if err != nil {
			return err
		}
		if err := th.dead.write(ctx, th, r.Origin.TopicPartition, record, kind, r.Err); err != nil {
			return err
		}
	}
	return th.flushOutput(ctx)
}

// reread fetches one input record again: its bytes were not kept once it was processed.
func (th *thread) reread(ctx context.Context, o kafka.Origin) (*kafka.Record, error) {
	f := th.app.client.NewFetcher(kafka.FetcherConfig{PartitionMaxBytes: 1})
	defer f.Close()
	f.Set(o.TopicPartition, o.Offset)
	for {
		select {
		case <-f.Ready():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		for _, a := range f.Poll() {
			for i := range a.Records {
				if a.Records[i].Offset == o.Offset {
					return &a.Records[i], nil
				}
			}
			if a.Err != nil {
				return nil, fmt.Errorf("read %s again at offset %d, for the dead letters: %w", o.TopicPartition, o.Offset, a.Err)
			}
			if a.Next > o.Offset {
				return nil, fmt.Errorf("%s has no record at offset %d any more, which was to go to the dead letters", o.TopicPartition, o.Offset)
			}
		}
	}
}

// bury puts the head of a queue, whose decoding failed, among the dead letters and steps over it.
func (t *task) bury(ctx context.Context, q *queue) error {
	var bad *RecordError
	if t.thread.app.cfg.ErrorHandler != DeadLetters || !errors.As(q.headErr, &bad) {
		return q.headErr
	}
	if err := t.thread.dead.write(ctx, t.thread, q.tp, &q.batches[0][0], bad.Reason.String(), bad); err != nil {
		return err
	}
	q.pop()
	t.processed++
	return nil
}
