package streams

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

// stampSource takes each record's own timestamp and notes what is processed.
type stampSource struct {
	name string
	seen *[]string
	at   int64
}

func (s *stampSource) load(in *input, _ int64) (int64, error) {
	if in.timestamp == badRecord {
		return 0, errors.New("bad record")
	}
	s.at = in.timestamp
	return in.timestamp, nil
}

func (s *stampSource) process(*Context) error {
	*s.seen = append(*s.seen, fmt.Sprintf("%s@%d", s.name, s.at))
	return nil
}

const badRecord = int64(-7)

// scheduling is a group of tasks without stores.
type scheduling struct {
	group *group
	seen  []string
}

// newScheduling makes a task per row; each row holds the timestamps that wait in the task's only partition.
func newScheduling(rows ...[]int64) *scheduling {
	s := &scheduling{group: &group{aligned: true}}
	th := &thread{app: &App{}, log: slog.New(slog.DiscardHandler)}
	th.app.cfg = DefaultConfig()
	for i, row := range rows {
		t := &task{id: TaskID{0, int32(i)}, thread: th, state: taskRunning, ctx: &Context{}}
		q := &queue{
			tp:            kafka.TopicPartition{Topic: "in", Partition: int32(i)},
			task:          t,
			source:        &stampSource{name: fmt.Sprint("p", i), seen: &s.seen},
			partitionTime: noTime,
		}
		t.queues = []*queue{q}
		s.group.tasks = append(s.group.tasks, t)
		s.answer(i, int64(len(row)), row...)
	}
	return s
}

// answer is a fetch answer for a task's partition that ends at end.
func (s *scheduling) answer(task int, end int64, timestamps ...int64) {
	q := s.group.tasks[task].queues[0]
	f := kafka.Fetched{TopicPartition: q.tp, Next: q.position, HighWatermark: end, LastStable: end}
	for _, ts := range timestamps {
		f.Records = append(f.Records, kafka.Record{Offset: f.Next, Timestamp: ts})
		f.Next++
	}
	q.add(f, false)
}

func (s *scheduling) run(t *testing.T, now int64, want ...string) {
	t.Helper()
	s.seen = nil
	if _, err := s.group.run(now, 5*time.Second, 1000); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, s.seen); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
}

const wall = int64(1_000_000)

// A catch-up goes through the partitions of all tasks in time order; ties go to the lower partition.
func TestAlignedTasksRunInTimeOrder(t *testing.T) {
	s := newScheduling([]int64{10, 40, 50}, []int64{20, 30, 40}, []int64{15})
	s.run(t, wall, "p0@10", "p2@15", "p1@20", "p1@30", "p0@40", "p1@40", "p0@50")
}

// A turn ends after max.poll.records, and the next one goes on in the same order. Tasks that are not aligned share it.
func TestTurnEndsAtTheLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		aligned     bool
		first, then []string
	}{
		"aligned":     {true, []string{"p0@10", "p1@20", "p1@30", "p0@40"}, []string{"p0@50", "p0@60"}},
		"not aligned": {false, []string{"p0@10", "p0@40", "p1@20", "p1@30"}, []string{"p0@50", "p0@60"}},
	} {
		s := newScheduling([]int64{10, 40, 50, 60}, []int64{20, 30})
		s.group.aligned = tt.aligned
		for _, want := range [][]string{tt.first, tt.then} {
			s.seen = nil
			done, err := s.group.run(wall, 5*time.Second, 4)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, s.seen); diff != "" || done != len(want) {
				t.Errorf("%s: %d processed (-want +got):\n%s", name, done, diff)
			}
		}
	}
}

func TestUnknownPartitionHoldsTheOthers(t *testing.T) {
	s := newScheduling([]int64{10}, []int64{20})
	s.answer(1, 2) // more is under way: the end is beyond the position
	s.run(t, wall, "p0@10", "p1@20")
	s.answer(0, 2, 40)
	s.run(t, wall) // partition 1 may still bring something earlier
	s.answer(1, 2, 30)
	s.run(t, wall, "p1@30", "p0@40")
}

// A partition never fetched in this assignment is unknown, even if it is empty.
func TestNoAnswerYetIsUnknown(t *testing.T) {
	s := newScheduling([]int64{10}, nil)
	s.group.tasks[1].queues[0].fetched = false
	s.run(t, wall)
	s.answer(1, 0)
	s.run(t, wall, "p0@10")
}

func TestRestoringTaskIsUnknown(t *testing.T) {
	s := newScheduling([]int64{10}, []int64{5})
	s.group.tasks[1].state = taskRestoring
	s.run(t, wall)
	s.group.tasks[1].state = taskRunning
	s.run(t, wall, "p1@5", "p0@10")
}

// A leader that died must not stop the other partitions for ever; its task is waited for again once it answers.
func TestLongUnknownTaskIsExcused(t *testing.T) {
	s := newScheduling([]int64{10}, nil)
	s.answer(1, 1)
	s.run(t, wall)
	s.run(t, wall+5_000)
	s.run(t, wall+5_001, "p0@10")
	s.answer(0, 2, 30)
	s.run(t, wall+5_002, "p0@30")
	s.answer(1, 1, 20) // answered: drained
	s.run(t, wall+5_003, "p1@20")
	s.answer(1, 2) // and behind again
	s.answer(0, 3, 50)
	s.run(t, wall+5_004)
	s.run(t, wall+10_005, "p0@50") // excused again
	s.answer(0, 4, 60)
	s.answer(1, 2) // an answer, though an empty one: waited for again
	s.run(t, wall+10_006)
}

// An order dated next year is ranked by the time at which it became the head: what the other partitions bring afterwards with sane
// timestamps still goes first, but the record itself is not held back for a year.
func TestFutureTimestampStarvesNobody(t *testing.T) {
	s := newScheduling([]int64{wall + 1_000_000_000}, []int64{wall - 10, wall + 5})
	s.run(t, wall, "p1@999990", "p0@1001000000", "p1@1000005")
}

func TestUnalignedTasksDoNotWait(t *testing.T) {
	s := newScheduling([]int64{10}, []int64{20})
	s.group.aligned = false
	s.answer(1, 5)
	s.run(t, wall, "p0@10", "p1@20")
	s.answer(0, 2, 30)
	s.run(t, wall, "p0@30")
}

// Inside a task the smallest head goes first, and a partition that may have more is waited for without a bound (max.task.idle.ms=0).
func TestTaskMergesItsPartitions(t *testing.T) {
	s := newScheduling([]int64{10, 30})
	task := s.group.tasks[0]
	other := &queue{tp: kafka.TopicPartition{Topic: "other"}, task: task, source: &stampSource{name: "other", seen: &s.seen}, partitionTime: noTime}
	task.queues = append(task.queues, other)
	s.run(t, wall)
	s.run(t, wall+3_600_000)
	other.add(kafka.Fetched{Records: []kafka.Record{{Timestamp: 20}, {Offset: 1, Timestamp: 5}}, Next: 2, HighWatermark: 2}, false)
	s.run(t, wall, "p0@10", "other@20", "other@5", "p0@30")
}

// A record that cannot be taken stops the task when its turn comes, not when it is read: what lies before it is processed first.
func TestBadRecordTakesEffectInItsTurn(t *testing.T) {
	s := newScheduling([]int64{10, badRecord, 30})
	_, err := s.group.run(wall, time.Second, 1000)
	if err == nil || err.Error() != "bad record" {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"p0@10"}, s.seen); diff != "" {
		t.Errorf("processed (-want +got):\n%s", diff)
	}
	if next := s.group.tasks[0].queues[0].next(); next != 1 {
		t.Errorf("the offset to commit is %d, the bad record's is 1", next)
	}
}

func TestQueueOffsets(t *testing.T) {
	q := &queue{tp: kafka.TopicPartition{Topic: "in"}, task: &task{}, source: &stampSource{seen: new([]string)}, partitionTime: noTime}
	q.add(kafka.Fetched{Records: []kafka.Record{{Offset: 3, Timestamp: 50, LeaderEpoch: 7}, {Offset: 4, Timestamp: 20}}, Next: 6, HighWatermark: 9, LastStable: 6}, true)
	if q.next() != 3 {
		t.Errorf("next %d before anything is processed", q.next())
	}
	q.load(wall)
	q.pop()
	if q.next() != 4 || q.epoch != 7 || q.partitionTime != 50 {
		t.Errorf("after one record: next %d, epoch %d, partition time %d", q.next(), q.epoch, q.partitionTime)
	}
	q.load(wall)
	q.pop()
	if q.next() != 6 {
		t.Errorf("next %d: it must step over the transaction marker at 5", q.next())
	}
	if q.partitionTime != 50 {
		t.Errorf("partition time %d: it never goes back", q.partitionTime)
	}
	if q.state() != drained {
		t.Error("under read committed a partition is drained at the last stable offset")
	}
}
