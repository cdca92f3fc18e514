package streams

import (
	"slices"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Misplaced are records on a partition that Kafka's default partitioner does not choose for their key, in a topic that a join reads. They are
// processed, but the other side of the join may have the same key on another partition, and so in another task, where it is not found.
type Misplaced struct {
	Topic     string
	Partition int32
	Offset    int64 // of the first
	Want      int32 // the partition that belongs to its key
	Count     int64 // so far
}

// copartitioned is the partition count of a user topic that a join depends on, 0 for other topics. Repartition topics are left out, as the
// application itself fills them; the sets hold their raw names.
func (t *task) copartitioned(topic string) int32 {
	for _, together := range t.thread.app.topology.copartitioned {
		if slices.Contains(together, topic) {
			return int32(len(t.thread.topics[topic].Partitions))
		}
	}
	return 0
}

// checkPartition looks whether the record is where its key belongs.
func (t *task) checkPartition(q *queue, r *kafka.Record) {
	want := kafka.PartitionFor(r.Key, q.partitions)
	if want == q.tp.Partition {
		return
	}
	q.misplaced.Count++
	if q.misplaced.Count > 1 {
		return
	}
	q.misplaced = Misplaced{Topic: q.tp.Topic, Partition: q.tp.Partition, Offset: r.Offset, Want: want, Count: 1}
	t.thread.log.Warn("a record is on another partition than its key belongs to: a join may miss it; more of them are only counted",
		"partition", q.tp.String(), "offset", r.Offset, "want", want)
	t.thread.app.misplaced(q.misplaced)
}

// reportMisplaced tells how many there were, if that was not told yet.
func (t *task) reportMisplaced(q *queue) {
	if q.misplaced.Count < 2 {
		return
	}
	t.thread.log.Warn("records were on another partition than their keys belong to", "partition", q.tp.String(), "records", q.misplaced.Count)
	t.thread.app.misplaced(q.misplaced)
	q.misplaced.Count = 1
}

func (a *App) misplaced(m Misplaced) {
	a.listen(func(l *Listener) {
		if l.Misplaced != nil {
			l.Misplaced(m)
		}
	})
}
