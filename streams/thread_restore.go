package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

const (
	// restoreSlice is for how long a round of the thread fills stores before the running tasks, commits and the group have their turn.
	restoreSlice = 50 * time.Millisecond
	// restoresAtOnce bounds memory: each partition that is fetched holds up to two batches of restoreBatchBytes, under way and waiting. The
	// other restores of the thread wait for their turn.
	restoresAtOnce    = 16
	restoreBatchBytes = 1 << 20
	// restoreBufferBytes is what all restores of a thread may collect before they write to their stores. Large stores are the quicker to fill
	// the more entries they get at once, see store.DB.Restore.
	restoreBufferBytes = 32 << 20
)

func (a *App) newRestorer() *kafka.Fetcher {
	return a.client.NewFetcher(kafka.FetcherConfig{
		// A switch from exactly once to at least once must not count aborted records. A table's source topic is read as it was read before.
		Isolation: func(topic string) kafka.Isolation {
			if a.cfg.ProcessingGuarantee == AtLeastOnce && slices.Contains(a.userSources, topic) {
				return kafka.ReadUncommitted
			}
			return kafka.ReadCommitted
		},
		PartitionMaxBytes: restoreBatchBytes,
	})
}

// startRestores opens a restore for each changelog of the new tasks. Ends that have nothing to replay end at once, and are reported too.
func (th *thread) startRestores(ctx context.Context, tasks []*task) error {
	var logs []*changelog
	for _, t := range tasks {
		if err := t.refuseUncounted(); err != nil {
			return err
		}
		t.state = taskRestoring
		for _, log := range t.changelogs {
			log.id = th.topics[log.tp.Topic].ID
			logs = append(logs, log)
		}
	}
	return th.openRestores(ctx, logs...)
}

func (th *thread) openRestores(ctx context.Context, logs ...*changelog) error {
	tps := make([]kafka.TopicPartition, len(logs))
	for i, log := range logs {
		tps[i] = log.tp
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
	for _, log := range logs {
		if log.source != nil { // what the group has not committed is processed, not restored (Kafka Streams 4.3.1, StoreChangelogReader)
			ends[log.tp] = min(ends[log.tp], log.task.committed(log.tp))
		}
		r, err := log.task.planRestore(log, bounds{starts[log.tp], ends[log.tp]}, th.tombstoneRetention[log.tp.Topic], now)
		if err != nil {
			return err
		}
		th.startRestore(r)
	}
	th.fetchRestores(now)
	return nil
}

func (th *thread) startRestore(r *restore) {
	if r.reason != "" {
		th.log.Warn("rebuilding a store from its changelog", "task", r.task.id.String(), "store", r.log.store, "reason", r.reason)
	}
	if !r.task.hadOffsets && r.from < r.to {
		th.log.Warn("a changelog holds results, but the group has no committed offset: the input is counted once more, on top of them",
			"task", r.task.id.String(), "store", r.log.store, "changelog", r.log.tp.String(), "group", th.app.cfg.ApplicationID)
	}
	th.app.listen(func(l *Listener) {
		if l.RestoreStart != nil {
			l.RestoreStart(RestoreStart{r.task.id, r.log.store, TopicPartition(r.log.tp), r.from, r.to, r.reason})
		}
	})
	if r.from >= r.to {
		th.endRestore(r)
		return
	}
	th.restores[r.log.tp] = r
}

// fetchRestores lets waiting restores have their turn, in task order.
func (th *thread) fetchRestores(now time.Time) {
	fetching := 0
	for _, r := range th.restores {
		if r.fetching {
			fetching++
		}
	}
	for _, t := range th.tasks {
		for _, log := range t.changelogs {
			if r := th.restores[log.tp]; r != nil && !r.fetching && fetching < restoresAtOnce {
				r.fetching = true
				r.stall.moved(now)
				th.restorer.Set(log.tp, log.next)
				fetching++
			}
		}
	}
}

func (th *thread) endRestore(r *restore) {
	th.forgetRestore(r)
	th.app.listen(func(l *Listener) {
		if l.RestoreEnd != nil {
			l.RestoreEnd(RestoreEnd{r.task.id, r.log.store, TopicPartition(r.log.tp), r.restored, time.Since(r.started)})
		}
	})
}

// saveRestores writes down how far the restores of a task have got.
func (th *thread) saveRestores(t *task) error {
	for _, r := range th.restores {
		if r.task == t && len(r.batch.entries) > 0 {
			if err := r.put(time.Now()); err != nil {
				return err
			}
		}
	}
	return nil
}

// suspendRestore gives a restore up before its end, with its task. The state file knows how far it got: to where saveRestores was called, or
// to the last offset that was written with its batch.
func (th *thread) suspendRestore(r *restore) {
	th.forgetRestore(r)
	progress := r.progress(time.Now())
	th.app.listen(func(l *Listener) {
		if l.RestoreSuspended != nil {
			l.RestoreSuspended(progress)
		}
	})
}

func (th *thread) forgetRestore(r *restore) {
	r.stall.moved(time.Now())
	delete(th.restores, r.log.tp)
	th.restorer.Remove(r.log.tp)
	th.arrived = slices.DeleteFunc(th.arrived, func(f kafka.Fetched) bool { return f.TopicPartition == r.log.tp })
}

// restoreStep applies what the restore fetcher brought, for restoreSlice or a little longer, and starts the tasks that are complete.
func (th *thread) restoreStep() error {
	start := time.Now()
	if len(th.arrived) == 0 {
		th.arrived = th.restorer.Poll()
	}
	for len(th.arrived) > 0 && time.Since(start) < restoreSlice {
		f := th.arrived[0]
		th.arrived = th.arrived[1:]
		r := th.restores[f.TopicPartition]
		if errors.Is(f.Err, kafka.OffsetOutOfRange) {
			// Retention or DeleteRecords has moved the start of the log past the restore: it begins again there, and says why. Its position
			// is written down even if it has brought nothing yet, or the new start would look like a first one.
			if err := r.put(time.Now()); err != nil {
				return err
			}
			th.suspendRestore(r)
			if err := th.openRestores(th.work, r.log); err != nil {
				return err
			}
			continue
		}
		if f.Err != nil {
			return fmt.Errorf("restore of %s from offset %d: %w", f.TopicPartition, r.log.next, f.Err)
		}
		now := time.Now()
		if f.Next > r.log.next {
			r.stall.moved(now)
			done, err := r.apply(f, restoreBufferBytes/min(len(th.restores), restoresAtOnce), now)
			if err != nil {
				return err
			}
			if done {
				th.endRestore(r)
				th.fetchRestores(now)
				continue
			}
		}
		th.reportProgress(r, now)
	}
	if err := th.watchRestores(start); err != nil {
		return err
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

// resumeRestores lets the restores of tasks that were kept over a rebalance go on: they stood still for as long as it took.
func (th *thread) resumeRestores() {
	now := time.Now()
	for _, r := range th.restores {
		r.stall.moved(now)
	}
}

// A restore that takes longer than progressAfter is reported every progressEvery.
const (
	progressAfter = time.Second
	progressEvery = 500 * time.Millisecond
)

func (th *thread) reportProgress(r *restore, now time.Time) {
	if now.Sub(r.started) < progressAfter || now.Sub(r.told) < progressEvery {
		return
	}
	r.told = now
	progress := r.progress(now)
	th.app.listen(func(l *Listener) {
		if l.RestoreProgress != nil {
			l.RestoreProgress(progress)
		}
	})
}

func (r *restore) progress(now time.Time) RestoreProgress {
	p := RestoreProgress{
		Task: r.task.id, Store: r.log.store, Changelog: TopicPartition(r.log.tp),
		Restored: r.restored, From: r.from, Position: r.log.next, To: r.to,
	}
	if took := now.Sub(r.started).Seconds(); took > 0 {
		p.Rate = float64(p.Position-p.From) / took
	}
	if p.Rate > 0 {
		p.ETA = time.Duration(float64(p.To-p.Position) / p.Rate * float64(time.Second))
	}
	return p
}

// startTask lets a restored task process: stream times continue, processors start, and its partitions are fetched.
func (th *thread) startTask(t *task) error {
	if th.app.cfg.WindowStreamTimeRestore {
		repartitionTime := noTime
		for _, q := range t.queues {
			if th.app.repartition[q.tp.Topic] {
				repartitionTime = max(repartitionTime, q.partitionTime)
			}
		}
		for i := range t.clocks {
			t.clocks[i].resume(t.db, repartitionTime)
		}
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
