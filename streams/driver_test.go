package streams

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

func newDriver(t *testing.T, program func(*Builder), cfg DriverConfig) *TestDriver {
	t.Helper()
	d, err := NewTestDriver(build(t, program), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func pipe(t *testing.T, d *TestDriver, topic string, at int64, key, value string) {
	t.Helper()
	if err := Input(d, topic, Text(), Text()).PipeAt(at, key, value); err != nil {
		t.Fatal(err)
	}
}

// outputs are a topic's records from the beginning, as text.
func outputs(t *testing.T, d *TestDriver, topic string) []string {
	t.Helper()
	records, err := Output(d, topic, Bytes(), Bytes()).Records()
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(records))
	for i, r := range records {
		lines[i] = fmt.Sprintf("%d %s %s", r.Timestamp, show(r.Key), show(r.Value))
	}
	return lines
}

// metronome forwards how often it was called, by the wall clock.
type metronome struct {
	ctx   *ProcessorContext[string, string]
	calls int
}

func (m *metronome) Init(ctx *ProcessorContext[string, string]) error {
	m.ctx = ctx
	_, err := ctx.Schedule(10*time.Second, WallClock, func(now int64) error {
		m.calls++
		ctx.Forward(Record[string, string]{Key: "calls", Value: fmt.Sprint(m.calls), Timestamp: now})
		return nil
	})
	return err
}

func (m *metronome) Process(Record[string, string]) error { return nil }

// The wall clock moves only when it is told to. Missed punctuations are one call, and what it forwards goes all the way.
func TestDriverWallClock(t *testing.T) {
	d := newDriver(t, func(b *Builder) {
		s := Process(in(b), func() Processor[string, string, string, string] { return &metronome{} })
		Count(s.WithSerdes(Text(), Text()).GroupByKey(), "c").ToStream().To("out", Text(), Int64())
	}, DriverConfig{WallClock: time.UnixMilli(1_000_000)})
	for _, by := range []time.Duration{9_999 * time.Millisecond, time.Millisecond, 35 * time.Second} {
		if err := d.AdvanceWallClock(by); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`1010000 "calls" 0000000000000001`, `1045000 "calls" 0000000000000002`}
	if diff := cmp.Diff(want, outputs(t, d, "out")); diff != "" {
		t.Error(diff)
	}
}

// Records that cannot be processed go to the dead letters, or end the driver after a commit of what came before.
func TestDriverDeadLetters(t *testing.T) {
	program := func(b *Builder) {
		numbers := Consume(b, "in", Text(), Int64())
		Count(numbers.GroupByKey(), "c").ToStream().To("out", Text(), Int64())
	}
	d := newDriver(t, program, DriverConfig{})
	pipe(t, d, "in", 1, "a", "12345678")
	pipe(t, d, "in", 2, "a", "no number")
	pipe(t, d, "in", 3, "a", "12345678")
	if got := outputs(t, d, "out"); len(got) != 2 {
		t.Errorf("output %q", got)
	}
	dead := d.DeadLetters()
	if len(dead) != 1 || dead[0].Offset != 1 || dead[0].Timestamp != 2 || dead[0].Kind != BadValue.String() || dead[0].Err == nil {
		t.Errorf("dead letters %+v", dead)
	}

	d = newDriver(t, program, DriverConfig{ErrorHandler: FailOnError, ManualCommit: true})
	pipe(t, d, "in", 1, "a", "12345678")
	err := Input(d, "in", Text(), Text()).PipeAt(2, "a", "no number")
	var bad *RecordError
	if !errors.As(err, &bad) || bad.Offset != 1 {
		t.Errorf("error %v", err)
	}
	if got := outputs(t, d, "out"); len(got) != 1 {
		t.Errorf("what came before is committed: %q", got)
	}
	if again := d.Commit(); again != err { //nolint:errorlint // the very same
		t.Errorf("a later call says %v", again)
	}
}

// A panic of a user function ends the driver with the error that an App ends with.
func TestDriverPanic(t *testing.T) {
	d := newDriver(t, func(b *Builder) { out(MapValues(in(b), func(string) string { panic("no") }), "out") }, DriverConfig{})
	err := Input(d, "in", Text(), Text()).PipeAt(1, "a", "x")
	var p *ProcessingError
	if !errors.As(err, &p) || p.Node != "KSTREAM-MAPVALUES-0000000001" || p.TaskID != "0_0" || p.Topic != "in" {
		t.Errorf("error %v", err)
	}
	if again := d.Restart(); !errors.Is(again, err) {
		t.Errorf("a later call says %v", again)
	}
}

func TestDriverMisuse(t *testing.T) {
	program := func(b *Builder) {
		Count(in(b).GroupByKey(), "c").ToStream().To("out", Text(), Int64())
		CountWindows(in2(b).GroupByKey().WindowedBy(Tumbling(time.Second)), "w")
	}
	d := newDriver(t, program, DriverConfig{})
	_, unknownTopic := Output(d, "nowhere", Text(), Text()).Records()
	_, unknownStore := Entries(d, "nothing", Text(), Text())
	_, wrongKind := Entries(d, "w", Text(), Int64())
	_, wrongToo := WindowEntries(d, "c", Text(), Int64())
	_, noLog := d.Changelog("nothing")
	pipe(t, d, "in", 1, "a", "x")
	_, serde := Output(d, "out", Text(), Serde[int]{Decode: func([]byte) (int, error) { return 0, errors.New("no int") }}).Records()
	_, partitions := NewTestDriver(build(t, program), DriverConfig{Partitions: -1})
	_, application := NewTestDriver(build(t, program), DriverConfig{ApplicationID: "a b"})
	_, observer := NewTestDriver(build(t, program), DriverConfig{Observers: []*Observer{Before("none", func(*Context, Record[string, string]) {})}})
	noInt := Serde[int]{Append: func([]byte, int) ([]byte, error) { return nil, errors.New("no int") }}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"input":        {Input(d, "out", Text(), Text()).PipeAt(1, "a", "x"), "does not read topic out"},
		"output":       {unknownTopic, "has no topic nowhere, only in, in2, out, test-c-changelog, test-w-changelog"},
		"store":        {unknownStore, "has no store nothing, only c, w"},
		"kind":         {wrongKind, "store w is a window store, not a key-value store"},
		"other kind":   {wrongToo, "store c is a key-value store, not a window store"},
		"changelog":    {noLog, "has no store nothing"},
		"serde":        {serde, "topic out, record 0: decode the value: no int"},
		"partitions":   {partitions, "-1 partitions"},
		"application":  {application, `application id "a b"`},
		"observer":     {observer, "observer of node none"},
		"wrong serde":  {Input(d, "in", noInt, Text()).PipeAt(1, 1, "x"), "encode the key"},
		"nothing open": {errors.Join(d.Close(), d.Close(), d.Commit()), "closed"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, c.err, c.want)
		}
	}
	if _, err := os.Stat(d.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state is still there after Close: %v", err)
	}
}

func in2(b *Builder) *Stream[string, string] { return Consume(b, "in2", Text(), Text()) }

// With several partitions there are several tasks: keys go where Kafka's partitioner puts them, all windows of a key together.
func TestDriverPartitions(t *testing.T) {
	d := newDriver(t, func(b *Builder) {
		w := in(b).Repartition("two", 2, Text(), Text()).GroupByKey().WindowedBy(Tumbling(time.Second))
		CountWindows(w, "w").ToStream().To("windows", TimeWindowed(Text(), time.Second), Int64())
	}, DriverConfig{Partitions: 5})
	if n := len(d.tasks); n != 5+2 {
		t.Errorf("%d tasks", n)
	}
	keys := []string{"a", "b", "c", "d", "e", "f"}
	for i := range int64(3) {
		for _, key := range keys {
			pipe(t, d, "in", i*1000, key, "x")
		}
	}
	for topic, n := range map[string]int32{"in": 5, "test-two-repartition": 2} {
		for _, r := range d.topics[topic].records {
			if want := kafka.PartitionFor(r.key, n); r.partition != want {
				t.Errorf("topic %s: key %q on partition %d, want %d", topic, r.key, r.partition, want)
			}
		}
	}
	seen := map[int32]bool{}
	for _, r := range d.topics["windows"].records {
		if want := kafka.PartitionFor(r.key[:1], 5); r.partition != want {
			t.Errorf("window %x on partition %d, want %d", r.key, r.partition, want)
		}
		seen[r.partition] = true
	}
	if len(seen) < 2 {
		t.Errorf("all windows on the partitions %v", seen)
	}
	for _, r := range d.topics["test-w-changelog"].records { // where the task is, whatever the key
		if want := kafka.PartitionFor(r.key[:1], 2); r.partition != want {
			t.Errorf("changelog %x on partition %d, want %d", r.key, r.partition, want)
		}
	}
	entries, err := WindowEntries(d, "w", Text(), Int64())
	if err != nil || len(entries) != len(keys) { // those of the last second: without a grace the others are expired
		t.Errorf("%d windows (%v)", len(entries), err)
	}
}

// A topic that the topology writes and reads is gone through at once, like a repartition topic.
func TestDriverLoop(t *testing.T) {
	d := newDriver(t, func(b *Builder) {
		out(MapValues(in(b), strings.ToUpper), "in2")
		out(MapValues(in2(b), func(v string) string { return v + "!" }), "out")
	}, DriverConfig{})
	pipe(t, d, "in", 1, "a", "x")
	if diff := cmp.Diff([]string{`1 "a" "X!"`}, outputs(t, d, "out")); diff != "" {
		t.Error(diff)
	}
}

// appender keeps the texts of each key.
type appender struct {
	store *KeyValueStore[string, string]
	texts *KeyValue[string, string]
	ctx   *ProcessorContext[string, string]
}

func (p *appender) Init(ctx *ProcessorContext[string, string]) (err error) {
	p.ctx = ctx
	p.texts, err = OpenStore(ctx, p.store)
	return err
}

func (p *appender) Process(r Record[string, string]) error {
	old, _, err := p.texts.Get(r.Key)
	if err != nil {
		return err
	}
	r.Value = fmt.Sprintf("%s%s@%d ", old, r.Value, p.ctx.StreamTime())
	p.ctx.Forward(r)
	return p.texts.Put(r.Key, r.Value)
}

// A restart keeps the stores, of processors too, the stream time of the task, and the input positions; with the state or without.
func TestDriverRestart(t *testing.T) {
	program := func(b *Builder) {
		texts := NewKeyValueStore(b, "texts", Text(), Text())
		s := Process(in(b), func() Processor[string, string, string, string] { return &appender{store: texts} }, texts)
		out(s, "out")
		Count(s.WithSerdes(Text(), Text()).GroupByKey(), "c").ToStream().To("counts", Text(), Int64())
	}
	whole := newDriver(t, program, DriverConfig{})
	kept := newDriver(t, program, DriverConfig{})
	lost := newDriver(t, program, DriverConfig{})
	for i := range int64(20) {
		if i == 10 {
			if err := errors.Join(kept.Restart(), lost.Restart(WithoutState())); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range []*TestDriver{whole, kept, lost} {
			pipe(t, d, "in", 100+i*(1-i%2), []string{"a", "b"}[i%2], fmt.Sprint(i))
		}
	}
	for _, topic := range []string{"out", "counts", "test-texts-changelog", "test-c-changelog", "test-c-repartition"} {
		want := outputs(t, whole, topic)
		if len(want) != 20 {
			t.Errorf("topic %s has %d records", topic, len(want))
		}
		for name, d := range map[string]*TestDriver{"state": kept, "no state": lost} {
			if diff := cmp.Diff(want, outputs(t, d, topic)); diff != "" {
				t.Errorf("topic %s (-undisturbed +restarted with %s):\n%s", topic, name, diff)
			}
		}
	}
}

// Old records of a table's own topic come back under the event time that its extractor finds.
func TestReusedTopicIsReadAsItWasProcessed(t *testing.T) {
	d := newDriver(t, func(b *Builder) {
		later := EventTime(func(r Record[string, string], _ int64) (int64, error) {
			if r.Value == "bad" {
				return 0, errors.New("bad")
			}
			return r.Timestamp + 1000, nil
		})
		t := ReadTable(b, "t", "ts", Text(), Text(), ReuseSourceTopic(), later)
		out(Join(in(b), t, slash), "out")
	}, DriverConfig{})
	pipe(t, d, "t", 5, "a", "one")
	pipe(t, d, "t", 6, "b", "two")
	pipe(t, d, "t", 7, "b", "bad")
	before, err := Entries(d, "ts", Text(), Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Restart(WithoutState()); err != nil {
		t.Fatal(err)
	}
	after, err := Entries(d, "ts", Text(), Text())
	if err != nil || len(after) != 2 || after[0].Timestamp != 1005 {
		t.Errorf("%v (%v)", after, err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("-before +restored:\n%s", diff)
	}
	if _, ok := d.topics["test-ts-changelog"]; ok {
		t.Error("there is a changelog topic")
	}
}

func TestWindowRetention(t *testing.T) {
	program := func(opts ...WindowOption) func(b *Builder) {
		return func(b *Builder) {
			g := in(b).GroupByKey().WindowedBy(Tumbling(time.Minute).Grace(30 * time.Second))
			AggregateWindows(g, "w", func() int64 { return 0 }, func(_, v string, n int64) int64 { return n + int64(len(v)) }, Int64(), opts...)
		}
	}
	a := &App{cfg: DefaultConfig()}
	for _, c := range []struct {
		name string
		opts []WindowOption
		want string
	}{
		{"size and grace and a day", nil, "86490000"},
		{"longer", []WindowOption{WithRetention(time.Hour)}, "90000000"},
		{"the least", []WindowOption{WithRetention(90 * time.Second), WithName("named")}, "86490000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := build(t, program(c.opts...)).subs[0].stores[0]
			configs := a.changelogConfigs(spec)
			i := slices.IndexFunc(configs, func(e kafka.ConfigEntry) bool { return e.Name == "retention.ms" })
			if configs[i].Value != c.want {
				t.Errorf("retention.ms %s, want %s", configs[i].Value, c.want)
			}
		})
	}
	b := NewBuilder()
	program(WithRetention(time.Hour + time.Microsecond))(b)
	if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), "node KSTREAM-AGGREGATE-0000000001: a retention of 1h0m0.000001s: whole milliseconds") {
		t.Errorf("error %v", err)
	}
}

func TestTimeWindowed(t *testing.T) {
	s := TimeWindowed(Text(), time.Minute)
	w := Windowed[string]{Key: "s1", Start: 1700000040000, End: 1700000100000}
	b, err := s.Append([]byte{}, w)
	if err != nil || show(b) != "73310000018bcfe60440" {
		t.Errorf("%s (%v)", show(b), err)
	}
	if got, err := s.Decode(b); err != nil || got != w {
		t.Errorf("%+v (%v)", got, err)
	}
	for _, bad := range []string{"", "7 bytes", "\xff2345678"} {
		if got, err := s.Decode([]byte(bad)); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	if TimeWindowed(Serde[string]{}, time.Minute).known() {
		t.Error("a windowed serde without one for its keys")
	}
}

// A windowed table can be grouped on by its windowed key, since its serde is known.
func TestWindowsOfWindows(t *testing.T) {
	d := newDriver(t, func(b *Builder) {
		perMinute := CountWindows(in(b).GroupByKey().WindowedBy(Tumbling(time.Minute)), "w").ToStream()
		byStart := GroupBy(perMinute, func(w Windowed[string], _ int64) string { return w.StartTime() }, Text())
		Count(byStart, "c").ToStream().To("out", Text(), Int64())
		perMinute.GroupByKey().Reduce("max", func(a, b int64) int64 { return max(a, b) })
	}, DriverConfig{})
	for _, at := range []int64{1, 2, 60_000} {
		pipe(t, d, "in", at, "a", "x")
	}
	want := []string{
		`1 "1970-01-01T00:00:00Z" 0000000000000001`,
		`2 "1970-01-01T00:00:00Z" 0000000000000002`,
		`60000 "1970-01-01T00:01:00Z" 0000000000000001`,
	}
	if diff := cmp.Diff(want, outputs(t, d, "out")); diff != "" {
		t.Error(diff)
	}
	entries, err := Entries(d, "max", TimeWindowed(Text(), time.Minute), Int64())
	if err != nil || len(entries) != 2 || entries[0].Value != 2 || entries[0].Key.End != 60_000 {
		t.Errorf("%v (%v)", entries, err)
	}
}

// Without a cache a failure inside the flush of a put is that of the record at work, and names the node.
func TestUncachedFailureNamesTheRecord(t *testing.T) {
	d := newDriver(t, func(b *Builder) {
		counts := Count(in(b).GroupByKey(), "c").ToStream()
		out(MapValues(counts, func(n int64) string {
			if n == 2 {
				panic("two")
			}
			return ""
		}, WithName("show")), "out")
	}, DriverConfig{NoCache: true})
	pipe(t, d, "in", 1, "a", "x")
	err := Input(d, "in", Text(), Text()).PipeAt(2, "a", "x")
	var p *ProcessingError
	if !errors.As(err, &p) || p.Node != "show" || p.Topic != "in" || p.Offset != 1 {
		t.Errorf("error %v", err)
	}
}

// The store of a table takes each deletion without a cache: the changelog says so.
func TestEveryDeletion(t *testing.T) {
	for _, every := range []bool{false, true} {
		db, err := store.Open(t.TempDir(), []store.Spec{{Name: "s", Kind: store.KeyValueKind, Logged: true, EveryDeletion: every}}, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		flushed := 0
		if err := db.KeyValue("s").Put([]byte("never"), nil, 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := db.KeyValue("s").Flush(func(c store.Change) error { flushed++; return nil }); err != nil {
			t.Fatal(err)
		}
		if (flushed == 1) != every {
			t.Errorf("every deletion %v: %d flushed", every, flushed)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
