package verify

import (
	"slices"
	"strconv"
	"time"
)

// What the lab is made of, as its text says.
const (
	topicPlaced    = "orders.placed"
	topicStatus    = "orders.status"
	topicHighValue = "analytics.high-value-orders"
	topicCounts    = "analytics.orders-per-store"
	topicMinutes   = "analytics.orders-per-store-minute"
	topicJoined    = "analytics.orders-with-status"

	defaultApplicationID = "order-counter"

	highValue = 100_000                  // the smallest amount of a high-value order
	minute    = int64(time.Minute / 1e6) // of event time, in milliseconds
	grace     = minute / 2               // how long a minute stays open for late orders
)

// The internal topics, without the application id in front.
const (
	suffixRepartition      = "orders-by-store-repartition"
	suffixCountsChangelog  = "orders-per-store-changelog"
	suffixMinutesChangelog = "orders-per-store-minute-changelog"
	suffixStatusChangelog  = "order-status-changelog"
)

// labTopics are the topics that the lab creates before the application starts, with 3 partitions each.
var labTopics = []string{topicHighValue, topicCounts, topicMinutes, topicJoined, topicPlaced, topicStatus}

const labPartitions = 3

// config is one config that a topic must have.
type config struct{ name, value string }

// internalTopic is a topic that the application creates for itself. Partitions and configs are those of Kafka Streams 4.3.1
// (RepartitionTopicConfig, UnwindowedUnversionedChangelogTopicConfig, WindowedChangelogTopicConfig).
type internalTopic struct {
	suffix     string
	partitions int
	configs    []config
}

var internalTopics = []internalTopic{
	{suffixStatusChangelog, 3, []config{{"cleanup.policy", "compact"}, {"message.timestamp.type", "CreateTime"}}},
	{suffixRepartition, 2, []config{
		{"cleanup.policy", "delete"}, {"segment.bytes", "52428800"}, {"retention.ms", "-1"}, {"message.timestamp.type", "CreateTime"},
	}},
	{suffixCountsChangelog, 2, []config{{"cleanup.policy", "compact"}, {"message.timestamp.type", "CreateTime"}}},
	// Window size and grace are 90000 ms. The lab adds 100 years: with Kafka's default of one day a broker deletes records whose event
	// time lies further back, as the lab's does.
	{suffixMinutesChangelog, 2, []config{
		{"cleanup.policy", "compact,delete"}, {"retention.ms", "3153600090000"}, {"message.timestamp.type", "CreateTime"},
	}},
}

// A feed has 300 events, 200 ms after one another.
const (
	feedSize = 300
	feedStep = 200
)

// feedEvent is event i of the feed with that base.
func feedEvent(base int64, i int) order {
	return order{
		ID:         "ord-" + strconv.Itoa(1000+i),
		Store:      "store-" + strconv.Itoa(17+i%6),
		Placed:     i%10 != 9,
		Amount:     5000 + 25000*int64(i%7),
		OccurredAt: base + feedStep*int64(i),
	}
}

// feedIndex tells which event of a feed has that id; -1: none.
func feedIndex(id string) int {
	if len(id) != len("ord-1000") || id[:4] != "ord-" {
		return -1
	}
	n, err := strconv.Atoi(id[4:])
	if err != nil || n < 1000 || n >= 1000+feedSize {
		return -1
	}
	return n - 1000
}

// firstBase is where the feed of phase 1 starts, secondBase where that of phase 5 does.
const (
	firstBase  = 1789207200000
	secondBase = 1789210800000
)

// The orders that phases 3, 4 and 5 send one by one.
var (
	phase3Orders = []order{
		byHand("ord-2001", 1789207265000), byHand("ord-2002", 1789207230000), byHand("ord-2003", 1789207380000), tooLateOrder,
	}
	phase4Orders = []order{paidOrder, shippedOrder, noStatusOrder}
	phase5Orders = []order{afterTakeoverOrder}

	tooLateOrder  = byHand("ord-2004", 1789207245000) // the minute that it belongs to is closed when it comes
	paidOrder     = byHand("ord-1042", 1789207410000)
	shippedOrder  = byHand("ord-1042", 1789207420000)
	noStatusOrder = byHand("ord-2005", 1789207430000)

	afterTakeoverOrder = byHand("ord-2006", 1789211100000)
)

func byHand(id string, occurredAt int64) order {
	return order{ID: id, Store: "store-17", Placed: true, Amount: 5000, OccurredAt: occurredAt}
}

// isByHand tells those orders from others.
func isByHand(o order) bool {
	return slices.Contains(phase3Orders, o) || slices.Contains(phase4Orders, o) || slices.Contains(phase5Orders, o)
}

// minuteKey is the key of a minute count: store-17|2026-09-12T10:01:00Z.
func minuteKey(store string, start int64) string { return store + "|" + instant(start) }

func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// floorMinute is the start of the minute that ms lies in.
func floorMinute(ms int64) int64 { return ms - ms%minute }

// defaultConfig are Kafka's defaults of those configs: a broker need not list what is set to the default.
var defaultConfig = map[string]string{"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}
