package topology_test

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/topology"
)

// replay counts a repartition topic once more, in its order, by the rules of Kafka Streams 4.3.1 (KStreamAggregate, KStreamWindowAggregate,
// AbstractRocksDBSegmentedBytesStore). A partition of that topic is what one task counts from front to back, so its order decides which
// orders are late, and with it what every record of the changelogs and outputs has to be.
type replay struct {
	tasks [topology.RepartitionPartitions]replayTask
	late  []record
	logs  map[string][]row // each changelog and output, by the name that the topology has for it: what a run without caches writes
}

// replayTask is the state of one counting task.
type replayTask struct {
	counts, minutes map[string]tally // by key of the changelog
	clock           int64            // stream time, as KStreamWindowAggregate has it: -1 when its instance starts
	newest          int64            // start of the newest window in the store
}

type tally struct{ count, latest int64 }

func newReplay() *replay {
	r := &replay{logs: map[string][]row{}}
	for p := range r.tasks {
		r.tasks[p] = replayTask{counts: map[string]tally{}, minutes: map[string]tally{}, clock: -1, newest: -1}
	}
	return r
}

// javaStarts is the start of a task in a Java instance: it knows no stream time. Ours goes on with the one that there was.
func (r *replay) javaStarts(partition int32) { r.tasks[partition].clock = -1 }

func (r *replay) add(rec record) {
	const retention = topology.WindowSize + topology.WindowGrace
	const size, grace, segment = int64(topology.WindowSize / time.Millisecond), int64(topology.WindowGrace / time.Millisecond), 60_000
	task, store := &r.tasks[rec.partition], string(rec.Key)
	total := task.counts[store].with(rec.Timestamp)
	task.counts[store] = total
	r.write(topology.PerStoreChangelog, rec.partition, store, total, total.long())
	r.write(topology.OrdersPerStore, sinkPartition(store), store, total, total.text())

	task.clock = max(task.clock, rec.Timestamp)
	start := rec.Timestamp - rec.Timestamp%size
	if start+size+grace <= task.clock {
		r.late = append(r.late, rec)
		return
	}
	key := windowKey(store, start)
	expired := task.newest - retention.Milliseconds()
	inMinute := tally{}
	if start > expired { // what has expired is not found, even if it is still there
		inMinute = task.minutes[key]
	}
	inMinute = inMinute.with(rec.Timestamp)
	task.newest = max(task.newest, start)
	if expired < 0 || start/segment >= expired/segment {
		task.minutes[key] = inMinute
	}
	text := store + "|" + time.UnixMilli(start).UTC().Format(time.RFC3339)
	r.write(topology.PerStoreMinuteChangelog, rec.partition, key, inMinute, inMinute.long())
	r.write(topology.OrdersPerStoreMinute, sinkPartition(text), text, inMinute, inMinute.text())
}

func (r *replay) write(topic string, partition int32, key string, t tally, value string) {
	r.logs[topic] = append(r.logs[topic], row{partition, t.latest, key, value})
}

func (t tally) with(timestamp int64) tally { return tally{t.count + 1, max(t.latest, timestamp)} }
func (t tally) text() string               { return strconv.FormatInt(t.count, 10) }
func (t tally) long() string               { return string(binary.BigEndian.AppendUint64(nil, uint64(t.count))) }

func sinkPartition(key string) int32 { return kafka.PartitionFor([]byte(key), topology.Partitions) }

// windowKey is the key of a window in a changelog: the key's bytes, the start, and a sequence number that is always 0.
func windowKey(key string, start int64) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64([]byte(key), uint64(start)), 0))
}

// replayed replays all of the application's repartition topic as one run of a single instance.
func (l *lab) replayed() *replay {
	r := newReplay()
	for _, rec := range l.committedRecords(l.internal(topology.Repartition)) {
		r.add(rec)
	}
	return r
}

// committedRecords reads a topic as a reader of committed records does, one partition after the other.
func (l *lab) committedRecords(topic string) []record {
	l.t.Helper()
	records := l.recordsAs(topic, kafka.ReadCommitted)
	slices.SortStableFunc(records, func(a, b record) int { return int(a.partition - b.partition) })
	return records
}

// countTopics are the topics that a replay knows, with their names on the broker.
func (l *lab) countTopics() map[string]string {
	return map[string]string{
		topology.PerStoreChangelog:       l.internal(topology.PerStoreChangelog),
		topology.PerStoreMinuteChangelog: l.internal(topology.PerStoreMinuteChangelog),
		topology.OrdersPerStore:          l.prefix + topology.OrdersPerStore,
		topology.OrdersPerStoreMinute:    l.prefix + topology.OrdersPerStoreMinute,
	}
}

// tableTopics are the topics of which the last record of a key says all.
func (l *lab) tableTopics() map[string]string {
	topics := l.countTopics()
	topics[topology.StatusChangelog] = l.internal(topology.StatusChangelog)
	return topics
}

// rowsOf are committed records without their offsets, which under exactly once count transaction markers too. Headers are none, as in Java.
func (l *lab) rowsOf(topic string) []row {
	l.t.Helper()
	var rows []row
	for _, r := range l.committedRecords(topic) {
		if len(r.Headers) > 0 {
			l.t.Errorf("%s partition %d offset %d has headers: %v", topic, r.partition, r.Offset, r.Headers)
		}
		rows = append(rows, row{r.partition, r.Timestamp, string(r.Key), string(r.Value)})
	}
	return rows
}

// byKey are the rows of each key in their order: between keys there is none, as a flush has its own.
func byKey(rows []row) map[string][]row {
	out := map[string][]row{}
	for _, r := range rows {
		out[r.Key] = append(out[r.Key], r)
	}
	return out
}
