package streams

import (
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// flush sends what the stores' caches hold back: per entry its changelog record, then its way downstream.
func (t *task) flush() error {
	for _, f := range t.flushers {
		if err := f.flush(t.ctx); err != nil {
			return err
		}
	}
	return nil
}

// offsets adds the offsets that the group should know and does not. A task that has only punctuated yet commits where it starts: without
// any offset of the group, its state would look like one whose offsets were lost (refuseUncounted).
func (t *task) offsets(into map[kafka.TopicPartition]kafka.Offset) {
	for _, q := range t.queues {
		if next := q.next(); next > q.committed || t.punctuated && !t.hadOffsets {
			into[q.tp] = kafka.Offset{Offset: next, LeaderEpoch: q.epoch, Metadata: encodeOffsetMetadata(q.partitionTime)}
		}
	}
}

// settle makes the state file follow a commit that the broker has confirmed. It is the last step: the file is never ahead of the changelog.
//
// A task for which the group has no offset is left alone, though others of the thread have committed: its file must not say that it was
// committed, or the next start takes its offsets for lost (refuseUncounted). It has processed nothing, but may have restored something: what
// an instance flushed that was killed before its first commit.
func (t *task) settle(offsets map[kafka.TopicPartition]kafka.Offset, acked func(kafka.TopicPartition) int64, now time.Time) error {
	if !t.hadOffsets && !slices.ContainsFunc(t.queues, func(q *queue) bool { _, ok := offsets[q.tp]; return ok }) {
		return nil
	}
	c := store.Commit{Positions: map[string]store.Position{}, StreamTimes: map[string]int64{}, At: now}
	for _, log := range t.changelogs {
		if log.source == nil {
			log.next = max(log.next, acked(log.tp))
		} else if o, ok := offsets[log.tp]; ok {
			log.next = o.Offset
		}
		c.Positions[log.store] = store.Position{TopicID: log.id, Next: log.next, CommittedAt: now}
	}
	for _, clock := range t.clocks {
		if at := clock.current(); at != noTime {
			c.StreamTimes[clock.key] = at
		}
	}
	if err := t.db.Commit(c); err != nil {
		return err
	}
	for _, q := range t.queues {
		if o, ok := offsets[q.tp]; ok {
			q.committed = o.Offset
		}
	}
	t.processed, t.punctuated, t.hadOffsets = 0, false, true
	return nil
}
