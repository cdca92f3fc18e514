package verify

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Recording is a recording in memory. It may be graded any number of times, also at the same time.
type Recording struct {
	RecordingInfo
	topics map[string]*recordedTopic
	groups map[string]recordedGroup
}

type recordedTopic struct {
	configs map[string]string
	parts   []recordedPartition
}

type recordedPartition struct {
	bounds
	records []recordedRecord // in the order of their offsets
}

type recordedRecord struct {
	kafka.Record
	aborted bool
}

type recordedGroup struct {
	members          []string
	committed, after map[kafka.TopicPartition]int64
}

// RecordingError is a file that is no whole recording. It says where and why, and repeats nothing of the file but names.
type RecordingError struct {
	Line int // from 1; 0 if it is no matter of a line
	Err  error
}

func (e *RecordingError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("no recording: %v", e.Err)
	}
	return fmt.Sprintf("no recording: line %d: %v", e.Line, e.Err)
}

// Unwrap returns what is wrong.
func (e *RecordingError) Unwrap() error { return e.Err }

// ReadRecording reads what Record wrote, to the end of r. Whatever r holds, it takes memory and time for a recording within its bounds at
// most. The error is that of r, or a *RecordingError.
func ReadRecording(r io.Reader) (*Recording, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, &RecordingError{0, errors.New("it is not compressed by gzip")}
	}
	in := &recordingReader{Recording: &Recording{topics: map[string]*recordedTopic{}, groups: map[string]recordedGroup{}}}
	lines := bufio.NewScanner(&io.LimitedReader{R: zip, N: maxTotalBytes + 1})
	lines.Buffer(make([]byte, 64<<10), maxLineBytes)
	for lines.Scan() {
		in.lines++
		in.bytes += len(lines.Bytes()) + 1
		if err := in.line(lines.Bytes()); err != nil {
			return nil, &RecordingError{in.lines, err}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, &RecordingError{in.lines + 1, fmt.Errorf("it is longer than %d bytes", maxLineBytes)}
	case isDamage(err):
		return nil, &RecordingError{0, fmt.Errorf("after line %d it is damaged or cut off: %w", in.lines, err)}
	case err != nil:
		return nil, err
	case in.end == nil:
		return nil, &RecordingError{0, fmt.Errorf("it ends after line %d, without the line that ends a whole one", in.lines)}
	}
	in.findAborted()
	return in.Recording, nil
}

// isDamage tells faults of compressed data from those of reading it.
func isDamage(err error) bool {
	var corrupt flate.CorruptInputError
	is := func(damage error) bool { return errors.Is(err, damage) }
	return errors.As(err, &corrupt) || slices.ContainsFunc([]error{gzip.ErrChecksum, gzip.ErrHeader, io.ErrUnexpectedEOF}, is)
}

// recordingReader is a recording on its way in.
type recordingReader struct {
	*Recording
	lines, bytes        int
	partitions, headers int
	records             int
	end                 *recordingTotal
}

func (in *recordingReader) line(raw []byte) error {
	if in.bytes > maxTotalBytes || in.lines > maxLines {
		return fmt.Errorf("there is more than %d bytes or %d lines", maxTotalBytes, maxLines)
	}
	if in.end != nil {
		return errors.New("it comes after the last one")
	}
	if in.lines == 1 {
		return in.head(raw)
	}
	var l recordingLine
	if err := decodeStrictly(raw, &l); err != nil {
		return err
	}
	switch {
	case l.Record != nil:
		return in.record(l.Record)
	case l.Topic != nil:
		return in.topic(l.Topic)
	case l.Group != nil:
		return in.group(l.Group)
	case l.End != nil:
		if want := (recordingTotal{in.lines - 1, in.records}); *l.End != want {
			return fmt.Errorf("%d lines and %d records were written, and %d and %d are there", l.End.Lines, l.End.Records, want.Lines, want.Records)
		}
		in.end = l.End
		return nil
	default:
		return errors.New("it is neither topic, group, record nor end")
	}
}

// maxHeadBytes bounds the first line, which is shown to people.
const maxHeadBytes = 4096

// head reads the first line. That of a newer version may hold what is not known here.
func (in *recordingReader) head(raw []byte) error {
	var l recordingLine
	err := json.Unmarshal(raw, &l)
	switch {
	case err != nil || l.Recording == nil || l.Recording.Format != Format || len(raw) > maxHeadBytes:
		return fmt.Errorf("it does not say that this is a %s", Format)
	case l.Recording.Version > FormatVersion:
		return fmt.Errorf("it has version %d of the format, and this lab knows up to %d: use a newer lab", l.Recording.Version, FormatVersion)
	case l.Recording.Version < 1:
		return fmt.Errorf("there is no version %d of the format", l.Recording.Version)
	case !isTopicName(l.Recording.ApplicationID):
		return errors.New("its application id is none")
	}
	in.RecordingInfo = *l.Recording
	return nil
}

// decodeStrictly refuses fields that are not known. The library's own errors may repeat what they met.
func decodeStrictly(raw []byte, l *recordingLine) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(l)
	if err == nil {
		_, err = d.Token()
	}
	switch {
	case !utf8.Valid(raw):
		return errors.New("it is not UTF-8")
	case errors.Is(err, io.EOF):
		return nil
	case !json.Valid(raw):
		return errors.New("it is broken JSON")
	default:
		return fmt.Errorf("it has fields or values that version %d of the format has not", FormatVersion)
	}
}

// maxNameBytes is what Kafka allows for the name of a topic.
const maxNameBytes = 249

func isTopicName(name string) bool {
	strange := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	return name != "" && len(name) <= maxNameBytes && !strings.ContainsFunc(name, strange)
}

func (in *recordingReader) topic(l *topicLine) error {
	switch in.partitions += len(l.Partitions); {
	case !isTopicName(l.Name):
		return errors.New("the topic's name is none of Kafka's")
	case in.topics[l.Name] != nil:
		return fmt.Errorf("topic %s is there twice", l.Name)
	case len(in.topics) == maxTopics || in.partitions > maxPartitions:
		return fmt.Errorf("there are more than %d topics or %d partitions", maxTopics, maxPartitions)
	}
	t := &recordedTopic{configs: l.Configs}
	for p, b := range l.Partitions {
		if b.Start < 0 || b.Stable < b.Start || b.End < b.Stable {
			return fmt.Errorf("bounds of %s-%d: start %d, stable %d and end %d are not in that order from 0", l.Name, p, b.Start, b.Stable, b.End)
		}
		t.parts = append(t.parts, recordedPartition{bounds: bounds{b.Start, b.End, b.Stable}})
	}
	in.topics[l.Name] = t
	return nil
}

func (in *recordingReader) group(l *groupLine) error {
	_, twice := in.groups[l.Name]
	switch {
	case twice:
		return errors.New("the group is there twice")
	case len(in.groups) == maxGroupLines:
		return fmt.Errorf("there are more than %d groups", maxGroupLines)
	}
	committed, err := offsetsOf(l.Committed)
	if err != nil {
		return err
	}
	after := committed
	if l.After != nil {
		if after, err = offsetsOf(l.After); err != nil {
			return err
		}
	}
	in.groups[l.Name] = recordedGroup{l.Members, committed, after}
	return nil
}

func offsetsOf(lines []offsetLine) (map[kafka.TopicPartition]int64, error) {
	offsets := map[kafka.TopicPartition]int64{}
	for _, o := range lines {
		if !isTopicName(o.Topic) || o.Partition < 0 || o.Offset < 0 {
			return nil, errors.New("a committed offset is of no partition, or negative")
		}
		offsets[kafka.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
	}
	return offsets, nil
}

func (in *recordingReader) record(l *recordLine) error {
	in.records++
	in.headers += len(l.Headers)
	t := in.topics[l.Topic]
	switch {
	case in.records > maxRecords || in.headers > maxHeaders:
		return fmt.Errorf("there are more than %d records or %d headers", maxRecords, maxHeaders)
	case t == nil:
		return errors.New("the record is of a topic that was not announced")
	case l.Partition < 0 || int(l.Partition) >= len(t.parts):
		return fmt.Errorf("%s has no partition %d", l.Topic, l.Partition)
	}
	p := &t.parts[l.Partition]
	switch {
	case l.Offset < p.start || l.Offset >= p.end:
		return fmt.Errorf("offset %d of %s-%d is not within %d and %d", l.Offset, l.Topic, l.Partition, p.start, p.end)
	case len(p.records) > 0 && l.Offset <= p.records[len(p.records)-1].Offset:
		return fmt.Errorf("offset %d of %s-%d comes after offset %d", l.Offset, l.Topic, l.Partition, p.records[len(p.records)-1].Offset)
	case l.Time < -1:
		return fmt.Errorf("offset %d of %s-%d has the time %d", l.Offset, l.Topic, l.Partition, l.Time)
	}
	r := recordedRecord{Record: kafka.Record{Offset: l.Offset, Timestamp: l.Time, ProducerID: -1, ProducerEpoch: -1}}
	if l.Producer != nil {
		r.ProducerID, r.ProducerEpoch, r.Transactional = l.Producer.ID, l.Producer.Epoch, l.Producer.Transactional
	}
	switch l.Marker {
	case "":
	case markers[kafka.ControlCommit]:
		r.Control = kafka.ControlCommit
	case markers[kafka.ControlAbort]:
		r.Control = kafka.ControlAbort
	default:
		return fmt.Errorf("offset %d of %s-%d: its marker is neither commit nor abort", l.Offset, l.Topic, l.Partition)
	}
	r.Key, r.Value = bytesOf(l.Key, l.KeyBytes), bytesOf(l.Value, l.Bytes)
	for _, h := range l.Headers {
		r.Headers = append(r.Headers, kafka.Header{Key: h.Key, Value: bytesOf(h.Value, h.Bytes)})
	}
	p.records = append(p.records, r)
	return nil
}

// bytesOf is the contrary of textOrBytes. If both are there, the text counts.
func bytesOf(text *string, raw []byte) []byte {
	if text == nil {
		return raw
	}
	return []byte(*text)
}

// findAborted finds the records of aborted transactions: those of a producer before its next marker in that partition, if that one says so.
func (in *recordingReader) findAborted() {
	for _, t := range in.topics {
		for _, p := range t.parts {
			open := map[int64][]int{}
			for i, r := range p.records {
				switch {
				case r.Control == kafka.ControlNone && r.Transactional:
					open[r.ProducerID] = append(open[r.ProducerID], i)
				case r.Control == kafka.ControlAbort:
					for _, j := range open[r.ProducerID] {
						p.records[j].aborted = true
					}
					delete(open, r.ProducerID)
				case r.Control == kafka.ControlCommit:
					delete(open, r.ProducerID)
				}
			}
		}
	}
}

// Grade grades the recorded run as Run does a cluster's. The error is a *PhaseError.
func (r *Recording) Grade(ctx context.Context, opt Options) (Report, error) {
	opt.ApplicationID = cmp.Or(opt.ApplicationID, r.ApplicationID)
	return run(ctx, &recorded{Recording: r}, opt)
}

// Fingerprint is the same for two recordings if orders.placed has the same records in both: the same orders, at the same offsets, sent at
// the same milliseconds. "" means that there are none.
func (r *Recording) Fingerprint() string {
	t := r.topics[topicPlaced]
	h := sha256.New()
	records := 0
	if t != nil {
		for n, p := range t.parts {
			records += len(p.records)
			for _, record := range p.records {
				for _, v := range []int64{int64(n), record.Offset, record.Timestamp, int64(len(record.Key)), int64(len(record.Value))} {
					_ = binary.Write(h, binary.BigEndian, v) // a hash never fails to write
				}
				h.Write(record.Key)
				h.Write(record.Value)
			}
		}
	}
	if records == 0 {
		return ""
	}
	return string(h.Sum(nil))
}

// recorded implements topics over a recording, for one grading.
type recorded struct {
	*Recording
	bounded bool // Bounds was asked for
}

func (r *recorded) Describe(_ context.Context, pick func(string) bool) (map[string]description, error) {
	found := map[string]description{}
	for name, t := range r.topics {
		if pick(name) {
			found[name] = description{partitions: len(t.parts), configs: maps.Clone(t.configs)}
		}
	}
	return found, nil
}

func (r *recorded) Committed(_ context.Context, group string) (map[kafka.TopicPartition]int64, error) {
	if r.bounded {
		return maps.Clone(r.groups[group].after), nil
	}
	return maps.Clone(r.groups[group].committed), nil
}

func (r *recorded) Members(_ context.Context, group string) ([]string, error) {
	return slices.Clone(r.groups[group].members), nil
}

func (r *recorded) Bounds(_ context.Context, parts []kafka.TopicPartition) (map[kafka.TopicPartition]bounds, error) {
	r.bounded = true
	found := make(map[kafka.TopicPartition]bounds, len(parts))
	for _, tp := range parts {
		p, err := r.partition(tp)
		if err != nil {
			return nil, err
		}
		found[tp] = p.bounds
	}
	return found, nil
}

func (r *recorded) partition(tp kafka.TopicPartition) (*recordedPartition, error) {
	t := r.topics[tp.Topic]
	if t == nil || tp.Partition < 0 || int(tp.Partition) >= len(t.parts) {
		return nil, fmt.Errorf("%s was not recorded", tp)
	}
	return &t.parts[tp.Partition], nil
}

// Read takes committed records up to the first open transaction, which is then the error, as for a reader on a cluster.
func (r *recorded) Read(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error {
	return r.each(ctx, parts, func(tp kafka.TopicPartition, p *recordedPartition, b bounds) error {
		err := p.each(ctx, bounds{start: b.start, end: min(b.end, p.stable)}, func(record *recordedRecord) {
			if record.Control == kafka.ControlNone && !record.aborted {
				fn(tp, &record.Record)
			}
		})
		if err == nil && b.end > p.stable {
			return &OpenTransactionError{tp, p.stable, b.end}
		}
		return err
	})
}

func (r *recorded) Log(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error {
	return r.each(ctx, parts, func(tp kafka.TopicPartition, p *recordedPartition, b bounds) error {
		return p.each(ctx, b, func(record *recordedRecord) { fn(tp, &record.Record) })
	})
}

// each calls fn with each partition that is not empty within its bounds, in their order.
func (r *recorded) each(
	ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *recordedPartition, bounds) error,
) error {
	for _, tp := range slices.SortedFunc(maps.Keys(parts), kafka.TopicPartition.Compare) {
		p, err := r.partition(tp)
		if err == nil && parts[tp].start < parts[tp].end {
			err = fn(tp, p, parts[tp])
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// contextEvery is after how many records the end of a context is noticed.
const contextEvery = 1024

// each calls fn with each record within the bounds.
func (p *recordedPartition) each(ctx context.Context, b bounds, fn func(*recordedRecord)) error {
	from, _ := slices.BinarySearchFunc(p.records, b.start, func(r recordedRecord, offset int64) int { return cmp.Compare(r.Offset, offset) })
	for i := from; i < len(p.records) && p.records[i].Offset < b.end; i++ {
		if i%contextEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fn(&p.records[i])
	}
	return nil
}
