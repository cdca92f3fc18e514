package verify

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// A recording is what a verdict is made from, in a file: gzip over lines of JSON (docs/formats.md). It begins with a line that says what it
// is, then come all topics, all groups and all records, and the last line tells how many there were.

// Format is what a recording says that it is, and FormatVersion the newest version that is known here.
const (
	Format        = "lab-recording"
	FormatVersion = 1
)

// MaxFileBytes bounds the file of a recording.
const MaxFileBytes = 64 << 20

// The bounds of what is in it. A full run of the lab has 10,000 records in 3 MiB of lines. What is beyond them is not written, and not read.
const (
	maxRecords    = 500_000
	maxLines      = maxRecords + 20_000
	maxLineBytes  = 4 << 20
	maxTotalBytes = 256 << 20
	maxTopics     = 1_000
	maxPartitions = 10_000 // of all topics
	maxGroupLines = 100
	maxHeaders    = 1_000_000 // of all records
)

// RecordingInfo says where a recording comes from.
type RecordingInfo struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Lab     string    `json:"lab"` // the version of lab that wrote it
	Written time.Time `json:"written"`
	Cluster string    `json:"cluster"` // the cluster's id
	Run     string    `json:"run"`     // the topic id of orders.placed: another run has another one, on the same cluster too
	// ApplicationID of the application whose topics were recorded.
	ApplicationID string `json:"application"`
}

// recordingLine is a line of a recording. Just one of the fields is there.
type recordingLine struct {
	Recording *RecordingInfo  `json:"recording,omitempty"`
	Topic     *topicLine      `json:"topic,omitempty"`
	Group     *groupLine      `json:"group,omitempty"`
	Record    *recordLine     `json:"record,omitempty"`
	End       *recordingTotal `json:"end,omitempty"`
}

type topicLine struct {
	Name       string            `json:"name"`
	Configs    map[string]string `json:"configs"`
	Partitions []boundsLine      `json:"partitions"`
}

type boundsLine struct {
	Start  int64 `json:"start"`
	End    int64 `json:"end"`
	Stable int64 `json:"stable"`
}

type groupLine struct {
	Name      string       `json:"name"`
	Members   []string     `json:"members"`
	Committed []offsetLine `json:"committed"`
	// After is what was committed once the bounds had been taken, if that is not the same.
	After []offsetLine `json:"committed_after,omitzero"`
}

type offsetLine struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// recordLine is a record. A key or value is in one of two fields, as text or as bytes, and in none if it is null.
type recordLine struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Offset    int64         `json:"offset"`
	Time      int64         `json:"time"`
	Key       *string       `json:"key,omitempty"`
	KeyBytes  []byte        `json:"key_base64,omitempty"`
	Value     *string       `json:"value,omitempty"`
	Bytes     []byte        `json:"value_base64,omitempty"`
	Headers   []headerLine  `json:"headers,omitempty"`
	Producer  *producerLine `json:"producer,omitempty"`
	Marker    string        `json:"marker,omitempty"`
}

type headerLine struct {
	Key   string  `json:"key"`
	Value *string `json:"value,omitempty"`
	Bytes []byte  `json:"value_base64,omitempty"`
}

type producerLine struct {
	ID            int64 `json:"id"`
	Epoch         int16 `json:"epoch"`
	Transactional bool  `json:"transactional,omitempty"`
}

type recordingTotal struct {
	Lines   int `json:"lines"` // before this one
	Records int `json:"records"`
}

// The markers, as words.
var markers = map[kafka.ControlType]string{kafka.ControlCommit: "commit", kafka.ControlAbort: "abort"}

// ErrNoRun says that there is nothing to record: the cluster has none of the lab's topics.
var ErrNoRun = errors.New("no topics of the lab")

// TooLargeError says that a run is not recorded because of its size.
type TooLargeError struct{ What string }

func (e *TooLargeError) Error() string { return "too large for a recording: " + e.What }

// Record writes a recording of all that Run would look at on a cluster and returns the number of records. lab is the version of the program.
// The error may be ErrNoRun, with nothing written, or a *TooLargeError.
func Record(ctx context.Context, client *kafka.Client, w io.Writer, lab string) (records int, err error) {
	_, _, clusterID, err := client.Brokers(ctx)
	if err != nil {
		return 0, err
	}
	all, err := client.Topics(ctx)
	if err != nil {
		return 0, err
	}
	info := RecordingInfo{Lab: lab, Written: time.Now().UTC(), Cluster: clusterID, ApplicationID: defaultApplicationID}
	if placed := all[topicPlaced]; placed != nil {
		info.Run = base64.RawURLEncoding.EncodeToString(placed.ID[:])
	}
	return record(ctx, &cluster{client: client, stall: stallTimeout}, w, info)
}

// record takes what it writes in the order in which grader.load does, so that it is as consistent as what a grade is made from: committed
// offsets, the ends of the outputs, those of the inputs.
func record(ctx context.Context, t topics, w io.Writer, info RecordingInfo) (int, error) {
	info.Format, info.Version = Format, FormatVersion
	g := &grader{topics: t, opt: Options{ApplicationID: info.ApplicationID}}
	all, err := t.Describe(ctx, func(name string) bool { return g.ours(name) || strings.HasSuffix(name, "-"+suffixCountsChangelog) })
	if err != nil {
		return 0, err
	}
	g.found = maps.Clone(all)
	maps.DeleteFunc(g.found, func(name string, _ description) bool { return !g.ours(name) })
	if len(g.found) == 0 {
		return 0, ErrNoRun
	}
	groups, err := g.recordGroups(ctx)
	if err != nil {
		return 0, err
	}
	if err := g.readBounds(ctx); err != nil {
		return 0, err
	}
	for i := range groups {
		after, err := t.Committed(ctx, groups[i].Name)
		if err != nil {
			return 0, err
		}
		if lines := offsetLines(after); !slices.Equal(lines, groups[i].Committed) {
			groups[i].After = lines
		}
	}
	var span int64
	for _, b := range g.bounds {
		span += b.end - b.start
	}
	if span > maxRecords {
		return 0, &TooLargeError{fmt.Sprintf("the topics hold %d records, and up to %d are recorded", span, maxRecords)}
	}

	out := newRecordingWriter(w)
	out.write(recordingLine{Recording: &info})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		line := topicLine{Name: name, Configs: all[name].configs, Partitions: []boundsLine{}} // of another application only the name counts
		for _, tp := range g.partitions(name) {
			b := g.bounds[tp]
			line.Partitions = append(line.Partitions, boundsLine{b.start, b.end, b.stable})
		}
		out.write(recordingLine{Topic: &line})
	}
	for i := range groups {
		out.write(recordingLine{Group: &groups[i]})
	}
	for _, name := range slices.Sorted(maps.Keys(g.found)) {
		if err := g.logOf(ctx, name, out.record); err != nil {
			return 0, err
		}
	}
	return out.total.Records, out.close()
}

// recordGroups returns the groups of the application and of those of phase 6 that have topics.
func (g *grader) recordGroups(ctx context.Context) ([]groupLine, error) {
	names := []string{g.opt.ApplicationID}
	for _, app := range crashApps {
		if id := g.opt.ApplicationID + "-" + app.name; g.found[id+"-"+suffixRepartition].partitions > 0 {
			names = append(names, id)
		}
	}
	groups := make([]groupLine, len(names))
	for i, name := range names {
		committed, err := g.topics.Committed(ctx, name)
		if err != nil {
			return nil, err
		}
		members, err := g.topics.Members(ctx, name)
		if err != nil {
			return nil, err
		}
		groups[i] = groupLine{Name: name, Members: append([]string{}, members...), Committed: offsetLines(committed)}
	}
	return groups, nil
}

// offsetLines are offsets in the order of their partitions.
func offsetLines(offsets map[kafka.TopicPartition]int64) []offsetLine {
	lines := []offsetLine{}
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), kafka.TopicPartition.Compare) {
		lines = append(lines, offsetLine{tp.Topic, tp.Partition, offsets[tp]})
	}
	return lines
}

// recordingWriter writes lines until one fails. close tells.
type recordingWriter struct {
	zip     *gzip.Writer
	buffer  *bufio.Writer
	encoder *json.Encoder
	bytes   int
	headers int
	total   recordingTotal
	err     error
}

func newRecordingWriter(w io.Writer) *recordingWriter {
	out := &recordingWriter{zip: gzip.NewWriter(&boundedWriter{w, MaxFileBytes})}
	out.buffer = bufio.NewWriterSize(out.zip, 64<<10)
	out.encoder = json.NewEncoder(out)
	out.encoder.SetEscapeHTML(false)
	return out
}

// Write gets a line from the encoder.
func (w *recordingWriter) Write(line []byte) (int, error) {
	w.bytes += len(line)
	switch {
	case len(line) > maxLineBytes:
		return 0, &TooLargeError{fmt.Sprintf("line %d has %d bytes, and up to %d are recorded", w.total.Lines+1, len(line), maxLineBytes)}
	case w.bytes > maxTotalBytes:
		return 0, &TooLargeError{fmt.Sprintf("the records have more than %d bytes", maxTotalBytes)}
	}
	return w.buffer.Write(line)
}

func (w *recordingWriter) write(line recordingLine) {
	if w.err == nil {
		w.err = w.encoder.Encode(line)
		w.total.Lines++
	}
}

func (w *recordingWriter) record(tp kafka.TopicPartition, r *kafka.Record) {
	line := recordLine{Topic: tp.Topic, Partition: tp.Partition, Offset: r.Offset, Time: r.Timestamp, Marker: markers[r.Control]}
	if r.Control == kafka.ControlNone { // of a marker they are the protocol's
		line.Key, line.KeyBytes = textOrBytes(r.Key)
		line.Value, line.Bytes = textOrBytes(r.Value)
	}
	for _, h := range r.Headers {
		value, raw := textOrBytes(h.Value)
		line.Headers = append(line.Headers, headerLine{h.Key, value, raw})
	}
	if w.headers += len(r.Headers); w.headers > maxHeaders && w.err == nil {
		w.err = &TooLargeError{fmt.Sprintf("the records have more than %d headers", maxHeaders)}
	}
	if r.ProducerID >= 0 {
		line.Producer = &producerLine{r.ProducerID, r.ProducerEpoch, r.Transactional}
	}
	w.total.Records++
	w.write(recordingLine{Record: &line})
}

func (w *recordingWriter) close() error {
	w.write(recordingLine{End: &w.total})
	for _, end := range []func() error{w.buffer.Flush, w.zip.Close} {
		if w.err == nil {
			w.err = end()
		}
	}
	return w.err
}

// boundedWriter refuses what is more than so many bytes.
type boundedWriter struct {
	io.Writer
	left int
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, &TooLargeError{fmt.Sprintf("the file has more than %d bytes", MaxFileBytes)}
	}
	return w.Writer.Write(p)
}

// textOrBytes returns what can be read as text as text, the rest as bytes, and neither for nil.
func textOrBytes(b []byte) (*string, []byte) {
	if b == nil {
		return nil, nil
	}
	for _, c := range b {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			return nil, b
		}
	}
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}
