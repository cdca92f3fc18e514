package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// ErrorHandler says what becomes of an input record that cannot be decoded, has no event time, has a key that no store can hold, or yields
// output that the broker refuses.
type ErrorHandler string

const (
	// DeadLetters puts such a record, as it came, into the topic <application.id>-dead-letters and goes on: no record is lost, and none
	// stops the others.
	DeadLetters ErrorHandler = "dead-letters"
	// FailOnError stops the application at such a record, after a commit of all before it.
	FailOnError ErrorHandler = "fail"
)

// The headers of a dead letter: those of Java (KIP-1034, ExceptionHandlerUtils in 4.3.1), and one of ours for the record's own timestamp,
// since a dead letter carries the time at which it was written. They come after the record's own headers, so of two with one key the last
// is the one that counts.
const (
	HeaderErrorException = "__streams.errors.exception"
	HeaderErrorMessage   = "__streams.errors.message"
	HeaderErrorTopic     = "__streams.errors.topic"
	HeaderErrorPartition = "__streams.errors.partition"
	HeaderErrorOffset    = "__streams.errors.offset"
	HeaderErrorTimestamp = "__streams.errors.timestamp"
)

// RefusedOutput is the kind of a dead letter whose record was processed, and a part of whose output no broker takes: too large, dated too
// far from the broker's clock, or invalid for its topic. What else it yielded stands.
const RefusedOutput = "output refused by the broker"

// DeadLetter is a record that went into the dead-letter topic instead of through the topology.
//
// Where the kind is RefusedOutput and the output was an aggregate's, made by a commit out of many records, there is no one record to blame:
// then the dead letter is the output itself, Topic and Partition are where it should have gone, and Offset is -1.
type DeadLetter struct {
	Topic     string // where it came from, as the two fields that follow
	Partition int32
	Offset    int64
	Timestamp int64 // the record's own, in milliseconds since 1970
	// Kind is what kind of error it was: a Reason's text, with what the error's own Kind method adds if it has one, or RefusedOutput.
	Kind string
	Err  error // what was wrong with it; where it came from is not repeated
}

// kinder is an error of a Serde or extractor that has kinds of its own, such as "unknown status". There must be few of them.
type kinder interface{ Kind() string }

// kindOf names the kind of error by which dead letters are counted.
func kindOf(e *RecordError) string {
	var k kinder
	if errors.As(e.Err, &k) {
		return e.Reason.String() + ": " + k.Kind()
	}
	return e.Reason.String()
}

// OutputRefusedError ends an application whose output a broker refuses, and which may not go on without it.
type OutputRefusedError struct {
	Topic     string // of the output
	Partition int32
	// Origin is the input record that the output was made of, at OriginOffset; its topic is "" if a commit made it out of many.
	Origin       TopicPartition
	OriginOffset int64
	Advice       string // what to do about it, if that is known
	Err          error

	held []kafka.Origin // input records without their output
}

func (e *OutputRefusedError) Error() string {
	s := fmt.Sprintf("%s: topic %s, partition %d", RefusedOutput, e.Topic, e.Partition)
	if e.Origin.Topic != "" {
		s += fmt.Sprintf(", made of topic %s, partition %d, offset %d", e.Origin.Topic, e.Origin.Partition, e.OriginOffset)
	}
	s += ": " + e.Err.Error()
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

func (e *OutputRefusedError) Unwrap() error { return e.Err }

func refusedError(r *kafka.RefusedRecord, advice string) *OutputRefusedError {
	return &OutputRefusedError{
		Topic: r.Topic, Partition: r.Partition, Origin: TopicPartition(r.Origin.TopicPartition), OriginOffset: r.Origin.Offset, Advice: advice, Err: r.Err,
	}
}

// deadLetterTopic is the full name of an application's dead-letter topic.
func deadLetterTopic(applicationID string) string { return applicationID + "-dead-letters" }

// deadLetterBytes is the dead-letter topic's max.message.bytes. A dead letter is larger than its record, which may have been as large as its
// own topic takes, so the broker's default would refuse it.
const deadLetterBytes = 64 << 20

// maxErrorText bounds the message of a dead letter, since an error may quote the record.
const maxErrorText = 1000

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
			Configs: []kafka.ConfigEntry{
				{Name: "retention.ms", Value: "-1"},
				{Name: "max.message.bytes", Value: strconv.Itoa(deadLetterBytes)},
			},
		}})
		if err != nil {
			return fmt.Errorf("create the dead-letter topic: %w", err)
		}
		d.ready = true
	}
	headers := append(r.Headers[:len(r.Headers):len(r.Headers)],
		kafka.Header{Key: HeaderErrorException, Value: []byte(kind)},
		kafka.Header{Key: HeaderErrorMessage, Value: []byte(shortened(cause.Error()))},
		kafka.Header{Key: HeaderErrorTopic, Value: []byte(from.Topic)},
		kafka.Header{Key: HeaderErrorPartition, Value: strconv.AppendInt(nil, int64(from.Partition), 10)},
		kafka.Header{Key: HeaderErrorOffset, Value: strconv.AppendInt(nil, r.Offset, 10)},
		kafka.Header{Key: HeaderErrorTimestamp, Value: strconv.AppendInt(nil, r.Timestamp, 10)},
	)
	if err := th.send(kafka.Message{
		Topic: topic, Timestamp: time.Now().UnixMilli(), Key: r.Key, Value: r.Value, Headers: headers,
		Origin: kafka.Origin{TopicPartition: from, Offset: r.Offset},
	}); err != nil {
		return err
	}
	if !d.said[kind] {
		d.said[kind] = true
		th.log.Warn("a record cannot be processed and goes to the dead letters; more of this kind are only counted",
			"kind", kind, "partition", from.String(), "offset", r.Offset, "error", shortened(cause.Error()), "to", topic)
	}
	th.app.listen(func(l *Listener) {
		if l.DeadLetter != nil {
			l.DeadLetter(DeadLetter{from.Topic, from.Partition, r.Offset, r.Timestamp, kind, cause})
		}
	})
	return nil
}

func shortened(text string) string {
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "") + "…"
}

// bury puts the head of a queue among the dead letters and steps over it, if that is what becomes of such an error. Otherwise it returns
// the error, and the head stays where it is.
func (t *task) bury(ctx context.Context, q *queue, err error) error {
	var bad *RecordError
	if !errors.As(err, &bad) {
		return err
	}
	t.ctx.err = nil // of this record alone: the task goes on, or commits what came before it
	if t.thread.app.cfg.ErrorHandler != DeadLetters {
		return err
	}
	if err := t.thread.dead.write(ctx, t.thread, q.tp, &q.batches[0][0], kindOf(bad), bad.Err); err != nil {
		return err
	}
	q.pop()
	t.processed++
	return nil
}

// badKey turns the failure of a store to hold the key of the record at work into the record's own error: it would fail again after each
// restart. Other errors stay what they are.
func badKey(err error) error {
	var p *ProcessingError
	if !errors.Is(err, store.ErrKeyTooLarge) || !errors.As(err, &p) {
		return err
	}
	return &RecordError{Node: p.Node, Topic: p.Topic, Partition: p.Partition, Offset: p.Offset, Reason: KeyTooLarge, Err: p.Err}
}

// flushOutput awaits the acknowledgement of all output. Records that a broker refuses for what they are (too large, dated more than the
// broker allows ahead of its clock) are left out, and the input records that they were made of go to the dead letters, each once, however
// many outputs it had. All of it is acknowledged when flushOutput returns, so that offsets may move.
func (th *thread) flushOutput(ctx context.Context) error {
	for {
		if err := th.producer.Flush(ctx); err != nil {
			return err
		}
		refused := th.dead.takeRefused()
		if len(refused) == 0 {
			return nil
		}
		if err := th.buryRefused(ctx, refused); err != nil {
			return err
		}
	}
}

// buryRefused writes the dead letters of refused output, partition by partition in the order of offsets.
func (th *thread) buryRefused(ctx context.Context, refused []kafka.RefusedRecord) error {
	origins := map[kafka.Origin]*kafka.RefusedRecord{}
	for i := range refused {
		r := &refused[i]
		switch {
		case r.Topic == deadLetterTopic(th.app.cfg.ApplicationID):
			return refusedError(r, "the dead letter must be written before the work goes on: raise max.message.bytes of that topic")
		case th.isChangelog(r.Topic):
			return refusedError(r, "without it the store could not be restored: let the changelog topic take what the input topics take")
		case r.Origin.Topic != "":
			if origins[r.Origin] == nil {
				origins[r.Origin] = r
			}
		case th.app.cfg.ErrorHandler == FailOnError:
			return refusedError(r, "")
		default:
			out := r.Record
			out.Offset = -1
			if err := th.dead.write(ctx, th, r.TopicPartition, &out, RefusedOutput, r.Err); err != nil {
				return err
			}
		}
	}
	wanted := map[kafka.TopicPartition][]kafka.Origin{}
	var all []kafka.Origin
	for o := range origins {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b kafka.Origin) int {
		return cmp.Or(a.Compare(b.TopicPartition), cmp.Compare(a.Offset, b.Offset))
	})
	if len(all) > 0 && th.app.cfg.ErrorHandler == FailOnError {
		e := refusedError(origins[all[0]], "")
		e.held = all
		return e
	}
	for _, o := range all {
		wanted[o.TopicPartition] = append(wanted[o.TopicPartition], o)
	}
	for _, tp := range slices.SortedFunc(maps.Keys(wanted), kafka.TopicPartition.Compare) {
		err := th.reread(ctx, wanted[tp], func(o kafka.Origin, r *kafka.Record) error {
			output := origins[o]
			cause := fmt.Errorf("topic %s, partition %d: %w", output.Topic, output.Partition, output.Err)
			if r == nil {
				// Compacted or expired since it was processed: what is left of it is the output.
				gone := output.Record
				gone.Offset = o.Offset
				r, cause = &gone, fmt.Errorf("%w; the record itself is gone, so this is its output", cause)
			}
			return th.dead.write(ctx, th, o.TopicPartition, r, RefusedOutput, cause)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isChangelog tells the changelog topics of the thread's tasks.
func (th *thread) isChangelog(topic string) bool {
	return slices.ContainsFunc(th.tasks, func(t *task) bool {
		return slices.ContainsFunc(t.changelogs, func(c *changelog) bool { return c.tp.Topic == topic && c.source == nil })
	})
}

// reread fetches input records of one partition again, in the order of their offsets: their bytes were not kept once they were processed.
// fn gets nil for a record that is not there any more.
func (th *thread) reread(ctx context.Context, wanted []kafka.Origin, fn func(kafka.Origin, *kafka.Record) error) error {
	tp := wanted[0].TopicPartition
	ctx, cancel := context.WithTimeoutCause(ctx, th.app.cfg.RetryTimeout,
		fmt.Errorf("read %s again for the dead letters: no answer within %s", tp, th.app.cfg.RetryTimeout))
	defer cancel()
	starts, err := th.app.client.ListOffsets(ctx, []kafka.TopicPartition{tp}, kafka.EarliestOffset, kafka.ReadUncommitted)
	if err != nil {
		return fmt.Errorf("read %s again for the dead letters: %w", tp, err)
	}
	for len(wanted) > 0 && wanted[0].Offset < starts[tp] {
		if err := fn(wanted[0], nil); err != nil {
			return err
		}
		wanted = wanted[1:]
	}
	if len(wanted) == 0 {
		return nil
	}
	f := th.app.client.NewFetcher(kafka.FetcherConfig{PartitionMaxBytes: 1}) // a broker gives one batch at least
	defer f.Close()
	f.Set(tp, wanted[0].Offset)
	for {
		select {
		case <-f.Ready():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for _, a := range f.Poll() {
			for i := range a.Records {
				for len(wanted) > 0 && wanted[0].Offset <= a.Records[i].Offset {
					r := &a.Records[i]
					if wanted[0].Offset < r.Offset {
						r = nil
					}
					if err := fn(wanted[0], r); err != nil {
						return err
					}
					wanted = wanted[1:]
				}
			}
			if a.Err != nil && len(wanted) > 0 {
				return fmt.Errorf("read %s again at offset %d, for the dead letters: %w", tp, wanted[0].Offset, a.Err)
			}
			for len(wanted) > 0 && wanted[0].Offset < a.Next {
				if err := fn(wanted[0], nil); err != nil {
					return err
				}
				wanted = wanted[1:]
			}
			if len(wanted) == 0 {
				return nil
			}
			if wanted[0].Offset > a.Next {
				f.Set(tp, wanted[0].Offset)
			}
		}
	}
}
