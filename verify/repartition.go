package verify

import (
	"slices"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// repartition is the content of the repartition topic: each store's records, and what counting them by the minute comes to.
//
// Whether an order is too late for its minute depends on the order of arrival, which nothing but this topic fixes: a partition of it is
// what one task counts, from front to back. So the minutes are counted here once more, by the same rule.
type repartition struct {
	stores  map[string]*repartitioned
	minutes map[string]minuteInput // by minute key; without the orders that came too late
	late    map[string]int64       // those
	clock   map[int32]int64        // stream time of each partition's task
	moments map[order]moment       // of the orders of phases 3 to 5
	asked   map[ask]int64          // the timestamp with which a count was reached, -1 as long as it was not

	closers  map[int32]closers     // of each partition
	groups   map[place]*lateGroup  // the late orders, by the place of the order that closed their minute
	dropouts map[uint64]*lateGroup // the same by content, of up to maxLedger orders
}

// moment is what had been counted when an order had just been, for the first time.
type moment struct {
	at         place // in the repartition topic
	streamTime int64 // with the order
	count      milestone
	minute     milestone // its value is 0 if the order came too late
}

// ask is a count whose timestamp is asked for.
type ask struct {
	key   string // of the running or of the minute counts
	count int64
}

// repartitioned are the records of one store.
type repartitioned struct {
	digest
	partitions []int32
	latest     int64 // the largest timestamp, which is that of the count
}

func newRepartition() *repartition {
	return &repartition{
		stores: map[string]*repartitioned{}, minutes: map[string]minuteInput{}, late: map[string]int64{}, clock: map[int32]int64{},
		moments: map[order]moment{}, asked: map[ask]int64{}, closers: map[int32]closers{}, groups: map[place]*lateGroup{},
		dropouts: map[uint64]*lateGroup{},
	}
}

func (rs *repartition) add(tp kafka.TopicPartition, r *kafka.Record) {
	store := text(r.Key)
	k := rs.stores[store]
	if k == nil {
		k = &repartitioned{latest: -1}
		rs.stores[store] = k
	}
	k.add(fingerprint(r.Value, r.Timestamp))
	k.partitions = insert(k.partitions, tp.Partition)
	k.latest = max(k.latest, r.Timestamp)
	minute := milestone{}
	if r.Key != nil && r.Timestamp >= 0 {
		before, started := rs.clock[tp.Partition]
		if !started {
			before = -1
		}
		minute = rs.count(tp.Partition, store, r.Timestamp)
		rs.noteLate(tp, r, before, minute.value == 0)
	}
	count := milestone{store, k.n, k.latest}
	if len(rs.asked) > 0 {
		for _, m := range []milestone{count, minute} {
			if _, asked := rs.asked[ask{m.key, m.value}]; asked {
				rs.asked[ask{m.key, m.value}] = m.time
			}
		}
	}
	if !isByHandTime(r.Timestamp) {
		return
	}
	if o, err := readOrder(r.Value); err == nil && isByHand(o) && rs.moments[o].count.value == 0 {
		rs.moments[o] = moment{place{tp, r.Offset}, rs.clock[tp.Partition], count, minute}
	}
}

// isByHandTime saves reading most of the orders.
func isByHandTime(ms int64) bool {
	at := func(o order) bool { return o.OccurredAt == ms }
	return slices.ContainsFunc(phase3Orders, at) || slices.ContainsFunc(phase4Orders, at) || slices.ContainsFunc(phase5Orders, at)
}

// count adds a record to its minute unless that is closed. Stream time is the largest timestamp of the partition so far, this record's
// included, and a minute is open while stream time is before its end plus grace (Kafka Streams 4.3.1, KStreamWindowAggregate). It returns the
// count that it makes, without a value if the record is too late.
func (rs *repartition) count(partition int32, store string, ts int64) milestone {
	now := max(rs.clock[partition], ts)
	rs.clock[partition] = now
	start := floorMinute(ts)
	key := minuteKey(store, start)
	if start+minute+grace <= now {
		rs.late[key]++
		return milestone{key: key, time: -1}
	}
	m := rs.minutes[key]
	m = minuteInput{placed: m.placed + 1, latest: max(m.latest, ts)}
	rs.minutes[key] = m
	return milestone{key, m.placed, m.latest}
}

// digest is the content under one store.
func (rs *repartition) digest(store string) digest {
	if k := rs.stores[store]; k != nil {
		return k.digest
	}
	return digest{}
}
