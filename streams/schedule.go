package streams

import "time"

// group is the tasks of one sub-topology in one thread.
type group struct {
	sub   *subtopology
	tasks []*task // by partition
	// aligned groups process their tasks in time order: with several input partitions behind, any other order writes the repartition topic
	// out of time order, and records come late downstream (Java's catch-up over the lab's input drops 102 of 548 that way).
	aligned bool
}

// run processes up to limit records of the group and says how many it did.
func (g *group) run(now int64, maxWait time.Duration, limit int) (int, error) {
	if !g.aligned {
		return g.runEach(now, limit)
	}
	done := 0
	for done < limit {
		if g.mustWait(now, maxWait) {
			return done, nil
		}
		best, upTo := g.earliest(now)
		if best == nil {
			return done, nil
		}
		n, err := best.runUntil(now, upTo, limit-done)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (g *group) runEach(now int64, limit int) (int, error) {
	done := 0
	for _, t := range g.tasks {
		if t.state != taskRunning {
			continue
		}
		n, err := t.runUntil(now, alignment{key: maxTime}, max(1, limit/len(g.tasks)))
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// mustWait tells that some task may still bring an earlier record: its input is unknown, or it is being restored. A task that stays so for
// longer than maxWait is excused until its next successful fetch answer.
func (g *group) mustWait(now int64, maxWait time.Duration) bool {
	wait := false
	for _, t := range g.tasks {
		if !t.unknown() {
			t.unknownSince, t.excused = 0, false
			continue
		}
		if t.unknownSince == 0 {
			t.unknownSince = now
		}
		if !t.excused && now-t.unknownSince > maxWait.Milliseconds() {
			t.excused = true
			t.reportExcused(maxWait)
		}
		wait = wait || !t.excused
	}
	return wait
}

func (t *task) reportExcused(waited time.Duration) {
	e := TaskExcused{Task: t.id, Waited: waited}
	for _, q := range t.queues {
		if q.state() == unknown {
			e.Partition = TopicPartition(q.tp)
			break
		}
	}
	t.thread.app.listen(func(l *Listener) {
		if l.Excused != nil {
			l.Excused(e)
		} else {
			t.thread.log.Warn(e.String())
		}
	})
}

// alignment is a point in the order of the heads of different tasks.
type alignment struct {
	key       int64
	partition int32
}

const maxTime = int64(^uint64(0) >> 1)

func (a alignment) before(b alignment) bool {
	return a.key < b.key || a.key == b.key && a.partition < b.partition
}

// earliest is the ready task with the smallest head, and the head of the runner-up: up to there the task may go on without looking again.
func (g *group) earliest(now int64) (*task, alignment) {
	var best *task
	first, second := alignment{key: maxTime, partition: 1<<31 - 1}, alignment{key: maxTime, partition: 1<<31 - 1}
	for _, t := range g.tasks {
		if t.state != taskRunning || !t.ready() {
			continue
		}
		switch a := t.alignment(now); {
		case best == nil || a.before(first):
			best, first, second = t, a, first
		case a.before(second):
			second = a
		}
	}
	return best, second
}

// alignment is the task's place in the order: the smallest key of its heads.
func (t *task) alignment(now int64) alignment {
	a := alignment{key: maxTime, partition: t.id.Partition}
	for _, q := range t.queues {
		if q.length > 0 {
			q.load(now)
			a.key = min(a.key, q.headKey)
		}
	}
	return a
}

// runUntil processes records while the task is ready and its place is not after limit, n at most.
func (t *task) runUntil(now int64, limit alignment, n int) (int, error) {
	for done := range n {
		if !t.ready() {
			return done, nil
		}
		q := t.head(now)
		if limit.key != maxTime && limit.before(t.alignment(now)) {
			return done, nil
		}
		if err := t.process(q); err != nil {
			return done, err
		}
		t.thread.refill(q)
	}
	return n, nil
}
