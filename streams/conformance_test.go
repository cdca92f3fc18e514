package streams

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// conformance and operatorPrograms are the programs of testdata/java/Conformance.java and Operators.java. Kafka Streams 4.3.1's TopologyTestDriver ran them
// over random records, null and empty keys and values and late timestamps among them, and committed after each;
// testdata/conformance/<name>.txt is what every topic then got, changelogs and repartition topics included.
var conformance = map[string]func(b *Builder){
	"stateless": func(b *Builder) {
		s := in(b)
		out(MapValues(s.Filter(func(_, v string) bool { return len(v) > 1 }), strings.ToUpper), "long")
		out(SelectKey(s.FilterNot(func(k, _ string) bool { return k == "a" }), func(_, v string) string { return v }), "swapped")
		out(FlatMapValues(s, func(v string) iter.Seq[string] { return slices.Values([]string{v, v + v}) }), "twice")
		out(FlatMap(s, func(k, v string) iter.Seq2[string, string] {
			return func(yield func(string, string) bool) { _ = yield(k+"1", v) && yield(k+"2", v) }
		}), "keys")
		out(MapValues(s, strings.ToUpper).Merge(s), "merged")
		table(b)
	},
	"split": func(b *Builder) {
		sp := in(b).Split()
		out(sp.Branch(func(k, _ string) bool { return k == "a" }), "branch-1")
		out(sp.Branch(func(_, v string) bool { return v == "x" }), "branch-2")
		out(sp.Default(), "branch-0")
		table(b)
	},
	"joins": func(b *Builder) {
		s, t := in(b), table(b)
		out(Join(s, t, slash), "inner")
		out(LeftJoin(s, t, slashOrNull), "left")
	},
	"join-repartition": func(b *Builder) {
		s := SelectKey(in(b), func(k, _ string) string { return k + "b" }).WithSerdes(Text(), Text())
		out(Join(s, table(b), slash), "inner")
	},
	"repartition-null-keys": func(b *Builder) {
		s, t := in(b), table(b)
		out(s.Repartition("plain", 0, Text(), Text()), "plain")
		out(LeftJoin(s.Repartition("left", 0, Text(), Text()), t, slashOrNull), "left")
	},
	"filtered-table-join": func(b *Builder) {
		t := MapTableValues(table(b).Filter(longer), strings.ToUpper)
		out(LeftJoin(in(b), t, slashOrNull), "left")
	},
	"table-views": func(b *Builder) {
		t := ReadTable(b, "t", "", Text(), Text())
		out(t.Filter(longer).ToStream(), "filtered")
		out(MapTableValues(t.FilterNot(longer), strings.ToUpper).ToStream(), "others")
		in(b).ForEach(look)
	},
	"table": func(b *Builder) {
		out(MapTableValues(table(b), strings.ToUpper).ToStream(), "upper")
		in(b).ForEach(look)
	},
	"aggregates": func(b *Builder) {
		g := in(b).GroupByKey()
		outCount(Count(g, "c").ToStream(), "counts")
		out(g.Reduce("r", func(x, y string) string { return x + y }).ToStream(), "reduced")
		bang := func() string { return "!" }
		out(Aggregate(g, "a", bang, func(k, v, x string) string { return x + k + v }, Text()).ToStream(), "aggregated")
		table(b)
	},
	"chain": func(b *Builder) {
		c := Count(GroupBy(in(b), func(_, v string) string { return v }, Text()), "c1").ToStream()
		initial := SelectKey(c, func(k string, _ int64) string { return k[:min(1, len(k))] }).WithSerdes(Text(), Int64())
		outCount(Count(initial.GroupByKey(), "c2").ToStream(), "second")
		outCount(c, "first")
		table(b)
	},
	"tumbling": func(b *Builder) { conformWindows(b, Tumbling(time.Minute).Grace(30*time.Second)) },
	"hopping":  func(b *Builder) { conformWindows(b, Hopping(time.Minute, 25*time.Second)) },
	"window-aggregates": func(b *Builder) {
		g := in(b).GroupByKey()
		minute := g.WindowedBy(Tumbling(time.Minute).Grace(30 * time.Second))
		hops := g.WindowedBy(Hopping(time.Minute, 25*time.Second).Grace(10 * time.Second))
		windowed := TimeWindowed(Text(), time.Minute)
		ReduceWindows(minute, "rw", func(x, y string) string { return x + y }).ToStream().To("reduced", windowed, Text())
		bang := func() string { return "!" }
		fold := func(k, v, x string) string { return x + k + v }
		AggregateWindows(hops, "aw", bang, fold, Text(), WithRetention(5*time.Minute)).ToStream().To("aggregated", windowed, Text())
		table(b)
	},
	"filtered-tables": func(b *Builder) {
		t := table(b)
		out(t.Filter(longer).ToStream(), "long")
		startsWithT := func(_, v string) bool { return strings.HasPrefix(v, "T") }
		out(MapTableValues(t, strings.ToUpper).FilterNot(startsWithT).Filter(longer).ToStream(), "upper")
		third := Count(in(b).GroupByKey(), "c").Filter(func(_ string, n int64) bool { return n%3 == 0 })
		outCount(third.ToStream(), "third")
	},
	"filter-before-join": func(b *Builder) {
		t := ReadTable(b, "t", "", Text(), Text())
		out(t.Filter(longer).ToStream(), "early")
		out(Join(in(b), t, slash), "joined")
		out(t.Filter(longer).ToStream(), "late")
	},
	"processor": func(b *Builder) {
		joined, times := NewKeyValueStore(b, "joined", Text(), Text()), NewKeyValueStore(b, "times", Text(), Int64())
		j := Process(in(b).Merge(table(b).ToStream()), func() Processor[string, string, string, string] { return &joiner{store: joined} }, joined)
		s := Process(j, func() Processor[string, string, string, string] { return &stamper{joined: joined, times: times} }, times, joined)
		out(s, "out")
	},
}

// joiner is Joiner of Conformance.java: it joins the values of each key, and every 20 s of stream time forwards and removes
// the long ones.
type joiner struct {
	store  *KeyValueStore[string, string]
	joined *KeyValue[string, string]
	ctx    *ProcessorContext[string, string]
	few    *Punctuation
	calls  int
}

func (j *joiner) Init(ctx *ProcessorContext[string, string]) (err error) {
	j.ctx = ctx
	if j.joined, err = OpenStore(ctx, j.store); err != nil {
		return err
	}
	if _, err = ctx.Schedule(20*time.Second, StreamTime, j.sweep); err != nil {
		return err
	}
	j.few, err = ctx.Schedule(7*time.Second, StreamTime, func(now int64) error {
		if j.calls++; j.calls == 5 {
			j.few.Cancel()
		}
		ctx.Forward(Record[string, string]{Key: "few", Value: strconv.Itoa(j.calls), Timestamp: now - 1})
		return nil
	})
	return err
}

func (j *joiner) sweep(now int64) error {
	return j.joined.All(func(key, value string) bool {
		if len(value) < 6 {
			return true
		}
		j.ctx.Forward(Record[string, string]{Key: "long-" + key, Value: value, Timestamp: now})
		return j.joined.Delete(key) == nil
	})
}

func (j *joiner) Process(r Record[string, string]) error {
	if r.NullValue {
		return j.joined.Delete(r.Key)
	}
	old, _, err := j.joined.Get(r.Key)
	if err != nil {
		return err
	}
	if err := j.joined.Put(r.Key, old+r.Value); err != nil {
		return err
	}
	j.ctx.Forward(Record[string, string]{Key: r.Key, Value: old, Timestamp: r.Timestamp + 500, Headers: r.Headers})
	if r.Value != "x" {
		return nil
	}
	return j.joined.Range("a", "c", func(key, value string) bool {
		j.ctx.Forward(Record[string, string]{Key: "range-" + key, Value: value, Timestamp: r.Timestamp})
		return true
	})
}

// stamper is Stamper of Conformance.java.
type stamper struct {
	joined *KeyValueStore[string, string]
	times  *KeyValueStore[string, int64]
	ctx    *ProcessorContext[string, string]
	values *KeyValue[string, string]
	stamps *KeyValue[string, int64]
}

func (s *stamper) Init(ctx *ProcessorContext[string, string]) (err error) {
	s.ctx = ctx
	if s.values, err = OpenStore(ctx, s.joined); err != nil {
		return err
	}
	s.stamps, err = OpenStore(ctx, s.times)
	return err
}

func (s *stamper) Process(r Record[string, string]) error {
	if err := s.stamps.Put(r.Key, r.Timestamp-1); err != nil {
		return err
	}
	joined, _, err := s.values.Get(r.Key)
	r.Value += "|" + joined
	s.ctx.Forward(r)
	return err
}

func conformWindows(b *Builder, w Windows) {
	counts := CountWindows(in(b).GroupByKey().WindowedBy(w), "w")
	outCount(Map(counts.ToStream(), func(k Windowed[string], n int64) (string, int64) {
		return k.Key + "|" + k.StartTime() + "|" + strconv.FormatInt(k.End, 10), n
	}), "windows")
	table(b)
}

func longer(_, v string) bool  { return len(v) > 2 }
func slash(v, w string) string { return v + "/" + w }
func slashOrNull(v, w string, ok bool) string {
	if !ok {
		w = "null"
	}
	return slash(v, w)
}

func TestConformance(t *testing.T) {
	conform(t, "testdata/conformance", len(conformance)+len(operatorPrograms), false)
}

// TestConformanceUncached is the same with statestore.cache.max.bytes=0, for the programs that have tables: there Kafka Streams
// leaves the caches out, logs and forwards each change at once, and knows no deletion that would not be worth it.
func TestConformanceUncached(t *testing.T) {
	conform(t, "testdata/conformance-uncached", 6, true)
}

func conform(t *testing.T, folder string, programs int, uncached bool) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) != programs {
		t.Fatalf("%d files for %d programs (%v)", len(files), programs, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			program := conformance[name]
			if program == nil {
				program = operatorPrograms[name]
			}
			c := newConformer(t, program, uncached)
			var input string
			var want []string
			check := func() {
				got := c.run(t, input)
				if diff := cmp.Diff(want, got, cmpEmpty); diff != "" {
					t.Fatalf("after %q (-java +ours):\n%s", input, diff)
				}
			}
			for sc := bufio.NewScanner(strings.NewReader(string(data))); sc.Scan(); {
				switch line := sc.Text(); line[0] {
				case '>':
					if input != "" {
						check()
					}
					input, want = line[2:], nil
				case '<':
					want = append(want, line[2:])
				}
			}
			check()
		})
	}
}

// conformer runs a program on a TestDriver.
type conformer struct {
	d       *TestDriver
	outputs map[string]*TestOutput[[]byte, []byte] // all topics but the inputs
}

func newConformer(t *testing.T, program func(*Builder), uncached bool) *conformer {
	t.Helper()
	d, err := NewTestDriver(build(t, program), DriverConfig{ApplicationID: "app", NoCache: uncached, WallClock: time.UnixMilli(1789207200000)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &conformer{d, map[string]*TestOutput[[]byte, []byte]{}}
	for topic := range d.topics {
		if topic != "in" && topic != "t" {
			c.outputs[topic] = Output(d, topic, Bytes(), Bytes())
		}
	}
	return c
}

// run takes one input record, or a step of the wall clock, through everything it causes and gives what each topic got, by topic.
func (c *conformer) run(t *testing.T, line string) []string {
	t.Helper()
	f := strings.Fields(line)
	ts, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if f[0] == "clock" {
		if err := c.d.AdvanceWallClock(time.Duration(ts) * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		return c.took(t)
	}
	key, value := unhex(t, f[2]), unhex(t, f[3])
	r := Record[[]byte, []byte]{Key: key, Value: value, Timestamp: ts, NullKey: key == nil, NullValue: value == nil}
	if err := Input(c.d, f[0], Bytes(), Bytes()).Pipe(r); err != nil {
		t.Fatal(err)
	}
	return c.took(t)
}

// took gives what each topic got since the last call, by topic.
func (c *conformer) took(t *testing.T) []string {
	t.Helper()
	var lines []string
	for _, topic := range slices.Sorted(maps.Keys(c.outputs)) {
		records, err := c.outputs[topic].Records()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			lines = append(lines, fmt.Sprintf("%s %d %s %s", topic, r.Timestamp, hexOrNull(r.Key), hexOrNull(r.Value)))
		}
	}
	return lines
}

func hexOrNull(b []byte) string {
	if b == nil {
		return "null"
	}
	return "=" + hex.EncodeToString(b)
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	if s == "null" {
		return nil
	}
	b, err := hex.DecodeString(s[1:])
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{}, b...)
}
