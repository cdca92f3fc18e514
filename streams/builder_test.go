package streams

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestBuildErrors: what is wrong with an operator is an error of Build that names its node and the cure.
func TestBuildErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		program func(*Builder)
		want    []string
	}{
		{
			"no serde for an automatic repartition",
			func(b *Builder) { Count(Map(in(b), same).GroupByKey(), "c") },
			[]string{"node KSTREAM-AGGREGATE-0000000002: no serde for its key (string)", "WithSerdes before grouping",
				"node c-repartition-sink: no serde for its value (string)"},
		},
		{
			"no serde for a join's repartition",
			func(b *Builder) { t := table(b); Join(SelectKey(in(b), first), t, first) },
			[]string{"node KSTREAM-SINK-0000000004: no serde for its key (string): give it by WithSerdes before joining"},
		},
		{
			"no serde for a sink",
			func(b *Builder) { in(b).To("out", Text(), Serde[string]{}) },
			[]string{"node KSTREAM-SINK-0000000001: no serde for its value (string): give it to To"},
		},
		{
			"reduce without a value serde",
			func(b *Builder) { MapValues(in(b), ident).GroupByKey().Reduce("r", first) },
			[]string{"node KSTREAM-REDUCE-0000000002: no serde for its aggregate (string)"},
		},
		{
			"an extractor of another type",
			func(b *Builder) {
				Consume(b, "in", Text(), Text(), EventTime(func(Record[string, int64], int64) (int64, error) { return 0, nil }))
			},
			[]string{"node KSTREAM-SOURCE-0000000000: EventTime has a", "TimestampExtractor[string,int64]", "TimestampExtractor[string,string]"},
		},
		{
			"a topic consumed twice",
			func(b *Builder) { in(b); ReadTable(b, "in", "s", Text(), Text()) },
			[]string{"node KSTREAM-SOURCE-0000000001: topic in is already consumed"},
		},
		{
			"a store name twice",
			func(b *Builder) { g := in(b).GroupByKey(); Count(g, "c"); Count(g, "c") },
			[]string{"store c: two operators have a store of this name"},
		},
		{
			"a node name twice",
			func(b *Builder) { s := in(b); s.Filter(yes, WithName("f")); s.Peek(look, WithName("f")) },
			[]string{"node f: two nodes have this name"},
		},
		{
			"a repartition name twice",
			func(b *Builder) {
				s := in(b)
				s.Repartition("r", 1, Text(), Text())
				s.Repartition("r", 1, Text(), Text())
			},
			[]string{"node r-repartition-sink: repartition topic r-repartition: an earlier operator"},
		},
		{
			"illegal names",
			func(b *Builder) {
				s := Consume(b, "a topic", Text(), Text())
				out(s, "")
				Count(s.GroupByKey(), "a/b")
			},
			[]string{"node KSTREAM-SOURCE-0000000000: topic: \"a topic\"", "node KSTREAM-SINK-0000000001: topic: \"\"", "store a/b: \"a/b\""},
		},
		{
			"an illegal node name",
			func(b *Builder) { in(b).Filter(yes, WithName("a b")) },
			[]string{`node a b: "a b" is not a legal name`},
		},
		{
			"negative partitions",
			func(b *Builder) { in(b).Repartition("r", -1, Text(), Text()) },
			[]string{"node r-repartition-sink: -1 partitions"},
		},
		{
			"a join of repartitions of different widths",
			func(b *Builder) {
				c := Count(Consume(b, "in2", Text(), Text()).Repartition("r3", 3, Text(), Text()).GroupByKey(), "c")
				Join(in(b).Repartition("r2", 2, Text(), Text()), c, func(v string, _ int64) string { return v })
			},
			[]string{"Following topics do not have the same number of partitions: [{r2-repartition=2, r3-repartition=3}]"},
		},
		{
			"a join before its table",
			func(b *Builder) {
				s := mapped(b)
				g := s.GroupByKey(WithName("g"))
				c := Count(g, "c")
				Join(Consume(b, "other", Text(), Text()), c, func(v string, _ int64) string { return v })
				Count(g, "d") // moves g, and c below it, behind the join
			},
			[]string{"node KSTREAM-JOIN-0000000007: it reads store c, whose node KSTREAM-AGGREGATE-0000000002 comes after it"},
		},
		{"window size zero", windowed(Tumbling(0)), []string{"node KSTREAM-AGGREGATE-0000000001: window size 0s"}},
		{"window advance above size", windowed(Hopping(time.Second, time.Minute)), []string{"advance must be above zero and at most the size"}},
		{"negative grace", windowed(Tumbling(time.Second).Grace(-1 * time.Second)), []string{"window grace -1s"}},
		{"finer than a millisecond", windowed(Tumbling(time.Second + time.Microsecond)), []string{"whole milliseconds"}},
		{
			"two builders",
			func(b *Builder) {
				in(b).Merge(in(NewBuilder()))
				Join(Consume(b, "x", Text(), Text()), table(NewBuilder()), first)
			},
			[]string{"node KSTREAM-MERGE-0000000001: its inputs come from two builders",
				"node KSTREAM-JOIN-0000000003: its inputs come from two builders"},
		},
		{
			"a join with a windowed table",
			func(b *Builder) {
				w := CountWindows(in(b).GroupByKey().WindowedBy(Tumbling(time.Minute)), "w")
				Join(w.ToStream(), w, func(a, _ int64) int64 { return a })
			},
			[]string{"the table of a windowed aggregation cannot be joined"},
		},
		{
			"branches after the default",
			func(b *Builder) { sp := in(b).Split(); sp.Default(); sp.Branch(yes); sp.Default(WithName("again")) },
			[]string{"a branch after the default one", "a second default branch"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBuilder()
			c.program(b)
			_, err := b.Build()
			if err == nil {
				t.Fatal("built")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func windowed(w Windows) func(*Builder) {
	return func(b *Builder) { CountWindows(in(b).GroupByKey().WindowedBy(w), "w") }
}

func TestBuildOnce(t *testing.T) {
	b := NewBuilder()
	s := in(b)
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	before := topology.Describe()
	out(s, "late")
	if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), "KSTREAM-SINK-0000000001: added after Build") {
		t.Errorf("%v", err)
	}
	if after := topology.Describe(); after != before {
		t.Errorf("a built topology changed:\n%s", after)
	}
}

func TestStartTime(t *testing.T) {
	for ms, want := range map[int64]string{
		1789207260000: "2026-09-12T10:01:00Z",
		1700000040000: "2023-11-14T22:14:00Z",
		0:             "1970-01-01T00:00:00Z",
		1500:          "1970-01-01T00:00:01.500Z",
		1001:          "1970-01-01T00:00:01.001Z",
	} {
		if got := (Windowed[string]{Start: ms}).StartTime(); got != want {
			t.Errorf("%d: %s, want %s", ms, got, want)
		}
	}
}

func TestSerdes(t *testing.T) {
	b, err := Int64().Append([]byte{9}, -2)
	if err != nil || string(b) != "\x09\xff\xff\xff\xff\xff\xff\xff\xfe" {
		t.Errorf("%x %v", b, err)
	}
	if n, err := Int64().Decode(b[1:]); n != -2 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if _, err := Int64().Decode(b); err == nil {
		t.Error("9 bytes were decoded")
	}
	raw := []byte("abc")
	kept, err := Bytes().Decode(raw)
	raw[0] = 'x'
	if string(kept) != "abc" || err != nil {
		t.Errorf("Decode kept its input: %s %v", kept, err)
	}
	if empty, err := Bytes().Decode(nil); empty == nil || err != nil {
		t.Errorf("an empty value is not null: %v %v", empty, err)
	}
}

// TestEncodeError: a value that its serde refuses names the node, and an empty encoding is not null.
func TestEncodeError(t *testing.T) {
	refused := errors.New("refused")
	picky := Serde[string]{
		Append: func(dst []byte, v string) ([]byte, error) {
			switch v {
			case "bad":
				return nil, refused
			case "empty":
				return nil, nil
			}
			return append(dst, v...), nil
		},
		Decode: func(b []byte) (string, error) { return string(b), nil },
	}
	b := newBench(t, build(t, func(b *Builder) { in(b).To("out", Text(), picky) }), 0)
	b.put("in", "k", "a long value before it", 1)
	b.put("in", "k", "empty", 2)
	b.wants(`out 1 "k" "a long value before it"`, `out 2 "k" ""`)
	err := b.feed("in", "k", "bad", 3)
	want := "node KSTREAM-SINK-0000000001: task 0_0, topic in, partition 0, offset 2: encode the value"
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
