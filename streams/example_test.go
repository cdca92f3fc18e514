package streams_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/streams"
)

func ExampleBuilder() {
	b := streams.NewBuilder()
	orders := streams.Consume(b, "orders", streams.Text(), streams.Text())
	byStore := streams.GroupBy(orders, func(_, order string) string { return order[:8] }, streams.Text())
	streams.Count(byStore, "per-store").ToStream().To("counts", streams.Text(), streams.Int64())
	topology, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(topology.Describe())
	// Output:
	// Topologies:
	//    Sub-topology: 0
	//     Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
	//       --> KSTREAM-KEY-SELECT-0000000001
	//     Processor: KSTREAM-KEY-SELECT-0000000001 (stores: [])
	//       --> per-store-repartition-filter
	//       <-- KSTREAM-SOURCE-0000000000
	//     Processor: per-store-repartition-filter (stores: [])
	//       --> per-store-repartition-sink
	//       <-- KSTREAM-KEY-SELECT-0000000001
	//     Sink: per-store-repartition-sink (topic: per-store-repartition)
	//       <-- per-store-repartition-filter
	//
	//   Sub-topology: 1
	//     Source: per-store-repartition-source (topics: [per-store-repartition])
	//       --> KSTREAM-AGGREGATE-0000000002
	//     Processor: KSTREAM-AGGREGATE-0000000002 (stores: [per-store])
	//       --> KTABLE-TOSTREAM-0000000006
	//       <-- per-store-repartition-source
	//     Processor: KTABLE-TOSTREAM-0000000006 (stores: [])
	//       --> KSTREAM-SINK-0000000007
	//       <-- KSTREAM-AGGREGATE-0000000002
	//     Sink: KSTREAM-SINK-0000000007 (topic: counts)
	//       <-- KTABLE-TOSTREAM-0000000006
}

// An application runs until its context ends, and then stops cleanly.
func ExampleApp() {
	b, text := streams.NewBuilder(), streams.Text()
	streams.MapValues(streams.Consume(b, "lines", text, text), strings.ToUpper).To("shouted", text, text)
	topology, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}

	cfg := streams.DefaultConfig()
	cfg.ApplicationID = "shouting"
	cfg.Bootstrap = []string{"localhost:9092"}
	cfg.StateDir = "state"
	cfg.Listener.StateChanged = func(s streams.StateChange) { fmt.Println(s.From, "to", s.To) }
	app, err := streams.NewApp(topology, cfg)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := app.Run(ctx); err != nil {
		log.Print(err)
	}
}

// firstSeen forwards a record only if its key was not seen before, and forgets all keys once an hour of event time.
type firstSeen struct {
	declared *streams.KeyValueStore[string, int64]
	ctx      *streams.ProcessorContext[string, string]
	seen     *streams.KeyValue[string, int64]
}

func (p *firstSeen) Init(ctx *streams.ProcessorContext[string, string]) (err error) {
	p.ctx = ctx
	if p.seen, err = streams.OpenStore(ctx, p.declared); err != nil {
		return err
	}
	_, err = ctx.Schedule(time.Hour, streams.StreamTime, p.forget)
	return err
}

func (p *firstSeen) Process(r streams.Record[string, string]) error {
	_, known, err := p.seen.Get(r.Key)
	if err != nil || known {
		return err
	}
	p.ctx.Forward(r)
	return p.seen.Put(r.Key, r.Timestamp)
}

func (p *firstSeen) forget(int64) error {
	return p.seen.All(func(key string, _ int64) bool { return p.seen.Delete(key) == nil })
}

// A processor written by hand keeps state in a store that is restored from its changelog topic.
func ExampleProcess() {
	b, text := streams.NewBuilder(), streams.Text()
	seen := streams.NewKeyValueStore(b, "seen", text, streams.Int64())
	clicks := streams.Consume(b, "clicks", text, text)
	first := streams.Process(clicks, func() streams.Processor[string, string, string, string] {
		return &firstSeen{declared: seen}
	}, seen, streams.WithName("first-seen"))
	first.To("visitors", text, text)
	topology, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(topology.Describe())
	// Output:
	// Topologies:
	//    Sub-topology: 0
	//     Source: KSTREAM-SOURCE-0000000000 (topics: [clicks])
	//       --> first-seen
	//     Processor: first-seen (stores: [seen])
	//       --> KSTREAM-SINK-0000000001
	//       <-- KSTREAM-SOURCE-0000000000
	//     Sink: KSTREAM-SINK-0000000001 (topic: visitors)
	//       <-- first-seen
}

// What is wrong with a topology is found when it is built, with the node's name and what to do.
func ExampleBuilder_Build() {
	b, text := streams.NewBuilder(), streams.Text()
	lengths := streams.MapValues(streams.Consume(b, "lines", text, text), func(line string) int64 { return int64(len(line)) })
	lengths.GroupByKey().Reduce("longest", func(a, b int64) int64 { return max(a, b) })
	_, err := b.Build()
	fmt.Println(err)
	// Output:
	// topology: node KSTREAM-REDUCE-0000000002: no serde for its aggregate (int64): give it to the aggregation, or by WithSerdes before grouping
}

// Windows are named by their key and start.
func ExampleCountWindows() {
	b, text := streams.NewBuilder(), streams.Text()
	perMinute := streams.Consume(b, "clicks", text, text).GroupByKey().
		WindowedBy(streams.Tumbling(time.Minute).Grace(10 * time.Second))
	counts := streams.CountWindows(perMinute, "clicks-per-minute").ToStream()
	streams.Map(counts, func(w streams.Windowed[string], n int64) (string, int64) {
		return w.Key + " at " + w.StartTime(), n
	}).To("clicks-per-minute", text, streams.Int64())
	if _, err := b.Build(); err != nil {
		log.Fatal(err)
	}

	w := streams.Windowed[string]{Key: "ada", Start: 1789207260000, End: 1789207320000}
	fmt.Println(w.Key + " at " + w.StartTime())
	// Output:
	// ada at 2026-09-12T10:01:00Z
}

// Each record goes down the first branch that takes it.
func ExampleStream_Split() {
	b, text := streams.NewBuilder(), streams.Text()
	split := streams.Consume(b, "orders", text, text).Split(streams.WithName("by-size-"))
	split.Branch(func(_, order string) bool { return len(order) > 100 }, streams.WithName("large")).To("large", text, text)
	split.Default(streams.WithName("small")).To("small", text, text)
	topology, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(topology.Describe())
	// Output:
	// Topologies:
	//    Sub-topology: 0
	//     Source: KSTREAM-SOURCE-0000000000 (topics: [orders])
	//       --> by-size-
	//     Processor: by-size- (stores: [])
	//       --> by-size-large, by-size-small
	//       <-- KSTREAM-SOURCE-0000000000
	//     Processor: by-size-large (stores: [])
	//       --> KSTREAM-SINK-0000000003
	//       <-- by-size-
	//     Processor: by-size-small (stores: [])
	//       --> KSTREAM-SINK-0000000005
	//       <-- by-size-
	//     Sink: KSTREAM-SINK-0000000003 (topic: large)
	//       <-- by-size-large
	//     Sink: KSTREAM-SINK-0000000005 (topic: small)
	//       <-- by-size-small
}
