package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

const (
	// standbyFetchBytes is how much is fetched of one changelog at a time. All standbys are followed at once, so it is less than what a
	// restore fetches.
	standbyFetchBytes = 256 << 10
	// standbyRetry is how long a standby rests after something went wrong, at first, and standbyRetryMax after the last of many times.
	standbyRetry    = 200 * time.Millisecond
	standbyRetryMax = 30 * time.Second
)

// standbys keeps the standby tasks of all threads of the application. Whatever goes wrong with one is no reason to stop: it begins again,
// from its state file or without it.
//
// The standbys belong to a goroutine of their own, as in the state updater of Kafka Streams 4.3.1 (DefaultStateUpdater), so that writing them
// holds up neither records nor commits. Threads reach them through calls, which that goroutine carries out between two batches. For as long as
// a standby's files are open it holds the task's lock.
type standbys struct {
	app     *App
	log     *slog.Logger
	fetcher *kafka.Fetcher
	calls   chan func()
	found   chan standbyBounds
	done    chan struct{} // closed when the goroutine has ended

	// Of the goroutine.
	wanted  map[int][]standbySpec // by thread
	tasks   map[TaskID]*standby
	logs    map[kafka.TopicPartition]*standbyLog
	arrived []kafka.Fetched // not yet applied
	told    []TaskID        // to the listener
}

// standbyBounds is the outcome of a look-up for standbys that are to begin.
type standbyBounds struct {
	of           []*standby
	starts, ends map[kafka.TopicPartition]int64
	committed    map[kafka.TopicPartition]kafka.Offset
	err          error
}

func newStandbys(a *App) *standbys {
	return &standbys{
		app: a,
		log: a.log,
		// Committed records only, whatever the guarantee: an aborted record must never be in a copy that may become the task.
		fetcher: a.client.NewFetcher(kafka.FetcherConfig{
			Isolation:         func(string) kafka.Isolation { return kafka.ReadCommitted },
			PartitionMaxBytes: standbyFetchBytes,
		}),
		calls:  make(chan func()),
		found:  make(chan standbyBounds),
		done:   make(chan struct{}),
		wanted: map[int][]standbySpec{},
		tasks:  map[TaskID]*standby{},
		logs:   map[kafka.TopicPartition]*standbyLog{},
	}
}

// besideStandbys runs the stream threads with the standbys beside them.
func (a *App) besideStandbys(ctx context.Context, threads func(context.Context) error) error {
	a.standbys = newStandbys(a)
	keep, stop := context.WithCancel(context.WithoutCancel(ctx)) // the threads' clean stop comes first
	var keeper sync.WaitGroup
	var closed error
	keeper.Go(func() { closed = a.standbys.run(keep) })
	err := threads(ctx)
	stop()
	keeper.Wait()
	return errors.Join(err, closed)
}

// run follows the changelogs until ctx ends, and closes the state files.
func (s *standbys) run(ctx context.Context) (err error) {
	defer close(s.done)
	defer s.fetcher.Close()
	var background sync.WaitGroup
	defer background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		for _, st := range s.tasks {
			err = errors.Join(err, s.close(st))
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if len(s.arrived) == 0 {
			s.arrived = s.fetcher.Poll()
		}
		wait := s.begin(ctx, &background, time.Now())
		if len(s.arrived) > 0 {
			f := s.arrived[0]
			s.arrived = s.arrived[1:]
			s.apply(f, time.Now())
			wait = 0
		}
		timer.Reset(wait)
		select {
		case call := <-s.calls:
			call()
		case b := <-s.found:
			s.follow(b, time.Now())
		case <-s.fetcher.Ready():
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// call has fn carried out by the goroutine and waits for it. It is false if that has ended.
func (s *standbys) call(fn func()) bool {
	carriedOut := make(chan struct{})
	select {
	case s.calls <- func() { defer close(carriedOut); fn() }:
		<-carriedOut
		return true
	case <-s.done:
		return false
	}
}

// assign makes the standbys of a thread those of its assignment. What another thread of the process still wants stays. Tasks that are handed
// over were worked on until now, are committed, and go on as standbys with their files open, and so with their locks.
func (s *standbys) assign(thread int, specs []standbySpec, handed map[TaskID]*store.DB) error {
	var err error
	if s.call(func() { err = s.assigned(thread, specs, handed) }) {
		return err
	}
	for id, db := range handed {
		err = errors.Join(err, s.giveUp(id, db))
	}
	return err
}

// promote takes a standby to be worked on, with its file open and its lock; nil if there is none.
func (s *standbys) promote(id TaskID) (db *store.DB) {
	s.call(func() { db = s.promoted(id) })
	return db
}

// kept lists the standbys that a thread was assigned and that are kept.
func (s *standbys) kept(thread int) (ids []TaskID) {
	s.call(func() {
		for _, spec := range s.wanted[thread] {
			ids = append(ids, spec.id)
		}
	})
	return ids
}

func (s *standbys) assigned(thread int, specs []standbySpec, handed map[TaskID]*store.DB) (err error) {
	s.wanted[thread] = specs
	want := map[TaskID]standbySpec{}
	for _, specs := range s.wanted {
		for _, spec := range specs {
			want[spec.id] = spec
		}
	}
	for id, st := range s.tasks {
		if spec, ok := want[id]; ok && slices.Equal(spec.changelogs, st.changelogs) {
			continue
		}
		if err := s.close(st); err != nil {
			s.log.Warn("a standby was not closed well; who opens its file next finds out what it is worth", "error", err)
		}
	}
	for id, spec := range want {
		if s.tasks[id] == nil {
			s.tasks[id] = &standby{standbySpec: spec}
		}
	}
	for id, db := range handed {
		if st := s.tasks[id]; st != nil && st.db == nil && db.SetBudget(store.NewBudget(0)) == nil {
			// Another thread's assignment may have begun this one already. It would go on to wait for the lock, which comes with the file.
			s.tasks[id] = &standby{standbySpec: st.standbySpec, db: db}
		} else {
			err = errors.Join(err, s.giveUp(id, db))
		}
	}
	s.report()
	return err
}

// giveUp closes a file that was handed over and cannot be used. A standby opens its own then.
func (s *standbys) giveUp(id TaskID, db *store.DB) error {
	defer s.app.locks.unlock(id)
	if err := db.Close(); err != nil {
		return fmt.Errorf("task %s: %w", id, err)
	}
	return nil
}

func (s *standbys) promoted(id TaskID) *store.DB {
	for thread, specs := range s.wanted {
		s.wanted[thread] = slices.DeleteFunc(slices.Clone(specs), func(spec standbySpec) bool { return spec.id == id })
	}
	st := s.tasks[id]
	if st == nil {
		return nil
	}
	if st.db != nil {
		if err := st.flush(s.app); err != nil {
			s.abandon(st, err)
		}
	}
	db := st.db
	s.forget(st)
	delete(s.tasks, id)
	return db
}

// report tells the listener which standbys there are, if that has changed.
func (s *standbys) report() {
	ids := slices.SortedFunc(maps.Keys(s.tasks), TaskID.compare)
	if slices.Equal(ids, s.told) {
		return
	}
	s.told = ids
	tasks := make([]Task, len(ids))
	for i, id := range ids {
		tasks[i] = s.tasks[id].describe()
	}
	s.app.listen(func(l *Listener) {
		if l.StandbysAssigned != nil {
			l.StandbysAssigned(tasks)
		}
	})
}

// begin opens the files of standbys that are due and looks up from where they have to be followed. It returns how long to wait for the next.
func (s *standbys) begin(ctx context.Context, background *sync.WaitGroup, now time.Time) time.Duration {
	wait := time.Hour
	var due []*standby
	for _, st := range s.tasks {
		if st.asking || st.logs != nil && st.hadOffsets {
			continue
		}
		if rest := st.retryAt.Sub(now); rest > 0 {
			wait = min(wait, rest)
			continue
		}
		if st.db == nil {
			if back := s.app.locks.lock(st.id); back != nil {
				// Some thread still has the task, or has it once more and this standby is about to end.
				st.asking = true
				background.Go(func() {
					select {
					case <-back:
					case <-ctx.Done():
						return
					}
					select {
					case s.calls <- func() { st.asking = false }:
					case <-ctx.Done():
					}
				})
				continue
			}
			if err := s.open(st); err != nil {
				s.app.locks.unlock(st.id)
				s.retry(st, err, now)
				continue
			}
		}
		st.asking = true
		due = append(due, st)
	}
	if len(due) > 0 {
		background.Go(func() {
			b := s.lookUp(ctx, due)
			select {
			case s.found <- b:
			case <-ctx.Done():
			}
		})
	}
	return wait
}

func (s *standbys) open(st *standby) (err error) {
	st.db, err = store.Open(s.app.state.TaskDir(st.id.String()), st.sub.storeSpecs(s.app.uncached()),
		store.Options{Budget: store.NewBudget(0), Logger: s.log})
	return err
}

func (s *standbys) lookUp(ctx context.Context, due []*standby) standbyBounds {
	b := standbyBounds{of: due}
	var logs, inputs []kafka.TopicPartition
	for _, st := range due {
		inputs = append(inputs, st.inputs...)
		for _, c := range st.changelogs {
			logs = append(logs, c.tp)
		}
	}
	// Only whether there are any matters, so a transaction that is open, maybe a dead owner's, need not be waited for.
	if b.committed, b.err = s.app.client.CommittedOffsetsNow(ctx, s.app.cfg.ApplicationID, inputs); b.err != nil {
		return b
	}
	if b.starts, b.err = s.app.client.ListOffsets(ctx, logs, kafka.EarliestOffset, kafka.ReadUncommitted); b.err != nil {
		return b
	}
	b.ends, b.err = s.app.client.ListOffsets(ctx, logs, kafka.LatestOffset, kafka.ReadUncommitted)
	return b
}

// follow begins to follow the standbys of a look-up. Those that follow already have asked for the group's offsets only.
func (s *standbys) follow(b standbyBounds, now time.Time) {
	for _, st := range b.of {
		st.asking = false
		if s.tasks[st.id] != st || st.db == nil {
			continue // taken away meanwhile
		}
		if b.err != nil {
			s.retry(st, b.err, now)
			continue
		}
		st.hadOffsets = slices.ContainsFunc(st.inputs, func(tp kafka.TopicPartition) bool { _, ok := b.committed[tp]; return ok })
		if !st.hadOffsets {
			st.retryAt = now.Add(s.app.cfg.CommitInterval)
		}
		if st.logs != nil {
			continue
		}
		if err := s.start(st, b, now); err != nil {
			s.abandon(st, err)
			s.retry(st, err, now)
		}
	}
}

func (s *standbys) start(st *standby, b standbyBounds, now time.Time) error {
	logs := make([]*standbyLog, 0, len(st.changelogs))
	for _, c := range st.changelogs {
		check := localState{
			db: st.db, store: c.store, topicID: c.topicID, bounds: bounds{b.starts[c.tp], b.ends[c.tp]},
			retention: c.retention, hadOffsets: st.hadOffsets,
		}
		pos, reason, err := check.usable(now)
		if err != nil {
			return err
		}
		if reason != "" {
			s.log.Warn("rebuilding a standby's store from its changelog", "task", st.id.String(), "store", c.store, "reason", reason)
		}
		l := &standbyLog{standby: st, changelog: changelog{store: c.store, tp: c.tp, id: c.topicID, next: check.bounds.start}, asOf: now}
		if pos != nil {
			l.next, l.asOf, l.written = pos.Next, pos.CommittedAt, *pos
		}
		logs = append(logs, l)
	}
	st.logs = logs
	for _, l := range logs {
		s.logs[l.tp] = l
		s.fetcher.Set(l.tp, l.next)
	}
	return nil
}

// apply takes one fetch answer.
func (s *standbys) apply(f kafka.Fetched, now time.Time) {
	l := s.logs[f.TopicPartition]
	if l == nil {
		return // answered after its standby had gone
	}
	st := l.standby
	err := f.Err
	if err == nil {
		st.tries = 0
		err = l.take(s.app, f, restoreBufferBytes/len(s.logs), now)
	}
	if err == nil {
		return
	}
	if errors.Is(err, store.ErrLost) {
		s.abandon(st, err)
	} else {
		// Most often the changelog was cut back or made again (OffsetOutOfRange). The file keeps its position, and with it the reason for which
		// it is rebuilt.
		s.forget(st)
	}
	s.retry(st, fmt.Errorf("%s at offset %d: %w", l.tp, l.next, err), now)
}

// retry lets a standby rest before it begins again.
func (s *standbys) retry(st *standby, err error, now time.Time) {
	rest := min(standbyRetry<<min(st.tries, 10), standbyRetryMax)
	st.tries++
	st.retryAt = now.Add(rest)
	s.log.Warn("a standby begins again", "task", st.id.String(), "in", rest, "reason", err)
}

// forget stops following, and drops what was not written.
func (s *standbys) forget(st *standby) {
	for _, l := range st.logs {
		delete(s.logs, l.tp)
		s.fetcher.Remove(l.tp)
	}
	st.logs = nil
	s.arrived = slices.DeleteFunc(s.arrived, func(f kafka.Fetched) bool {
		return slices.ContainsFunc(st.changelogs, func(c standbyChangelog) bool { return c.tp == f.TopicPartition })
	})
}

// abandon gives a file up that could not be read or written. The next one that opens it rebuilds it.
func (s *standbys) abandon(st *standby, reason error) {
	s.forget(st)
	if err := st.db.Abandon(); err != nil {
		s.log.Error("a standby's file could not be closed", "task", st.id.String(), "error", errors.Join(reason, err))
	}
	st.db = nil
	s.app.locks.unlock(st.id)
}

// close ends a standby. What it collected is written, so that the next start goes on from there.
func (s *standbys) close(st *standby) (err error) {
	delete(s.tasks, st.id)
	if st.db == nil {
		return nil
	}
	err = st.flush(s.app)
	s.forget(st)
	if err = errors.Join(err, st.db.Close()); err != nil {
		err = fmt.Errorf("standby %s: %w", st.id, err)
	}
	st.db = nil
	s.app.locks.unlock(st.id)
	return err
}
