package streams

import (
	"fmt"
	"time"
)

func (t *task) punctuations() *punctuations { return &t.scheduled }

func (t *task) onStart(_ string, start func(*Context) error) { t.starters = append(t.starters, start) }

// start initialises the processors of a task whose stores are complete. The stream time goes on from the committed one.
func (t *task) start() error {
	for _, q := range t.queues {
		t.scheduled.streamTime = max(t.scheduled.streamTime, q.partitionTime)
	}
	for _, start := range t.starters {
		if err := start(t.ctx); err != nil {
			return fmt.Errorf("start of task %s: %w", t.id, err)
		}
	}
	return nil
}

// punctuate calls what the wall clock makes due.
func (th *thread) punctuate() error {
	for _, t := range th.tasks {
		if t.state != taskRunning {
			continue
		}
		called, err := t.scheduled.tick(t.ctx)
		t.punctuated = t.punctuated || called
		if err != nil {
			return err
		}
	}
	return nil
}

// nextPunctuation is when punctuate has something to do next.
func (th *thread) nextPunctuation() (time.Time, bool) {
	next, some := int64(0), false
	for _, t := range th.tasks {
		if at, ok := t.scheduled.nextTick(); ok && t.state == taskRunning && (!some || at < next) {
			next, some = at, true
		}
	}
	return time.UnixMilli(next), some
}

func wallClock() int64 { return time.Now().UnixMilli() }
