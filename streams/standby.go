package streams

import (
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// standby is a warm copy of a task that another process works on (num.standby.replicas): the stores follow their changelogs, so that the
// task can go on here with only the tail to restore. It has no input and no graph.
type standby struct {
	standbySpec
	db   *store.DB
	logs []*standbyLog

	// hadOffsets is whether the group had a committed offset for the task when that was last asked. Until it has, the state file must not say
	// that it was committed, see task.refuseUncounted.
	hadOffsets bool
	asking     bool      // a look-up is under way
	tries      int       // in a row without an answer of the changelogs
	retryAt    time.Time // when to begin again, or to ask again for offsets
}

// standbySpec is a standby as the thread that it was assigned to knows it.
type standbySpec struct {
	id         TaskID
	sub        *subtopology
	inputs     []kafka.TopicPartition
	changelogs []standbyChangelog
}

// standbyChangelog is a changelog of a standby. It is comparable: with another topic id it is another changelog.
type standbyChangelog struct {
	store     string
	tp        kafka.TopicPartition
	topicID   [16]byte
	retention time.Duration // of its tombstones; 0 if it is not compacted
}

// standbyLog is a changelog that is followed.
type standbyLog struct {
	standby *standby
	changelog
	batch   changelogBatch // up to next
	end     int64          // of the changelog, for readers of committed records, as last heard
	written store.Position // what the state file says
	atEnd   bool           // it has been there since it began
	asOf    time.Time      // until when the copy has seen the changelog to its end; the start for a rebuild
}

// standbyRefresh is how old the position in a state file may become while its changelog is idle. The age decides whether tombstones may have
// been missed, see localState.
const standbyRefresh = 10 * time.Minute

// take adds a fetch answer and writes what has been collected: at the end of the changelog at once, before that in parts of limit bytes or a
// little more. When it comes to the end for the first time it writes its position even if there was nothing to read, so that this is told.
func (l *standbyLog) take(a *App, f kafka.Fetched, limit int, now time.Time) error {
	for i := range f.Records {
		l.batch.add(&l.changelog, &f.Records[i], a.log)
	}
	moved := f.Next != l.next
	l.next, l.end = f.Next, f.End(kafka.ReadCommitted)
	if l.next < l.end {
		if l.batch.bytes < limit {
			return nil
		}
		return l.put(a)
	}
	first := !l.atEnd
	l.atEnd, l.asOf = true, now
	stale := l.standby.hadOffsets && now.Sub(l.written.CommittedAt) > standbyRefresh
	if !moved && !first && !stale {
		return nil
	}
	return l.put(a)
}

// put writes the collected entries and the position after them in one transaction.
func (l *standbyLog) put(a *App) error {
	// A file that says that it was committed goes on to say so, even if the group has lost its offsets: see task.refuseUncounted.
	pos := store.Position{TopicID: l.id, Next: l.next, CommittedAt: l.written.CommittedAt}
	if l.standby.hadOffsets {
		pos.CommittedAt = l.asOf
	}
	records, err := l.batch.put(l.standby.db, &l.changelog, pos)
	if err != nil {
		return err
	}
	l.written = pos
	a.sums.note(l.standby.id, l.standby.db)
	u := StandbyUpdate{l.standby.id, l.store, TopicPartition(l.tp), records, l.next, max(l.end, l.next)}
	a.listen(func(l *Listener) {
		if l.StandbyUpdated != nil {
			l.StandbyUpdated(u)
		}
	})
	return nil
}

// flush writes what has been collected.
func (st *standby) flush(a *App) error {
	for _, l := range st.logs {
		if len(l.batch.entries) > 0 {
			if err := l.put(a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (st *standby) describe() Task {
	t := Task{ID: st.id, Standby: true}
	for _, c := range st.changelogs {
		t.Partitions = append(t.Partitions, TopicPartition(c.tp))
	}
	return t
}
