package streams

import (
	"errors"
	"fmt"
	"slices"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

type taskState uint8

const (
	taskCreated taskState = iota
	taskRestoring
	taskRunning
)

// task is one partition's share of a sub-topology: its input queues, its stores and the bound graph between them. It belongs to one
// stream thread and is used by that goroutine alone.
type task struct {
	id     TaskID
	thread *thread
	sub    *subtopology
	db     *store.DB
	state  taskState

	queues     []*queue // in (topic, partition) order
	changelogs []*changelog
	flushers   []flusher // in build order of the processors
	starters   []func(*Context) error
	scheduled  punctuations
	clocks     []streamClock // stream times that survive a restart
	ctx        *Context

	processed    int64 // input records since the last commit
	punctuated   bool  // something was punctuated since the last commit: it needs one even if no offset moved
	unknownSince int64 // wall clock in ms since when an input partition is in state unknown; 0 if none is
	excused      bool  // the others of the sub-topology do not wait for it any more
	hadOffsets   bool  // the group had a committed offset for at least one of its partitions
}

// changelog is one store's changelog partition.
type changelog struct {
	task  *task
	store string
	tp    kafka.TopicPartition
	id    [16]byte // topic id, to notice a topic that was deleted and made again
	next  int64    // the offset after the last record that the store holds
	// source is set if the partition is not a changelog but the table's input, see ReuseSourceTopic: it reads records as processing did.
	source boundSource
}

type flusher struct {
	node  string
	flush func(*Context) error
}

type streamClock struct {
	key     string
	store   string
	restore func(int64)
	current func() int64
}

// resume sets the stream time that a restart goes on with: the committed one, and not less than the largest window start in the store and
// the committed partition time of the repartition topic that feeds the task (-1 if none does). Kafka Streams 4.3.1 starts at -1 instead, and
// takes again what was late (window.stream.time.restore=false).
func (c *streamClock) resume(db *store.DB, repartitionTime int64) {
	at := max(db.Window(c.store).MaxStart(), repartitionTime)
	if saved, ok := db.StreamTime(c.key); ok {
		at = max(at, saved)
	}
	c.restore(at)
}

// newTask binds the task's graph to its stores. Queues get their positions, and stores their content, afterwards.
func newTask(th *thread, id TaskID, db *store.DB) (*task, error) {
	t := &task{id: id, thread: th, sub: th.app.topology.subs[id.Subtopology], db: db, ctx: &Context{taskID: id.String()}}
	t.scheduled = newPunctuations(wallClock)
	for _, s := range t.sub.stores {
		if hasChangelog(s) {
			tp := kafka.TopicPartition{Topic: th.app.changelogTopic(s), Partition: id.Partition}
			t.changelogs = append(t.changelogs, &changelog{task: t, store: s.Name, tp: tp})
		}
	}
	b, err := newBinding(t, t.sub)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("task %s: %w", id, err), db.Abandon())
	}
	for _, s := range t.sub.sources {
		for _, topic := range s.topics {
			topic = th.app.fullName(topic)
			if int(id.Partition) >= len(th.topics[topic].Partitions) {
				continue
			}
			tp := kafka.TopicPartition{Topic: topic, Partition: id.Partition}
			t.queues = append(t.queues, &queue{
				tp: tp, task: t, source: s.bind(b),
				partitionTime: noTime, epoch: -1, committed: noOffset, partitions: t.copartitioned(topic),
			})
			for _, st := range t.sub.stores {
				if st.sourceTopic == topic {
					t.changelogs = append(t.changelogs, &changelog{task: t, store: st.Name, tp: tp, source: s.bind(b)})
				}
			}
		}
	}
	slices.SortFunc(t.queues, func(a, b *queue) int { return a.tp.Compare(b.tp) })
	return t, nil
}

// committed is the committed offset of an input partition.
func (t *task) committed(tp kafka.TopicPartition) int64 {
	for _, q := range t.queues {
		if q.tp == tp {
			return q.committed
		}
	}
	return noOffset
}

// noOffset marks a partition without a committed offset.
const noOffset int64 = -1

func (t *task) partitions() []kafka.TopicPartition {
	out := make([]kafka.TopicPartition, len(t.queues))
	for i, q := range t.queues {
		out[i] = q.tp
	}
	return out
}

func (t *task) describe() Task {
	out := Task{ID: t.id, Thread: t.thread.index}
	for _, q := range t.queues {
		out.Partitions = append(out.Partitions, TopicPartition(q.tp))
	}
	return out
}

// The task is the runtime of its graph.

func (t *task) keyValue(name string) *store.KeyValue { return t.db.KeyValue(name) }

func (t *task) window(name string) *store.Window { return t.db.Window(name) }

func (t *task) observer(node string) *Observer {
	return t.thread.app.observers[node]
}

func (t *task) uncached() bool { return t.thread.app.uncached() }

func (a *App) uncached() bool { return a.cfg.CacheMaxBytes == 0 }

func (t *task) onFlush(node string, flush func(*Context) error) {
	t.flushers = append(t.flushers, flusher{node, flush})
}

func (t *task) registerStreamTime(storeName string, restore func(int64), current func() int64) {
	t.clocks = append(t.clocks, streamClock{key: storeName, store: storeName, restore: restore, current: current})
}

func (t *task) skipped(_ *Context, s Skipped) {
	t.thread.app.listen(func(l *Listener) {
		if l.Skipped != nil {
			l.Skipped(s)
		} else {
			t.thread.log.Warn(s.String())
		}
	})
}

func (t *task) outOfOrder(_ *Context, u OutOfOrder) {
	t.thread.app.listen(func(l *Listener) {
		if l.OutOfOrder != nil {
			l.OutOfOrder(u)
		} else {
			t.thread.log.Warn(u.String())
		}
	})
}

// sink resolves a topic once; the partition of a record is chosen from its key bytes as Java's default partitioner does.
func (t *task) sink(topic string, internal bool, partitionBy func([]byte) []byte) sinkFunc {
	if internal {
		topic = t.thread.app.decorate(topic)
	}
	partitions := int32(len(t.thread.topics[topic].Partitions))
	return func(ctx *Context, key, value []byte, ts int64, headers []Header) {
		partition := int32(-1)
		if key != nil {
			chosenBy := key
			if partitionBy != nil {
				chosenBy = partitionBy(key)
			}
			partition = kafka.PartitionFor(chosenBy, partitions)
		}
		if err := t.thread.send(kafka.Message{
			Topic: topic, Partition: partition, Timestamp: ts, Key: key, Value: value, Headers: toWire(headers),
			Origin: ctx.origin(),
		}); err != nil {
			ctx.fail(err)
		}
	}
}

// changelog writes to the partition that the task has, never to the one that the key's hash says (Kafka Streams 4.3.1,
// ProcessorContextImpl.logChange). Changelog records carry no headers.
func (t *task) changelog(storeName string) sinkLogFunc {
	i := slices.IndexFunc(t.changelogs, func(c *changelog) bool { return c.store == storeName })
	if i < 0 {
		return func([]byte, []byte, int64) error { return nil }
	}
	tp := t.changelogs[i].tp
	return func(key, value []byte, ts int64) error {
		return t.thread.send(kafka.Message{Topic: tp.Topic, Partition: tp.Partition, Timestamp: ts, Key: key, Value: value})
	}
}

// origin is the input record at work, for records that a broker refuses later; none while a commit flushes stores.
func (c *Context) origin() kafka.Origin {
	if c.topic == "" {
		return kafka.Origin{}
	}
	return kafka.Origin{TopicPartition: kafka.TopicPartition{Topic: c.topic, Partition: c.partition}, Offset: c.offset}
}
