package streams

import (
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// programs are the DSL programs of testdata/java/Programs.java, call for call. What Kafka Streams 4.3.1 printed for
// each is testdata/describe/<name>.txt: every row of the index table is in there, and with it burned indices,
// repartition topics and sub-topology ids.
var programs = map[string]func(b *Builder){
	"stateless": func(b *Builder) {
		s := in(b)
		m := MapValues(Map(s.Filter(yes).FilterNot(yes), same), ident)
		f := FlatMapValues(FlatMap(m, func(k, v string) iter.Seq2[string, string] { return nil }), func(string) iter.Seq[string] { return nil })
		SelectKey(f, first).Peek(look).To("out", Text(), Text())
		s.ForEach(look)
	},
	"named": func(b *Builder) {
		s := Consume(b, "in", Text(), Text(), WithName("src")).Filter(yes, WithName("flt"))
		Map(s, same).Peek(look, WithName("look")).To("out", Text(), Text(), WithName("snk"))
		ReadTable(b, "t", "ts", Text(), Text(), WithName("tab")).ToStream(WithName("ts2")).ForEach(look, WithName("fe"))
	},
	"merge": func(b *Builder) {
		s, o := in(b), Consume(b, "in2", Text(), Text())
		out(s.Merge(o).Filter(yes), "out")
		out(s.Merge(o, WithName("both")), "out2")
		out(MapValues(s, ident).Merge(s.Filter(yes)), "out3")
	},
	"split": func(b *Builder) {
		s := in(b)
		sp := s.Split()
		one, two, rest := sp.Branch(yes), sp.Branch(yes, WithName("-b")), sp.Default()
		out(two, "outKSTREAM-BRANCH-0000000001-b")
		out(rest, "outKSTREAM-BRANCH-00000000010")
		out(one, "outKSTREAM-BRANCH-00000000011")
		sp = s.Split(WithName("sp-"))
		x, second, def := sp.Branch(yes, WithName("x")), sp.Branch(yes), sp.Default(WithName("rest"))
		out(second, "o-sp-2")
		out(def, "o-sp-rest")
		out(x, "o-sp-x")
		out(s.Split().Branch(yes), "last")
	},
	"table-unnamed":        func(b *Builder) { out(ReadTable(b, "t", "", Text(), Text()).ToStream(), "out") },
	"table-unnamed-joined": func(b *Builder) { t := ReadTable(b, "t", "", Text(), Text()); out(Join(in(b), t, first), "out") },
	"table-before-stream":  func(b *Builder) { t := table(b); out(Join(in(b), t, first), "out") },
	"leftjoin": func(b *Builder) {
		s := in(b)
		t := table(b)
		out(LeftJoin(s, t, left), "out")
		out(Join(s, t, first, WithName("nj")), "out2")
	},
	"join-repartition": func(b *Builder) {
		s := SelectKey(in(b), first).WithSerdes(Text(), Text())
		t := table(b)
		out(Join(s, t, first), "out")
		out(LeftJoin(s, t, left), "out2")
		out(Join(s, t, first, WithName("nj")), "out3")
		out(Join(s.Filter(yes), t, first), "out4")
		out(Join(s, t, first), "out5") // on the latest repartition of s, which is the named one
	},
	"table-ops": func(b *Builder) {
		f := table(b).Filter(yes)
		out(MapTableValues(f, ident).ToStream(), "out")
		s := in(b)
		out(Join(s, MapTableValues(f, ident, WithName("mv")), first), "out2")
		out(f.FilterNot(yes).ToStream(), "out3")
	},
	"table-unnamed-filter-joined": func(b *Builder) {
		t := ReadTable(b, "t", "", Text(), Text())
		s := in(b)
		out(Join(s, t.Filter(yes), first), "out")
	},
	"count-join": func(b *Builder) {
		s := in(b)
		c := Count(s.GroupByKey(), "c")
		out(Join(s, c, func(v string, _ int64) string { return v }), "out")
	},
	"count-unnamed":             func(b *Builder) { outCount(Count(in(b).GroupByKey(), "").ToStream(), "out") },
	"count-unnamed-repartition": func(b *Builder) { outCount(Count(mapped(b).GroupByKey(), "").ToStream(), "out") },
	"count-named-node":          func(b *Builder) { outCount(Count(mapped(b).GroupByKey(), "c", WithName("cnt")).ToStream(), "out") },
	"groupby":                   func(b *Builder) { outCount(Count(GroupBy(in(b), first, Text()), "c").ToStream(), "out") },
	"groupby-named": func(b *Builder) {
		g := GroupBy(in(b), first, Text(), WithName("g"))
		outCount(Count(g, "c").ToStream(), "out")
		out(g.Reduce("r", first).ToStream(), "out2")
	},
	"groupby-twice-unnamed": func(b *Builder) {
		g := GroupBy(in(b), first, Text())
		outCount(Count(g, "c").ToStream(), "out")
		outCount(Count(g, "d").ToStream(), "out2")
		outCount(Count(g, "").ToStream(), "out3")
	},
	"grouped-reuse-between": func(b *Builder) {
		s := mapped(b)
		g := s.GroupByKey(WithName("g"))
		c := Count(g, "c")
		out(s.Filter(yes), "mid")
		outCount(c.ToStream(), "out")
		outCount(Count(g, "d").ToStream(), "out2")
		out(s, "late")
	},
	"reduce": func(b *Builder) {
		g := in(b).GroupByKey()
		out(g.Reduce("", first).ToStream(), "o1")
		out(g.Reduce("r", first).ToStream(), "o2")
		out(g.Reduce("r2", first, WithName("red")).ToStream(), "o3")
	},
	"aggregate": func(b *Builder) {
		g := in(b).GroupByKey()
		fold := func(_, _, a string) string { return a }
		empty := func() string { return "" }
		out(Aggregate(g, "", empty, fold, Text()).ToStream(), "o1")
		out(Aggregate(g, "r", empty, fold, Text()).ToStream(), "o2")
		out(Aggregate(g, "r2", empty, fold, Text(), WithName("agg")).ToStream(), "o3")
	},
	"windows": func(b *Builder) {
		g := in(b).GroupByKey()
		lookWindow := func(Record[Windowed[string], int64]) {}
		CountWindows(g.WindowedBy(Tumbling(time.Minute)), "").ToStream().ForEach(lookWindow)
		CountWindows(g.WindowedBy(Hopping(time.Minute, 10*time.Second)), "w").ToStream().ForEach(lookWindow)
		CountWindows(g.WindowedBy(Tumbling(time.Minute).Grace(time.Second)), "w2", WithName("wc")).ToStream().ForEach(lookWindow)
	},
	"windows-repartition": func(b *Builder) {
		g := SelectKey(in(b), first).WithSerdes(Text(), Text()).GroupByKey()
		lookWindow := func(Record[Windowed[string], int64]) {}
		CountWindows(g.WindowedBy(Tumbling(time.Minute)), "").ToStream().ForEach(lookWindow)
		CountWindows(g.WindowedBy(Tumbling(time.Minute)), "w").ToStream().ForEach(lookWindow)
	},
	"repartition": func(b *Builder) {
		s := in(b)
		out(s.Repartition("", 0, Text(), Text()), "o1")
		outCount(Count(s.Repartition("rp", 4, Text(), Text()).GroupByKey(), "c").ToStream(), "o2")
		out(s.Repartition("x-repartition", 0, Text(), Text()), "o3")
	},
	"chain": func(b *Builder) {
		c1 := Count(SelectKey(in(b), first).WithSerdes(Text(), Text()).GroupByKey(), "c1").ToStream()
		c2 := Count(SelectKey(c1, func(k string, _ int64) string { return k }).WithSerdes(Text(), Int64()).GroupByKey(), "c2")
		outCount(c2.ToStream(), "out")
		outCount(Count(table(b).ToStream().GroupByKey(), "c3").ToStream(), "out2")
	},
	"merge-repartition": func(b *Builder) {
		s, o := in(b), Consume(b, "in2", Text(), Text())
		m := SelectKey(s, first).Merge(o).WithSerdes(Text(), Text())
		outCount(Count(m.GroupByKey(), "c").ToStream(), "out")
	},
	// The lab's program with a named grouping instead of a repartition.
	"programB": func(b *Builder) {
		placed := Consume(b, "orders.placed", Text(), Text()).Filter(yes)
		out(Map(placed.Filter(yes), same), "analytics.high-value-orders")
		t := ReadTable(b, "orders.status", "order-status", Text(), Text())
		out(Join(placed, t, first), "analytics.orders-with-status")
		countByStore(Map(placed, same).WithSerdes(Text(), Text()).GroupByKey(WithName("orders-by-store")))
	},
}

// labProgram is the lab's topology, over text values "store-17 5000 PLACED".
func labProgram(b *Builder) {
	placed := Consume(b, "orders.placed", Text(), Text(), EventTime(wordTime)).Filter(func(_, v string) bool { return v != "cancelled" })
	out(Map(placed.Filter(func(_, v string) bool { return v >= "store-19" }), byValue), "analytics.high-value-orders")
	status := ReadTable(b, "orders.status", "order-status", Text(), Text())
	out(Join(placed, status, func(order, status string) string { return status + "|" + order }), "analytics.orders-with-status")
	countByStore(Map(placed, byValue).Repartition("orders-by-store", 2, Text(), Text()).GroupByKey())
}

func countByStore(byStore *Grouped[string, string]) {
	decimal := func(n int64) string { return strconv.FormatInt(n, 10) }
	out(MapValues(Count(byStore, "orders-per-store").ToStream(), decimal), "analytics.orders-per-store")
	minutes := CountWindows(byStore.WindowedBy(Tumbling(time.Minute).Grace(30*time.Second)), "orders-per-store-minute")
	out(Map(minutes.ToStream(), func(w Windowed[string], n int64) (string, string) {
		return w.Key + "|" + w.StartTime(), decimal(n)
	}), "analytics.orders-per-store-minute")
}

func wordTime(r Record[string, string], _ int64) (int64, error) { return r.Timestamp, nil }

func in(b *Builder) *Stream[string, string]     { return Consume(b, "in", Text(), Text()) }
func table(b *Builder) *Table[string, string]   { return ReadTable(b, "t", "ts", Text(), Text()) }
func mapped(b *Builder) *Stream[string, string] { return Map(in(b), same).WithSerdes(Text(), Text()) }

func out(s *Stream[string, string], topic string)     { s.To(topic, Text(), Text()) }
func outCount(s *Stream[string, int64], topic string) { s.To(topic, Text(), Int64()) }

func yes(_, _ string) bool                 { return true }
func ident(v string) string                { return v }
func same(k, v string) (string, string)    { return k, v }
func byValue(_, v string) (string, string) { return v, v }
func first(a, _ string) string             { return a }
func left(v, _ string, _ bool) string      { return v }
func look(Record[string, string])          {}

func build(t testing.TB, program func(*Builder)) *Topology {
	t.Helper()
	b := NewBuilder()
	program(b)
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func TestDescribePrograms(t *testing.T) {
	files, err := filepath.Glob("testdata/describe/*.txt")
	if err != nil || len(files) != len(programs) {
		t.Fatalf("%d files for %d programs (%v)", len(files), len(programs), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), build(t, programs[name]).Describe()); diff != "" {
				t.Errorf("-java +ours:\n%s", diff)
			}
		})
	}
}

func TestDescribeLab(t *testing.T) {
	want, err := os.ReadFile("testdata/topology.txt")
	if err != nil {
		t.Fatal(err)
	}
	topology := build(t, labProgram)
	if diff := cmp.Diff(string(want), topology.Describe()); diff != "" {
		t.Errorf("-java +ours:\n%s", diff)
	}

	stores := func(sub *subtopology) (names []string) {
		for _, s := range sub.stores {
			names = append(names, s.Name)
		}
		return names
	}
	if got, want := len(topology.subs), 2; got != want {
		t.Fatalf("%d sub-topologies, want %d", got, want)
	}
	if got, want := stores(topology.subs[0]), []string{"order-status"}; !slices.Equal(got, want) {
		t.Errorf("stores of 0: %v, want %v", got, want)
	}
	if got, want := stores(topology.subs[1]), []string{"orders-per-store", "orders-per-store-minute"}; !slices.Equal(got, want) {
		t.Errorf("stores of 1: %v, want %v", got, want)
	}
	if got, want := topology.subs[1].stores[1].Retention, 90*time.Second; got != want {
		t.Errorf("retention %v, want %v", got, want)
	}
	users := []string{"KTABLE-SOURCE-0000000006", "KSTREAM-JOIN-0000000007"}
	if got := topology.subs[0].stores[0].users; !slices.Equal(got, users) {
		t.Errorf("users of order-status: %v, want %v", got, users)
	}
	wantSinks := []string{"analytics.high-value-orders", "analytics.orders-with-status", "orders-by-store-repartition"}
	if got := topology.subs[0].sinks; !slices.Equal(got, wantSinks) {
		t.Errorf("sinks of 0: %v, want %v", got, wantSinks)
	}
	if diff := cmp.Diff([][]string{{"orders.placed", "orders.status"}}, topology.copartitioned); diff != "" {
		t.Errorf("co-partitioned:\n%s", diff)
	}
	if r := topology.repartitions; len(r) != 1 || r[0].name != "orders-by-store-repartition" || r[0].partitions != 2 {
		t.Errorf("repartition topics: %+v", r)
	}
	if src := topology.subs[1].sources[0]; !src.repartition || !slices.Equal(src.topics, []string{"orders-by-store-repartition"}) {
		t.Errorf("source of 1: %+v", src)
	}
}

func TestDescribeEmpty(t *testing.T) {
	if got := build(t, func(*Builder) {}).Describe(); got != "Topologies:\n " {
		t.Errorf("%q", got)
	}
}
