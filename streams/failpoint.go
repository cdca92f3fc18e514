package streams

import (
	"context"
	"fmt"
	"slices"
)

// Stage is a point inside a commit.
type Stage string

// The stages, in the order of a commit. What is written, and to whom it is visible, differs at each of them; a process that dies there shows
// what a guarantee is worth.
const (
	// StageCachesNotFlushed: all records sent so far are acknowledged. The caches of the stores are not flushed.
	StageCachesNotFlushed Stage = "caches-not-flushed"
	// StageInTransaction: some tasks' caches are flushed and acknowledged in the transaction, and those of the last task that has processed
	// something are not. Exactly once only.
	StageInTransaction Stage = "in-transaction"
	// StageBeforeOffsetCommit: all results and changelog records are acknowledged. The offsets are not committed.
	StageBeforeOffsetCommit Stage = "before-offset-commit"
	// StageAfterOffsetCommit: the group has answered that it has the offsets, and the state files do not follow yet. Exactly once, that was
	// TxnOffsetCommit: the offsets are in the transaction, whose end was not asked for.
	StageAfterOffsetCommit Stage = "after-offset-commit"
	// StageAfterEndTransaction: EndTxn was answered, and the state files do not follow yet. Exactly once only.
	StageAfterEndTransaction Stage = "after-end-transaction"
)

// Stages lists the stages that a commit under a guarantee has.
func Stages(g Guarantee) []Stage {
	if g == ExactlyOnce {
		return []Stage{StageCachesNotFlushed, StageInTransaction, StageBeforeOffsetCommit, StageAfterOffsetCommit, StageAfterEndTransaction}
	}
	return []Stage{StageCachesNotFlushed, StageBeforeOffsetCommit, StageAfterOffsetCommit}
}

// Failpoint calls a function in the middle of commits. It is for tests of applications that want to die, or to be disturbed, at a point that
// no signal from outside can hit. It has no property name, so no configuration file of an application in use can set it.
type Failpoint struct {
	At Stage
	// Reached is called by a stream thread in each of its commits since whose predecessor some record was processed. inFlight is what that
	// thread's tasks have under way. Other threads go on. If Reached returns, the commit goes on too.
	Reached func(ctx context.Context, inFlight []InFlight)
}

// InFlight is what a task has done with a partition since the last commit.
type InFlight struct {
	TopicPartition
	// Store is the store that a changelog partition belongs to, and "" for an input partition.
	Store string
	// Committed is the offset from which a restart goes on: of an input partition, what the group has answered to have, or where the task
	// began without such an answer; of a changelog, what the state file holds.
	Committed int64
	// Position is the offset after the last record that was processed or, of a changelog, acknowledged.
	Position int64
	// Processed is how many input records the partition's task has processed since the last commit. Positions alone do not tell: they also
	// move over the markers of transactions.
	Processed int64
}

// validate checks a failpoint against the guarantee.
func (f *Failpoint) validate(g Guarantee) error {
	switch {
	case f == nil:
		return nil
	case !slices.Contains(Stages(g), f.At):
		return fmt.Errorf("failpoint: there is no stage %q in a commit of %s", f.At, g)
	case f.Reached == nil:
		return fmt.Errorf("failpoint %s: nothing to call", f.At)
	}
	return nil
}

// reach calls the failpoint if the commit has come to it. The stages before the producer is flushed for the commit itself flush it here, or
// how much of what was sent has arrived would be up to chance.
func (th *thread) reach(ctx context.Context, at Stage) error {
	f := th.app.cfg.Failpoint
	if f == nil || f.At != at || !slices.ContainsFunc(th.tasks, (*task).hasProcessed) {
		return nil
	}
	if at == StageCachesNotFlushed || at == StageInTransaction {
		if err := th.flushOutput(ctx); err != nil {
			return err
		}
	}
	f.Reached(ctx, th.inFlight(at == StageAfterEndTransaction || at == StageAfterOffsetCommit && th.app.cfg.ProcessingGuarantee == AtLeastOnce))
	return nil
}

func (t *task) hasProcessed() bool { return t.state == taskRunning && t.processed > 0 }

// inFlight lists the partitions of the running tasks. committed tells that the group has their positions by now.
func (th *thread) inFlight(committed bool) []InFlight {
	var out []InFlight
	for _, t := range th.tasks {
		if t.state != taskRunning {
			continue
		}
		for _, q := range t.queues {
			in := InFlight{TopicPartition: TopicPartition(q.tp), Committed: q.committed, Position: q.next(), Processed: t.processed}
			if committed {
				in.Committed = in.Position
			}
			out = append(out, in)
		}
		for _, log := range t.changelogs {
			if log.source == nil {
				out = append(out, InFlight{
					TopicPartition: TopicPartition(log.tp), Store: log.store,
					Committed: log.next, Position: max(log.next, th.producer.Acked(log.tp)), Processed: t.processed,
				})
			}
		}
	}
	return out
}

// lastProcessed is the last task that has processed something since the last commit.
func (th *thread) lastProcessed() *task {
	for _, t := range slices.Backward(th.tasks) {
		if t.hasProcessed() {
			return t
		}
	}
	return nil
}
