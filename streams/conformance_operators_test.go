package streams

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// operatorPrograms are the programs of testdata/java/Operators.java: one or more for each operator, call by call.
var operatorPrograms = map[string]func(b *Builder){
	"map": func(b *Builder) {
		s := in(b)
		out(Map(s, func(k, v string) (string, string) { return v, k }), "swapped")
		outCount(Map(s, func(k, v string) (string, int64) { return k, int64(len(v)) }), "lengths")
		table(b)
	},
	"map-values": func(b *Builder) {
		out(MapValues(MapValues(in(b), strings.ToUpper), func(v string) string { return v + "!" }), "loud")
		table(b)
	},
	"flat-map": func(b *Builder) {
		out(FlatMap(in(b), func(_, v string) iter.Seq2[string, string] {
			return func(yield func(string, string) bool) { _ = len(v) != 3 && yield(v, v) && yield("k", v) }
		}), "pairs")
		table(b)
	},
	"flat-map-values": func(b *Builder) {
		out(FlatMapValues(in(b), func(v string) iter.Seq[string] { return slices.Values(strings.Split(v, "")) }), "letters")
		table(b)
	},
	"filter-chain": func(b *Builder) {
		isB := func(k, _ string) bool { return k == "b" }
		out(in(b).Filter(func(_, v string) bool { return v != "" }).FilterNot(isB).Filter(func(_, v string) bool { return v != "x" }), "left")
		table(b)
	},
	"select-key": func(b *Builder) {
		out(SelectKey(SelectKey(in(b), value), func(k, _ string) string { return k + "/" + k }), "rekeyed")
		table(b)
	},
	"peek": func(b *Builder) {
		s := in(b).Peek(look)
		out(s.Filter(startsWithT), "seen")
		s.ForEach(look)
		table(b)
	},
	"merge": func(b *Builder) {
		s := in(b)
		out(s.Merge(table(b).ToStream()).Merge(s.Filter(func(_, v string) bool { return v == "one" })), "merged")
	},
	"split-no-default": func(b *Builder) {
		out(in(b).Split(WithName("s")).Branch(ofThree, WithName("three")), "three")
		table(b)
	},
	"split-named": func(b *Builder) {
		sp := in(b).Split(WithName("sp-"))
		out(sp.Branch(func(k, _ string) bool { return k == "c" }, WithName("c")), "c")
		out(sp.Branch(func(_, v string) bool { return v == "two" }, WithName("two")), "two")
		out(sp.Default(WithName("rest")), "rest")
		table(b)
	},
	"split-nested": func(b *Builder) {
		outer := in(b).Split(WithName("o-"))
		inner := outer.Branch(ofThree, WithName("3")).Split(WithName("i-"))
		out(inner.Branch(func(k, _ string) bool { return k == "a" }, WithName("a")), "a")
		out(inner.Default(WithName("n")), "other")
		out(MapValues(outer.Default(WithName("n")), strings.ToUpper), "rest")
		table(b)
	},
	"named": func(b *Builder) {
		s := Consume(b, "in", Text(), Text(), WithName("source"))
		upper := MapValues(s.Filter(func(_, v string) bool { return len(v) > 1 }, WithName("long")), strings.ToUpper, WithName("upper"))
		rekeyed := SelectKey(upper, func(k, v string) string { return k + v }, WithName("rekey"))
		rekeyed.Peek(look, WithName("look")).To("named", Text(), Text(), WithName("sink"))
		s.ForEach(look, WithName("end"))
		table(b)
	},
	"bytes": func(b *Builder) {
		Consume(b, "in", Bytes(), Bytes()).Filter(func(_, v []byte) bool { return len(v)%2 == 1 }).To("odd", Bytes(), Bytes())
		table(b)
	},
	"event-time": func(b *Builder) {
		out(Consume(b, "in", Text(), Text(), byLength()), "earlier")
		table(b)
	},
	"event-time-never-back": func(b *Builder) {
		neverBack := EventTime(func(r Record[string, string], time int64) (int64, error) { return max(time, r.Timestamp), nil })
		outMinutes(CountWindows(Consume(b, "in", Text(), Text(), neverBack).GroupByKey().WindowedBy(Tumbling(time.Minute)), "w"))
		table(b)
	},
	"repartition-unnamed": func(b *Builder) {
		out(in(b).Repartition("", 0, Text(), Text()), "through")
		table(b)
	},
	"repartition-counted": func(b *Builder) {
		outCount(Count(SelectKey(in(b), value).Repartition("r", 0, Text(), Text()).GroupByKey(), "c").ToStream(), "counts")
		table(b)
	},

	"event-time-table": func(b *Builder) {
		out(ReadTable(b, "t", "ts", Text(), Text(), byLength()).ToStream(), "changes")
		in(b).ForEach(look)
	},
	"table-unnamed": func(b *Builder) {
		out(ReadTable(b, "t", "", Text(), Text()).ToStream(), "changes")
		in(b).ForEach(look)
	},
	"table-unnamed-joined": func(b *Builder) {
		t := ReadTable(b, "t", "", Text(), Text())
		out(Join(in(b), t, slash), "joined")
	},
	"table-reused": func(b *Builder) {
		t := ReadTable(b, "t", "ts", Text(), Text(), ReuseSourceTopic())
		out(LeftJoin(in(b), t, slashOrNull), "joined")
	},
	"table-chain": func(b *Builder) {
		filled := table(b).Filter(func(_, v string) bool { return v != "" })
		t := MapTableValues(filled, strings.ToUpper).FilterNot(func(_, v string) bool { return v == "X" })
		out(t.ToStream(), "changes")
		out(Join(in(b), t, slash), "joined")
	},
	"table-to-stream-count": func(b *Builder) {
		outCount(Count(table(b).ToStream().GroupByKey(), "c").ToStream(), "counts")
		in(b).ForEach(look)
	},
	"table-named": func(b *Builder) {
		t := ReadTable(b, "t", "ts", Text(), Text(), WithName("tab"))
		upper := MapTableValues(t.Filter(longer, WithName("long")), strings.ToUpper, WithName("upper"))
		out(upper.ToStream(WithName("changes")), "changes")
		in(b).ForEach(look)
	},
	"join-counts": func(b *Builder) {
		s := in(b)
		c := Count(s.GroupByKey(), "c")
		out(Join(s, c, func(v string, n int64) string { return fmt.Sprint(v, "/", n) }), "joined")
		table(b)
	},
	"join-named": func(b *Builder) {
		s := SelectKey(in(b), func(k, _ string) string { return k + "d" }).WithSerdes(Text(), Text())
		out(Join(s, table(b), slash, WithName("j")), "joined")
	},
	"join-twice": func(b *Builder) {
		t := table(b)
		out(LeftJoin(Join(in(b), t, slash), t, func(v, w string, _ bool) string { return v + "|" + w }), "joined")
	},
	"left-join-repartition": func(b *Builder) {
		s := SelectKey(in(b), func(k, _ string) string {
			if k == "" {
				return "dd"
			}
			return "a"
		}).WithSerdes(Text(), Text())
		out(LeftJoin(s, table(b), slashOrNull), "joined")
	},
	"left-join-mapped": func(b *Builder) {
		s := in(b)
		t := MapTableValues(table(b), func(v string) string { return fmt.Sprint(len(v), v) })
		out(MapValues(LeftJoin(s, t, slashOrNull), strings.ToUpper), "joined")
	},
	"join-filter-not": func(b *Builder) {
		s := in(b)
		out(Join(s, table(b).FilterNot(startsWithT), slash), "joined")
	},

	"count-unnamed": func(b *Builder) {
		outCount(Count(in(b).GroupByKey(), "").ToStream(), "counts")
		table(b)
	},
	"count-named-node": func(b *Builder) {
		outCount(Count(in(b).GroupByKey(), "c", WithName("cnt")).ToStream(), "counts")
		table(b)
	},
	"count-by-value": func(b *Builder) {
		outCount(Count(groupByValue(b), "").ToStream(), "counts")
		table(b)
	},
	"count-select-key": func(b *Builder) {
		outCount(Count(SelectKey(in(b), value).WithSerdes(Text(), Text()).GroupByKey(), "c").ToStream(), "counts")
		table(b)
	},
	"count-filtered": func(b *Builder) {
		c := Count(in(b).GroupByKey(), "c")
		outCount(c.FilterNot(func(_ string, n int64) bool { return n%2 == 0 }).ToStream(), "odd")
		out(MapTableValues(c, func(n int64) string { return fmt.Sprint("n", n) }).ToStream(), "texts")
		table(b)
	},
	"reduce-by-value": func(b *Builder) {
		out(groupByValue(b, WithName("g")).Reduce("r", func(x, y string) string { return y + x }).ToStream(), "reduced")
		table(b)
	},
	"reduce-unnamed": func(b *Builder) {
		out(in(b).GroupByKey().Reduce("", func(_, y string) string { return y }).ToStream(), "latest")
		table(b)
	},
	"aggregate-lengths": func(b *Builder) {
		none := func() int64 { return 0 }
		outCount(Aggregate(in(b).GroupByKey(), "a", none, addLength, Int64()).ToStream(), "lengths")
		table(b)
	},
	"aggregate-by-value": func(b *Builder) {
		bang := func() string { return "!" }
		out(Aggregate(groupByValue(b), "a", bang, func(k, _, x string) string { return x + k }, Text()).ToStream(), "aggregated")
		table(b)
	},
	"two-of-a-group": func(b *Builder) {
		g := groupByValue(b, WithName("g"))
		outCount(Count(g, "c").ToStream(), "counts")
		out(g.Reduce("r", func(x, y string) string { return x + y }).ToStream(), "reduced")
		table(b)
	},

	"tumbling-no-grace": func(b *Builder) {
		outMinutes(CountWindows(in(b).GroupByKey().WindowedBy(Tumbling(time.Minute)), "w"))
		table(b)
	},
	"hopping-grace": func(b *Builder) {
		hops := Hopping(time.Minute, 20*time.Second).Grace(30 * time.Second)
		outMinutes(CountWindows(in(b).GroupByKey().WindowedBy(hops), "w"))
		table(b)
	},
	"window-retention": func(b *Builder) {
		outMinutes(CountWindows(in(b).GroupByKey().WindowedBy(graceful), "w", WithRetention(10*time.Minute)))
		table(b)
	},
	"window-unnamed": func(b *Builder) {
		outMinutes(CountWindows(in(b).GroupByKey().WindowedBy(Tumbling(time.Minute)), ""))
		table(b)
	},
	"window-named": func(b *Builder) {
		outMinutes(CountWindows(in(b).GroupByKey().WindowedBy(Tumbling(time.Minute)), "w", WithName("wc")))
		table(b)
	},
	"window-by-value": func(b *Builder) {
		outMinutes(CountWindows(groupByValue(b, WithName("g")).WindowedBy(graceful), "w"))
		table(b)
	},
	"window-reduce-hopping": func(b *Builder) {
		w := in(b).GroupByKey().WindowedBy(Hopping(time.Minute, 30*time.Second))
		reduced := ReduceWindows(w, "w", func(x, y string) string { return y + x })
		reduced.ToStream().To("reduced", TimeWindowed(Text(), time.Minute), Text())
		table(b)
	},
	"window-aggregate-lengths": func(b *Builder) {
		hundred := func() int64 { return 100 }
		outMinutes(AggregateWindows(in(b).GroupByKey().WindowedBy(Tumbling(time.Minute)), "w", hundred, addLength, Int64()))
		table(b)
	},
	"window-filtered": func(b *Builder) {
		counts := CountWindows(in(b).GroupByKey().WindowedBy(graceful), "w")
		outMinutes(counts.Filter(func(_ Windowed[string], n int64) bool { return n > 1 }))
		table(b)
	},

	"processor-twice": func(b *Builder) {
		out(Process(in(b), func() Processor[string, string, string, string] { return &twice{} }), "twice")
		table(b)
	},
	"processor-changes": func(b *Builder) {
		last := NewKeyValueStore(b, "last", Text(), Text())
		supplier := func() Processor[string, string, string, string] { return &changes{store: last} }
		out(Process(in(b), supplier, last, WithName("changes")), "changes")
		table(b)
	},
	"processor-all": func(b *Builder) {
		store := NewKeyValueStore(b, "sizes", Text(), Int64())
		outCount(Process(in(b), func() Processor[string, string, string, int64] { return &sizes{store: store} }, store), "sizes")
		table(b)
	},
	"processor-context": func(b *Builder) {
		s := in(b)
		left := LeftJoin(s, table(b), func(v, _ string, _ bool) string { return v })
		out(Process(left, func() Processor[string, string, string, string] { return &where{} }), "where")
	},
	"wall-clock": func(b *Builder) {
		out(Process(in(b).Merge(table(b).ToStream()), func() Processor[string, string, string, string] { return &ticker{} }), "ticks")
	},
}

var graceful = Tumbling(time.Minute).Grace(30 * time.Second)

func value(_, v string) string             { return v }
func ofThree(_, v string) bool             { return len(v) == 3 }
func startsWithT(_, v string) bool         { return strings.HasPrefix(v, "t") }
func addLength(_, v string, n int64) int64 { return n + int64(len(v)) }

func byLength() SourceOption {
	return EventTime(func(r Record[string, string], _ int64) (int64, error) {
		return r.Timestamp - 1000*int64(len(r.Value)), nil
	})
}

func groupByValue(b *Builder, opts ...NodeOption) *Grouped[string, string] {
	return GroupBy(in(b), value, Text(), opts...)
}

func outMinutes(t *Table[Windowed[string], int64]) {
	t.ToStream().To("minutes", TimeWindowed(Text(), time.Minute), Int64())
}

// twice forwards each record twice, the second a second later.
type twice struct {
	ctx *ProcessorContext[string, string]
}

func (p *twice) Init(ctx *ProcessorContext[string, string]) error {
	p.ctx = ctx
	return nil
}

func (p *twice) Process(r Record[string, string]) error {
	p.ctx.Forward(r)
	r.Key, r.NullKey, r.Timestamp = r.Key+"2", false, r.Timestamp+1000
	p.ctx.Forward(r)
	return nil
}

// changes forwards a value that differs from the last of its key; null forgets the key.
type changes struct {
	store *KeyValueStore[string, string]
	last  *KeyValue[string, string]
	ctx   *ProcessorContext[string, string]
}

func (p *changes) Init(ctx *ProcessorContext[string, string]) (err error) {
	p.ctx = ctx
	p.last, err = OpenStore(ctx, p.store)
	return err
}

func (p *changes) Process(r Record[string, string]) error {
	if r.NullValue {
		return p.last.Delete(r.Key)
	}
	old, ok, err := p.last.Get(r.Key)
	if err != nil || ok && old == r.Value {
		return err
	}
	r.NullKey = false
	p.ctx.Forward(r)
	return p.last.Put(r.Key, r.Value)
}

// sizes adds up the lengths of each key's values, and for an empty value forwards all sums.
type sizes struct {
	store *KeyValueStore[string, int64]
	sums  *KeyValue[string, int64]
	ctx   *ProcessorContext[string, int64]
}

func (p *sizes) Init(ctx *ProcessorContext[string, int64]) (err error) {
	p.ctx = ctx
	p.sums, err = OpenStore(ctx, p.store)
	return err
}

func (p *sizes) Process(r Record[string, string]) error {
	old, _, err := p.sums.Get(r.Key)
	if err != nil {
		return err
	}
	if err := p.sums.Put(r.Key, old+int64(len(r.Value))); err != nil || r.Value != "" {
		return err
	}
	return p.sums.All(func(key string, sum int64) bool {
		p.ctx.Forward(Record[string, int64]{Key: key, Value: sum, Timestamp: r.Timestamp})
		return true
	})
}

// where forwards where each record is from, and the stream time.
type where struct {
	ctx *ProcessorContext[string, string]
}

func (p *where) Init(ctx *ProcessorContext[string, string]) error {
	p.ctx = ctx
	return nil
}

func (p *where) Process(r Record[string, string]) error {
	from := p.ctx.Context()
	r.Value = fmt.Sprintf("%s %s-%d@%d %d %d",
		from.TaskID(), from.Topic(), from.Partition(), from.Offset(), from.Timestamp(), p.ctx.StreamTime())
	r.NullKey, r.NullValue = false, false
	p.ctx.Forward(r)
	return nil
}

// ticker forwards how many records came since the last tick of the wall clock, for six ticks.
type ticker struct {
	tick           *Punctuation
	records, ticks int
}

func (p *ticker) Init(ctx *ProcessorContext[string, string]) (err error) {
	p.tick, err = ctx.Schedule(10*time.Second, WallClock, func(now int64) error {
		if p.ticks++; p.ticks == 6 {
			p.tick.Cancel()
		}
		ctx.Forward(Record[string, string]{Key: "tick", Value: fmt.Sprint(p.records), Timestamp: now})
		p.records = 0
		return nil
	})
	return err
}

func (p *ticker) Process(Record[string, string]) error {
	p.records++
	return nil
}
