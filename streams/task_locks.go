package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/store"
)

// taskLocks says which tasks some thread of this process has, as StateDirectory.lock does in Kafka Streams. The files of a task are opened
// by one thread at a time: bbolt's own lock would make a second one fail, and a file that is not closed yet is not complete.
type taskLocks struct {
	mu   sync.Mutex
	held map[TaskID]chan struct{} // closed when the task is given back
}

// lock takes a task. If some thread has it, it returns what is closed when that gives it back, and nil if the task is taken.
func (l *taskLocks) lock(id TaskID) (back <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if back, held := l.held[id]; held {
		return back
	}
	if l.held == nil {
		l.held = map[TaskID]chan struct{}{}
	}
	l.held[id] = make(chan struct{})
	return nil
}

// unlock gives a task back, once its files are closed.
func (l *taskLocks) unlock(id TaskID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held[id])
	delete(l.held, id)
}

// errRebalancing says that the group rebalances again before the thread has all of its tasks.
var errRebalancing = errors.New("the group rebalances")

// lockWaitNotice is how often it is said whom a thread waits for.
const lockWaitNotice = 5 * time.Second

// openTask takes a task over. The thread of this process that had it before may not have heard of the rebalance yet, or still commit: it is
// waited for, while heartbeats go on. That cannot be for ever. A thread gives back what it has to before it takes anything itself, and if it
// is not there to give because it joins the next generation, this one's heartbeat tells of that too: the error is then errRebalancing.
func (th *thread) openTask(ctx context.Context, id TaskID) (*task, error) {
	db, err := th.openStores(ctx, id)
	if err != nil {
		return nil, err
	}
	t, err := newTask(th, id, db)
	if err != nil {
		th.app.locks.unlock(id)
		return nil, err
	}
	return t, nil
}

// openStores opens a task's stores under its lock. Those of a standby are open, and go on as they are.
func (th *thread) openStores(ctx context.Context, id TaskID) (*store.DB, error) {
	db := th.app.standbys.promote(id)
	var err error
	if db != nil {
		err = db.SetBudget(th.budget)
	} else {
		if err := th.lockTask(ctx, id); err != nil {
			return nil, err
		}
		specs := th.app.topology.subs[id.Subtopology].storeSpecs(th.app.uncached())
		db, err = store.Open(th.app.state.TaskDir(id.String()), specs, store.Options{Budget: th.budget, Logger: th.log})
	}
	if err != nil {
		if db != nil {
			err = errors.Join(err, db.Abandon())
		}
		th.app.locks.unlock(id)
		return nil, fmt.Errorf("task %s: %w", id, err)
	}
	return db, nil
}

func (th *thread) lockTask(ctx context.Context, id TaskID) error {
	notice := time.NewTicker(lockWaitNotice)
	defer notice.Stop()
	for {
		back := th.app.locks.lock(id)
		if back == nil {
			return nil
		}
		select {
		case <-back:
		case <-th.member.Rebalance():
			if lost := th.member.Lost(); lost != nil {
				return fmt.Errorf("%w: %w", errLost, lost)
			}
			return errRebalancing
		case <-notice.C:
			th.app.waiting(fmt.Sprintf("task %s is not given back yet by another thread of this process", id))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
