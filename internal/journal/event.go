// Package journal is what the instances of an application say to the programs around them: typed JSON lines, one file per process, so that
// phases, verify and status need not read the text meant for people.
//
// An event is written before the instance goes on, so what a killed instance did is in its journal.
package journal

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Event is one line. Exactly one of the pointers is set.
type Event struct {
	Time        time.Time `json:"time"`
	Application string    `json:"application"`
	Instance    string    `json:"instance"`

	Started      *Started      `json:"started,omitempty"`
	State        *State        `json:"state,omitempty"`
	Tasks        *Tasks        `json:"tasks,omitempty"`
	FirstRecord  *FirstRecord  `json:"first_record,omitempty"`
	TableApplied *TableApplied `json:"table_applied,omitempty"`
	Joined       *Joined       `json:"joined,omitempty"`
	RestoreStart *RestoreStart `json:"restore_start,omitempty"`
	RestoreEnd   *RestoreEnd   `json:"restore_end,omitempty"`

	Standbys        *Standbys        `json:"standbys,omitempty"`
	StandbyCaughtUp *StandbyCaughtUp `json:"standby_caught_up,omitempty"`

	RestoreProgress  *RestoreProgress  `json:"restore_progress,omitempty"`
	RestoreSuspended *RestoreSuspended `json:"restore_suspended,omitempty"`

	Skipped    *Skipped    `json:"skipped,omitempty"`
	DeadLetter *DeadLetter `json:"dead_letter,omitempty"`
	Misplaced  *Misplaced  `json:"misplaced,omitempty"`
	Excused    *Excused    `json:"excused,omitempty"`
	Waiting    *Waiting    `json:"waiting,omitempty"`
	Halted     *Halted     `json:"halted,omitempty"`
	CrashPoint *CrashPoint `json:"crash_point,omitempty"`
	Stopped    *Stopped    `json:"stopped,omitempty"`
}

// Payload is what an event tells: one of the types below.
type Payload interface {
	// Line is the event as a person reads it, in the words of the original program.
	Line(e *Event) string
	in(e *Event)
}

// Payload returns the event's own part, nil for a kind that this version does not know.
func (e *Event) Payload() Payload {
	switch {
	case e.Started != nil:
		return e.Started
	case e.State != nil:
		return e.State
	case e.Tasks != nil:
		return e.Tasks
	case e.FirstRecord != nil:
		return e.FirstRecord
	case e.TableApplied != nil:
		return e.TableApplied
	case e.Joined != nil:
		return e.Joined
	case e.RestoreStart != nil:
		return e.RestoreStart
	case e.RestoreEnd != nil:
		return e.RestoreEnd
	case e.Standbys != nil:
		return e.Standbys
	case e.StandbyCaughtUp != nil:
		return e.StandbyCaughtUp
	case e.RestoreProgress != nil:
		return e.RestoreProgress
	case e.RestoreSuspended != nil:
		return e.RestoreSuspended
	case e.Skipped != nil:
		return e.Skipped
	case e.DeadLetter != nil:
		return e.DeadLetter
	case e.Misplaced != nil:
		return e.Misplaced
	case e.Excused != nil:
		return e.Excused
	case e.Waiting != nil:
		return e.Waiting
	case e.Halted != nil:
		return e.Halted
	case e.CrashPoint != nil:
		return e.CrashPoint
	case e.Stopped != nil:
		return e.Stopped
	default:
		return nil
	}
}

// Line is the event as a person reads it.
func (e *Event) Line() string {
	if p := e.Payload(); p != nil {
		return p.Line(e)
	}
	return ""
}

// Started is an instance's first event.
type Started struct {
	PID        int      `json:"pid"`
	Bootstrap  string   `json:"bootstrap"`
	Guarantee  string   `json:"guarantee"`
	Properties []string `json:"properties"` // all of them, as key=value
}

// State is a change of the instance's state, in Kafka Streams' words: CREATED, REBALANCING, RUNNING, PENDING_SHUTDOWN, NOT_RUNNING, ERROR.
type State struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Tasks is what an instance owns after an assignment, and nothing if it owns no task.
type Tasks struct {
	Active []Task `json:"active"`
}

// Task is one active task with its input partitions, each as topic-partition.
type Task struct {
	ID         string   `json:"id"`
	Partitions []string `json:"partitions"`
	Thread     int      `json:"thread,omitempty"` // number of the stream thread, from 1; 0 if the instance has only one
}

// FirstRecord is the first record of a store that this instance counts.
type FirstRecord struct {
	Store     string `json:"store"`
	Partition string `json:"partition"` // the repartition partition that it came from
}

// TableApplied is a row of the status table that has just been replaced.
type TableApplied struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Joined is an order that found its status row.
type Joined struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// RestoreStart opens the restore of one changelog partition; there is one at every start of a task, also when there is nothing to restore.
type RestoreStart struct {
	Store     string `json:"store"`
	Partition string `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Reason    string `json:"reason,omitempty"` // why local state was not used, if there was some
}

// RestoreEnd closes the restore of one changelog partition.
type RestoreEnd struct {
	Store     string `json:"store"`
	Partition string `json:"partition"`
	Restored  int64  `json:"restored"`
}

// RestoreProgress is how far a restore has come, about twice a second if it takes longer than a second.
type RestoreProgress struct {
	Store     string  `json:"store"`
	Partition string  `json:"partition"`
	Restored  int64   `json:"restored"` // records
	Position  int64   `json:"position"`
	To        int64   `json:"to"`
	Rate      float64 `json:"rate"`   // offsets a second
	ETA       int64   `json:"eta_ms"` // 0 if nothing moves
}

// RestoreSuspended is a restore whose task went to another instance before the end.
type RestoreSuspended struct {
	Store     string `json:"store"`
	Partition string `json:"partition"`
	Restored  int64  `json:"restored"`
	Position  int64  `json:"position"` // from where it goes on, should the task come back
	To        int64  `json:"to"`
}

// Skipped is a record that was dropped, with the reason in Kafka Streams' words.
type Skipped struct {
	Text      string `json:"text"` // the warning, in the words of the original program
	Partition string `json:"partition"`
	Offset    int64  `json:"offset"`
	Late      *Late  `json:"late,omitempty"`
}

// Late is an entry of the late ledger: a record that came after its window had closed, and why it had. Times are in epoch milliseconds.
type Late struct {
	Timestamp   int64  `json:"timestamp"`
	WindowStart int64  `json:"window_start"`
	WindowEnd   int64  `json:"window_end"`
	Closes      int64  `json:"closes"`      // window end + grace: the stream time from which the window is closed
	StreamTime  int64  `json:"stream_time"` // at or beyond Closes
	Mover       *Mover `json:"mover,omitempty"`
}

// Mover is the record that moved the stream time to where it was. There is none if that was before the instance's last start.
type Mover struct {
	Partition string `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp"`
	Before    int64  `json:"before"` // the stream time that it found, -1 if none
}

// DeadLetter is a record that went into the dead-letter topic instead of through the topology.
type DeadLetter struct {
	Partition string `json:"partition"` // where it came from
	Offset    int64  `json:"offset"`
	Kind      string `json:"kind"`
	Error     string `json:"error"`
}

// Misplaced is told of the first record of a partition that its key does not belong to, and again at the end with the number of them.
type Misplaced struct {
	Partition string `json:"partition"`
	Offset    int64  `json:"offset"` // of the first
	Want      int32  `json:"want"`   // the partition that the first one's key belongs to
	Records   int64  `json:"records"`
}

// Excused is a task for which the others of its sub-topology do not wait any longer: what it brings may come late downstream.
type Excused struct {
	Task      string `json:"task"`
	Partition string `json:"partition,omitempty"` // of which it is not known whether it has records; "" for a task that is being restored
	WaitedMs  int64  `json:"waited_ms"`
}

// Waiting is a time in which an instance can do nothing until something happens elsewhere. It is repeated while that lasts.
type Waiting struct {
	Reason string `json:"reason"`
}

// Halted is the last event of an instance that was told to crash (lab.crash.after.store17): it kills itself as soon as this is written.
type Halted struct {
	Store  string `json:"store"`
	Record int64  `json:"record"` // of that store, from 1: the one that is not counted any more
}

// CrashPoint is the last event of an instance that was told to crash inside a commit (lab.crash.at): it kills itself as soon as this is
// written. It holds what was under way, and what will be counted once more because of it.
type CrashPoint struct {
	At       string     `json:"at"`
	Commit   int64      `json:"commit"` // from 1, of those in which orders were counted
	InFlight []InFlight `json:"in_flight"`
	Stores   []Excess   `json:"stores"`
	Error    string     `json:"error,omitempty"` // why there is no prediction
}

// InFlight is a partition between the offset from which a restart goes on and that which was reached.
type InFlight struct {
	Partition string `json:"partition"`
	Store     string `json:"store,omitempty"` // of a changelog
	Committed int64  `json:"committed"`
	Position  int64  `json:"position"`
}

// Excess is what a crash leads to for a store: a restart processes all that was in flight again, and counts once more what has left a trace
// that a reader of committed records sees.
type Excess struct {
	Store        string `json:"store"`
	Orders       int64  `json:"orders"`        // placed ones in flight
	OrdersAgain  int64  `json:"orders_again"`  // of those, the ones whose record is in the repartition topic already
	Records      int64  `json:"records"`       // of the repartition topic, in flight
	RecordsAgain int64  `json:"records_again"` // of those, the ones whose count is in the changelog already
}

// Predicted is how much more than placed the final count will be.
func (x *Excess) Predicted() int64 { return x.OrdersAgain + x.RecordsAgain }

// Stopped is an instance's last event; a killed one has none.
type Stopped struct {
	Error string `json:"error,omitempty"` // "" for a clean stop
}

// Line is the line with which an instance tells its pid.
func (p *Started) Line(e *Event) string {
	return fmt.Sprintf("instance %s pid %d", e.Instance, p.PID)
}

// Line is the state listener's line.
func (p *State) Line(e *Event) string {
	return fmt.Sprintf("state %s %s -> %s", e.Instance, p.From, p.To)
}

// Line is the task observer's line.
func (p *Tasks) Line(e *Event) string {
	tasks := make([]string, 0, len(p.Active))
	for _, t := range p.Active {
		line := t.ID + "=[" + strings.Join(t.Partitions, ", ") + "]"
		if t.Thread > 0 {
			line += fmt.Sprintf(" StreamThread-%d", t.Thread)
		}
		tasks = append(tasks, line)
	}
	slices.Sort(tasks)
	return fmt.Sprintf("active tasks %s {%s}", e.Instance, strings.Join(tasks, ", "))
}

// Line is printed once per store and owner.
func (p *FirstRecord) Line(e *Event) string {
	return fmt.Sprintf("first record for %s instance=%s partition=%s", p.Store, e.Instance, p.Partition)
}

// Line names the row as it now stands.
func (p *TableApplied) Line(*Event) string { return "table applied " + p.Key + "=" + p.Value }

// Line names the joined record.
func (p *Joined) Line(*Event) string { return "joined " + p.Key + "=" + p.Value }

// Line is the restore listener's line.
func (p *RestoreStart) Line(e *Event) string {
	return fmt.Sprintf("restore start instance=%s store=%s partition=%s from=%d to=%d", e.Instance, p.Store, p.Partition, p.From, p.To)
}

// Line is the restore listener's line.
func (p *RestoreEnd) Line(e *Event) string {
	return fmt.Sprintf("restore end instance=%s store=%s partition=%s restored=%d", e.Instance, p.Store, p.Partition, p.Restored)
}

// Line says how much is left.
func (p *RestoreProgress) Line(e *Event) string {
	return fmt.Sprintf("restore progress instance=%s store=%s partition=%s position=%d to=%d rate=%.0f/s eta=%s",
		e.Instance, p.Store, p.Partition, p.Position, p.To, p.Rate, time.Duration(p.ETA)*time.Millisecond)
}

// Line says where the restore was left.
func (p *RestoreSuspended) Line(e *Event) string {
	return fmt.Sprintf("restore suspended instance=%s store=%s partition=%s position=%d to=%d restored=%d",
		e.Instance, p.Store, p.Partition, p.Position, p.To, p.Restored)
}

// Line is the warning as the original's log has it: its words, its time stamp and, for a late record, the class that it names.
func (p *Skipped) Line(e *Event) string {
	line := e.Time.Format("[2006-01-02 15:04:05,000] ") + "WARN " + p.Text
	if p.Late != nil {
		line += " (org.apache.kafka.streams.kstream.internals.KStreamWindowAggregate)"
	}
	return line
}

// Line says which record it was and what was wrong with it.
func (p *DeadLetter) Line(*Event) string {
	return fmt.Sprintf("dead letter %s offset %d: %s: %s", p.Partition, p.Offset, p.Kind, p.Error)
}

// Line says what may come of it.
func (p *Misplaced) Line(*Event) string {
	if p.Records > 1 {
		return fmt.Sprintf("misplaced %s: %d records whose keys belong to other partitions, a join may have missed them", p.Partition, p.Records)
	}
	return fmt.Sprintf("misplaced %s offset %d: its key belongs to partition %d, a join may miss it", p.Partition, p.Offset, p.Want)
}

// Line says what may come of it.
func (p *Excused) Line(*Event) string {
	what := p.Partition
	if what == "" {
		what = "its restore"
	}
	return fmt.Sprintf("task %s is not waited for any longer, after %d ms for %s: its records may come late downstream", p.Task, p.WaitedMs, what)
}

// Line says what must happen elsewhere.
func (p *Waiting) Line(e *Event) string {
	return fmt.Sprintf("instance %s waits: %s", e.Instance, p.Reason)
}

// Line is the halt message of the original program.
func (p *Halted) Line(*Event) string {
	return fmt.Sprintf("halting before counting %s record %d", p.Store, p.Record)
}

// Line says where it crashes and what will come of that.
func (p *CrashPoint) Line(*Event) string {
	if p.Error != "" {
		return fmt.Sprintf("halting at %s of commit %d, and what comes again is not known: %s", p.At, p.Commit, p.Error)
	}
	var orders, records int64
	for i := range p.Stores {
		orders, records = orders+p.Stores[i].OrdersAgain, records+p.Stores[i].RecordsAgain
	}
	return fmt.Sprintf("halting at %s of commit %d: %d orders will come to be counted again, %d records will be counted again", p.At, p.Commit, orders, records)
}

// Line says how the instance ended.
func (p *Stopped) Line(e *Event) string {
	if p.Error != "" {
		return fmt.Sprintf("instance %s failed: %s", e.Instance, p.Error)
	}
	return fmt.Sprintf("instance %s stopped", e.Instance)
}

func (p *Started) in(e *Event)          { e.Started = p }
func (p *State) in(e *Event)            { e.State = p }
func (p *Tasks) in(e *Event)            { e.Tasks = p }
func (p *FirstRecord) in(e *Event)      { e.FirstRecord = p }
func (p *TableApplied) in(e *Event)     { e.TableApplied = p }
func (p *Joined) in(e *Event)           { e.Joined = p }
func (p *RestoreStart) in(e *Event)     { e.RestoreStart = p }
func (p *RestoreEnd) in(e *Event)       { e.RestoreEnd = p }
func (p *RestoreProgress) in(e *Event)  { e.RestoreProgress = p }
func (p *RestoreSuspended) in(e *Event) { e.RestoreSuspended = p }
func (p *Skipped) in(e *Event)          { e.Skipped = p }
func (p *DeadLetter) in(e *Event)       { e.DeadLetter = p }
func (p *Misplaced) in(e *Event)        { e.Misplaced = p }
func (p *Excused) in(e *Event)          { e.Excused = p }
func (p *Waiting) in(e *Event)          { e.Waiting = p }
func (p *Halted) in(e *Event)           { e.Halted = p }
func (p *CrashPoint) in(e *Event)       { e.CrashPoint = p }
func (p *Stopped) in(e *Event)          { e.Stopped = p }
