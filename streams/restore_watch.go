package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// The watchdog of restores. They read committed, to a high watermark: an open transaction in the changelog, of an owner that died or was
// suspended, holds them up until its coordinator ends it. That is waited for, by name. When nothing explains it, the application ends
// rather than stand still.
const (
	// stallNotice is how long a restore may stand still before it is asked why.
	stallNotice = 3 * time.Second
	// stallSlack is what a transaction is allowed beyond its timeout: coordinators look for overdue ones every 10 s, and write markers then.
	stallSlack = 15 * time.Second
	// stallPace is how often the reason is looked up and told.
	stallPace = 5 * time.Second
)

// stall is what is known of a restore that does not move.
type stall struct {
	since time.Time    // of the last move
	asked time.Time    // when the reason was last looked up
	found chan finding // of the look-up under way; nil if there is none
	stop  func()       // ends the look-up under way; nil if there was none

	holder   kafka.TransactionDescription // the open transaction that is waited for; no ID if none is known
	deadline time.Time                    // of the holder
	err      error                        // why the reason is not known
}

// finding is the outcome of a look-up.
type finding struct {
	holder kafka.TransactionDescription
	open   bool
	err    error
}

// StalledRestoreError says that a restore stood still for too long.
type StalledRestoreError struct {
	Task          TaskID
	Store         string
	Changelog     TopicPartition
	Position, To  int64
	For           time.Duration
	Transactional string // transactional id whose open transaction was waited for, "" if none was found
	Err           error  // the last error of reading or of the search for the reason, may be nil
}

func (e *StalledRestoreError) Error() string {
	s := fmt.Sprintf("task %s, store %s: the restore of %s has stood at offset %d of %d for %s",
		e.Task, e.Store, e.Changelog, e.Position, e.To, e.For.Round(time.Millisecond))
	if e.Transactional != "" {
		s += fmt.Sprintf("; the transaction of transactional id %s is still open beyond its timeout", e.Transactional)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *StalledRestoreError) Unwrap() error { return e.Err }

// watchRestores looks after restores that do not move.
func (th *thread) watchRestores(now time.Time) error {
	for _, r := range th.restores {
		if !r.fetching || now.Sub(r.stall.since) < stallNotice {
			continue
		}
		if err := th.watchRestore(r, now); err != nil {
			return err
		}
	}
	return nil
}

func (th *thread) watchRestore(r *restore, now time.Time) error {
	s := &r.stall
	if s.found == nil && now.Sub(s.asked) >= stallPace {
		s.asked = now
		s.found, s.stop = th.askWhy(r.log.tp)
	}
	select {
	case f := <-s.found:
		s.found = nil
		s.take(f, now)
		th.tellStall(r)
	default:
	}
	limit := s.since.Add(th.app.cfg.RetryTimeout)
	if s.holder.ID != "" {
		limit = s.deadline
	}
	if now.Before(limit) {
		return nil
	}
	e := &StalledRestoreError{
		Task: r.task.id, Store: r.log.store, Changelog: TopicPartition(r.log.tp), Position: r.log.next, To: r.to,
		For: now.Sub(s.since), Transactional: s.holder.ID, Err: s.err,
	}
	if trouble := th.trouble(r.log.tp); trouble != nil {
		e.Err = trouble
	}
	return e
}

// take keeps a finding. The time that a transaction is allowed counts from when it was first seen, so that clocks need not agree.
func (s *stall) take(f finding, now time.Time) {
	s.err = f.err
	switch {
	case f.err != nil: // what was known stays
	case !f.open:
		s.holder = kafka.TransactionDescription{}
	case f.holder.ID != s.holder.ID || f.holder.ProducerID != s.holder.ProducerID:
		s.holder, s.deadline = f.holder, now.Add(f.holder.Timeout+stallSlack)
	}
}

// askWhy looks for an open transaction beside the work of the thread.
func (th *thread) askWhy(tp kafka.TopicPartition) (found chan finding, stop func()) {
	found = make(chan finding, 1)
	ctx, cancel := context.WithTimeout(th.work, stallPace)
	th.background.Go(func() {
		defer cancel()
		holder, open, err := th.app.client.OldestTransaction(ctx, tp)
		found <- finding{holder, open, err}
	})
	return found, cancel
}

// moved begins the watch anew.
func (s *stall) moved(now time.Time) {
	if s.stop != nil {
		s.stop()
	}
	*s = stall{since: now}
}

func (th *thread) tellStall(r *restore) {
	s := &r.stall
	why := "no open transaction explains it"
	switch trouble := th.trouble(r.log.tp); {
	case trouble != nil:
		why = trouble.Error()
	case s.holder.ID != "":
		why = fmt.Sprintf("the transaction of transactional id %s is open; its coordinator ends it after %s", s.holder.ID, s.holder.Timeout)
	case s.err != nil:
		why = fmt.Sprintf("the reason could not be found: %v", s.err)
	}
	th.app.waiting(fmt.Sprintf("the restore of %s stands at offset %d of %d: %s", r.log.tp, r.log.next, r.to, why))
}

// trouble is why a changelog cannot be fetched at the moment.
func (th *thread) trouble(tp kafka.TopicPartition) error {
	for _, t := range th.restorer.Troubles() {
		if t.TopicPartition == tp {
			return t.Err
		}
	}
	return nil
}
