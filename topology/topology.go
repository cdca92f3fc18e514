// Package topology is the lab's one Kafka Streams topology: order events are filtered, routed by amount, joined with a status table, and
// counted per store, in all and per minute of event time.
package topology

import (
	"strconv"
	"time"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/streams"
)

// The topics that the topology reads and writes. The output topics take a suffix (Options.Suffix), so that several applications can run side
// by side.
const (
	OrdersPlaced         = feed.OrdersPlaced
	OrdersStatus         = feed.OrdersStatus
	HighValueOrders      = "analytics.high-value-orders"
	OrdersPerStore       = "analytics.orders-per-store"
	OrdersPerStoreMinute = "analytics.orders-per-store-minute"
	OrdersWithStatus     = "analytics.orders-with-status"
)

// ApplicationID is the application of phases 1 to 5.
const ApplicationID = "order-counter"

// The internal topics, without the application id that they begin with.
const (
	Repartition             = "orders-by-store-repartition"
	PerStoreChangelog       = "orders-per-store-changelog"
	PerStoreMinuteChangelog = "orders-per-store-minute-changelog"
	StatusChangelog         = "order-status-changelog"
)

// Partitions is the number of partitions of each topic that the lab creates.
const Partitions = 3

// RepartitionPartitions is the number of partitions of the repartition topic, and with it of counting tasks.
const RepartitionPartitions = 2

// HighValue is the smallest amount of a high-value order.
const HighValue = 100_000

// MaxStoreID is the length of the longest store id: it is the key of the counts. An order of a longer one is refused as a whole, before it is
// routed anywhere, and not only once it is to be counted.
const MaxStoreID = store.MaxKeyBytes

// Windows are one minute of event time, open for another 30 seconds.
const (
	WindowSize  = time.Minute
	WindowGrace = 30 * time.Second
)

// order is an order with the bytes it came in: they go on unchanged into the repartition topic and the join.
type order struct {
	feed.Order
	raw []byte
}

// errNoValue is the fault of an order without a value.
var errNoValue = &feed.OrderError{Reason: feed.ReasonEmpty}

func orderSerde() streams.Serde[order] {
	return streams.Serde[order]{
		Append: func(dst []byte, o order) ([]byte, error) { return append(dst, o.raw...), nil },
		Decode: func(b []byte) (order, error) {
			o, err := feed.DecodeOrder(b)
			if err == nil && len(o.StoreID) > MaxStoreID {
				err = &feed.OrderError{Field: "storeId", Reason: feed.ReasonTooLong}
			}
			return order{Order: o, raw: b}, err
		},
	}
}

// occurredAt is the event time of an order: when the customer placed it, not when the feed ran.
func occurredAt(r streams.Record[string, order], _ int64) (int64, error) {
	if r.NullValue {
		return 0, errNoValue
	}
	return r.Value.OccurredAt, nil
}

func isPlaced(_ string, o order) bool { return o.Status == feed.Placed }

func isHighValue(_ string, o order) bool { return o.Amount >= HighValue }

func storeAndAmount(_ string, o order) (string, string) {
	return o.StoreID, strconv.FormatInt(o.Amount, 10)
}

func withStatus(o order, status string) string { return status + "|" + string(o.raw) }

func byStoreID(_ string, o order) (string, []byte) { return o.StoreID, o.raw }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// storeAtMinute makes the key of a minute count: store-17|2026-09-12T10:01:00Z.
func storeAtMinute(w streams.Windowed[string], n int64) (string, string) {
	return w.Key + "|" + w.StartTime(), decimal(n)
}

// Options say which user topics the topology reads and writes. The zero value is the lab's own.
type Options struct {
	// Prefix is what the names of all user topics begin with, inputs too: for a run of its own beside the lab's phases, or on a cluster that
	// others use.
	Prefix string
	// Suffix is appended to the names of the output topics: for another application that reads the same orders.
	Suffix string
}

// Build makes the topology.
//
// The order of the calls is part of its contract: it decides node names, sub-topology ids, and with them task ids and state folders.
func Build(o Options) (*streams.Topology, error) {
	b := streams.NewBuilder()
	prefix, suffix := o.Prefix, o.Suffix
	text := streams.Text()

	placed := streams.Consume(b, prefix+OrdersPlaced, text, orderSerde(), streams.EventTime(occurredAt)).Filter(isPlaced)
	streams.Map(placed.Filter(isHighValue), storeAndAmount).To(prefix+HighValueOrders+suffix, text, text)

	status := streams.ReadTable(b, prefix+OrdersStatus, "order-status", text, text)
	streams.Join(placed, status, withStatus).To(prefix+OrdersWithStatus+suffix, text, text)

	byStore := streams.Map(placed, byStoreID).Repartition("orders-by-store", RepartitionPartitions, text, streams.Bytes()).GroupByKey()
	streams.MapValues(streams.Count(byStore, "orders-per-store").ToStream(), decimal).To(prefix+OrdersPerStore+suffix, text, text)

	minutes := streams.CountWindows(byStore.WindowedBy(streams.Tumbling(WindowSize).Grace(WindowGrace)), "orders-per-store-minute")
	streams.Map(minutes.ToStream(), storeAtMinute).To(prefix+OrdersPerStoreMinute+suffix, text, text)

	return b.Build()
}

// Hooks are told what the lab shows of a running topology. Nil ones are left out.
type Hooks struct {
	// BeforeCount is called before an order of that store is counted.
	BeforeCount func(ctx *streams.Context, store string)
	// TableApplied is called after a status row is in the table.
	TableApplied func(orderID, status string)
	// Joined is called after an order found its status.
	Joined func(orderID, joined string)
}

// The nodes that the hooks watch.
const (
	countNode = "KSTREAM-AGGREGATE-0000000013"
	tableNode = "KTABLE-SOURCE-0000000006"
	joinNode  = "KSTREAM-JOIN-0000000007"
)

// Observers ties the hooks to the topology's nodes. They add no node, so the description stays that of the plain topology.
func Observers(h Hooks) []*streams.Observer {
	var out []*streams.Observer
	if h.BeforeCount != nil {
		out = append(out, streams.Before(countNode, func(ctx *streams.Context, r streams.Record[string, []byte]) { h.BeforeCount(ctx, r.Key) }))
	}
	if h.TableApplied != nil {
		out = append(out, streams.After(tableNode, func(_ *streams.Context, r streams.Record[string, string]) { h.TableApplied(r.Key, r.Value) }))
	}
	if h.Joined != nil {
		out = append(out, streams.After(joinNode, func(_ *streams.Context, r streams.Record[string, string]) { h.Joined(r.Key, r.Value) }))
	}
	return out
}
