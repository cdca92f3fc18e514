package streams

import (
	"cmp"
	"fmt"
	"time"
)

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// TaskID names a task: a sub-topology and the partition of its source topics that the task owns. Its text is Kafka's, like 0_2.
type TaskID struct {
	Subtopology int
	Partition   int32
}

func (t TaskID) String() string { return fmt.Sprintf("%d_%d", t.Subtopology, t.Partition) }

func (t TaskID) compare(o TaskID) int {
	if t.Subtopology != o.Subtopology {
		return t.Subtopology - o.Subtopology
	}
	return int(t.Partition - o.Partition)
}

// compareByPartition is the order in which tasks are given out.
func (t TaskID) compareByPartition(o TaskID) int {
	return cmp.Or(cmp.Compare(t.Partition, o.Partition), cmp.Compare(t.Subtopology, o.Subtopology))
}

// State is the state of an application, as in Java's KafkaStreams.State.
type State string

// The states. An application is RUNNING once all its tasks are restored.
const (
	StateCreated         State = "CREATED"
	StateRebalancing     State = "REBALANCING"
	StateRunning         State = "RUNNING"
	StatePendingShutdown State = "PENDING_SHUTDOWN"
	StateNotRunning      State = "NOT_RUNNING"
	StatePendingError    State = "PENDING_ERROR"
	StateError           State = "ERROR"
)

// StateChange is a transition of the application.
type StateChange struct{ From, To State }

// Task is a task that this application owns, with the input partitions in (topic, partition) order.
type Task struct {
	ID         TaskID
	Partitions []TopicPartition
	Thread     int // number of the stream thread that has it, from 1; 0 for a standby
	// Standby says that this is a warm copy of a task that another process works on. Its partitions are the changelogs that it follows.
	Standby bool
}

// RestoreStart opens the restore of one store from one changelog partition. There is one at each start of a task, also when From equals To.
type RestoreStart struct {
	Task      TaskID
	Store     string
	Changelog TopicPartition
	From, To  int64  // offsets; To is exclusive: the high watermark when the restore began, transaction markers counted
	Reason    string // why local state was not used, "" if it was or if there was none
}

// RestoreEnd closes a restore. Restored counts the records replayed, which compaction and markers make less than To - From. Records of
// windows that have expired are replayed and leave nothing behind.
type RestoreEnd struct {
	Task      TaskID
	Store     string
	Changelog TopicPartition
	Restored  int64
	Took      time.Duration
}

// RestoreProgress is how far a restore has come.
type RestoreProgress struct {
	Task      TaskID
	Store     string
	Changelog TopicPartition
	Restored  int64 // records in the store; those before Position that are not yet are collected in memory
	// Offsets: where the restore began, where it is, and its end. Between two of them there may be fewer records than that.
	From, Position, To int64
	Rate               float64       // offsets a second since the restore began
	ETA                time.Duration // to the end at that rate; 0 if the rate is
}

// StandbyUpdate is a batch of changelog records that a standby has written, or none when it finds itself at the end. It has all there is of
// committed records if Position is End.
type StandbyUpdate struct {
	Task      TaskID
	Store     string
	Changelog TopicPartition
	Records   int64
	// Offsets: what comes next in the changelog, and its end for readers of committed records when the batch was fetched.
	Position, End int64
}

// Commit is a successful commit of one thread.
type Commit struct {
	Records int64 // input records processed since the commit before
	Took    time.Duration
	Reason  CommitReason
}

// CommitReason is what made a thread commit.
type CommitReason string

// The reasons for a commit.
const (
	CommitInterval  CommitReason = "interval"
	CommitIdle      CommitReason = "idle"
	CommitCacheFull CommitReason = "cache full"
	CommitRebalance CommitReason = "rebalance"
	CommitStop      CommitReason = "stop"
	CommitError     CommitReason = "before a failing record"
)

// TaskExcused is a task for which the others of its sub-topology do not wait any longer, see Config.TaskTimeAlignment.
type TaskExcused struct {
	Task      TaskID
	Partition TopicPartition // of which it is not known whether it has records; none if the task is being restored
	Waited    time.Duration
}

func (e TaskExcused) String() string {
	what := "its restore"
	if e.Partition.Topic != "" {
		what = e.Partition.String()
	}
	return fmt.Sprintf("not waiting any longer than %s for task %s and %s: its records may come late downstream", e.Waited, e.Task, what)
}

// Listener is told what an application does. Nil fields are not called. Calls come from the application's goroutines, one at a time, and
// hold up the work of all stream threads while they run.
type Listener struct {
	StateChanged func(StateChange)
	// TasksAssigned has all tasks of all threads, in task order, once per rebalance: when the last thread knows its own.
	TasksAssigned func([]Task)
	RestoreStart  func(RestoreStart)
	RestoreEnd    func(RestoreEnd)
	// StandbysAssigned has all standbys of this application, in task order, whenever an assignment has changed them.
	StandbysAssigned func([]Task)
	StandbyUpdated   func(StandbyUpdate)
	// RestoreProgress is called about twice a second for each restore that takes longer than a second.
	RestoreProgress func(RestoreProgress)
	// RestoreSuspended is called for a restore whose task is given up before the end. It goes on from there when the task is here again.
	RestoreSuspended func(RestoreProgress)
	Skipped          func(Skipped) // a record, or its part in one operator, was dropped by rule; logged as a warning only if this is nil
	DeadLetter       func(DeadLetter)
	OutOfOrder       func(OutOfOrder) // a table took an update that is older than what it replaced; logged as a warning only if this is nil
	// Excused is called when the time alignment stops waiting for a task; logged as a warning only if this is nil.
	Excused func(TaskExcused)
	// Misplaced is called for the first misplaced record of a partition, and again with the number of them when the partition is given up.
	Misplaced func(Misplaced)
	Committed func(Commit)
	// Waiting is called when nothing can be done until something outside happens, and again about every five seconds while that lasts.
	Waiting func(reason string)
}
