package streams

import "slices"

// threadPhase is how far a stream thread has come in the last rebalance.
type threadPhase uint8

const (
	threadJoins    threadPhase = iota // its tasks are not known
	threadRestores                    // they are known, and not all of them are restored
	threadRuns                        // all of them run
)

// threadStatus is what the state and the tasks of the application are made of.
type threadStatus struct {
	phase threadPhase
	tasks []Task
}

// threadRebalances says that a thread joins the group's next generation.
func (a *App) threadRebalances(index int) {
	a.listen(func(l *Listener) {
		a.threads[index-1].phase = threadJoins
		a.moveTo(StateRebalancing, l)
	})
}

// threadAssigned says which tasks a thread has from now on. What all have is told when no thread is left of which that is not known: before,
// a task could be missing, or be there twice. The threads of a process join the same generation, so that is once per rebalance.
func (a *App) threadAssigned(index int, tasks []Task) {
	a.listen(func(l *Listener) {
		a.threads[index-1] = threadStatus{threadRestores, tasks}
		var all []Task
		for _, t := range a.threads {
			if t.phase == threadJoins {
				return
			}
			all = append(all, t.tasks...)
		}
		slices.SortStableFunc(all, func(a, b Task) int { return a.ID.compare(b.ID) })
		if l.TasksAssigned != nil {
			l.TasksAssigned(all)
		}
	})
}

// threadRunning says that all tasks of a thread run. With the last one the application is RUNNING.
func (a *App) threadRunning(index int) {
	a.listen(func(l *Listener) {
		a.threads[index-1].phase = threadRuns
		if !slices.ContainsFunc(a.threads, func(t threadStatus) bool { return t.phase != threadRuns }) {
			a.moveTo(StateRunning, l)
		}
	})
}

// listen calls the listener, one call at a time.
func (a *App) listen(call func(*Listener)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	call(&a.cfg.Listener)
}

func (a *App) waiting(reason string) {
	a.log.Info("waiting", "reason", reason)
	a.listen(func(l *Listener) {
		if l.Waiting != nil {
			l.Waiting(reason)
		}
	})
}

func (a *App) setState(to State) { a.listen(func(l *Listener) { a.moveTo(to, l) }) }

// moveTo moves the application to a state and tells the listener; a.mu is held. Once the application stops, or has failed, it does not go
// back to running.
func (a *App) moveTo(to State, l *Listener) {
	from := a.current
	switch {
	case from == to:
		return
	case from == StatePendingShutdown && (to == StateRunning || to == StateRebalancing):
		return
	case from == StatePendingError && to != StateError:
		return
	}
	a.current = to
	if l.StateChanged != nil {
		l.StateChanged(StateChange{from, to})
	}
}
