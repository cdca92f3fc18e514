package streams_test

import (
	"fmt"
	"log"

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
