package streams

import (
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
	asOf     time.Time // until when the local state had seen the changelog to its end; the start for a rebuild

	batch    changelogBatch // up to log.next
	fetching bool           // it has its turn, see restoresAtOnce
	told     time.Time      // of the last progress event
	stall    stall
}

// bounds are a changelog partition's ends, taken once before the restore.
type bounds struct{ start, end int64 }

// planRestore decides from where to restore. Local state that does not fit the changelog is thrown away, and why is said.
func (t *task) planRestore(log *changelog, b bounds, retention time.Duration, now time.Time) (*restore, error) {
	r := &restore{task: t, log: log, from: b.start, to: b.end, started: now, asOf: now}
	check := localState{db: t.db, store: log.store, topicID: log.id, bounds: b, retention: retention, hadOffsets: t.hadOffsets}
	pos, reason, err := check.usable(now)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", t.id, err)
	}
	r.reason = reason
	if pos != nil {
		r.from, r.asOf = pos.Next, pos.CommittedAt
	}
	log.next = r.from
	return r, nil
}

// localState is what a store on the disk has to fit if its changelog is to be read on from where the store is.
type localState struct {
	db         *store.DB
	store      string
	topicID    [16]byte
	bounds     bounds
	retention  time.Duration // of tombstones in the changelog; 0 if it is not compacted
	hadOffsets bool          // the group had a committed offset for the task
}

// usable returns the position of a store that fits. One that does not, for the reason that is given, is emptied: it begins at the
// changelog's start, as does one that was empty, for no reason.
func (s localState) usable(now time.Time) (pos *store.Position, reason string, err error) {
	at, known := s.db.Position(s.store)
	switch {
	case !known:
		if reason = s.db.Recovered(); reason == "" && !s.db.Empty(s.store) {
			reason = "the state file does not say how far it got"
		}
	case at.TopicID != s.topicID:
		reason = "the changelog topic was deleted and created again"
	case at.Next > s.bounds.end:
		reason = fmt.Sprintf("the local state is at offset %d, beyond the changelog's end %d", at.Next, s.bounds.end)
	case at.Next < s.bounds.start:
		reason = fmt.Sprintf("the local state is at offset %d, the changelog starts at %d", at.Next, s.bounds.start)
	case !s.hadOffsets && at.CommittedAt.IsZero():
		reason = "an earlier restore was never followed by a commit"
	case s.retention > 0 && !at.CommittedAt.IsZero() && now.Sub(at.CommittedAt) > s.retention-tombstoneMargin:
		reason = fmt.Sprintf("the last commit is of %s: tombstones since then may be gone from the compacted changelog",
			at.CommittedAt.UTC().Format(time.RFC3339))
	default:
		return &at, "", nil
	}
	if known || reason != "" {
		err = s.db.Reset(s.store)
	}
	return nil, reason, err
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
		if log.source != nil {
			continue // a table only becomes the same once more
		}
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

// apply takes a batch and tells whether the restore has reached its end. It is reached by position, not by count: compaction, transaction
// markers and aborted records take offsets and bring nothing. Batches are collected up to limit bytes before they go into the store.
func (r *restore) apply(f kafka.Fetched, limit int, now time.Time) (bool, error) {
	next := f.Next
	for i := range f.Records {
		rec := &f.Records[i]
		if rec.Offset >= r.to {
			// Not ours to replay: somebody wrote after the end was taken. The end is where this task goes on.
			next = r.to
			break
		}
		r.batch.add(r.log, rec, r.task.thread.log)
	}
	r.log.next = next
	if next < r.to && r.batch.bytes < limit {
		return false, nil
	}
	return next >= r.to, r.put(now)
}

// put writes the collected entries and the position after them.
func (r *restore) put(now time.Time) error {
	next := r.log.next
	pos := store.Position{TopicID: r.log.id, Next: next}
	if r.task.hadOffsets {
		// Until the end is reached the state stays as old as it was: a tombstone between here and the end may go while the restore is
		// suspended, and the value that it deletes is in the store already.
		if pos.CommittedAt = r.asOf; next >= r.to {
			pos.CommittedAt = now
		}
	}
	restored, err := r.batch.put(r.task.db, r.log, pos)
	r.restored += restored
	return err
}
