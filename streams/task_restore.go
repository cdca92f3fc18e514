package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// restore is the replay of one changelog partition into its store, by position: from is where the local state ends, to the high watermark
// when it began.
type restore struct {
	task     *task
	log      *changelog
	from, to int64
	reason   string
	restored int64
	started  time.Time
	entries  []store.Entry // scratch
}

// bounds are a changelog partition's ends, taken once before the restore.
type bounds struct{ start, end int64 }

// planRestore decides from where to restore. Local state that does not fit the changelog is thrown away, and why is said.
func (t *task) planRestore(log *changelog, b bounds, retention time.Duration, now time.Time) (*restore, error) {
	r := &restore{task: t, log: log, from: b.start, to: b.end, started: now}
	pos, known := t.db.Position(log.store)
	switch {
	case !known:
		if !t.db.Empty(log.store) {
			r.reason = "the state file does not say how far it got"
		}
	case pos.TopicID != log.id:
		r.reason = "the changelog topic was deleted and created again"
	case pos.Next > b.end:
		r.reason = fmt.Sprintf("the local state is at offset %d, beyond the changelog's end %d", pos.Next, b.end)
	case pos.Next < b.start:
		r.reason = fmt.Sprintf("the local state is at offset %d, the changelog starts at %d", pos.Next, b.start)
	case !t.hadOffsets && pos.CommittedAt.IsZero():
		r.reason = "an earlier restore was never followed by a commit"
	case retention > 0 && !pos.CommittedAt.IsZero() && now.Sub(pos.CommittedAt) > retention-tombstoneMargin:
		r.reason = fmt.Sprintf("the last commit is of %s: tombstones since then may be gone from the compacted changelog",
			pos.CommittedAt.UTC().Format(time.RFC3339))
	default:
		r.from = pos.Next
		log.next = pos.Next
		return r, nil
	}
	log.next = b.start
	if known || r.reason != "" {
		if err := t.db.Reset(log.store); err != nil {
			return nil, fmt.Errorf("task %s: %w", t.id, err)
		}
	}
	return r, nil
}

// tombstoneMargin keeps clear of the moment at which the broker may drop tombstones.
const tombstoneMargin = time.Hour

// refuseUncounted stops an application whose state says that it has counted and whose group says that it has not: going on would count all
// of its input a second time.
func (t *task) refuseUncounted() error {
	if t.hadOffsets {
		return nil
	}
	for _, log := range t.changelogs {
		if pos, ok := t.db.Position(log.store); ok && !pos.CommittedAt.IsZero() && !t.db.Empty(log.store) {
			return &LocalStateError{
				Task: t.id, Store: log.store, Path: t.thread.app.state.TaskDir(t.id.String()),
				Reason: fmt.Sprintf("the store holds results, but group %s has no committed offset: its input would be counted twice. "+
					"If the offsets were reset on purpose, delete the state folder and the changelog topics too; if not, restore the offsets",
					t.thread.app.cfg.ApplicationID),
			}
		}
	}
	return nil
}

// LocalStateError is local state that must not be used, or cannot be.
type LocalStateError struct {
	Task   TaskID
	Store  string
	Path   string
	Reason string
}

func (e *LocalStateError) Error() string {
	return fmt.Sprintf("task %s, store %s in %s: %s", e.Task, e.Store, e.Path, e.Reason)
}

// apply puts a batch into the store and tells whether the restore has reached its end. It is reached by position, not by count:
// compaction, transaction markers and aborted records take offsets and bring nothing.
func (r *restore) apply(f kafka.Fetched, now time.Time) (bool, error) {
	r.entries = r.entries[:0]
	next := f.Next
	for i := range f.Records {
		rec := &f.Records[i]
		if rec.Offset >= r.to {
			// Not ours to replay: somebody wrote after the end was taken. The end is where this task goes on.
			next = r.to
			break
		}
		if rec.Key == nil {
			r.task.thread.log.Warn("skipping a changelog record without a key", "partition", r.log.tp.String(), "offset", rec.Offset)
			continue
		}
		r.entries = append(r.entries, store.Entry{Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp})
	}
	pos := store.Position{TopicID: r.log.id, Next: next}
	if r.task.hadOffsets {
		pos.CommittedAt = now
	}
	applied, err := r.task.db.Restore(r.log.store, r.entries, pos)
	if err != nil {
		return false, fmt.Errorf("restore of %s: %w", r.log.tp, err)
	}
	r.restored += int64(applied)
	r.log.next = next
	return next >= r.to, nil
}

// startRestores opens a restore for each changelog of the new tasks. Ends that have nothing to replay end at once, and are reported too.
func (th *thread) startRestores(ctx context.Context, tasks []*task) error {
	var tps []kafka.TopicPartition
	for _, t := range tasks {
		for _, log := range t.changelogs {
			tps = append(tps, log.tp)
		}
	}
	starts, err := th.app.client.ListOffsets(ctx, tps, kafka.EarliestOffset, kafka.ReadUncommitted)
	if err != nil {
		return fmt.Errorf("start of the changelogs: %w", err)
	}
	// The high watermark, not the last stable offset (KAFKA-10167): under a dangling transaction the restore waits for its end.
	ends, err := th.app.client.ListOffsets(ctx, tps, kafka.LatestOffset, kafka.ReadUncommitted)
	if err != nil {
		return fmt.Errorf("end of the changelogs: %w", err)
	}
	now := time.Now()
	for _, t := range tasks {
		if err := t.refuseUncounted(); err != nil {
			return err
		}
		t.state = taskRestoring
		for _, log := range t.changelogs {
			log.id = th.topics[log.tp.Topic].ID
			r, err := t.planRestore(log, bounds{starts[log.tp], ends[log.tp]}, th.app.tombstoneRetention[log.tp.Topic], now)
			if err != nil {
				return err
			}
			if r.reason != "" {
				th.log.Warn("rebuilding a store from its changelog", "task", t.id.String(), "store", log.store, "reason", r.reason)
			}
			th.app.listen(func(l *Listener) {
				if l.RestoreStart != nil {
					l.RestoreStart(RestoreStart{t.id, log.store, TopicPartition(log.tp), r.from, r.to, r.reason})
				}
			})
			if r.from >= r.to {
				th.endRestore(r)
				continue
			}
			th.restores[log.tp] = r
			th.restorer.Set(log.tp, r.from)
		}
	}
	return nil
}

func (th *thread) endRestore(r *restore) {
	delete(th.restores, r.log.tp)
	th.restorer.Remove(r.log.tp)
	th.app.listen(func(l *Listener) {
		if l.RestoreEnd != nil {
			l.RestoreEnd(RestoreEnd{r.task.id, r.log.store, TopicPartition(r.log.tp), r.restored, time.Since(r.started)})
		}
	})
}

// restoreStep applies what the restore fetcher brought, and starts the tasks that are complete.
func (th *thread) restoreStep() error {
	for _, f := range th.restorer.Poll() {
		r := th.restores[f.TopicPartition]
		if r == nil {
			continue // answered after its task had gone
		}
		if f.Err != nil {
			return fmt.Errorf("restore of %s from offset %d: %w", f.TopicPartition, r.log.next, f.Err)
		}
		done, err := r.apply(f, time.Now())
		if err != nil {
			return err
		}
		if done {
			th.endRestore(r)
		}
	}
	for _, t := range th.tasks {
		if t.state == taskRestoring && !th.restoring(t) {
			if err := th.startTask(t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (th *thread) restoring(t *task) bool {
	for _, r := range th.restores {
		if r.task == t {
			return true
		}
	}
	return false
}

// startTask lets a restored task process: stream times continue, processors start, and its partitions are fetched.
func (th *thread) startTask(t *task) error {
	for _, clock := range t.clocks {
		if !th.app.cfg.WindowStreamTimeRestore {
			break
		}
		at := t.db.Window(clock.store).MaxStart()
		if saved, ok := t.db.StreamTime(clock.key); ok {
			at = max(at, saved)
		}
		for _, q := range t.queues {
			if th.app.repartition[q.tp.Topic] {
				at = max(at, q.partitionTime)
			}
		}
		clock.restore(at)
	}
	if err := t.start(); err != nil {
		return err
	}
	t.state = taskRunning
	for _, q := range t.queues {
		th.queues[q.tp] = q
		th.fetcher.Set(q.tp, q.position)
	}
	return nil
}
