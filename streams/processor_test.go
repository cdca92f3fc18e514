package streams

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// script is a processor made of functions.
type script struct {
	init    func(*ProcessorContext[string, string]) error
	process func(Record[string, string]) error
}

func (s script) Init(ctx *ProcessorContext[string, string]) error { return s.init(ctx) }

func (s script) Process(r Record[string, string]) error {
	if s.process == nil {
		return nil
	}
	return s.process(r)
}

// processed is a topology from in through one processor to out.
func processed(t testing.TB, make func() Processor[string, string, string, string], opts ...ProcessOption) *Topology {
	t.Helper()
	return build(t, func(b *Builder) { out(Process(in(b), make, opts...), "out") })
}

// TestPunctuations walks both times: "record 5" is one with timestamp 5, "clock 5" sets the wall clock, and the calls are
// those made since the step before.
func TestPunctuations(t *testing.T) {
	type step struct {
		what string
		at   int64
		want []string
	}
	for _, c := range []struct {
		name     string
		schedule func(ctx *ProcessorContext[string, string], call func(name string, now int64)) error
		steps    []step
	}{
		{
			"stream time: with the first record, then aligned to the epoch, missed calls made up for by one",
			every(10*time.Millisecond, StreamTime, "s"),
			[]step{
				{"clock", 1000, nil},
				{"record", 3, []string{"s@3"}},
				{"record", 9, nil},
				{"record", 10, []string{"s@10"}},
				{"record", 8, nil}, // stream time does not go back
				{"record", 47, []string{"s@47"}},
				{"record", 49, nil},
				{"record", 50, []string{"s@50"}},
			},
		},
		{
			"stream time: a first record right on an interval",
			every(10*time.Millisecond, StreamTime, "s"),
			[]step{{"record", 20, []string{"s@20"}}, {"record", 29, nil}, {"record", 30, []string{"s@30"}}},
		},
		{
			"wall clock: after the interval, aligned to the start, without records",
			every(10*time.Millisecond, WallClock, "w"),
			[]step{
				{"clock", 109, nil},
				{"clock", 110, []string{"w@110"}},
				{"record", 5000, nil},
				{"clock", 119, nil},
				{"clock", 145, []string{"w@145"}},
				{"clock", 149, nil},
				{"clock", 150, []string{"w@150"}},
				{"clock", 90, nil}, // a clock that was set back
			},
		},
		{
			"several, by the time they are due",
			func(ctx *ProcessorContext[string, string], call func(string, int64)) error {
				return errors.Join(
					every(30*time.Millisecond, WallClock, "slow")(ctx, call), every(20*time.Millisecond, WallClock, "fast")(ctx, call),
				)
			},
			[]step{
				{"clock", 129, []string{"fast@129"}},
				{"clock", 130, []string{"slow@130"}},
				{"clock", 165, []string{"fast@165", "slow@165"}},
			},
		},
		{
			"cancelled from within, and while another is called",
			func(ctx *ProcessorContext[string, string], call func(string, int64)) error {
				var once, other *Punctuation
				var err error
				other, err = ctx.Schedule(20*time.Millisecond, WallClock, func(now int64) error { call("other", now); return nil })
				if err != nil {
					return err
				}
				once, err = ctx.Schedule(10*time.Millisecond, WallClock, func(now int64) error {
					call("once", now)
					once.Cancel()
					other.Cancel()
					return nil
				})
				return err
			},
			[]step{{"clock", 125, []string{"once@125"}}, {"clock", 200, nil}},
		},
		{
			"scheduled by a punctuation",
			func(ctx *ProcessorContext[string, string], call func(string, int64)) error {
				var first *Punctuation
				var err error
				first, err = ctx.Schedule(10*time.Millisecond, WallClock, func(now int64) error {
					call("first", now)
					first.Cancel()
					return every(5*time.Millisecond, WallClock, "second")(ctx, call)
				})
				return err
			},
			[]step{{"clock", 110, []string{"first@110"}}, {"clock", 115, []string{"second@115"}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls []string
			topology := processed(t, func() Processor[string, string, string, string] {
				return script{init: func(ctx *ProcessorContext[string, string]) error {
					return c.schedule(ctx, func(name string, now int64) { calls = append(calls, fmt.Sprintf("%s@%d", name, now)) })
				}}
			})
			b := newBenchAt(t, topology, 0, 100)
			for i, s := range c.steps {
				calls = nil
				if s.what == "record" {
					b.put("in", "k", "v", s.at)
				} else {
					b.tick(s.at)
				}
				if diff := cmp.Diff(s.want, calls); diff != "" {
					t.Errorf("step %d, %s %d (-want +got):\n%s", i, s.what, s.at, diff)
				}
			}
		})
	}
}

func every(d time.Duration, by PunctuationType, name string) func(*ProcessorContext[string, string], func(string, int64)) error {
	return func(ctx *ProcessorContext[string, string], call func(string, int64)) error {
		_, err := ctx.Schedule(d, by, func(now int64) error { call(name, now); return nil })
		return err
	}
}

// TestPunctuationForwards: what a punctuation forwards goes all the way down, under the timestamp and headers it is given,
// and what it puts is logged with the punctuation's own time.
func TestPunctuationForwards(t *testing.T) {
	var where []string
	topology := build(t, func(b *Builder) {
		seen := NewKeyValueStore(b, "seen", Text(), Int64())
		s := Process(in(b), func() Processor[string, string, string, string] {
			var counts *KeyValue[string, int64]
			var ctx *ProcessorContext[string, string]
			return script{
				init: func(c *ProcessorContext[string, string]) (err error) {
					ctx = c
					if counts, err = OpenStore(c, seen); err != nil {
						return err
					}
					_, err = c.Schedule(time.Second, WallClock, func(now int64) error {
						at := ctx.Context()
						where = append(where, fmt.Sprintf("%q %d %d %d stream time %d",
							at.Topic(), at.Partition(), at.Offset(), at.Timestamp(), ctx.StreamTime()))
						return counts.All(func(k string, n int64) bool {
							ctx.Forward(Record[string, string]{
								Key: k, Value: fmt.Sprint(n), Timestamp: 7, Headers: []Header{{Key: "by", Value: []byte("clock")}},
							})
							return counts.Delete(k) == nil
						})
					})
					return err
				},
				process: func(r Record[string, string]) error {
					n, _, err := counts.Get(r.Key)
					if err != nil {
						return err
					}
					return counts.Put(r.Key, n+1)
				},
			}
		}, seen)
		outCount(Count(s.WithSerdes(Text(), Text()).GroupByKey(), "totals").ToStream(), "out")
	})
	b := newBenchAt(t, topology, 0, 1000)
	b.put("in", "b", "v", 5)
	b.put("in", "a", "v", 6)
	b.put("in", "b", "v", 4)
	b.wants(
		`app-seen-changelog 5 "b" 0000000000000001`, `app-seen-changelog 6 "a" 0000000000000001`, `app-seen-changelog 4 "b" 0000000000000002`,
	)
	b.tick(2500)
	b.wants(
		`app-totals-repartition 7 "a" "1" by=clock`, `app-seen-changelog 2500 "a" null`,
		`app-totals-repartition 7 "b" "2" by=clock`, `app-seen-changelog 2500 "b" null`,
	)
	b.flush()
	b.wants() // all of it was logged at once
	if diff := cmp.Diff([]string{`"" -1 -1 2500 stream time 6`}, where); diff != "" {
		t.Error(diff)
	}
}

// TestProcessorErrors: whatever goes wrong in a processor is an error that names its node, and ends the task.
func TestProcessorErrors(t *testing.T) {
	boom := errors.New("boom")
	bad := Serde[string]{
		Append: func([]byte, string) ([]byte, error) { return nil, boom },
		Decode: func([]byte) (string, error) { return "", boom },
	}
	type ctx = *ProcessorContext[string, string]
	scheduled := func(fn func(int64) error) func(ctx) error {
		return func(c ctx) error { _, err := c.Schedule(time.Millisecond, WallClock, fn); return err }
	}
	for _, c := range []struct {
		name string
		make func(s *KeyValueStore[string, string]) script
		want string // "" is boom
	}{
		{"process", func(*KeyValueStore[string, string]) script {
			return script{init: func(ctx) error { return nil }, process: func(Record[string, string]) error { return boom }}
		}, "node p: task 0_0, topic in, partition 0, offset 0: boom"},
		{"a store that the processor goes on without", func(s *KeyValueStore[string, string]) script {
			var kv *KeyValue[string, string]
			return script{
				init:    func(c ctx) (err error) { kv, err = OpenStore(c, s); return err },
				process: func(r Record[string, string]) error { _ = kv.Put(r.Key, r.Value); return nil },
			}
		}, "node p: task 0_0, topic in, partition 0, offset 0: encode the value for store s: boom"},
		{"a negative timestamp", func(*KeyValueStore[string, string]) script {
			var c ctx
			return script{
				init:    func(pc ctx) error { c = pc; return nil },
				process: func(r Record[string, string]) error { r.Timestamp = -1; c.Forward(r); c.Forward(r); return nil },
			}
		}, "node p: task 0_0, topic in, partition 0, offset 0: forwards a record with timestamp -1: it must not be negative"},
		{"punctuation", func(*KeyValueStore[string, string]) script {
			return script{init: scheduled(func(int64) error { return boom })}
		}, "node p: task 0_0, while punctuating: boom"},
		{"a punctuation that panics", func(*KeyValueStore[string, string]) script {
			return script{init: scheduled(func(int64) error { panic(boom) })}
		}, "node p panicked: task 0_0, while punctuating: boom"},
	} {
		t.Run(c.name, func(t *testing.T) {
			topology := build(t, func(b *Builder) {
				s := NewKeyValueStore(b, "s", Text(), bad)
				out(Process(in(b), func() Processor[string, string, string, string] { return c.make(s) }, s, WithName("p")), "out")
			})
			b := newBenchAt(t, topology, 0, 0)
			err := b.feed("in", "k", "v", 1)
			if err == nil {
				b.now = 10
				_, err = b.scheduled.tick(b.ctx)
			}
			var pe *ProcessingError
			if !errors.As(err, &pe) || err.Error() != c.want {
				t.Errorf("%v\nwant %s", err, c.want)
			}
			b.wants()
		})
	}
}

// TestProcessorStart: a processor that cannot start names what it lacks.
func TestProcessorStart(t *testing.T) {
	for _, c := range []struct {
		name string
		init func(ctx *ProcessorContext[string, string], other *KeyValueStore[string, string]) error
		want string
	}{
		{"a store it was not given", func(ctx *ProcessorContext[string, string], other *KeyValueStore[string, string]) error {
			_, err := OpenStore(ctx, other)
			return err
		}, "node p: task 0_0, while starting: processor p has no access to store other: give the store to Process"},
		{"no interval", func(ctx *ProcessorContext[string, string], _ *KeyValueStore[string, string]) error {
			_, err := ctx.Schedule(999*time.Microsecond, StreamTime, nil)
			return err
		}, "node p: task 0_0, while starting: node p: a punctuation every 999µs: at least every 1 ms"},
		{"no such time", func(ctx *ProcessorContext[string, string], _ *KeyValueStore[string, string]) error {
			_, err := ctx.Schedule(time.Second, 0, nil)
			return err
		}, "node p: task 0_0, while starting: node p: a punctuation by 0: StreamTime or WallClock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			topology := build(t, func(b *Builder) {
				other := NewKeyValueStore(b, "other", Text(), Text())
				out(Process(in(b), func() Processor[string, string, string, string] {
					return script{init: func(ctx *ProcessorContext[string, string]) error { return c.init(ctx, other) }}
				}, WithName("p")), "out")
			})
			b := bindBench(t, topology, 0)
			if err := b.starts[0](b.ctx); err == nil || err.Error() != c.want {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
	none := processed(t, func() Processor[string, string, string, string] { return nil })
	if _, err := newBinding(&bench{t: t}, none.subs[0]); !errors.Is(err, errNoProcessor) {
		t.Errorf("a supplier without a processor: %v", err)
	}
}

// TestProcessorBuildErrors: stores are checked when the topology is built.
func TestProcessorBuildErrors(t *testing.T) {
	idler := func() Processor[string, string, string, string] { return idle[string, string]{} }
	for _, c := range []struct {
		name, want string
		program    func(*Builder)
	}{
		{"another builder's store", "node KSTREAM-PROCESSOR-0000000001: store s: its inputs come from two builders", func(b *Builder) {
			Process(in(b), idler, NewKeyValueStore(NewBuilder(), "s", Text(), Text()))
		}},
		{"two stores of one name", "store s: two operators have a store of this name", func(b *Builder) {
			NewKeyValueStore(b, "s", Text(), Text())
			Count(in(b).GroupByKey(), "s")
		}},
		{"a store without a name", `store : "" is not a legal name`, func(b *Builder) { NewKeyValueStore(b, "", Text(), Text()) }},
		{"a store without serdes", "store s: no serdes", func(b *Builder) { NewKeyValueStore(b, "s", Text(), Serde[string]{}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBuilder()
			c.program(b)
			if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

// TestSharedStore: processors of two inputs that share a store are one sub-topology, and its tasks have the store.
func TestSharedStore(t *testing.T) {
	topology := build(t, func(b *Builder) {
		s := NewKeyValueStore(b, "s", Text(), Text())
		idler := func() Processor[string, string, string, string] { return idle[string, string]{} }
		Process(in(b), idler, s, s, WithName("first"))
		Process(Consume(b, "in2", Text(), Text()), idler, s, WithName("second"))
		NewKeyValueStore(b, "unused", Text(), Text())
	})
	if len(topology.subs) != 1 || len(topology.subs[0].stores) != 1 {
		t.Fatalf("%d sub-topologies\n%s", len(topology.subs), topology.Describe())
	}
	st := topology.subs[0].stores[0]
	if diff := cmp.Diff([]string{"first", "second"}, st.users); diff != "" || !st.Logged || st.Name != "s" {
		t.Errorf("%+v %s", st.Spec, diff)
	}
}

// TestWithSerdesSharesTheRepartition: a copy with other serdes is the same stream, so its second join reads the
// repartition topic that the first one made.
func TestWithSerdesSharesTheRepartition(t *testing.T) {
	topology := build(t, func(b *Builder) {
		s := SelectKey(in(b), first)
		tab := table(b)
		out(Join(s.WithSerdes(Text(), Text()), tab, first), "out")
		out(Join(s.WithSerdes(Text(), Text()), tab, first), "out2")
	})
	if len(topology.repartitions) != 1 {
		t.Errorf("%d repartition topics, want 1\n%s", len(topology.repartitions), topology.Describe())
	}
}
