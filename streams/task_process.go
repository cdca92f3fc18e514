package streams

// ready tells whether the task can process a record now: some queue has one, and no queue is unknown. A partition whose lag is unknown or
// positive is waited for without a bound, since the order between the partitions depends on it (max.task.idle.ms=0).
func (t *task) ready() bool {
	some := false
	for _, q := range t.queues {
		switch q.state() {
		case buffered:
			some = true
		case unknown:
			return false
		}
	}
	return some
}

func (t *task) unknown() bool {
	if t.state != taskRunning {
		return true
	}
	for _, q := range t.queues {
		if q.state() == unknown {
			return true
		}
	}
	return false
}

// head is the queue whose head is next: the smallest timestamp, and the first in (topic, partition) order among equals.
func (t *task) head(now int64) *queue {
	var best *queue
	for _, q := range t.queues {
		if q.length == 0 {
			continue
		}
		q.load(now)
		if best == nil || q.headTime < best.headTime {
			best = q
		}
	}
	return best
}

// process runs the head of q through the graph.
func (t *task) process(q *queue) error {
	if q.headErr != nil {
		return t.bury(t.thread.work, q, q.headErr)
	}
	r := &q.batches[0][0]
	if q.partitions > 0 && r.Key != nil {
		t.checkPartition(q, r)
	}
	t.ctx.topic, t.ctx.partition, t.ctx.offset, t.ctx.timestamp = q.tp.Topic, q.tp.Partition, r.Offset, q.headTime
	t.scheduled.see(q.headTime)
	if err := q.source.process(t.ctx); err != nil {
		return t.bury(t.thread.work, q, badKey(err))
	}
	q.pop()
	t.processed++
	called, err := t.scheduled.advance(t.ctx)
	t.punctuated = t.punctuated || called
	return err
}
