package streams

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/store"
)

// driverTask is a task of a TestDriver: the runtime of one sub-topology in one partition.
type driverTask struct {
	d          *TestDriver
	id         TaskID
	sub        *subtopology
	db         *store.DB
	ctx        *Context
	sources    map[string]boundSource    // by full topic
	positions  map[string]driverPosition // of its input partitions
	committed  map[string]driverPosition
	flushers   []func(*Context) error
	starters   []func(*Context) error
	scheduled  punctuations
	clocks     []streamClock
	tableInput map[string]boundSource // by store: what restores a table that has no changelog
}

// driverPosition is how far an input partition is processed.
type driverPosition struct {
	next          int64
	partitionTime int64
}

func newDriverTask(d *TestDriver, id TaskID, sub *subtopology) (*driverTask, error) {
	t := &driverTask{
		d: d, id: id, sub: sub, ctx: &Context{taskID: id.String()}, sources: map[string]boundSource{},
		positions: map[string]driverPosition{}, committed: map[string]driverPosition{}, tableInput: map[string]boundSource{},
	}
	t.scheduled = newPunctuations(func() int64 { return d.now })
	db, err := store.Open(filepath.Join(d.stateDir(), id.String()), sub.storeSpecs(t.uncached()), store.Options{})
	if err != nil {
		return nil, fmt.Errorf("test driver: task %s: %w", id, err)
	}
	t.db = db
	b, err := newBinding(t, sub)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("test driver: task %s: %w", id, err), db.Abandon())
	}
	for _, s := range sub.sources {
		for _, topic := range s.topics {
			full := d.fullName(s, topic)
			t.sources[full] = s.bind(b)
			t.positions[full] = driverPosition{partitionTime: noTime}
			for _, st := range sub.stores {
				if st.sourceTopic == topic {
					t.tableInput[st.Name] = s.bind(b)
				}
			}
		}
	}
	return t, nil
}

// resume continues at committed positions.
func (t *driverTask) resume(committed map[string]driverPosition) {
	for topic, p := range committed {
		t.positions[topic], t.committed[topic] = p, p
	}
}

// restore brings the stores to the ends of their changelogs, and stream times to where they were.
func (t *driverTask) restore() error {
	for _, s := range t.sub.stores {
		if !s.Logged {
			continue
		}
		topic := t.d.changelogTopic(s)
		log := t.d.topics[topic]
		if t.id.Partition >= log.partitions {
			continue
		}
		from, end := int64(0), log.ends[t.id.Partition]
		if pos, ok := t.db.Position(s.Name); ok {
			from = pos.Next
		}
		input := t.tableInput[s.Name]
		if input != nil {
			end = t.committed[topic].next
		}
		var entries []store.Entry
		for i := range log.records {
			r := &log.records[i]
			if r.partition != t.id.Partition || r.offset < from || r.offset >= end {
				continue
			}
			e := store.Entry{Key: r.key, Value: r.value, Timestamp: r.timestamp}
			if input != nil {
				in := r.input(topic)
				var err error
				if e.Timestamp, err = input.load(&in, noTime); err != nil {
					continue // it is among the dead letters
				}
			}
			entries = append(entries, e)
		}
		if _, err := t.db.Restore(s.Name, entries, store.Position{Next: end, CommittedAt: t.wallClock()}); err != nil {
			return fmt.Errorf("test driver: task %s: %w", t.id, err)
		}
	}
	if t.d.cfg.ForgetStreamTime {
		return nil
	}
	repartitionTime := noTime
	for topic, p := range t.positions {
		if t.d.topics[topic].internal {
			repartitionTime = max(repartitionTime, p.partitionTime)
		}
	}
	for i := range t.clocks {
		t.clocks[i].resume(t.db, repartitionTime)
	}
	return nil
}

func (t *driverTask) start() error {
	for _, p := range t.positions {
		t.scheduled.streamTime = max(t.scheduled.streamTime, p.partitionTime)
	}
	for _, start := range t.starters {
		if err := start(t.ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *driverRecord) input(topic string) input {
	return input{
		topic: topic, partition: r.partition, offset: r.offset, timestamp: r.timestamp, key: r.key, value: r.value, headers: r.headers,
	}
}

// process runs a record through the graph, or puts it among the dead letters.
func (t *driverTask) process(next delivery) error {
	in := next.record.input(next.topic)
	p := t.positions[next.topic]
	source := t.sources[next.topic]
	ts, err := source.load(&in, p.partitionTime)
	if err != nil {
		return t.bury(&in, p, err)
	}
	t.ctx.topic, t.ctx.partition, t.ctx.offset, t.ctx.timestamp = in.topic, in.partition, in.offset, ts
	p.partitionTime = max(p.partitionTime, ts)
	t.scheduled.see(ts)
	if err := source.process(t.ctx); err != nil {
		return t.bury(&in, p, badKey(err))
	}
	p.next = in.offset + 1
	t.positions[next.topic] = p
	_, err = t.scheduled.advance(t.ctx)
	return err
}

func (t *driverTask) bury(in *input, p driverPosition, err error) error {
	var bad *RecordError
	if !errors.As(err, &bad) {
		return err
	}
	t.ctx.err = nil
	if t.d.cfg.ErrorHandler != DeadLetters {
		return err
	}
	t.d.dead = append(t.d.dead, DeadLetter{in.topic, in.partition, in.offset, in.timestamp, kindOf(bad), bad.Err})
	p.next = in.offset + 1
	t.positions[in.topic] = p
	return nil
}

func (t *driverTask) flush() error {
	for _, flush := range t.flushers {
		if err := flush(t.ctx); err != nil {
			return err
		}
	}
	return nil
}

// settle commits state and positions together.
func (t *driverTask) settle() error {
	c := store.Commit{Positions: map[string]store.Position{}, StreamTimes: map[string]int64{}, At: t.wallClock()}
	for _, s := range t.sub.stores {
		topic := t.d.changelogTopic(s)
		log := t.d.topics[topic]
		switch {
		case !s.Logged || t.id.Partition >= log.partitions:
		case s.sourceTopic != "":
			c.Positions[s.Name] = store.Position{Next: t.positions[topic].next}
		default:
			c.Positions[s.Name] = store.Position{Next: log.ends[t.id.Partition]}
		}
	}
	for _, clock := range t.clocks {
		if at := clock.current(); at != noTime {
			c.StreamTimes[clock.key] = at
		}
	}
	if err := t.db.Commit(c); err != nil {
		return fmt.Errorf("test driver: task %s: %w", t.id, err)
	}
	for topic, p := range t.positions {
		t.committed[topic] = p
	}
	return nil
}

func (t *driverTask) wallClock() time.Time { return time.UnixMilli(t.d.now) }

// The task is the runtime of its graph.

func (t *driverTask) keyValue(name string) *store.KeyValue { return t.db.KeyValue(name) }

func (t *driverTask) window(name string) *store.Window { return t.db.Window(name) }

func (t *driverTask) uncached() bool { return t.d.cfg.NoCache }

func (t *driverTask) observer(node string) *Observer { return t.d.observers[node] }

func (t *driverTask) onFlush(_ string, flush func(*Context) error) {
	t.flushers = append(t.flushers, flush)
}

func (t *driverTask) onStart(_ string, start func(*Context) error) {
	t.starters = append(t.starters, start)
}

func (t *driverTask) punctuations() *punctuations { return &t.scheduled }

func (t *driverTask) registerStreamTime(name string, restore func(int64), current func() int64) {
	t.clocks = append(t.clocks, streamClock{key: name, store: name, restore: restore, current: current})
}

func (t *driverTask) skipped(_ *Context, s Skipped) { t.d.skips = append(t.d.skips, s) }

func (t *driverTask) outOfOrder(_ *Context, u OutOfOrder) { t.d.outOfOrder = append(t.d.outOfOrder, u) }

func (t *driverTask) sink(topic string, internal bool, partitionBy func([]byte) []byte) sinkFunc {
	if internal {
		topic = t.d.decorate(topic)
	}
	return func(_ *Context, key, value []byte, ts int64, headers []Header) {
		t.d.send(topic, driverRecord{partition: -1, timestamp: ts, key: key, value: value, headers: headers}, partitionBy)
	}
}

func (t *driverTask) changelog(name string) sinkLogFunc {
	i := slices.IndexFunc(t.sub.stores, func(s *storeSpec) bool { return s.Name == name })
	if s := t.sub.stores[i]; !s.Logged || s.sourceTopic != "" {
		return func([]byte, []byte, int64) error { return nil }
	}
	topic := t.d.decorate(changelogOf(name))
	return func(key, value []byte, ts int64) error {
		t.d.send(topic, driverRecord{partition: t.id.Partition, timestamp: ts, key: key, value: value}, nil)
		return nil
	}
}
