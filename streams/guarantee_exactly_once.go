package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// exactlyOnce puts results, changelog records and offsets of a thread into one transaction (exactly once, version 2). Uncommitted changes
// of the stores live in the overlay above the state file, so after a crash the file is never ahead of the committed changelog.
type exactlyOnce struct{}

func (exactlyOnce) finish(ctx context.Context, th *thread, offsets map[kafka.TopicPartition]kafka.Offset) error {
	if err := th.flushOutput(ctx); err != nil {
		return err
	}
	if err := th.checkOwnership(); err != nil {
		return err
	}
	if err := th.reach(ctx, StageBeforeOffsetCommit); err != nil {
		return err
	}
	err := th.producer.SendOffsets(ctx, offsets, th.member.Meta())
	if err == nil {
		err = th.reach(ctx, StageAfterOffsetCommit)
	}
	if err == nil {
		err = th.producer.Commit(ctx, nil, kafka.GroupMeta{})
	}
	// Never infer from a failed commit what was committed: whatever the error, the tasks go on from the offsets that the group has.
	if errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.UnknownMemberID) || errors.Is(err, kafka.RebalanceInProgress) {
		return fmt.Errorf("%w: the group moved on without this member: %w", errLost, err)
	}
	if err != nil {
		return err
	}
	return th.reach(ctx, StageAfterEndTransaction)
}

// transactionalID of a stream thread. The process id lasts as long as the state folder, so a restarted process ends at once, by
// InitProducerId, the transaction in which it was killed.
func (a *App) transactionalID(thread int) string {
	return fmt.Sprintf("%s-%s-%d", a.cfg.ApplicationID, a.state.ProcessID(), thread)
}

// endFormerTransactions ends what stream threads that were and are not any more may have left open: those with a number above today's, or all
// of them if this start works at least once. Nobody else would before the coordinator's timeout, and until then input and restores that are
// read committed stand still. A thread of today ends the transaction of its number itself, see newProducer.
func (a *App) endFormerTransactions(ctx context.Context) error {
	today := 0
	if a.cfg.ProcessingGuarantee == ExactlyOnce {
		today = a.cfg.Threads
	}
	former, err := a.state.RaiseTransactionalThreads(today)
	if err != nil {
		return err
	}
	for i := today + 1; i <= former; i++ {
		a.endTransaction(ctx, a.transactionalID(i), "a former stream thread")
	}
	return nil
}

// endTransaction aborts what is open under a transactional id. A failure costs time only: the coordinator's timeout does it too.
func (a *App) endTransaction(ctx context.Context, id, of string) {
	err := a.client.EndTransaction(ctx, id, a.cfg.TransactionTimeout)
	switch {
	case err == nil:
		a.log.Info("ended the transaction of "+of, "transactional id", id)
	case ctx.Err() == nil:
		a.log.Warn("the transaction of "+of+" could not be ended; its timeout does that", "transactional id", id, "error", err)
	}
}

// transactionFailed tells errors after which the transaction is thrown away and the same tasks start again from the last commit. The
// membership is not touched by them.
func transactionFailed(err error) bool {
	return errors.Is(err, kafka.ErrAbortable) || errors.Is(err, kafka.ErrFenced) || errors.Is(err, kafka.ErrUnknownOutcome)
}

// CopiedStateError says that another process keeps taking this one's transactional id. Once is no reason to stop: a leader took this member
// for dead, or a coordinator aborted a transaction at its timeout.
type CopiedStateError struct {
	TransactionalID string
	StateDir        string
	Err             error
}

func (e *CopiedStateError) Error() string {
	return fmt.Sprintf("%d times within %s another process took the transactional id %s: was the state folder %s copied? Give each instance its own: %v",
		maxSetbacks, setbacksWithin, e.TransactionalID, e.StateDir, e.Err)
}

func (e *CopiedStateError) Unwrap() error { return e.Err }

// endDeadTransactions is the leader's: it aborts the transactions of members that are gone, and returns the transactional ids of those that
// are there. The open transaction of a dead owner holds back the last stable offset, and with it whoever takes over its tasks, until the
// coordinator aborts it by itself: 10 to 20 s with Kafka's defaults. The ids of the dead are what members know of the last generation less
// what the members of this one bring.
func (a *App) endDeadTransactions(ctx context.Context, members []memberInfo) (alive []string) {
	dead := map[string]bool{}
	for _, m := range members {
		for _, id := range m.Known {
			dead[id] = true
		}
	}
	for _, m := range members {
		alive = append(alive, m.Transactions...)
		for _, id := range m.Transactions {
			delete(dead, id)
		}
	}
	slices.Sort(alive)
	for id := range dead {
		a.endTransaction(ctx, id, "a member that is gone")
	}
	return alive
}
