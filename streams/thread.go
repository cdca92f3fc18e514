package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// thread is a stream thread: one group member, one producer, one fetcher, and the tasks that the group gave it. All of it but the
// background work belongs to the goroutine in run.
type thread struct {
	app       *App
	index     int // from 1
	log       *slog.Logger
	member    *kafka.Member
	producer  *kafka.Producer
	revoke    *atomic.Bool   // keeps the producer from sending any more
	fetcher   *kafka.Fetcher // input partitions of running tasks
	restorer  *kafka.Fetcher // changelog partitions of restoring tasks
	guarantee guarantee
	budget    *store.Budget
	dead      deadLetters

	tasks    []*task // in task order
	groups   []*group
	queues   map[kafka.TopicPartition]*queue // of running tasks
	restores map[kafka.TopicPartition]*restore
	arrived  []kafka.Fetched         // of restorer, not yet applied
	topics   map[string]*kafka.Topic // what the tasks read and write, as of the last assignment
	// tombstoneRetention is how long changelog topics keep tombstones, as of the last assignment; topics that are not compacted are not there.
	tombstoneRetention map[string]time.Duration

	standbys []TaskID // of the last assignment

	setbacks []time.Time // of the last setbacksWithin
	// knownTransactions are the transactional ids of all members of the last generation.
	knownTransactions []string
	generation        int32 // of the last assignment
	inPlace           bool  // the tasks were committed before the join and may go on where they are

	lastCommit   time.Time
	drainedSince time.Time // zero while some partition is not drained
	processed    int64     // records since the last commit

	lastPurge  time.Time
	purging    bool       // one is under way
	purged     chan error // the end of it
	purgeable  map[kafka.TopicPartition]kafka.Offset
	background sync.WaitGroup

	work context.Context //nolint:containedctx // sinks deep in the graph send with it; it ends when the thread aborts
}

func newThread(a *App, index int) *thread {
	th := &thread{
		app:       a,
		index:     index,
		log:       a.log.With("thread", index),
		guarantee: atLeastOnce{},
		budget:    store.NewBudget(a.cfg.overlayBytes()),
		queues:    map[kafka.TopicPartition]*queue{},
		restores:  map[kafka.TopicPartition]*restore{},
		purgeable: map[kafka.TopicPartition]kafka.Offset{},
		purged:    make(chan error, 1),
		lastPurge: time.Now(), // the first one is due an interval from now
		dead:      deadLetters{said: map[string]bool{}},
	}
	if a.cfg.ProcessingGuarantee == ExactlyOnce {
		th.guarantee = exactlyOnce{}
	}
	th.member = a.client.NewMember(kafka.MemberConfig{
		Group:             a.cfg.ApplicationID,
		InstanceID:        a.instanceID(index),
		LeaveStatic:       a.cfg.LeaveGroup,
		Protocol:          assignorName,
		ClientID:          fmt.Sprintf("%s-StreamThread-%d-consumer", a.cfg.ClientID, index), // as Java names it
		Topics:            th.subscription(),
		SessionTimeout:    a.cfg.SessionTimeout,
		RebalanceTimeout:  a.cfg.RebalanceTimeout,
		HeartbeatInterval: a.cfg.HeartbeatInterval,
		UserData:          th.userData,
		Owned:             th.owned,
		Assign:            a.assign,
		Waiting:           a.waiting,
		Logger:            th.log,
	})
	return th
}

// subscription is the sorted list of source topics, repartition topics included.
func (th *thread) subscription() []string {
	topics := slices.Clone(th.app.userSources)
	for _, r := range th.app.topology.repartitions {
		topics = append(topics, th.app.decorate(r.name))
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

func (th *thread) userData() []byte {
	stored, err := th.app.state.Tasks()
	if err != nil {
		th.log.Warn("the state folder cannot be listed; tasks may move without need", "error", err)
	}
	for _, t := range th.tasks {
		th.app.sums.note(t.id, t.db)
	}
	info := memberInfo{
		ProcessID: th.app.state.ProcessID(), Tasks: stored, Known: th.knownTransactions,
		Offsets: th.app.sums.byName(), Standbys: formatTaskIDs(th.app.standbys.kept(th.index)),
	}
	if th.app.cfg.ProcessingGuarantee == ExactlyOnce {
		info.Transactions = []string{th.app.transactionalID(th.index)}
	}
	b, err := info.encode()
	if err != nil {
		th.log.Error("user data", "error", err)
	}
	return b
}

func (th *thread) owned() []kafka.TopicPartition {
	var out []kafka.TopicPartition
	for _, t := range th.tasks {
		out = append(out, t.partitions()...)
	}
	return out
}

// run works until stop ends or something fails. stop asks for a clean stop; work is cancelled when even that takes too long.
func (th *thread) run(stop, work context.Context) (err error) {
	th.work = work
	th.fetcher = th.app.client.NewFetcher(kafka.FetcherConfig{Isolation: th.isolation})
	th.restorer = th.app.newRestorer()
	if err = th.newProducer(work); err == nil {
		err = th.rebalances(stop, work)
	}
	if err != nil {
		err = errors.Join(err, th.dropTasks())
	}
	th.fetcher.Close()
	th.restorer.Close()
	// What was committed is acknowledged; what was not must not be sent any more.
	th.closeProducer()
	th.background.Wait()
	leave, cancel := context.WithTimeout(work, stopTimeout/2)
	defer cancel()
	if lerr := th.member.Leave(leave); lerr != nil {
		th.log.Warn("the group could not be left; it notices after the session timeout", "error", lerr)
	}
	if errors.Is(err, kafka.FencedInstanceID) {
		return &InstanceIDTakenError{th.app.instanceID(th.index), err}
	}
	return err
}

// isolation of input topics: repartition topics are read committed always, so that a switch from exactly once to at least once does not
// count aborted records; user topics follow the guarantee.
func (th *thread) isolation(topic string) kafka.Isolation {
	if th.app.repartition[topic] || th.app.cfg.ProcessingGuarantee == ExactlyOnce {
		return kafka.ReadCommitted
	}
	return kafka.ReadUncommitted
}

// rebalances joins, works until the group wants to rebalance, and joins again.
func (th *thread) rebalances(stop, work context.Context) error {
	for {
		th.app.threadRebalances(th.index)
		session, err := th.member.Join(stop)
		if stop.Err() != nil {
			return th.closeTasks(th.tasks)
		}
		if err != nil {
			return fmt.Errorf("join group %s: %w", th.app.cfg.ApplicationID, err)
		}
		var info assignmentInfo
		if err := json.Unmarshal(session.UserData, &info); err == nil { // else the leader is of another version
			th.knownTransactions = info.Transactions
		}
		th.standbys = parseTaskIDs(info.Standbys)
		err = th.workOn(stop, work, session)
		switch {
		case err == nil: // a rebalance; the tasks are committed
			th.inPlace = true
		case errors.Is(err, errStopped):
			return th.closeTasks(th.tasks)
		case errors.Is(err, kafka.FencedInstanceID): // to join again would be to fence the other one
			return err
		case errors.Is(err, errLost):
			th.log.Warn("this member has lost its tasks; it joins again and goes on from the last commit", "reason", err)
			if err := th.recover(work); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// workOn works on the tasks of a session until that ends. After a setback, which is not about the membership, what is not committed is
// thrown away and the same tasks start again.
func (th *thread) workOn(stop, work context.Context, session kafka.Session) error {
	for {
		err := th.assigned(work, session)
		if err == nil {
			err = th.loop(stop, work)
		}
		switch {
		case errors.Is(err, errRebalancing):
			return nil // nothing was processed since the last commit
		case errors.Is(err, errLost), errors.Is(err, kafka.FencedInstanceID), !isSetback(err), work.Err() != nil:
			return err
		}
		if fatal := th.setback(err, time.Now()); fatal != nil {
			return fatal
		}
		th.log.Warn("the tasks start again from the last commit", "reason", err)
		if err := th.recover(work); err != nil {
			return err
		}
	}
}

// isSetback tells errors after which the tasks can start again from the last commit: a transaction that failed, or a state file that could
// not be read or written, which is then rebuilt from the changelog.
func isSetback(err error) bool { return transactionFailed(err) || errors.Is(err, store.ErrLost) }

// Setbacks in quick succession are not for more tries: the disk is full, or a second process has the same process id.
const (
	maxSetbacks    = 3
	setbacksWithin = 30 * time.Second
)

// setback counts, and returns the error to end with if it is one too many.
func (th *thread) setback(err error, now time.Time) error {
	th.setbacks = append(th.setbacks, now)
	for now.Sub(th.setbacks[0]) > setbacksWithin {
		th.setbacks = th.setbacks[1:]
	}
	switch {
	case len(th.setbacks) < maxSetbacks:
		return nil
	case errors.Is(err, kafka.ErrFenced):
		return &CopiedStateError{th.app.transactionalID(th.index), th.app.cfg.StateDir, err}
	default:
		return fmt.Errorf("%d times within %s: %w", maxSetbacks, setbacksWithin, err)
	}
}

// errStopped says that the thread was asked to stop and has committed.
var errStopped = errors.New("stopped")

// recover throws away what is not committed: tasks with their overlays, and what the producer still holds.
func (th *thread) recover(ctx context.Context) error {
	th.inPlace = false
	if err := th.dropTasks(); err != nil {
		return err
	}
	th.closeProducer()
	return th.newProducer(ctx)
}

func (th *thread) newProducer(ctx context.Context) (err error) {
	revoked := new(atomic.Bool)
	th.revoke = revoked
	th.dead.takeRefused() // those of an earlier producer come again with their input
	cfg := kafka.ProducerConfig{
		Linger:  produceLinger,
		Refused: th.dead.addRefused,
		MaySend: func() error {
			if revoked.Load() {
				return errLost
			}
			return th.checkOwnership()
		},
	}
	if th.app.cfg.ProcessingGuarantee == ExactlyOnce {
		cfg.TransactionalID, cfg.TransactionTimeout = th.app.transactionalID(th.index), th.app.cfg.TransactionTimeout
	}
	th.producer, err = th.app.client.NewProducer(ctx, cfg)
	return err
}

// produceLinger is that of Kafka Streams' producers. A commit does not wait for it.
const produceLinger = 100 * time.Millisecond

// closeProducer drops what the producer has not sent.
func (th *thread) closeProducer() {
	if th.producer == nil {
		return
	}
	th.revoke.Store(true)
	now, cancel := context.WithCancel(th.work)
	cancel()
	if err := th.producer.Close(now); err != nil {
		th.log.Debug("records that were not committed are not sent any more", "reason", err)
	}
	th.producer = nil
}

// loop processes until the group rebalances (nil, after a commit), the thread is told to stop (errStopped, after a commit), membership is
// lost (errLost), or something fails.
func (th *thread) loop(stop, work context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	rebalance := false
	for {
		if !rebalance {
			select {
			case <-th.member.Rebalance():
				rebalance = true
			default:
			}
		}
		lost := th.member.Lost()
		switch {
		case work.Err() != nil:
			return context.Cause(work)
		case lost != nil:
			return fmt.Errorf("%w: %w", errLost, lost)
		case stop.Err() != nil:
			if err := th.commit(work, CommitStop); err != nil {
				return err
			}
			return errStopped
		case rebalance:
			return th.commit(work, CommitRebalance)
		}
		done, err := th.round(work)
		if err != nil {
			return err
		}
		if done > 0 || len(th.arrived) > 0 {
			continue
		}
		timer.Reset(max(time.Millisecond, time.Until(th.nextDue())))
		select {
		case <-timer.C:
		case <-th.fetcher.Ready():
		case <-th.restorer.Ready():
		case <-th.member.Rebalance():
			rebalance = true
		case <-stop.Done():
		}
	}
}

// round takes what was fetched, processes some of it and commits if that is due. It returns how many records it processed.
func (th *thread) round(ctx context.Context) (int, error) {
	if err := th.take(); err != nil {
		return 0, err
	}
	if len(th.restores) > 0 {
		if err := th.restoreStep(); err != nil {
			return 0, err
		}
	}
	th.reportRunning()
	if err := th.checkOwnership(); err != nil {
		return 0, err
	}
	now := time.Now()
	done := 0
	for _, g := range th.groups {
		n, err := g.run(now.UnixMilli(), th.app.cfg.TaskTimeAlignmentMaxWait, th.app.cfg.MaxPollRecords)
		done += n
		th.processed += int64(n)
		if err != nil {
			return done, th.failed(ctx, err)
		}
	}
	if err := th.punctuate(); err != nil {
		return done, th.failed(ctx, err)
	}
	switch {
	case done > 0 || !th.drained():
		th.drainedSince = time.Time{}
	case th.drainedSince.IsZero():
		th.drainedSince = now
	}
	if reason, due := th.commitDue(time.Now()); due {
		if err := th.commit(ctx, reason); err != nil {
			return done, err
		}
	}
	return done, th.purge(ctx, now)
}

// failed ends the work because of a record. What came before it is committed first, so that the next start meets that record and not the
// same output again.
func (th *thread) failed(ctx context.Context, err error) error {
	var record *RecordError
	if errors.As(err, &record) {
		if cerr := th.commit(ctx, CommitError); cerr != nil {
			return errors.Join(err, cerr)
		}
	}
	return err
}

// take moves fetch answers into the queues.
func (th *thread) take() error {
	for _, f := range th.fetcher.Poll() {
		q := th.queues[f.TopicPartition]
		if q == nil {
			continue // answered after its task had gone
		}
		if f.Err != nil {
			return fmt.Errorf("read %s at offset %d: %w", f.TopicPartition, q.position, f.Err)
		}
		q.add(f, th.isolation(f.Topic) == kafka.ReadCommitted)
		if q.length >= th.app.cfg.BufferedRecords && !q.paused {
			q.paused = true
			th.fetcher.Pause(q.tp)
		}
	}
	return nil
}

// refill lets a queue that was too long be fetched again once half of it is processed.
func (th *thread) refill(q *queue) {
	if q.paused && q.length <= th.app.cfg.BufferedRecords/2 {
		q.paused = false
		th.fetcher.Resume(q.tp)
	}
}

// drained tells that each input partition of each task was read to its end.
func (th *thread) drained() bool {
	for _, t := range th.tasks {
		if t.state != taskRunning {
			return false
		}
		for _, q := range t.queues {
			if q.state() != drained {
				return false
			}
		}
	}
	return true
}

func (th *thread) reportRunning() {
	for _, t := range th.tasks {
		if t.state != taskRunning {
			return
		}
	}
	th.app.threadRunning(th.index)
}

func (th *thread) send(m kafka.Message) error { return th.producer.Send(th.work, m) }
