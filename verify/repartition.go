package verify

import "github.com/windowed-order-counter/lab/internal/kafka"

// repartition is the content of the repartition topic: each store's records, and what counting them by the minute comes to.
//
// Whether an order is too late for its minute depends on the order of arrival, which nothing but this topic fixes: a partition of it is
// what one task counts, from front to back. So the minutes are counted here once more, by the same rule.
type repartition struct {
	stores  map[string]*repartitioned
	minutes map[string]minuteInput // by minute key; without the orders that came too late
	late    map[string]int64       // those
	clock   map[int32]int64        // stream time of each partition's task
}

// repartitioned are the records of one store.
type repartitioned struct {
	digest
	partitions []int32
}

func newRepartition() *repartition {
	return &repartition{
		stores: map[string]*repartitioned{}, minutes: map[string]minuteInput{}, late: map[string]int64{}, clock: map[int32]int64{},
	}
}

func (rs *repartition) add(tp kafka.TopicPartition, r *kafka.Record) {
	store := text(r.Key)
	k := rs.stores[store]
	if k == nil {
		k = &repartitioned{}
		rs.stores[store] = k
	}
	k.add(fingerprint(r.Value, r.Timestamp))
	k.partitions = insert(k.partitions, tp.Partition)
	if r.Key != nil && r.Timestamp >= 0 {
		rs.count(tp.Partition, store, r.Timestamp)
	}
}

// count adds a record to its minute unless that is closed. Stream time is the largest timestamp of the partition so far, this record's
// included, and a minute is open while stream time is before its end plus grace (Kafka Streams 4.3.1, KStreamWindowAggregate).
func (rs *repartition) count(partition int32, store string, ts int64) {
	now := max(rs.clock[partition], ts)
	rs.clock[partition] = now
	start := floorMinute(ts)
	key := minuteKey(store, start)
	if start+minute+grace <= now {
		rs.late[key]++
		return
	}
	m := rs.minutes[key]
	rs.minutes[key] = minuteInput{placed: m.placed + 1, latest: max(m.latest, ts)}
}

// digest is the content under one store.
func (rs *repartition) digest(store string) digest {
	if k := rs.stores[store]; k != nil {
		return k.digest
	}
	return digest{}
}
