package verify

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

// atRest is a memory whose open transactions are those that it has records of, and whose partitions are read in their order.
type atRest struct{ *memory }

func (m atRest) Read(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error {
	return inOrder(ctx, parts, fn, m.memory.Read)
}

func (m atRest) Log(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error {
	return inOrder(ctx, parts, fn, m.memory.Log)
}

func inOrder(
	ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record),
	read func(context.Context, map[kafka.TopicPartition]bounds, func(kafka.TopicPartition, *kafka.Record)) error,
) error {
	for _, tp := range slices.SortedFunc(maps.Keys(parts), kafka.TopicPartition.Compare) {
		if err := read(ctx, map[kafka.TopicPartition]bounds{tp: parts[tp]}, fn); err != nil {
			return err
		}
	}
	return nil
}

func (m atRest) Bounds(ctx context.Context, parts []kafka.TopicPartition) (map[kafka.TopicPartition]bounds, error) {
	found, err := m.memory.Bounds(ctx, parts)
	for tp, b := range found {
		if !slices.ContainsFunc(*m.records(tp.Topic, int(tp.Partition)), func(r kafka.Record) bool { return r.Transactional && r.Offset >= b.stable }) {
			b.stable = b.end
			found[tp] = b
		}
	}
	return found, err
}

func recordingOf(t testing.TB, m topics) []byte {
	t.Helper()
	return recordingOfApplication(t, m, defaultApplicationID)
}

func recordingOfApplication(t testing.TB, m topics, id string) []byte {
	t.Helper()
	var b bytes.Buffer
	info := RecordingInfo{Lab: "test", Written: time.UnixMilli(1796040000000).UTC(), Cluster: "c", Run: "r", ApplicationID: id}
	if _, err := record(t.Context(), m, &b, info); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sameWhenRecorded grades what is in memory by way of a recording, which must come to the same. What no cluster has is not recorded.
func sameWhenRecorded(t *testing.T, topics topics, opt Options) {
	t.Helper()
	m, ok := topics.(*memory)
	if raceEnabled || !ok || len(m.fail) > 0 || len(m.topics) == 0 || opt.Explain != nil {
		return
	}
	for _, topic := range m.topics {
		if slices.ContainsFunc(topic.parts, func(p memoryPartition) bool { return p.start < 0 }) {
			return
		}
	}
	want, err := run(t.Context(), atRest{m}, opt)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ReadRecording(bytes.NewReader(recordingOfApplication(t, atRest{m}, cmp.Or(opt.ApplicationID, defaultApplicationID))))
	if err != nil {
		t.Error(err)
		return
	}
	opt.ApplicationID = "" // it is recorded
	got, err := r.Grade(t.Context(), opt)
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("recorded and read again: %v\n%s", err, diff)
	}
}

func TestRecordingIsGradedAsTheTopics(t *testing.T) {
	crashed := crashedRuns(t, 20)
	if r, text := grade(t, crashed, Options{}); r.Verdict() != Pass {
		t.Error(text)
	}
	sameWhenRecorded(t, crashed, Options{})
}

func TestRecordingOfABroker(t *testing.T) {
	c := testClient(t, brokertest.Bootstrap(brokertest.Embedded(t)), kafka.Config{})
	ctx := testContext(t)
	var b bytes.Buffer
	if n, err := Record(ctx, c, &b, "v1"); !errors.Is(err, ErrNoRun) || n != 0 || b.Len() > 0 {
		t.Errorf("without topics: %d records, %v, %d bytes", n, err, b.Len())
	}
	load(t, c, golden(t))
	want, err := Run(ctx, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := Record(ctx, c, &b, "v1")
	if err != nil || n == 0 {
		t.Fatalf("%d records, %v", n, err)
	}
	r, err := ReadRecording(&b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Grade(ctx, Options{})
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if len(r.Run) != 22 || r.Lab != "v1" || r.Cluster == "" {
		t.Errorf("recorded as %+v", r.RecordingInfo)
	}
}

// What cannot be told apart from text or from null is told apart in the file.
func TestRecordingKeepsBytes(t *testing.T) {
	m := &memory{topics: map[string]*memoryTopic{}, members: map[string][]string{defaultApplicationID: {"a-1"}}}
	p := m.partition(topicPlaced, 0)
	values := [][]byte{nil, {}, []byte("text\twith\nlines <&> \u2028 \ufffd \u007f"), {0}, {0xff, 0xfe}, []byte("\x1b[31m")}
	for i, v := range values {
		p.records = append(p.records, kafka.Record{
			Offset: int64(2 * i), Timestamp: int64(i) - 1, Key: v, Value: v, ProducerID: int64(i) - 1, ProducerEpoch: -1,
			Headers: []kafka.Header{{Key: "a", Value: v}, {Key: "a"}},
		})
		p.end = int64(2*i) + 1
	}
	r, err := ReadRecording(bytes.NewReader(recordingOf(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	tp := kafka.TopicPartition{Topic: topicPlaced}
	var got []kafka.Record
	topics := &recorded{Recording: r}
	if err := topics.Log(t.Context(), map[kafka.TopicPartition]bounds{tp: {1, 100, 100}}, func(_ kafka.TopicPartition, r *kafka.Record) {
		got = append(got, *r)
	}); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(p.records[1:], got); diff != "" {
		t.Error(diff)
	}
	if members, _ := topics.Members(t.Context(), defaultApplicationID); !slices.Equal(members, []string{"a-1"}) {
		t.Errorf("members %v", members)
	}
}

// transactionLog is a partition with a committed, an aborted and an open transaction.
func transactionLog() *memory {
	m := &memory{topics: map[string]*memoryTopic{}}
	p := m.partition(topicPlaced, 0)
	in := func(producer int64, value string) {
		p.records = append(p.records, kafka.Record{Offset: p.end, ProducerID: producer, Transactional: true, Value: []byte(value)})
		p.end++
	}
	mark := func(producer int64, control kafka.ControlType) {
		p.records = append(p.records, kafka.Record{Offset: p.end, ProducerID: producer, Transactional: true, Control: control})
		p.end++
	}
	in(1, "committed")
	in(2, "aborted")
	mark(1, kafka.ControlCommit)
	in(1, "aborted too")
	mark(2, kafka.ControlAbort)
	mark(1, kafka.ControlAbort)
	p.records = append(p.records, kafka.Record{Offset: p.end, ProducerID: -1, Value: []byte("plain")})
	p.end++
	p.stable = p.end
	in(2, "open")
	return m
}

func TestRecordedTransactions(t *testing.T) {
	r, err := ReadRecording(bytes.NewReader(recordingOf(t, transactionLog())))
	if err != nil {
		t.Fatal(err)
	}
	tp := kafka.TopicPartition{Topic: topicPlaced}
	topics := &recorded{Recording: r}
	var got, log []string
	limits, err := topics.Bounds(t.Context(), []kafka.TopicPartition{tp})
	if err != nil {
		t.Fatal(err)
	}
	err = topics.Read(t.Context(), limits, func(_ kafka.TopicPartition, r *kafka.Record) { got = append(got, string(r.Value)) })
	var open *OpenTransactionError
	if !errors.As(err, &open) || *open != (OpenTransactionError{tp, 7, 8}) || !slices.Equal(got, []string{"committed", "plain"}) {
		t.Errorf("read %q, %v", got, err)
	}
	limits[tp] = bounds{0, 7, 7}
	if err := topics.Read(t.Context(), limits, func(kafka.TopicPartition, *kafka.Record) {}); err != nil {
		t.Errorf("what comes before the open transaction: %v", err)
	}
	limits[tp] = bounds{1, 8, 7}
	if err := topics.Log(t.Context(), limits, func(_ kafka.TopicPartition, r *kafka.Record) {
		log = append(log, cmp.Or(string(r.Value), fmt.Sprint(r.Control)))
	}); err != nil {
		t.Error(err)
	}
	if want := []string{"aborted", "1", "aborted too", "2", "2", "plain", "open"}; !slices.Equal(log, want) {
		t.Errorf("log %q, want %q", log, want)
	}
}

// A counter of phase 6 that commits while the bounds are taken is at work, on a cluster and in its recording.
func TestRecordingOfACounterAtWork(t *testing.T) {
	m := crashedRuns(t, 20)
	const group = "order-counter-eos"
	busy := func() topics { return &catchingUp{atRest: atRest{m}, group: group} }
	want, text := grade(t, busy(), Options{Phases: []int{6}})
	if !strings.Contains(text, group+" is at work") {
		t.Fatalf("not at work:\n%s", text)
	}
	r, err := ReadRecording(bytes.NewReader(recordingOf(t, busy())))
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Grade(t.Context(), Options{Phases: []int{6}})
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// catchingUp is a memory in which a group commits one record more between the first look and the next.
type catchingUp struct {
	atRest
	group string
	asked int
}

func (c *catchingUp) Committed(ctx context.Context, group string) (map[kafka.TopicPartition]int64, error) {
	committed, err := c.atRest.Committed(ctx, group)
	if group == c.group {
		if c.asked++; c.asked == 1 {
			committed = maps.Clone(committed)
			for tp := range committed {
				committed[tp]--
			}
		}
	}
	return committed, err
}

// packed compresses lines.
func packed(t testing.TB, lines ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for _, line := range lines {
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const (
	headLine  = `{"recording":{"format":"lab-recording","version":1,"lab":"v1","written":"2026-11-30T20:00:00Z","cluster":"c","run":"r","application":"order-counter"}}`
	aTopic    = `{"topic":{"name":"orders.placed","configs":{},"partitions":[{"start":2,"end":9,"stable":9}]}}`
	aRecord   = `{"record":{"topic":"orders.placed","partition":0,"offset":2,"time":1}}`
	nextGroup = `{"group":{"name":"g","members":[],"committed":[]}}`
)

// refusedRecordings are files that somebody might hand in, and why each is refused.
func refusedRecordings(t testing.TB) map[string]struct {
	file []byte
	says string
} {
	whole := packed(t, headLine, aTopic, aRecord, `{"end":{"lines":3,"records":1}}`)
	later := func(lines ...string) []byte { return packed(t, append([]string{headLine, aTopic}, lines...)...) }
	at := func(field string) []byte {
		return later(`{"record":{"topic":"orders.placed","partition":0,"offset":2,"time":1,` + field + `}}`)
	}
	flipped := slices.Clone(whole)
	flipped[len(flipped)/2] ^= 0x40
	return map[string]struct {
		file []byte
		says string
	}{
		"nothing":            {nil, "not compressed by gzip"},
		"no gzip":            {[]byte(headLine), "not compressed by gzip"},
		"empty":              {packed(t), "it ends after line 0"},
		"cut off":            {whole[:len(whole)-9], "damaged or cut off"},
		"without its end":    {later(aRecord), "it ends after line 3, without the line that ends a whole one"},
		"a flipped bit":      {flipped, "no recording: "},
		"something behind":   {append(slices.Clone(whole), "more"...), "damaged or cut off"},
		"another behind":     {append(slices.Clone(whole), whole...), "line 5: it comes after the last one"},
		"text":               {packed(t, "hello"), "line 1: it does not say that this is a lab-recording"},
		"other JSON":         {packed(t, `{"recording":{"format":"x","version":1}}`), "line 1: it does not say"},
		"a newer version":    {packed(t, strings.Replace(headLine, `"version":1`, `"version":2,"new":[]`, 1)), "version 2 of the format, and this lab knows up to 1"},
		"no version":         {packed(t, strings.Replace(headLine, `"version":1`, `"version":0`, 1)), "no version 0"},
		"a strange id":       {packed(t, strings.Replace(headLine, "order-counter", `\u001b[31m`, 1)), "line 1: its application id is none"},
		"broken JSON":        {later(`{"record":{`), "line 3: it is broken JSON"},
		"bytes":              {later("{\"record\":{\"topic\":\"\xff\"}}"), "line 3: it is not UTF-8"},
		"deep JSON":          {later(`{"record":` + strings.Repeat("[", 100_000)), "line 3: it is broken JSON"},
		"two on a line":      {later(aRecord + aRecord), "line 3: it is broken JSON"},
		"unknown field":      {at(`"x":1`), "line 3: it has fields or values"},
		"a number as a word": {at(`"key":7`), "line 3: it has fields or values"},
		"no base64":          {at(`"key_base64":"?"`), "line 3: it has fields or values"},
		"nothing on a line":  {later(""), "line 3: it is neither topic"},
		"null":               {later("null"), "line 3: it is neither topic"},
		"a second head":      {later(headLine), "line 3: it is neither topic"},
		"topic twice":        {later(aTopic), "line 3: topic orders.placed is there twice"},
		"group twice":        {later(nextGroup, nextGroup), "line 4: the group is there twice"},
		"strange topic":      {later(`{"topic":{"name":"../x","configs":{},"partitions":[]}}`), "line 3: the topic's name is none of Kafka's"},
		"bounds":             {later(`{"topic":{"name":"x","configs":{},"partitions":[{"start":3,"end":2,"stable":2}]}}`), "bounds of x-0: start 3"},
		"negative bounds":    {later(`{"topic":{"name":"x","configs":{},"partitions":[{"start":-1,"end":2,"stable":2}]}}`), "bounds of x-0: start -1"},
		"many partitions": {
			later(`{"topic":{"name":"x","configs":{},"partitions":[` + strings.Repeat(`{},`, maxPartitions) + `{}]}}`), "10000 partitions",
		},
		"committed":        {later(`{"group":{"name":"g","members":[],"committed":[{"topic":"x","partition":0,"offset":-1}]}}`), "of no partition, or negative"},
		"unknown topic":    {later(`{"record":{"topic":"x","partition":0,"offset":2,"time":1}}`), "line 3: the record is of a topic that was not announced"},
		"no partition":     {later(`{"record":{"topic":"orders.placed","partition":1,"offset":2,"time":1}}`), "orders.placed has no partition 1"},
		"below":            {later(`{"record":{"topic":"orders.placed","partition":0,"offset":1,"time":1}}`), "offset 1 of orders.placed-0 is not within 2 and 9"},
		"above":            {later(`{"record":{"topic":"orders.placed","partition":0,"offset":9,"time":1}}`), "offset 9 of orders.placed-0 is not within"},
		"twice":            {later(aRecord, aRecord), "line 4: offset 2 of orders.placed-0 comes after offset 2"},
		"negative time":    {later(`{"record":{"topic":"orders.placed","partition":0,"offset":2,"time":-2}}`), "has the time -2"},
		"strange marker":   {at(`"marker":"x"`), "neither commit nor abort"},
		"a record missing": {later(`{"end":{"lines":3,"records":1}}`), "3 lines and 1 records were written, and 2 and 0 are there"},
		"a long line":      {later(strings.Repeat(" ", maxLineBytes)), "line 3: it is longer than"},
		"many lines":       {later(strings.Repeat(nextGroup+"\n", maxGroupLines+2)), "line 4: the group is there twice"},
	}
}

func TestRefusedRecordings(t *testing.T) {
	for name, tt := range refusedRecordings(t) {
		t.Run(name, func(t *testing.T) {
			_, err := ReadRecording(bytes.NewReader(tt.file))
			var refused *RecordingError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %s", err, tt.says)
			}
		})
	}
}

// A file of a few hundred KiB can be some GiB of one line, or of many that are right.
func TestBombs(t *testing.T) {
	if raceEnabled {
		t.Skip("a quarter of a gigabyte, and no second goroutine")
	}
	spaces := strings.Repeat(" ", 1<<20)
	for name, tt := range map[string]struct {
		first string
		line  func(i int) string
		says  string
	}{
		"one line": {"", func(int) string { return spaces }, "line 1: it is longer than 4194304 bytes"},
		"lines": {
			headLine + "\n" + strings.Replace(aTopic, "9", "999", 2) + "\n",
			func(i int) string { return strings.Replace(aRecord, ":2", fmt.Sprint(":", 2+i), 1) + spaces + "\n" },
			"line 258: there is more than 268435456 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
			if err != nil {
				t.Fatal(err)
			}
			for i := range maxTotalBytes>>20 + 1 {
				if _, err := io.WriteString(w, tt.first+tt.line(i)); err != nil {
					t.Fatal(err)
				}
				tt.first = ""
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			_, err = ReadRecording(&b)
			var refused *RecordingError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %s", err, tt.says)
			}
		})
	}
}

// A run that cannot be recorded is not, and says so before anything is read.
func TestTooLarge(t *testing.T) {
	var large *TooLargeError
	m := golden(t)
	m.topics[topicPlaced].parts[0].end += maxRecords
	if _, err := record(t.Context(), m, io.Discard, RecordingInfo{ApplicationID: defaultApplicationID}); !errors.As(err, &large) {
		t.Errorf("many records: %v", err)
	}
	m = golden(t)
	m.write(topicPlaced, 0, 1, "x", strings.Repeat("x", maxLineBytes))
	if _, err := record(t.Context(), m, io.Discard, RecordingInfo{ApplicationID: defaultApplicationID}); !errors.As(err, &large) {
		t.Errorf("a large record: %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	of := func(change func(m *memory)) string {
		m := golden(t)
		change(m)
		r, err := ReadRecording(bytes.NewReader(recordingOf(t, atRest{m})))
		if err != nil {
			t.Fatal(err)
		}
		return r.Fingerprint()
	}
	first := func(m *memory) *kafka.Record { return &(*m.records(topicPlaced, 1))[0] }
	same := of(func(*memory) {})
	if same == "" || same != of(func(m *memory) { delete(m.topics, topicCounts) }) {
		t.Error("the outputs make a difference")
	}
	for name, change := range map[string]func(m *memory){
		"time":   func(m *memory) { first(m).Timestamp++ },
		"key":    func(m *memory) { first(m).Key = []byte("x") },
		"value":  func(m *memory) { first(m).Value = []byte("x") },
		"record": func(m *memory) { *m.records(topicPlaced, 1) = (*m.records(topicPlaced, 1))[1:] },
	} {
		if of(change) == same {
			t.Errorf("another %s makes no difference", name)
		}
	}
	if none := of(func(m *memory) { delete(m.topics, topicPlaced) }); none != "" {
		t.Errorf("without orders %q", none)
	}
}

// Whatever is handed in is refused or graded, in bounded time and memory.
func FuzzRecording(f *testing.F) {
	f.Add(recordingOf(f, transactionLog()))
	f.Add(packed(f, headLine, aTopic, nextGroup, aRecord, `{"end":{"lines":4,"records":1}}`))
	for _, refused := range refusedRecordings(f) {
		if len(refused.file) < 1<<12 {
			f.Add(refused.file)
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, data := range [][]byte{file, packed(t, string(file))} { // mutations hardly ever leave gzip's sums intact
			r, err := ReadRecording(bytes.NewReader(data))
			var refused *RecordingError
			switch {
			case err == nil:
				r.Fingerprint()
				if _, err := r.Grade(t.Context(), Options{}); err != nil {
					t.Error(err)
				}
			case !errors.As(err, &refused):
				t.Errorf("not refused but %v", err)
			}
		}
	})
}

func benchmarkRecording(b *testing.B) (*memory, []byte) {
	m := crashedRuns(b, 20)
	file := recordingOf(b, atRest{m})
	b.ReportMetric(float64(len(file)), "file-bytes")
	b.ReportAllocs()
	b.ResetTimer()
	return m, file
}

func BenchmarkRecordingWrite(b *testing.B) {
	m, _ := benchmarkRecording(b)
	for b.Loop() {
		recordingOf(b, atRest{m})
	}
}

func BenchmarkRecordingRead(b *testing.B) {
	_, file := benchmarkRecording(b)
	for b.Loop() {
		if _, err := ReadRecording(bytes.NewReader(file)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecordingGrade(b *testing.B) {
	_, file := benchmarkRecording(b)
	r, err := ReadRecording(bytes.NewReader(file))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if report, err := r.Grade(b.Context(), Options{}); err != nil || report.Verdict() != Pass {
			b.Fatal(err, report.Summary())
		}
	}
}
