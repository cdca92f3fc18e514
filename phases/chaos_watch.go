package phases

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/topology"
)

// sampleEvery is how often a run asks how far the group is.
const sampleEvery = 100 * time.Millisecond

// sample is how far the group was, and how far its inputs reached, at some time between two.
type sample struct {
	begun, done     time.Time
	committed, ends map[kafka.TopicPartition]int64
}

// lag is what was not committed of a partition.
func (s *sample) lag(tp kafka.TopicPartition) int64 { return s.ends[tp] - s.committed[tp] }

// strikeTime is the time in which a struck process did nothing: for ever, if to is zero.
type strikeTime struct {
	instance string
	from, to time.Time
}

// chaosWatch is what a run sees of its instances from outside: their journals, and what the broker tells of the group. It looks while the run
// waits, and only then, in the run's own goroutine.
type chaosWatch struct {
	run      *chaosRun
	parts    []kafka.TopicPartition // the application's inputs
	journals *journal.Follower
	events   []journal.Event // those that are of use later
	samples  []sample
	struckAt []strikeTime
	states   map[string]*targetState
	fresh    bool // the last look took a sample
	progress func()
}

// targetState is what the journal of an instance's latest process says.
type targetState struct {
	pid     int
	began   bool // that process has written its first line
	running bool
	tasks   *journal.Tasks
}

func newChaosWatch(c *chaosRun) *chaosWatch {
	w := &chaosWatch{
		run: c, journals: journal.FollowAll(c.Workspace.Journals(), c.application), states: map[string]*targetState{}, progress: func() {},
	}
	for _, topic := range []string{topology.OrdersPlaced, topology.OrdersStatus} {
		w.addParts(c.prefix+topic, topology.Partitions)
	}
	return w
}

func (w *chaosWatch) addParts(topic string, n int32) {
	for p := range n {
		w.parts = append(w.parts, kafka.TopicPartition{Topic: topic, Partition: p})
	}
}

func (w *chaosWatch) close() error { return w.journals.Close() }

// started notes that a new process is the instance's.
func (w *chaosWatch) started(t *target) { w.states[t.name] = &targetState{pid: t.counter.pid} }

// struck notes that an instance does nothing any more, and resumed that it goes on.
func (w *chaosWatch) struck(t *target, at time.Time) {
	w.struckAt = append(w.struckAt, strikeTime{instance: t.name, from: at})
}

func (w *chaosWatch) resumed(t *target) {
	for i := range w.struckAt {
		if s := &w.struckAt[i]; s.instance == t.name && s.to.IsZero() {
			s.to = time.Now()
		}
	}
}

// look takes in what has come, and finds out whether something ended that should not have.
func (w *chaosWatch) look(ctx context.Context) error {
	events, err := w.journals.Next()
	if err != nil {
		return err
	}
	for i := range events {
		w.take(&events[i])
	}
	w.progress()
	for _, t := range w.run.fleet {
		if t.counter == nil || t.doomed {
			continue
		}
		select {
		case <-t.counter.child.done:
			return fmt.Errorf("instance %s (pid %d) ended by itself: %v, see %s",
				t.name, t.counter.pid, t.counter.child.cmd.ProcessState, t.counter.child.log)
		default:
		}
	}
	if l := w.run.load; l.done != nil {
		select {
		case <-l.done:
			if l.err != nil {
				return fmt.Errorf("publish the orders: %w", l.err)
			}
		default:
		}
	}
	w.fresh = len(w.samples) == 0 || time.Since(w.samples[len(w.samples)-1].done) >= sampleEvery
	if !w.fresh {
		return nil
	}
	return w.sample(ctx)
}

func (w *chaosWatch) take(e *journal.Event) {
	switch {
	case e.Started != nil, e.State != nil, e.Tasks != nil, e.RestoreStart != nil, e.Stopped != nil:
		w.events = append(w.events, *e)
	default:
		return // joined rows and the like: very many
	}
	s := w.states[e.Instance]
	if e.Started != nil && e.Started.PID == s.pid {
		s.began = true
	}
	switch {
	case !s.began: // of the process before
	case e.State != nil:
		s.running = e.State.To == stateRunning
	case e.Tasks != nil:
		s.tasks = e.Tasks
	}
}

// sample asks the broker. Commits come first, so that what is committed is below the ends.
func (w *chaosWatch) sample(ctx context.Context) error {
	s := sample{begun: time.Now(), committed: map[kafka.TopicPartition]int64{}}
	// A member would wait for an open transaction to end; a victim's stays open for as long as the victim stands still.
	committed, err := w.run.conn.CommittedOffsetsNow(ctx, w.run.application, w.parts)
	if err != nil {
		return err
	}
	for tp, o := range committed {
		s.committed[tp] = o.Offset
	}
	if s.ends, err = w.run.conn.ListOffsets(ctx, w.parts, kafka.LatestOffset, kafka.ReadUncommitted); err != nil {
		return err
	}
	s.done = time.Now()
	w.samples = append(w.samples, s)
	return nil
}

// lag is what the group had not committed at the last sample.
func (w *chaosWatch) lag() int64 {
	var lag int64
	for _, tp := range w.parts {
		lag += w.samples[len(w.samples)-1].lag(tp)
	}
	return lag
}

// lagOf is the lag of what an instance owns at the last sample, and how far each of these partitions with a lag was committed.
func (w *chaosWatch) lagOf(t *target) (lag int64, behind map[kafka.TopicPartition]int64) {
	behind = map[kafka.TopicPartition]int64{}
	last := &w.samples[len(w.samples)-1]
	for _, tp := range w.parts {
		if n := last.lag(tp); n > 0 && owns(w.states[t.name].tasks, tp.String()) {
			lag += n
			behind[tp] = last.committed[tp]
		}
	}
	return lag, behind
}

// allRunning reports whether the latest process of each instance says that it is RUNNING.
func (w *chaosWatch) allRunning(fleet []*target) bool {
	return !slices.ContainsFunc(fleet, func(t *target) bool { return t.counter == nil || !w.states[t.name].running })
}

// until looks again and again until done says so. It ends with a *journal.WaitError after the limit.
func (w *chaosWatch) until(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the limit is %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		err := w.look(ctx)
		var ok bool
		if err == nil {
			ok, err = done()
		}
		if ok || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return &journal.WaitError{What: what, Spent: time.Since(start), Last: w.journals.Last(), Err: context.Cause(ctx)}
		}
	}
}

// pass looks on while some time goes by.
func (w *chaosWatch) pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := w.look(ctx); err != nil {
			return err
		}
	}
}

// recovery is how long it took after a strike until the instance was RUNNING again, and until whoever owned them then had committed something
// of each partition that the victim was behind on. Zero: not seen.
func (w *chaosWatch) recovery(instance string, from time.Time, behind map[kafka.TopicPartition]int64) (running, committed time.Duration) {
	began := false
	for i := range w.events {
		e := &w.events[i]
		if e.Instance != instance || !e.Time.After(from) {
			continue
		}
		began = began || e.Started != nil
		if began && isRunning(e) {
			running = e.Time.Sub(from)
			break
		}
	}
	if len(behind) == 0 {
		return running, 0
	}
	left := maps.Clone(behind)
	for i := range w.samples {
		s := &w.samples[i]
		if !s.begun.After(from) {
			continue
		}
		maps.DeleteFunc(left, func(tp kafka.TopicPartition, before int64) bool { return s.committed[tp] > before })
		if len(left) == 0 {
			return running, s.done.Sub(from)
		}
	}
	return running, 0
}
