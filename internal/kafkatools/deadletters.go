package kafkatools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
)

// deadLettersSuffix ends the name of an application's dead-letter topic.
const deadLettersSuffix = "-dead-letters"

// DeadLetters is the name of an application's dead-letter topic.
func DeadLetters(application string) string { return application + deadLettersSuffix }

// DeadLetter is what the headers of a dead letter say.
type DeadLetter struct {
	Topic     string `json:"topic"` // where the record came from, as the two fields that follow
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`    // -1: the record is an output, made of many records
	Timestamp int64  `json:"timestamp"` // the record's own
	Kind      string `json:"kind"`
	Message   string `json:"message"`
}

// ParseDeadLetter reads the headers of a dead letter; false if the record is none. Of two headers with one key the last counts: the record
// may have brought the other.
func ParseDeadLetter(r *kafka.Record) (DeadLetter, bool) {
	values := map[string]string{}
	for _, h := range r.Headers {
		values[h.Key] = string(h.Value)
	}
	partition, perr := strconv.ParseInt(values[streams.HeaderErrorPartition], 10, 32)
	offset, oerr := strconv.ParseInt(values[streams.HeaderErrorOffset], 10, 64)
	timestamp, terr := strconv.ParseInt(values[streams.HeaderErrorTimestamp], 10, 64)
	d := DeadLetter{
		Topic: values[streams.HeaderErrorTopic], Partition: int32(partition), Offset: offset, Timestamp: timestamp,
		Kind: values[streams.HeaderErrorException], Message: values[streams.HeaderErrorMessage],
	}
	return d, errors.Join(perr, oerr, terr) == nil && d.Topic != ""
}

// line is a dead letter as one line of printable text, whatever its key and value are.
func (d DeadLetter) line(r *kafka.Record) string {
	at := strconv.FormatInt(d.Timestamp, 10)
	if d.Timestamp >= 0 {
		at += " (" + time.UnixMilli(d.Timestamp).UTC().Format(time.RFC3339Nano) + ")"
	}
	return fmt.Sprintf("%s-%d offset %d timestamp %s\t%s\t%s\tkey %s\tvalue %s",
		d.Topic, d.Partition, d.Offset, at, printable(d.Kind), printable(d.Message), quoted(r.Key), quoted(r.Value))
}

// printable escapes what a terminal would act upon.
func printable(s string) string {
	q := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// quoted tells null from empty.
func quoted(b []byte) string {
	if b == nil {
		return "null"
	}
	return strconv.QuoteToGraphic(string(b))
}

// KindCount is how many records of one kind are among the dead letters.
type KindCount struct {
	Kind    string `json:"kind"`
	Records int64  `json:"records"`
}

// CountDeadLetters counts the records among an application's dead letters, most frequent kind first. A record that was written again after a
// crash counts once. No topic is no dead letter.
func CountDeadLetters(ctx context.Context, client *kafka.Client, application string) ([]KindCount, error) {
	type origin struct {
		topic     string
		partition int32
		offset    int64
	}
	kinds := map[origin]string{}
	byKind := map[string]int64{}
	err := Read(ctx, client, ReadConfig{Topic: DeadLetters(application), Isolation: kafka.ReadCommitted}, func(_ int32, r *kafka.Record) error {
		d, ok := ParseDeadLetter(r)
		at := origin{d.Topic, d.Partition, d.Offset}
		switch {
		case !ok:
			byKind["not a dead letter"]++
		case d.Offset < 0:
			byKind[d.Kind]++
		default:
			kinds[at] = d.Kind
		}
		return nil
	})
	var unknown *UnknownTopicError
	if errors.As(err, &unknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		byKind[kind]++
	}
	counts := make([]KindCount, 0, len(byKind))
	for kind, n := range byKind {
		counts = append(counts, KindCount{kind, n})
	}
	slices.SortFunc(counts, func(a, b KindCount) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), strings.Compare(a.Kind, b.Kind))
	})
	return counts, nil
}
