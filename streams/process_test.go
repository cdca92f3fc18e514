package streams

import (
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/store"
)

// bench is a runtime without a broker: one task of one sub-topology over real stores. What the task sends to
// topics it collects as lines; internal topics get the application id "app".
type bench struct {
	t         testing.TB
	db        *store.DB
	ctx       *Context
	sources   map[string]boundSource // by raw topic
	flushes   []func(*Context) error
	starts    []func(*Context) error
	now       int64 // wall clock
	scheduled punctuations
	times     map[string]func() int64
	restores  map[string]func(int64)
	observers map[string]*Observer
	offsets   map[string]int64
	quiet     bool // counts sent records instead of collecting them
	count     int
	sent      []string
	warned    []string
}

func newBench(t testing.TB, topology *Topology, sub int, observers ...*Observer) *bench {
	t.Helper()
	return newBenchAt(t, topology, sub, 0, observers...)
}

// newBenchAt starts the processors at a wall clock of now.
func newBenchAt(t testing.TB, topology *Topology, sub int, now int64, observers ...*Observer) *bench {
	t.Helper()
	b := bindBench(t, topology, sub, observers...)
	b.now = now
	for _, start := range b.starts {
		if err := start(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func bindBench(t testing.TB, topology *Topology, sub int, observers ...*Observer) *bench {
	t.Helper()
	byNode, err := topology.observersByNode(observers)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.TempDir(), topology.subs[sub].storeSpecs(false), store.Options{Budget: store.NewBudget(10 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Abandon(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{
		t: t, db: db, ctx: &Context{taskID: strconv.Itoa(sub) + "_0"}, observers: byNode, offsets: map[string]int64{},
		sources: map[string]boundSource{}, times: map[string]func() int64{}, restores: map[string]func(int64){},
	}
	b.scheduled = newPunctuations(func() int64 { return b.now })
	bound, err := newBinding(b, topology.subs[sub])
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range topology.subs[sub].sources {
		b.sources[s.topics[0]] = s.bind(bound)
	}
	return b
}

func (b *bench) keyValue(name string) *store.KeyValue { return b.db.KeyValue(name) }
func (b *bench) window(name string) *store.Window     { return b.db.Window(name) }
func (b *bench) observer(node string) *Observer       { return b.observers[node] }

func (b *bench) onFlush(_ string, fn func(*Context) error) { b.flushes = append(b.flushes, fn) }
func (b *bench) onStart(_ string, fn func(*Context) error) { b.starts = append(b.starts, fn) }
func (b *bench) punctuations() *punctuations               { return &b.scheduled }
func (b *bench) skipped(_ *Context, s Skipped)             { b.warned = append(b.warned, s.String()) }
func (b *bench) outOfOrder(_ *Context, u OutOfOrder)       { b.warned = append(b.warned, u.String()) }

func (b *bench) registerStreamTime(key string, restore func(int64), current func() int64) {
	b.times[key], b.restores[key] = current, restore
}

func (b *bench) uncached() bool { return false }

func (b *bench) sink(topic string, internal bool, _ func([]byte) []byte) sinkFunc {
	if internal {
		topic = "app-" + topic
	}
	return func(_ *Context, key, value []byte, ts int64, headers []Header) {
		b.send(topic, key, value, ts, headers)
	}
}

func (b *bench) changelog(name string) sinkLogFunc {
	topic := "app-" + name + "-changelog"
	return func(key, value []byte, ts int64) error {
		b.send(topic, key, value, ts, nil)
		return nil
	}
}

func (b *bench) send(topic string, key, value []byte, ts int64, headers []Header) {
	if b.quiet {
		b.count++
		return
	}
	line := fmt.Sprintf("%s %d %s %s", topic, ts, show(key), show(value))
	for _, h := range headers {
		line += " " + h.Key + "=" + string(h.Value)
	}
	b.sent = append(b.sent, line)
}

// show is text as it is, anything else in hex, nil as null.
func show(p []byte) string {
	switch {
	case p == nil:
		return "null"
	case slices.ContainsFunc(p, func(c byte) bool { return c < ' ' || c > '~' }):
		return hex.EncodeToString(p)
	}
	return strconv.Quote(string(p))
}

// null is the key or value of a record that has none.
const null = "\x00null"

func (b *bench) feed(topic, key, value string, ts int64, headers ...Header) error {
	in := input{topic: topic, partition: 0, offset: b.offsets[topic], timestamp: ts, key: []byte(key), value: []byte(value), headers: headers}
	b.offsets[topic]++
	if key == null {
		in.key = nil
	}
	if value == null {
		in.value = nil
	}
	at, err := b.sources[topic].load(&in, -1)
	if err != nil {
		return err
	}
	b.scheduled.see(at)
	if err := b.sources[topic].process(b.ctx); err != nil {
		return err
	}
	_, err = b.scheduled.advance(b.ctx)
	return err
}

// tick moves the wall clock.
func (b *bench) tick(to int64) {
	b.t.Helper()
	b.now = to
	if _, err := b.scheduled.tick(b.ctx); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) put(topic, key, value string, ts int64, headers ...Header) {
	b.t.Helper()
	if err := b.feed(topic, key, value, ts, headers...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) flush() {
	b.t.Helper()
	for _, fn := range b.flushes {
		if err := fn(b.ctx); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.db.Commit(store.Commit{At: time.Now()}); err != nil {
		b.t.Fatal(err)
	}
}

// wants compares what was sent since the last call.
func (b *bench) wants(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.sent, cmpEmpty); diff != "" {
		b.t.Errorf("sent (-want +got):\n%s", diff)
	}
	b.sent = nil
}

func (b *bench) warns(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.warned, cmpEmpty); diff != "" {
		b.t.Errorf("warnings (-want +got):\n%s", diff)
	}
	b.warned = nil
}

var cmpEmpty = cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })

const repartitioned = "orders-by-store-repartition"

// TestFlush is the flush that was observed with Kafka Streams 4.3.1 with caches on: the counts of the keys in the
// order of their last update, per entry the changelog record and then the output, store by store.
func TestFlush(t *testing.T) {
	const t0 = 1700000040000
	b := newBench(t, build(t, labProgram), 1)
	b.put(repartitioned, "s1", "x", t0+100)
	b.put(repartitioned, "s1", "x", t0+50)
	b.put(repartitioned, "s2", "x", t0+59999)
	b.put(repartitioned, "s1", "x", t0+60000)
	b.put(repartitioned, "s3", null, t0+1)
	b.put(repartitioned, "s1", "x", t0+70)
	b.wants()
	b.flush()
	b.wants(
		`app-orders-per-store-changelog 1700000099999 "s2" 0000000000000001`,
		`analytics.orders-per-store 1700000099999 "s2" "1"`,
		`app-orders-per-store-changelog 1700000100000 "s1" 0000000000000004`,
		`analytics.orders-per-store 1700000100000 "s1" "4"`,
		`app-orders-per-store-minute-changelog 1700000099999 73320000018bcfe6044000000000 0000000000000001`,
		`analytics.orders-per-store-minute 1700000099999 "s2|2023-11-14T22:14:00Z" "1"`,
		`app-orders-per-store-minute-changelog 1700000100000 73310000018bcfe6eea000000000 0000000000000001`,
		`analytics.orders-per-store-minute 1700000100000 "s1|2023-11-14T22:15:00Z" "1"`,
		`app-orders-per-store-minute-changelog 1700000040001 73330000018bcfe6044000000000 0000000000000001`,
		`analytics.orders-per-store-minute 1700000040001 "s3|2023-11-14T22:14:00Z" "1"`,
		`app-orders-per-store-minute-changelog 1700000040100 73310000018bcfe6044000000000 0000000000000003`,
		`analytics.orders-per-store-minute 1700000040100 "s1|2023-11-14T22:14:00Z" "3"`,
	)
	b.warns("Skipping record due to null key or value. topic=[orders-by-store-repartition] partition=[0] offset=[4]")

	b.flush() // nothing is dirty any more
	b.wants()
	b.put(repartitioned, "s2", "x", t0, Header{Key: "trace", Value: []byte("7")})
	b.flush()
	b.wants( // the count's timestamp is the largest seen, its headers are the last record's; changelogs have none
		`app-orders-per-store-changelog 1700000099999 "s2" 0000000000000002`,
		`analytics.orders-per-store 1700000099999 "s2" "2" trace=7`,
		`app-orders-per-store-minute-changelog 1700000099999 73320000018bcfe6044000000000 0000000000000002`,
		`analytics.orders-per-store-minute 1700000099999 "s2|2023-11-14T22:14:00Z" "2" trace=7`,
	)
}

// TestLateRecord walks the boundary: with window end E and grace g, stream time E+g-1 accepts and E+g drops.
func TestLateRecord(t *testing.T) {
	const start, grace = 1789207200000, 30000
	const end = start + 60000
	for _, c := range []struct {
		name       string
		streamTime int64
		late       bool
	}{
		{"one millisecond before", end + grace - 1, false},
		{"at end plus grace", end + grace, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, build(t, labProgram), 1)
			b.put(repartitioned, "store-18", "x", c.streamTime)
			b.put(repartitioned, "store-17", "x", start+45000)
			if got := b.times["orders-per-store-minute"](); got != c.streamTime {
				t.Errorf("stream time %d, want %d", got, c.streamTime)
			}
			_, _, counted, err := b.db.Window("orders-per-store-minute").Get([]byte("store-17"), start)
			if err != nil || counted == c.late {
				t.Errorf("counted %v (%v), want %v", counted, err, !c.late)
			}
			if (len(b.warned) == 1) != c.late {
				t.Errorf("warned %q", b.warned)
			}
			// The running count takes every record.
			if _, _, ok, err := b.db.KeyValue("orders-per-store").Get([]byte("store-17")); !ok || err != nil {
				t.Errorf("running count: %v %v", ok, err)
			}
		})
	}
}

// TestLateWarning is the line that Kafka Streams 4.3.1 logged for the lab's late order, and the stream time a task
// goes on with after a restore.
func TestLateWarning(t *testing.T) {
	b := newBench(t, build(t, labProgram), 1)
	b.restores["orders-per-store-minute"](1789207380000)
	src := b.sources[repartitioned]
	in := input{
		topic: "order-counter-orders-by-store-repartition", partition: 1, offset: 153, timestamp: 1789207245000,
		key: []byte("store-17"), value: []byte("x"),
	}
	if _, err := src.load(&in, -1); err != nil {
		t.Fatal(err)
	}
	if err := src.process(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.warns("Skipping record for expired window. topic=[order-counter-orders-by-store-repartition] partition=[1] offset=[153] " +
		"timestamp=[1789207245000] window=[1789207200000,1789207260000) expiration=[1789207350000] streamTime=[1789207380000]")
}

func TestWindowNulls(t *testing.T) {
	b := newBench(t, build(t, labProgram), 1)
	b.put(repartitioned, null, "x", 1789207380000)
	b.warns(
		"Skipping record due to null key or value. topic=[orders-by-store-repartition] partition=[0] offset=[0]",
		"Skipping record due to null key. topic=[orders-by-store-repartition] partition=[0] offset=[0]",
	)
	if got := b.times["orders-per-store-minute"](); got != -1 {
		t.Errorf("a null key raised the stream time to %d", got)
	}
}

// TestFirstSubtopology sends orders through filter, join and repartition: depth first, children in build order.
func TestFirstSubtopology(t *testing.T) {
	b := newBench(t, build(t, labProgram), 0)
	b.put("orders.status", "o1", "PAID", 10)
	b.put("orders.placed", "o1", "store-20", 5, Header{Key: "trace", Value: []byte("7")})
	b.wants(
		`analytics.high-value-orders 5 "store-20" "store-20" trace=7`,
		`analytics.orders-with-status 5 "o1" "PAID|store-20" trace=7`, // the order's time, not the status's
		`app-orders-by-store-repartition 5 "store-20" "store-20" trace=7`,
	)
	b.put("orders.placed", "o2", "store-17", 6) // no status: no join, and nothing said
	b.put("orders.placed", null, "store-17", 7) // counted, not joined
	b.put("orders.placed", "", "store-17", 8)   // an empty key is a key
	b.put("orders.placed", "o3", "cancelled", 9)
	b.wants(
		`app-orders-by-store-repartition 6 "store-17" "store-17"`,
		`app-orders-by-store-repartition 7 "store-17" "store-17"`,
		`app-orders-by-store-repartition 8 "store-17" "store-17"`,
	)
	b.warns("Skipping record due to null join key or value. topic=[orders.placed] partition=[0] offset=[2]")

	b.put("orders.status", "o1", "SHIPPED", 3) // older, and applied all the same
	b.put("orders.status", null, "LOST", 11)
	b.warns(
		"Detected out-of-order KTable update for order-status, old timestamp=[10] new timestamp=[3]. "+
			"topic=[orders.status] partition=[0] offset=[1].",
		"Skipping record due to null key. topic=[orders.status] partition=[0] offset=[2]",
	)
	b.put("orders.placed", "o1", "store-17", 12)
	b.wants(
		`analytics.orders-with-status 12 "o1" "SHIPPED|store-17"`,
		`app-orders-by-store-repartition 12 "store-17" "store-17"`,
	)
	b.flush()
	b.wants(`app-order-status-changelog 3 "o1" "SHIPPED"`)
	b.put("orders.status", "o1", null, 13)
	b.put("orders.status", "never", null, 14) // a tombstone for a key that is not there is dropped
	b.put("orders.placed", "o1", "store-17", 15)
	b.flush()
	b.wants(
		`app-orders-by-store-repartition 15 "store-17" "store-17"`,
		`app-order-status-changelog 13 "o1" null`,
	)
}

func TestOperators(t *testing.T) {
	twice := func(yield func(string) bool) {
		_ = yield("a") && yield("b")
	}
	for _, c := range []struct {
		name    string
		program func(*Builder)
		feed    [][2]string // key and value into topic in
		want    []string
	}{
		{
			"flat map values keeps the key",
			func(b *Builder) { out(FlatMapValues(in(b), func(string) iter.Seq[string] { return twice }), "out") },
			[][2]string{{"k", "v"}, {"k", null}},
			[]string{`out 1 "k" "a"`, `out 1 "k" "b"`, `out 2 "k" null`},
		},
		{
			"flat map",
			func(b *Builder) {
				out(FlatMap(in(b), func(k, v string) iter.Seq2[string, string] {
					return func(yield func(string, string) bool) { _ = yield(k, v) && yield(v, k) }
				}), "out")
			},
			[][2]string{{"k", "v"}, {"k", null}},
			[]string{`out 1 "k" "v"`, `out 1 "v" "k"`, `out 2 "k" null`, `out 2 "" null`},
		},
		{
			"filter not, select key",
			func(b *Builder) {
				out(SelectKey(in(b).FilterNot(func(k, _ string) bool { return k == "no" }), func(_, v string) string { return v }), "out")
			},
			[][2]string{{"no", "v"}, {"k", "v"}, {null, "w"}},
			[]string{`out 2 "v" "v"`, `out 3 "w" "w"`},
		},
		{
			"a null value stays null",
			func(b *Builder) { out(MapValues(Map(in(b), same), strings.ToUpper), "out") },
			[][2]string{{"k", null}, {"k", "v"}, {"k", ""}},
			[]string{`out 1 "k" null`, `out 2 "k" "V"`, `out 3 "k" ""`},
		},
		{
			"split takes the first branch",
			func(b *Builder) {
				sp := in(b).Split()
				out(sp.Branch(func(k, _ string) bool { return k < "c" }), "low")
				out(sp.Branch(func(k, _ string) bool { return k < "f" }), "middle")
				out(sp.Default(), "rest")
			},
			[][2]string{{"d", "1"}, {"a", "2"}, {"x", "3"}},
			[]string{`middle 1 "d" "1"`, `low 2 "a" "2"`, `rest 3 "x" "3"`},
		},
		{
			"a split without default drops",
			func(b *Builder) { out(in(b).Split().Branch(func(k, _ string) bool { return k == "a" }), "a") },
			[][2]string{{"b", "1"}, {"a", "2"}},
			[]string{`a 2 "a" "2"`},
		},
		{
			"a diamond forwards twice",
			func(b *Builder) {
				s := in(b)
				out(MapValues(s, strings.ToUpper).Merge(s), "out")
			},
			[][2]string{{"k", "v"}},
			[]string{`out 1 "k" "V"`, `out 1 "k" "v"`},
		},
		{
			"a repartition drops null keys",
			func(b *Builder) { out(in(b).Repartition("r", 0, Text(), Text()), "out") },
			[][2]string{{null, "v"}, {"k", null}},
			[]string{`app-r-repartition 2 "k" null`},
		},
		{
			"a repartition keeps null keys for a left join",
			func(b *Builder) {
				t := table(b)
				out(LeftJoin(in(b).Repartition("r", 0, Text(), Text()), t, left), "out")
			},
			[][2]string{{null, "v"}, {"k", null}},
			[]string{`app-r-repartition 1 null "v"`, `app-r-repartition 2 "k" null`},
		},
		{
			"a table without a store forwards at once",
			func(b *Builder) {
				t := ReadTable(b, "in", "", Text(), Text())
				out(MapTableValues(t.Filter(func(_, v string) bool { return v > "b" }), strings.ToUpper).ToStream(), "out")
			},
			[][2]string{{"k", "c"}, {"k", "a"}, {null, "c"}, {"k", null}},
			[]string{`out 1 "k" "C"`, `out 2 "k" null`, `out 4 "k" null`},
		},
		{
			"reduce",
			func(b *Builder) {
				out(in(b).GroupByKey().Reduce("r", func(a, v string) string { return a + v }).ToStream(), "out")
			},
			[][2]string{{"k", "a"}, {"l", "x"}, {"k", "b"}, {"k", null}},
			[]string{
				`app-r-changelog 2 "l" "x"`, `out 2 "l" "x"`, `app-r-changelog 3 "k" "ab"`, `out 3 "k" "ab"`,
			},
		},
		{
			"aggregate",
			func(b *Builder) {
				sum := func(_, v string, n int64) int64 { return n + int64(len(v)) }
				outCount(Aggregate(in(b).GroupByKey(), "a", func() int64 { return 100 }, sum, Int64()).ToStream(), "out")
			},
			[][2]string{{"k", "a"}, {"k", "bc"}},
			[]string{`app-a-changelog 2 "k" 0000000000000067`, `out 2 "k" 0000000000000067`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, build(t, c.program), subOf(build(t, c.program), "in"))
			for i, kv := range c.feed {
				b.put("in", kv[0], kv[1], int64(i+1))
			}
			b.flush()
			b.wants(c.want...)
		})
	}
}

func subOf(t *Topology, topic string) int {
	return slices.IndexFunc(t.subs, func(s *subtopology) bool {
		return slices.ContainsFunc(s.sources, func(src *source) bool { return src.topics[0] == topic })
	})
}

func TestLeftJoin(t *testing.T) {
	b := newBench(t, build(t, func(b *Builder) {
		tab := table(b).Filter(func(_, v string) bool { return v != "hidden" })
		out(LeftJoin(in(b), MapTableValues(tab, strings.ToUpper), func(v, w string, ok bool) string {
			return v + "/" + w + "/" + strconv.FormatBool(ok)
		}), "out")
	}), 0)
	b.put("t", "a", "one", 1)
	b.put("t", "h", "hidden", 1)
	for _, key := range []string{"a", "h", "none", null} {
		b.put("in", key, "v", 2)
	}
	b.put("in", "a", null, 3)
	b.wants(`out 2 "a" "v/ONE/true"`, `out 2 "h" "v//false"`, `out 2 "none" "v//false"`, `out 2 null "v//false"`)
	b.warns("Skipping record due to null join key or value. topic=[in] partition=[0] offset=[4]")
}

func TestHoppingWindows(t *testing.T) {
	b := newBench(t, build(t, func(b *Builder) {
		w := CountWindows(in(b).GroupByKey().WindowedBy(Hopping(10*time.Second, 4*time.Second)), "w")
		outCount(Map(w.ToStream(), func(w Windowed[string], n int64) (string, int64) {
			return fmt.Sprintf("%s@%d-%d", w.Key, w.Start, w.End), n
		}), "out")
	}), 0)
	b.put("in", "k", "v", 9000)
	b.put("in", "k", "v", 3000)  // lies in [0,10000) alone
	b.put("in", "k", "v", 12000) // closes [0,10000)
	b.put("in", "k", "v", 8500)  // too late for [0,10000) only
	b.flush()
	var got []string
	for _, line := range b.sent {
		if strings.HasPrefix(line, "out ") {
			got = append(got, line)
		}
	}
	want := []string{
		`out 9000 "k@0-10000" 0000000000000002`,
		`out 12000 "k@12000-22000" 0000000000000001`,
		`out 12000 "k@4000-14000" 0000000000000003`,
		`out 12000 "k@8000-18000" 0000000000000003`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	b.warns("Skipping record for expired window. topic=[in] partition=[0] offset=[3] timestamp=[8500] " +
		"window=[0,10000) expiration=[12000] streamTime=[12000]")
}

func TestObservers(t *testing.T) {
	var seen []string
	note := func(what string) func(*Context, Record[string, string]) {
		return func(ctx *Context, r Record[string, string]) {
			seen = append(seen, fmt.Sprintf("%s %s=%s %s/%d", what, r.Key, r.Value, ctx.Topic(), ctx.Offset()))
		}
	}
	topology := build(t, labProgram)
	b := newBench(t, topology, 0, After("KTABLE-SOURCE-0000000006", note("applied")), After("KSTREAM-JOIN-0000000007", note("joined")),
		Before("KSTREAM-JOIN-0000000007", note("order")))
	b.put("orders.status", "o1", "PAID", 1)
	b.put("orders.placed", "o1", "store-17", 2)
	b.put("orders.placed", "o2", "store-17", 3)

	c := newBench(t, topology, 1, Before("KSTREAM-AGGREGATE-0000000013", note("count")),
		After("KSTREAM-AGGREGATE-0000000013", func(_ *Context, r Record[string, int64]) {
			seen = append(seen, fmt.Sprintf("counted %s=%d", r.Key, r.Value))
		}),
		After("KSTREAM-AGGREGATE-0000000017", func(_ *Context, r Record[Windowed[string], int64]) {
			seen = append(seen, fmt.Sprintf("counted %s@%s=%d", r.Key.Key, r.Key.StartTime(), r.Value))
		}))
	c.put(repartitioned, "store-17", "x", 1789207200500)
	c.put(repartitioned, null, "x", 1789207200500)

	want := []string{
		"applied o1=PAID orders.status/0",
		"order o1=store-17 orders.placed/0",
		"joined o1=PAID|store-17 orders.placed/0",
		"order o2=store-17 orders.placed/1",
		"count store-17=x orders-by-store-repartition/0",
		"counted store-17=1",
		"counted store-17@2026-09-12T10:00:00Z=1",
		"count =x orders-by-store-repartition/1",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}

	if _, err := topology.observersByNode([]*Observer{Before("KSTREAM-COUNT-1", note(""))}); err == nil {
		t.Error("an unknown node was accepted")
	}
	wrong := &bench{t: t, db: b.db, observers: map[string]*Observer{
		"KSTREAM-JOIN-0000000007": After("KSTREAM-JOIN-0000000007", func(*Context, Record[string, int64]) {}),
	}, times: map[string]func() int64{}, restores: map[string]func(int64){}}
	if _, err := newBinding(wrong, topology.subs[0]); err == nil || !strings.Contains(err.Error(), "KSTREAM-JOIN-0000000007") {
		t.Errorf("an observer of the wrong type: %v", err)
	}
}

func TestPanicNamesTheNode(t *testing.T) {
	boom := errors.New("boom")
	b := newBench(t, build(t, func(b *Builder) {
		s := in(b)
		s.Peek(look)
		out(MapValues(s.Filter(yes), func(string) string { panic(boom) }, WithName("explodes")), "out")
		out(s, "later")
	}), 0)
	err := b.feed("in", "k", "v", 1)
	var pe *ProcessingError
	if !errors.As(err, &pe) || !errors.Is(err, boom) {
		t.Fatalf("%v", err)
	}
	if pe.Node != "explodes" || pe.TaskID != "0_0" || pe.Topic != "in" || pe.Partition != 0 || pe.Offset != 0 || len(pe.Stack) == 0 {
		t.Errorf("%+v", pe)
	}
	if want := "node explodes panicked: task 0_0, topic in, partition 0, offset 0: boom"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if again := b.feed("in", "k", "v", 2); !errors.Is(again, err) {
		t.Errorf("the error did not stick: %v", again)
	}
	b.wants() // the node after it in build order got nothing
}

func TestPanicWhileFlushing(t *testing.T) {
	b := newBench(t, build(t, func(b *Builder) {
		Count(in(b).GroupByKey(), "c").ToStream().ForEach(func(Record[string, int64]) { panic("no") }, WithName("explodes"))
	}), 0)
	b.put("in", "k", "v", 1)
	err := b.flushes[0](b.ctx)
	var pe *ProcessingError
	if !errors.As(err, &pe) || pe.Node != "explodes" || pe.Topic != "" || pe.Offset != -1 {
		t.Errorf("%v", err)
	}
}

func TestRefusedInput(t *testing.T) {
	broken := errors.New("no time in it")
	topology := build(t, func(b *Builder) {
		s := Consume(b, "in", Int64(), Text(), EventTime(func(r Record[int64, string], partitionTime int64) (int64, error) {
			switch r.Value {
			case "error":
				return 0, broken
			case "panic":
				panic("extractor")
			case "time":
				return partitionTime, nil
			}
			return r.Key, nil
		}))
		s.To("out", Int64(), Text())
	})
	b := newBench(t, topology, 0)
	key := func(n int64) []byte { k, _ := Int64().Append(nil, n); return k }
	for _, c := range []struct {
		key    []byte
		value  string
		reason Reason
	}{
		{[]byte("short"), "v", BadKey},
		{key(1), "error", BadTimestamp},
		{key(1), "panic", BadTimestamp},
		{key(-5), "v", NegativeTimestamp},
		{key(1), "time", NegativeTimestamp},
		{key(7), "v", 0},
	} {
		ts, err := b.sources["in"].load(&input{topic: "in", partition: 2, offset: 9, timestamp: 3, key: c.key, value: []byte(c.value)}, -1)
		var re *RecordError
		switch {
		case c.reason == 0:
			if err != nil || ts != 7 {
				t.Errorf("%d %v", ts, err)
			}
		case !errors.As(err, &re) || re.Reason != c.reason || re.Topic != "in" || re.Partition != 2 || re.Offset != 9:
			t.Errorf("%q: %v, want %s", c.value, err, c.reason)
		}
	}
	// A repartition source never asks an extractor, and refuses a record without a timestamp.
	r := newBench(t, build(t, labProgram), 1)
	if err := r.feed(repartitioned, "store-17", "x", -1); err == nil {
		t.Error("a negative timestamp was accepted")
	}
}

// TestAllocations: the operators of the lab's program allocate nothing per record. What is left is decoding the
// text key and value of each input.
func TestAllocations(t *testing.T) {
	topology := build(t, labProgram)
	first := newBench(t, topology, 0)
	first.quiet = true
	first.put("orders.status", "o1", "PAID", 1)
	second := newBench(t, topology, 1)
	second.quiet = true
	for _, c := range []struct {
		name    string
		b       *bench
		topic   string
		key     string
		allowed float64
	}{
		{"placed", first, "orders.placed", "o2", 0},
		{"placed and joined", first, "orders.placed", "o1", 2}, // the status's text and the joined text
		{"counted", second, repartitioned, "store-17", 0},
	} {
		src := c.b.sources[c.topic]
		in := input{topic: c.topic, timestamp: 1789207200000, key: []byte(c.key), value: []byte("store-20")}
		if _, err := src.load(&in, -1); err != nil {
			t.Fatal(err)
		}
		run := func() {
			if err := src.process(c.b.ctx); err != nil {
				t.Fatal(err)
			}
		}
		run()
		if got := testing.AllocsPerRun(1000, run); got > c.allowed {
			t.Errorf("%s: %v allocations per record, want at most %v", c.name, got, c.allowed)
		}
		load := func() {
			if _, err := src.load(&in, -1); err != nil {
				t.Fatal(err)
			}
		}
		if got := testing.AllocsPerRun(1000, load); got > 2 {
			t.Errorf("%s: loading takes %v allocations, want 2: key and value", c.name, got)
		}
	}
	if first.count == 0 {
		t.Error("nothing was sent")
	}
}

// BenchmarkProcess is one record through each half of the lab's program, decoding included, without a broker.
func BenchmarkProcess(b *testing.B) {
	topology := build(b, labProgram)
	for _, c := range []struct {
		name, topic string
		sub         int
	}{{"placed", "orders.placed", 0}, {"counts", repartitioned, 1}} {
		b.Run(c.name, func(b *testing.B) {
			bench := newBench(b, topology, c.sub)
			bench.quiet = true
			src := bench.sources[c.topic]
			in := input{topic: c.topic, timestamp: 1789207200000, key: []byte("store-17"), value: []byte("store-20")}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := src.load(&in, -1); err != nil {
					b.Fatal(err)
				}
				if err := src.process(bench.ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
