package phases

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/topology"
	"github.com/windowed-order-counter/lab/verify"
)

// replays finds what may have been processed more than once: each time a task was opened, what its last owner can have read beyond the offset
// that was committed then. It is an upper bound, as nobody knows how far a killed process had come; it cannot have come further than the
// topic's end when it stopped.
func (c *chaosRun) replays() []verify.Replay {
	return findReplays(c.watch.events, c.watch.struckAt, c.watch.samples, taskInputs(c.application, c.prefix))
}

// taskInputs is the input partition of each task, by the changelog partition whose restore opens it.
func taskInputs(application, prefix string) map[string]kafka.TopicPartition {
	inputs := map[string]kafka.TopicPartition{}
	for p := range int32(topology.Partitions) {
		inputs[fmt.Sprintf("%s-%s-%d", application, topology.StatusChangelog, p)] =
			kafka.TopicPartition{Topic: prefix + topology.OrdersPlaced, Partition: p}
	}
	for p := range int32(topology.RepartitionPartitions) {
		inputs[fmt.Sprintf("%s-%s-%d", application, topology.PerStoreChangelog, p)] =
			kafka.TopicPartition{Topic: application + "-" + topology.Repartition, Partition: p}
	}
	return inputs
}

// life is one process of an instance, as its journal goes on.
type life struct {
	instance string
	tasks    *journal.Tasks
	assigned time.Time // when it got them
	halted   time.Time // when its last rebalance began, from where on it processed nothing until it got them, or when it ended
	working  bool
	clean    bool // it stopped cleanly, so all that it did is committed
}

func (l *life) halt(at time.Time) { l.working, l.halted = false, at }

// owner is the process that opened a task last.
type owner struct {
	*life
	since time.Time
}

func findReplays(
	events []journal.Event, struck []strikeTime, samples []sample, inputs map[string]kafka.TopicPartition,
) []verify.Replay {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b journal.Event) int { return a.Time.Compare(b.Time) })
	lives, owners := map[string]*life{}, map[kafka.TopicPartition]owner{}
	var found []verify.Replay
	for i := range events {
		e := &events[i]
		if e.Started != nil {
			lives[e.Instance] = &life{instance: e.Instance}
			continue
		}
		l := lives[e.Instance]
		switch {
		case e.State != nil && e.State.To == stateRebalancing && l.working:
			l.halt(e.Time)
		case e.Tasks != nil:
			l.tasks, l.assigned, l.working = e.Tasks, e.Time, true
		case e.Stopped != nil:
			if l.working {
				l.halt(e.Time)
			}
			l.clean = e.Stopped.Error == ""
		case e.RestoreStart != nil:
			input, ok := inputs[e.RestoreStart.Partition]
			if !ok {
				continue
			}
			if before, ok := owners[input]; ok && !before.clean {
				r := verify.Replay{
					TopicPartition: input, From: committedAt(samples, input, e.Time), To: endAt(samples, input, before.stopped(l, input, e.Time, struck)),
				}
				if r.From < r.To {
					found = append(found, r)
				}
			}
			owners[input] = owner{l, e.Time}
		}
	}
	return found
}

// stopped is the time by which the last owner of a partition had stopped processing it when the next one opened it.
func (o owner) stopped(next *life, input kafka.TopicPartition, opened time.Time, struck []strikeTime) time.Time {
	switch {
	case o.life == next && !o.since.Before(o.assigned): // it began again by itself, in the same generation
		return opened
	case o.life == next, !owns(o.tasks, input.String()), !o.working: // given up in its last rebalance
		return o.halted
	}
	for _, s := range struck {
		if s.instance == o.instance && !s.from.Before(o.assigned) && !s.from.After(opened) && (s.to.IsZero() || s.to.After(opened)) {
			return s.from
		}
	}
	return opened
}

// committedAt is the offset that was committed at some time: no later one.
func committedAt(samples []sample, tp kafka.TopicPartition, at time.Time) int64 {
	i := sort.Search(len(samples), func(i int) bool { return samples[i].done.After(at) })
	if i == 0 {
		return 0
	}
	return samples[i-1].committed[tp]
}

// endAt is where a partition ended at some time: no earlier end.
func endAt(samples []sample, tp kafka.TopicPartition, at time.Time) int64 {
	i := sort.Search(len(samples), func(i int) bool { return !samples[i].begun.Before(at) })
	if i == len(samples) {
		i--
	}
	return samples[i].ends[tp]
}
