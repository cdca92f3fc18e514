package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// errLost says that the thread's tasks are not its own any more, or that it cannot know: nothing of them may be committed.
var errLost = errors.New("tasks lost")

// commit makes what was processed since the last commit durable, in this order (at least once):
//
//	store caches (per entry: changelog record, then downstream) → producer flush, every ack awaited → group offsets → state files
//
// A crash between any two steps replays input, it never skips any: offsets move after the results are acknowledged, and the state files
// after the offsets.
func (th *thread) commit(ctx context.Context, reason CommitReason) error {
	if err := th.checkOwnership(); err != nil {
		return err
	}
	start := time.Now()
	if err := th.reach(ctx, StageCachesNotFlushed); err != nil {
		return err
	}
	var records int64
	offsets := map[kafka.TopicPartition]kafka.Offset{}
	for _, t := range th.tasks {
		if t.state != taskRunning {
			continue
		}
		if th.app.cfg.Failpoint != nil && t == th.lastProcessed() {
			if err := th.reach(ctx, StageInTransaction); err != nil {
				return err
			}
		}
		records += t.processed
		if err := t.flush(); err != nil {
			return err
		}
	}
	punctuated := false
	for _, t := range th.tasks {
		if t.state == taskRunning {
			t.offsets(offsets)
			punctuated = punctuated || t.punctuated
		}
	}
	th.lastCommit, th.processed = start, 0
	if len(offsets) == 0 && !punctuated {
		return nil
	}
	if err := th.guarantee.finish(ctx, th, offsets); err != nil {
		return err
	}
	for _, t := range th.tasks {
		if t.state != taskRunning {
			continue
		}
		if err := t.settle(offsets, th.producer.Acked, start); err != nil {
			return fmt.Errorf("task %s: %w", t.id, err)
		}
	}
	maps.Copy(th.purgeable, offsets)
	th.app.listen(func(l *Listener) {
		if l.Committed != nil {
			l.Committed(Commit{Records: records, Took: time.Since(start), Reason: reason})
		}
	})
	return nil
}

// guarantee is the part of a commit in which the processing guarantees differ: from results in the producer's buffer to committed offsets.
type guarantee interface {
	finish(ctx context.Context, th *thread, offsets map[kafka.TopicPartition]kafka.Offset) error
}

// atLeastOnce acknowledges results first and offsets second.
type atLeastOnce struct{}

func (atLeastOnce) finish(ctx context.Context, th *thread, offsets map[kafka.TopicPartition]kafka.Offset) error {
	if err := th.flushOutput(ctx); err != nil {
		var refused *OutputRefusedError
		if errors.As(err, &refused) && len(refused.held) > 0 {
			return errors.Join(err, th.commitBefore(ctx, refused.held, offsets))
		}
		return err
	}
	if err := th.reach(ctx, StageBeforeOffsetCommit); err != nil {
		return err
	}
	if err := th.commitOffsets(ctx, offsets); err != nil {
		return err
	}
	return th.reach(ctx, StageAfterOffsetCommit)
}

// commitBefore commits what precedes the input records whose output was refused, so that the next start meets those records and not all
// that came since the last commit. Everything else that was sent is acknowledged.
func (th *thread) commitBefore(ctx context.Context, held []kafka.Origin, offsets map[kafka.TopicPartition]kafka.Offset) error {
	before := maps.Clone(offsets)
	for _, h := range held {
		if o, ok := before[h.TopicPartition]; ok {
			o.Offset = min(o.Offset, h.Offset)
			before[h.TopicPartition] = o
		}
	}
	return th.commitOffsets(ctx, before)
}

func (th *thread) commitOffsets(ctx context.Context, offsets map[kafka.TopicPartition]kafka.Offset) error {
	// The flush may have waited for long.
	if err := th.checkOwnership(); err != nil {
		return err
	}
	if len(offsets) == 0 { // the results of punctuations alone
		return nil
	}
	err := th.app.client.CommitOffsets(ctx, th.member.Meta(), offsets)
	switch {
	case errors.Is(err, kafka.IllegalGeneration), errors.Is(err, kafka.UnknownMemberID), errors.Is(err, kafka.RebalanceInProgress):
		return fmt.Errorf("%w: the group moved on without this member: %w", errLost, err)
	case err != nil:
		return fmt.Errorf("commit offsets: %w", err)
	}
	return nil
}

// checkOwnership refuses to send for tasks that the group may have given to another: an idempotent producer is not fenced, so a member that
// was suspended for longer than its session would write beside the new owner.
func (th *thread) checkOwnership() error {
	if silent := kafka.SuspendClock().Sub(th.member.LastBeat()); silent > th.app.cfg.SessionTimeout {
		return fmt.Errorf("%w: the last heartbeat with an answer was sent %s ago, the session lasts %s",
			errLost, silent.Round(time.Millisecond), th.app.cfg.SessionTimeout)
	}
	return nil
}

// commitDue says whether to commit now, and why.
func (th *thread) commitDue(now time.Time) (CommitReason, bool) {
	cfg := &th.app.cfg
	switch {
	case th.budget.Over():
		return CommitCacheFull, true
	case now.Sub(th.lastCommit) >= cfg.CommitInterval:
		return CommitInterval, true
	case cfg.CommitIdle >= 0 && th.processed > 0 && !th.drainedSince.IsZero() && now.Sub(th.drainedSince) >= cfg.CommitIdle:
		return CommitIdle, true
	}
	return "", false
}

// nextDue is when commitDue may next say yes, or a punctuation be due, without new input.
func (th *thread) nextDue() time.Time {
	due := th.lastCommit.Add(th.app.cfg.CommitInterval)
	if idle := th.app.cfg.CommitIdle; idle >= 0 && th.processed > 0 && !th.drainedSince.IsZero() {
		if at := th.drainedSince.Add(idle); at.Before(due) {
			due = at
		}
	}
	if at, ok := th.nextPunctuation(); ok && at.Before(due) {
		due = at
	}
	if len(th.restores) > 0 { // somebody has to notice one that does not move
		if at := time.Now().Add(stallNotice / 2); at.Before(due) {
			due = at
		}
	}
	return due
}

// purge deletes from the repartition topics what is committed, in the background, one request at a time. Failure is harmless: each purge
// names all partitions of the tasks, also those that have not moved since the last one. Only that the principal may not do it is an error,
// of the next call: no later purge would do better, and the topics would grow for ever.
func (th *thread) purge(ctx context.Context, now time.Time) error {
	select {
	case err := <-th.purged:
		th.purging = false
		if err != nil {
			return fmt.Errorf("purge what is committed of the repartition topics: %w", err)
		}
	default:
	}
	if th.purging || now.Sub(th.lastPurge) < th.app.cfg.RepartitionPurgeInterval {
		return nil
	}
	th.lastPurge = now
	before := map[kafka.TopicPartition]int64{}
	for tp, o := range th.purgeable {
		if th.app.repartition[tp.Topic] {
			before[tp] = o.Offset
		}
	}
	if len(before) == 0 {
		return nil
	}
	th.purging = true
	th.background.Go(func() {
		err := th.app.client.DeleteRecords(ctx, before)
		switch {
		case ctx.Err() != nil:
			err = nil
		case err != nil && !kafka.IsUnauthorized(err):
			th.log.Debug("purge of repartition records failed; the next one covers them too", "error", err)
			err = nil
		}
		th.purged <- err
	})
	return nil
}
