package streams

import (
	"fmt"
	"time"
	"unsafe"

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

	entries   []store.Entry // up to log.next, not yet in the store
	collected int           // their size in bytes

	fetching bool      // it has its turn, see restoresAtOnce
	told     time.Time // of the last progress event
	stall    stall
}

// bounds are a changelog partition's ends, taken once before the restore.
type bounds struct{ start, end int64 }

// planRestore decides from where to restore. Local state that does not fit the changelog is thrown away, and why is said.
func (t *task) planRestore(log *changelog, b bounds, retention time.Duration, now time.Time) (*restore, error) {
	r := &restore{task: t, log: log, from: b.start, to: b.end, started: now, asOf: now}
	pos, known := t.db.Position(log.store)
	switch {
	case !known:
		if r.reason = t.db.Recovered(); r.reason == "" && !t.db.Empty(log.store) {
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
		r.from, r.asOf = pos.Next, pos.CommittedAt
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
		if rec.Key == nil {
			r.task.thread.log.Warn("skipping a changelog record without a key", "partition", r.log.tp.String(), "offset", rec.Offset)
			continue
		}
		e := store.Entry{Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp}
		if r.log.source != nil {
			in := inputOf(r.log.tp, rec)
			var err error
			if e.Timestamp, err = r.log.source.load(&in, noTime); err != nil {
				continue // it went to the dead letters when its turn came
			}
		}
		r.entries = append(r.entries, e)
		r.collected += len(e.Key) + len(e.Value) + entryOverhead
	}
	r.log.next = next
	if next < r.to && r.collected < limit {
		return false, nil
	}
	return next >= r.to, r.put(now)
}

// entryOverhead is what an entry takes beside its key and value.
const entryOverhead = int(unsafe.Sizeof(store.Entry{}))

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
	if _, err := r.task.db.Restore(r.log.store, r.entries, pos); err != nil {
		return fmt.Errorf("restore of %s: %w", r.log.tp, err)
	}
	r.restored += int64(len(r.entries)) // also those of windows that have expired: the original counts what it replays
	clear(r.entries)                    // they hold fetch answers
	r.entries, r.collected = r.entries[:0], 0
	return nil
}
