package streams

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// DriverConfig is how a TestDriver runs a topology. The zero value is the default.
type DriverConfig struct {
	// ApplicationID prefixes the internal topics. Default: "test".
	ApplicationID string
	// WallClock is the time at which the driver starts, with milliseconds. It stands still but for AdvanceWallClock. Default: 1970.
	WallClock time.Time
	// Partitions of each topic whose count the topology does not enforce, and so the tasks of a sub-topology. Default: 1.
	Partitions int32
	// ManualCommit commits on Commit and Restart only, so that a cache shows what it does: the latest change per key. Default: a commit after
	// each record, as Java's TopologyTestDriver does it.
	ManualCommit bool
	// NoCache is statestore.cache.max.bytes=0: each change goes to the changelog and downstream at once.
	NoCache bool
	// ForgetStreamTime is window.stream.time.restore=false, Java's way: after a Restart windows start with no stream time, and take what was
	// late before.
	ForgetStreamTime bool
	// ErrorHandler for records that cannot be processed. Default: DeadLetters.
	ErrorHandler ErrorHandler
	// Observers are hooks around processors, as in Config.
	Observers []*Observer
}

// TestDriver runs a topology without a broker, record by record: what is piped into a topic has gone through the whole topology, repartition
// topics included, when Pipe returns. State is kept as an App keeps it, in a temporary folder that Close removes. Nothing happens in the
// background, and the same calls give the same results. It belongs to one goroutine.
//
//	driver, err := streams.NewTestDriver(topology, streams.DriverConfig{})
//	...
//	defer driver.Close()
//	orders := streams.Input(driver, "orders", streams.Text(), streams.Text())
//	counts := streams.Output(driver, "counts", streams.Text(), streams.Int64())
//	err = orders.PipeAt(1000, "ada", "tea")
//	records, err := counts.Records()
//
// It has no transactions, retention or compaction, and a record without a key goes to partition 0. A failure ends it as it ends an App:
// all further calls return the error.
type TestDriver struct {
	topology   *Topology
	cfg        DriverConfig
	observers  map[string]*Observer
	dir        string
	now        int64 // wall clock, ms
	topics     map[string]*driverTopic
	tasks      []*driverTask // in task order
	pending    []delivery    // records on topics that the topology reads, not processed yet
	skips      []Skipped
	outOfOrder []OutOfOrder
	dead       []DeadLetter
	err        error // ended the driver
}

// driverTopic is a topic's records in the order in which they came.
type driverTopic struct {
	partitions int32
	records    []driverRecord
	ends       []int64
	sub        *subtopology // that reads it, or nil
	internal   bool
}

type driverRecord struct {
	partition  int32
	offset     int64
	timestamp  int64
	key, value []byte
	headers    []Header
}

type delivery struct {
	topic  string
	record driverRecord
}

// errDriverClosed is the answer of every call after Close.
var errDriverClosed = errors.New("test driver: closed")

// NewTestDriver makes the topology's tasks and starts them. Close it in the end.
func NewTestDriver(t *Topology, cfg DriverConfig) (*TestDriver, error) {
	cfg.ApplicationID = cmp.Or(cfg.ApplicationID, "test")
	cfg.Partitions = cmp.Or(cfg.Partitions, 1)
	cfg.ErrorHandler = cmp.Or(cfg.ErrorHandler, DeadLetters)
	if !applicationID.MatchString(cfg.ApplicationID) {
		return nil, fmt.Errorf("test driver: application id %q is none that topics can be named after", cfg.ApplicationID)
	}
	if cfg.Partitions < 1 {
		return nil, fmt.Errorf("test driver: %d partitions: at least 1", cfg.Partitions)
	}
	observers, err := t.observersByNode(cfg.Observers)
	if err != nil {
		return nil, fmt.Errorf("test driver: %w", err)
	}
	dir, err := os.MkdirTemp("", "streams-test-")
	if err != nil {
		return nil, fmt.Errorf("test driver: state folder: %w", err)
	}
	d := &TestDriver{topology: t, cfg: cfg, observers: observers, dir: dir, topics: map[string]*driverTopic{}}
	if !cfg.WallClock.IsZero() {
		d.now = cfg.WallClock.UnixMilli()
	}
	d.layTopics()
	if err := d.start(nil); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// layTopics makes the topics that the topology reads and writes.
func (d *TestDriver) layTopics() {
	add := func(name string, partitions int32, sub *subtopology, internal bool) {
		t := d.topics[name]
		if t == nil {
			t = &driverTopic{partitions: partitions, ends: make([]int64, partitions)}
			d.topics[name] = t
		}
		t.sub, t.internal = cmp.Or(t.sub, sub), internal
	}
	repartitions := map[string]int32{}
	for _, r := range d.topology.repartitions {
		repartitions[r.name] = cmp.Or(r.partitions, d.cfg.Partitions)
	}
	for _, sub := range d.topology.subs {
		for _, s := range sub.sources {
			for _, topic := range s.topics {
				if n, internal := repartitions[topic]; internal {
					add(d.decorate(topic), n, sub, true)
				} else {
					add(topic, d.cfg.Partitions, sub, false)
				}
			}
		}
		for _, topic := range sub.sinks {
			if _, internal := repartitions[topic]; !internal {
				add(topic, d.cfg.Partitions, nil, false)
			}
		}
		for _, s := range sub.stores {
			if hasChangelog(s) {
				add(d.changelogTopic(s), d.tasksOf(sub), nil, true)
			}
		}
	}
}

// tasksOf is the number of a sub-topology's tasks: the most partitions that one of its sources has.
func (d *TestDriver) tasksOf(sub *subtopology) int32 {
	n := int32(0)
	for _, s := range sub.sources {
		for _, topic := range s.topics {
			n = max(n, d.topics[d.fullName(s, topic)].partitions)
		}
	}
	return n
}

func (d *TestDriver) decorate(raw string) string { return d.cfg.ApplicationID + "-" + raw }

func (d *TestDriver) fullName(s *source, topic string) string {
	if s.repartition {
		return d.decorate(topic)
	}
	return topic
}

func (d *TestDriver) changelogTopic(s *storeSpec) string {
	if s.sourceTopic != "" {
		return s.sourceTopic
	}
	return d.decorate(changelogOf(s.Name))
}

// start opens, restores and starts all tasks, at the committed positions.
func (d *TestDriver) start(committed map[TaskID]map[string]driverPosition) error {
	for _, sub := range d.topology.subs {
		for p := range d.tasksOf(sub) {
			t, err := newDriverTask(d, TaskID{sub.id, p}, sub)
			if err != nil {
				return err
			}
			t.resume(committed[t.id])
			d.tasks = append(d.tasks, t)
		}
	}
	for _, t := range d.tasks {
		if err := t.restore(); err != nil {
			return err
		}
		if err := t.start(); err != nil {
			return err
		}
	}
	return nil
}

// ended says why a call cannot be made, and makes err the reason for all later ones.
func (d *TestDriver) ended(err error) error {
	if d.err == nil {
		d.err = err
	}
	return d.err
}

// send appends a record to a topic, whose partition is -1 if the key decides, and lets it wait to be processed if the topology reads it.
func (d *TestDriver) send(topic string, r driverRecord, partitionBy func([]byte) []byte) {
	t := d.topics[topic]
	if r.partition < 0 {
		r.partition = 0
		if by := r.key; by != nil {
			if partitionBy != nil {
				by = partitionBy(by)
			}
			r.partition = kafka.PartitionFor(by, t.partitions)
		}
	}
	r.key, r.value = slices.Clone(r.key), slices.Clone(r.value) // which keep nil and empty apart
	headers := make([]Header, len(r.headers))
	for i, h := range r.headers {
		headers[i] = Header{Key: h.Key, Value: slices.Clone(h.Value)}
	}
	r.headers = headers
	r.offset = t.ends[r.partition]
	t.ends[r.partition]++
	t.records = append(t.records, r)
	if t.sub != nil {
		d.pending = append(d.pending, delivery{topic, r})
	}
}

// work processes what waits, and what comes of that.
func (d *TestDriver) work() error {
	for len(d.pending) > 0 {
		next := d.pending[0]
		d.pending = d.pending[1:]
		t := d.task(d.topics[next.topic].sub, next.record.partition)
		if err := t.process(next); err != nil {
			return d.failed(err)
		}
		if !d.cfg.ManualCommit {
			if err := d.commit(); err != nil {
				return d.ended(err)
			}
		}
	}
	return nil
}

// failed commits what came before a record that cannot be taken, as an App does.
func (d *TestDriver) failed(err error) error {
	var bad *RecordError
	if errors.As(err, &bad) {
		err = errors.Join(err, d.commit())
	}
	return d.ended(err)
}

func (d *TestDriver) task(sub *subtopology, partition int32) *driverTask {
	i, _ := slices.BinarySearchFunc(d.tasks, TaskID{sub.id, partition}, func(t *driverTask, id TaskID) int { return t.id.compare(id) })
	return d.tasks[i]
}

// commit flushes and settles each task once; what that sends to topics that the topology reads waits.
func (d *TestDriver) commit() error {
	for _, t := range d.tasks {
		if err := t.flush(); err != nil {
			return err
		}
	}
	for _, t := range d.tasks {
		if err := t.settle(); err != nil {
			return err
		}
	}
	return nil
}

// Commit flushes the caches, in task order and then in build order of the stores, and makes state and input positions durable. What the
// flush sends into repartition topics is processed and committed too.
func (d *TestDriver) Commit() error {
	if d.err != nil {
		return d.err
	}
	for {
		if err := d.commit(); err != nil {
			return d.ended(err)
		}
		if len(d.pending) == 0 {
			return nil
		}
		if err := d.work(); err != nil {
			return err
		}
	}
}

// AdvanceWallClock moves the wall clock and makes the punctuations that are due by it: one call each, however many intervals have passed.
func (d *TestDriver) AdvanceWallClock(by time.Duration) error {
	if d.err != nil {
		return d.err
	}
	d.now += by.Milliseconds()
	for _, t := range d.tasks {
		called, err := t.scheduled.tick(t.ctx)
		if err != nil {
			return d.ended(err)
		}
		if called && !d.cfg.ManualCommit {
			if err := d.commit(); err != nil {
				return d.ended(err)
			}
		}
	}
	return d.work()
}

// RestartOption sets something about Restart.
type RestartOption interface{ applyRestart(*restartOptions) }

type restartOptions struct{ loseState bool }

type loseState struct{}

func (loseState) applyRestart(o *restartOptions) { o.loseState = true }

// WithoutState deletes the local state while the tasks are down, so that they restore their stores from the changelogs.
func WithoutState() RestartOption { return loseState{} }

// Restart stops the tasks cleanly, with a commit, and starts them again: from their state, or without it from the changelogs. Committed are
// the input positions with their partition times; scheduled punctuations and all that processors keep in memory is lost.
func (d *TestDriver) Restart(opts ...RestartOption) error {
	var o restartOptions
	for _, opt := range opts {
		opt.applyRestart(&o)
	}
	if err := d.Commit(); err != nil {
		return err
	}
	committed := map[TaskID]map[string]driverPosition{}
	for _, t := range d.tasks {
		committed[t.id] = t.committed
		if err := t.db.Close(); err != nil {
			return d.ended(fmt.Errorf("test driver: task %s: %w", t.id, err))
		}
	}
	d.tasks = nil
	if o.loseState {
		if err := os.RemoveAll(d.stateDir()); err != nil {
			return d.ended(fmt.Errorf("test driver: %w", err))
		}
	}
	if err := d.start(committed); err != nil {
		return d.ended(err)
	}
	return d.work()
}

func (d *TestDriver) stateDir() string { return filepath.Join(d.dir, "state") }

// Skipped are the records that processors dropped by rule, in order.
func (d *TestDriver) Skipped() []Skipped { return slices.Clone(d.skips) }

// Late is the late ledger: the records that came too late for a window, with the window, and with the record that closed it.
func (d *TestDriver) Late() []Skipped {
	return slices.DeleteFunc(d.Skipped(), func(s Skipped) bool { return s.Kind != ExpiredWindow })
}

// OutOfOrder are the updates of tables that were older than what they replaced.
func (d *TestDriver) OutOfOrder() []OutOfOrder { return slices.Clone(d.outOfOrder) }

// DeadLetters are the records that could not be processed.
func (d *TestDriver) DeadLetters() []DeadLetter { return slices.Clone(d.dead) }

// Close removes the state.
func (d *TestDriver) Close() error {
	if errors.Is(d.err, errDriverClosed) {
		return nil
	}
	d.err = errDriverClosed
	var errs []error
	for _, t := range d.tasks {
		errs = append(errs, t.db.Abandon())
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}
