package phases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/topology"
)

// secondBase is where the feed of phase 5 starts. It is an hour later, so the minutes of its orders are open.
var secondBase = firstBase.Add(time.Hour)

// afterTakeover is the order that phase 5 sends once another instance counts the store.
var afterTakeover = byHand("ord-2006", 65*time.Minute)

// The running count of the store before that order, which is two feeds and the seven orders of phases 3 and 4, and with it.
const (
	countBefore = 107
	countAfter  = 108
)

// SessionTimeout is how long a silent instance keeps its tasks in the lab, in which some are killed and others waited for. Kafka's own default
// is 45 s.
const SessionTimeout = 6 * time.Second

// The sections of phase-5.txt.
const (
	partAssignments = "assignments"
	partProgress    = "committed progress"
	partBefore      = "count 107"
	partTakeover    = "takeover"
	partAfter       = "count 108"
	partClean       = "clean restart"
	partDeleted     = "state deleted"
)

// ErrDeclined says that the user did not want something done to an instance of theirs.
var ErrDeclined = errors.New("declined")

// takeoverRun is phase 5 at work.
type takeoverRun struct {
	*run
	began     time.Time
	partition string // of the repartition topic: the one with the store
	record    takeoverRecord
	watch     *watch
}

func phase5() phase {
	return phase{number: 5, title: "two instances, one is killed", steps: func(r *run) []step {
		partition := kafka.TopicPartition{
			Topic: repartitionTopic, Partition: kafka.PartitionFor([]byte(byHandStore), topology.RepartitionPartitions),
		}
		t := &takeoverRun{run: r, began: time.Now(), partition: partition.String()}
		return []step{
			{
				"see that instance a runs and has nothing left to count",
				"It owns all five tasks as long as it is alone.",
				t.begin,
			},
			{
				"start instance b",
				"It joins the group. Some of the tasks move to it, and it restores what they keep in stores from their changelogs.",
				t.until(partTakeover, t.share),
			},
			{
				"publish the second feed: 300 orders from " + secondBase.Format(time.RFC3339),
				"The same orders an hour later. Now two instances count them, each the stores whose tasks it owns.",
				t.until(partTakeover, func(ctx context.Context) error { return r.feed(ctx, secondBase) }),
			},
			{
				fmt.Sprintf("wait until %s has %d and nothing is left to count", byHandStore, countBefore),
				"All that is committed now must not be counted again. Who owns the store, the latest active-tasks line of an instance says.",
				t.until(partTakeover, t.saveBefore),
			},
			{
				"kill the owner of " + byHandStore + " with SIGKILL, and wait until the other instance has its tasks",
				"The group notices when the session has timed out. Then tasks are assigned anew, and stores restored from changelogs.",
				t.until(partTakeover, t.takeOver),
			},
			{
				fmt.Sprintf("send %s", afterTakeover.OrderID),
				fmt.Sprintf("The new owner counts on from where the old one was: %d.", countAfter),
				t.until(partAfter, t.countOn),
			},
			{
				"stop the survivor and start it again, unchanged",
				"It stopped cleanly, so its local state is as new as the changelogs: there is little or nothing to restore.",
				t.until(partClean, func(ctx context.Context) error { return t.restart(ctx, partClean, nil) }),
			},
			{
				"stop it, delete its own folder under state/, and start it again",
				"Local state is only a copy. What its tasks knew comes back from the changelogs.",
				t.until(partDeleted, func(ctx context.Context) error { return t.restart(ctx, partDeleted, os.RemoveAll) }),
			},
			{
				"save what was seen",
				"The three restores differ in where they began: with the state of another instance, with all of it, and with none.",
				t.save,
			},
		}
	}}
}

func (t *takeoverRun) recordFile() string { return filepath.Join(t.Workspace.Lab(), "phase-5.json") }

// begin looks how far an interrupted run came. Up to the takeover a phase begins again, as an instance may be dead; from there on it goes on
// with the survivor alone.
func (t *takeoverRun) begin(ctx context.Context) error {
	progress, _, err := t.Workspace.Progress()
	if err != nil {
		return err
	}
	record, ok, err := readTakeoverRecord(t.recordFile(), progress.OrdersID)
	if err != nil {
		return err
	}
	var c *counter
	if seen := record.Takeover; ok && seen != nil {
		t.Console.Printf("  an interrupted run has seen instance %s take over from %s", seen.Survivor, seen.Owner)
		t.record = record
		c, err = t.survivor(ctx)
	} else {
		t.record = takeoverRecord{OrdersID: progress.OrdersID, Began: t.began}
		if ok {
			t.record.Began = record.Began
		}
		if err := t.keep(); err != nil {
			return err
		}
		c, err = t.counter(ctx, "a")
	}
	if err != nil {
		return err
	}
	t.watch = t.run.watch(c)
	if t.watch.consumer, err = t.consume(ctx, topology.OrdersPerStore, false); err != nil {
		return err
	}
	return t.committed(ctx, c)
}

// until leaves a step out if what it leads to has been seen.
func (t *takeoverRun) until(title string, do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, done := t.record.part(title); done {
			t.Console.Printf("  done by an interrupted run")
			return nil
		}
		return do(ctx)
	}
}

// committed waits until all input is counted, as long as the instance lives.
func (t *takeoverRun) committed(ctx context.Context, c *counter) error {
	err := t.noLagOf(ctx, c, topology.ApplicationID, eventTimeout)
	if err == nil {
		t.Console.Printf("  no lag: everything published is counted and committed")
	}
	return err
}

// keep takes parts into the record, so that they outlast an interruption.
func (t *takeoverRun) keep(parts ...part) error {
	t.record.Parts = append(t.record.Parts, parts...)
	return t.record.write(t.recordFile())
}

// members lists the instances that run, as they are now.
func (t *takeoverRun) members() ([]*member, error) {
	if err := t.watch.look(); err != nil {
		return nil, err
	}
	live, err := t.live()
	return members(t.watch.events, live), err
}

// share starts instance b and waits until both have tasks.
func (t *takeoverRun) share(ctx context.Context) error {
	if _, err := t.counter(ctx, "b"); err != nil {
		return err
	}
	list, err := t.sharing(ctx)
	for _, m := range list {
		t.Console.Printf("  %s", m.line)
	}
	return err
}

// sharing waits until instances a and b are RUNNING with tasks, and returns all instances that run.
func (t *takeoverRun) sharing(ctx context.Context) (list []*member, err error) {
	var failed error
	err = t.watch.await(ctx, "instances a and b to be RUNNING, each with tasks of its own", func() bool {
		list, failed = t.members()
		return failed != nil || shared(list, "a", "b")
	})
	return list, errors.Join(err, failed)
}

// saveBefore keeps what the kill is to be compared with.
func (t *takeoverRun) saveBefore(ctx context.Context) error {
	what := fmt.Sprintf("%s %d on %s", byHandStore, countBefore, topology.OrdersPerStore)
	if err := t.watch.await(ctx, what, func() bool { return t.watch.row(0, byHandStore, countBefore) >= 0 }); err != nil {
		return err
	}
	if err := t.committed(ctx, t.watch.counter); err != nil {
		return err
	}
	list, err := t.members()
	if err != nil {
		return err
	}
	owner := ownerOf(list, t.partition)
	if owner == nil {
		return fmt.Errorf("no instance of this workspace owns %s", t.partition)
	}
	var assignments, progress bytes.Buffer
	for _, m := range list {
		fmt.Fprintln(&assignments, m.line)
	}
	fmt.Fprintf(&assignments, "%s is in %s, so its owner is instance %s, pid %d\n", byHandStore, t.partition, owner.name, owner.pid)
	for _, line := range t.restores(t.began) {
		fmt.Fprintln(&assignments, line)
	}
	t.Console.Printf("  instance %s, pid %d, owns %s", owner.name, owner.pid, t.partition)
	group, err := kafkatools.DescribeGroup(ctx, t.conn.Client, topology.ApplicationID)
	if err != nil {
		return err
	}
	if err := group.Write(&progress); err != nil {
		return err
	}
	counts, err := t.showCounts(ctx)
	if err != nil {
		return err
	}
	return t.keep(
		part{partAssignments, assignments.String()}, part{partProgress, progress.String()}, part{partBefore, string(counts)},
	)
}

// restores are the restore lines of all instances since a point in time.
func (t *takeoverRun) restores(since time.Time) []string {
	var list []string
	for i := range t.watch.events {
		if e := &t.watch.events[i]; (e.RestoreStart != nil || e.RestoreEnd != nil) && !e.Time.Before(since) {
			list = append(list, e.Line())
		}
	}
	return list
}

// takeOver kills the owner and waits until another instance is RUNNING with the store.
func (t *takeoverRun) takeOver(ctx context.Context) error {
	list, err := t.sharing(ctx)
	if err != nil {
		return err
	}
	owner := ownerOf(list, t.partition)
	if owner == nil {
		return fmt.Errorf("no instance of this workspace owns %s any more", t.partition)
	}
	killed, err := t.kill(ctx, owner)
	if err != nil {
		return err
	}
	t.Console.Printf("  kill -9 %d: instance %s", owner.pid, owner.name)
	t.watch.counter = t.counters[0] // a or b is left, if not both
	var seen takeover
	limit := owner.millis("session.timeout.ms") + stepTimeout
	what := fmt.Sprintf("another instance to be RUNNING with %s", t.partition)
	err = t.watch.awaitWithin(ctx, limit, what, func() (found bool) {
		seen, found = findTakeover(t.watch.events, killed, t.partition)
		return found
	})
	if err != nil {
		return err
	}
	seen.Owner, seen.PID = owner.name, owner.pid
	seen.Session, seen.Heartbeat = owner.millis("session.timeout.ms"), owner.millis("heartbeat.interval.ms")
	var text bytes.Buffer
	if list, err = t.members(); err != nil {
		return err
	}
	for _, m := range list {
		if m.name == seen.Survivor {
			seen.Properties = m.properties
			fmt.Fprintln(&text, m.line)
		}
	}
	for _, line := range t.restores(killed) {
		fmt.Fprintln(&text, line)
	}
	t.Console.Printf("  instance %s took over %d ms after the kill: %d ms until it was noticed, %d ms for the rest", seen.Survivor,
		seen.Running.Sub(killed).Milliseconds(), seen.Noticed.Sub(killed).Milliseconds(), seen.Running.Sub(seen.Noticed).Milliseconds())
	t.record.Takeover = &seen
	return t.keep(part{partTakeover, text.String()})
}

// kill ends a member with SIGKILL, and returns when that was. One that a user started is asked for first.
func (t *takeoverRun) kill(ctx context.Context, m *member) (time.Time, error) {
	in, ok, err := t.Workspace.Instance(topology.ApplicationID, m.name)
	if err != nil {
		return time.Time{}, err
	}
	if !ok || in.PID != m.pid {
		return time.Time{}, fmt.Errorf("instance %s, pid %d, has ended", m.name, m.pid)
	}
	c := t.known(m.name)
	if c == nil || c.child == nil {
		if err := t.consent(ctx, m.name, m.pid, "kill instance "+m.name+" with SIGKILL"); err != nil {
			return time.Time{}, err
		}
	}
	killed := time.Now()
	if err := in.Kill(); err != nil {
		return time.Time{}, fmt.Errorf("kill instance %s: %w", m.name, err)
	}
	if err := in.Wait(ctx); err != nil {
		return time.Time{}, err
	}
	switch {
	case c == nil:
		return killed, nil
	case c.child == nil:
		return killed, t.forget(c)
	default:
		return killed, t.crashed(ctx, c)
	}
}

// consent says that an instance was started by a user, and asks before something is done to it.
func (r *run) consent(ctx context.Context, name string, pid int, what string) error {
	r.Console.Warnf("instance %s (pid %d) was not started here", name, pid)
	yes, err := r.Console.Confirm(ctx, what+"?")
	if err == nil && !yes {
		err = fmt.Errorf("%w: %s", ErrDeclined, what)
	}
	return err
}

// survivor is the instance that took over. If an interrupted run has left it stopped it is started again.
func (t *takeoverRun) survivor(ctx context.Context) (*counter, error) {
	name := t.record.Takeover.Survivor
	if c := t.known(name); c != nil {
		return c, nil
	}
	c, err := t.running(ctx, name)
	if err == nil && c == nil {
		c, err = t.start(name, unchanged(t.record.Takeover.Properties)...)
	}
	if err != nil {
		return nil, err
	}
	_, err = t.join(ctx, c)
	return c, err
}

// countOn sends the order and waits for its count.
func (t *takeoverRun) countOn(ctx context.Context) error {
	c, err := t.survivor(ctx)
	if err != nil {
		return err
	}
	t.watch.counter = c
	sent, err := t.send(ctx, afterTakeover)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s %d on %s, which %s leads to", byHandStore, countAfter, topology.OrdersPerStore, afterTakeover.OrderID)
	found := -1
	err = t.watch.await(ctx, what, func() bool {
		found = t.watch.row(0, byHandStore, countAfter)
		return found >= 0
	})
	if err != nil {
		return err
	}
	visible := time.Now()
	t.Console.Printf("  %s", t.watch.rows[found])
	if sent {
		at, err := published(ctx, t.conn.Client, []feed.Order{afterTakeover})
		if err != nil {
			return err
		}
		t.record.Takeover.FirstOutput = visible.Sub(at[eventOf(afterTakeover)])
	}
	if err := t.committed(ctx, c); err != nil {
		return err
	}
	counts, err := t.showCounts(ctx)
	if err != nil {
		return err
	}
	return t.keep(part{partAfter, string(counts)})
}

// restart stops the survivor, does something to its folder of local state, and starts it again with the properties that it had.
func (t *takeoverRun) restart(ctx context.Context, title string, toState func(folder string) error) error {
	c, err := t.survivor(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := t.stopCleanly(ctx, c); err != nil {
		return err
	}
	var text bytes.Buffer
	stopped := time.Now()
	fmt.Fprintf(&text, "instance %s stopped within %d ms\n", c.name, stopped.Sub(began).Milliseconds())
	if toState != nil {
		folder := t.Workspace.InstanceState(c.name)
		if err := toState(folder); err != nil {
			return err
		}
		fmt.Fprintf(&text, "deleted state/%s\n", c.name)
		t.Console.Printf("  deleted %s", folder)
	}
	start := time.Now()
	if c, err = t.start(c.name, unchanged(t.record.Takeover.Properties)...); err != nil {
		return err
	}
	running, err := t.join(ctx, c)
	if err != nil {
		return err
	}
	t.watch.counter = c
	if err := t.committed(ctx, c); err != nil {
		return err
	}
	if err := t.watch.look(); err != nil {
		return err
	}
	fmt.Fprintf(&text, "process start → RUNNING: %d ms\n", running.Time.Sub(start).Milliseconds())
	for _, line := range t.restores(stopped) {
		fmt.Fprintln(&text, line)
		t.Console.Printf("  %s", line)
	}
	counts, err := t.showCounts(ctx)
	if err != nil {
		return err
	}
	text.Write(counts)
	return t.keep(part{title, text.String()})
}

// stopCleanly stops an instance, also one that a user started if they agree, and makes sure that it says so.
func (t *takeoverRun) stopCleanly(ctx context.Context, c *counter) error {
	if c.child == nil {
		in, ok, err := t.Workspace.Instance(topology.ApplicationID, c.name)
		if err != nil {
			return err
		}
		if ok {
			err := t.consent(ctx, c.name, c.pid, "stop instance "+c.name+", and start it again as the phase's own")
			if err == nil {
				err = in.Terminate()
			}
			if err != nil {
				return err
			}
		}
	}
	events, err := t.end(ctx, c)
	if err != nil {
		return err
	}
	i := len(events) - 1
	if i < 0 || events[i].Stopped == nil || events[i].Stopped.Error != "" {
		return fmt.Errorf("instance %s did not stop cleanly, see %s", c.name, c.journal)
	}
	t.Console.Printf("  %s", events[i].Line())
	return nil
}

// end waits for the end of an instance, which is a child's when its input ends, and returns all that it reported.
func (t *takeoverRun) end(ctx context.Context, c *counter) ([]journal.Event, error) {
	if c.child != nil {
		if err := c.child.stop(c.name); err != nil {
			return nil, err
		}
	} else if in, ok, err := t.Workspace.Instance(topology.ApplicationID, c.name); err != nil {
		return nil, err
	} else if ok {
		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		if err := in.Wait(ctx); err != nil {
			return nil, err
		}
	}
	if err := t.forget(c); err != nil {
		return nil, err
	}
	return journal.Read(c.journal)
}

// save writes the evidence.
func (t *takeoverRun) save(context.Context) error {
	var sections [][]byte
	for _, p := range t.record.Parts {
		text := p.Text
		if p.Title == partTakeover {
			text = t.record.Takeover.report() + text
		}
		sections = append(sections, section(p.Title, []byte(text)))
	}
	for row := range strings.Lines(t.record.Takeover.report()) {
		t.Console.Printf("  %s", strings.TrimSuffix(row, "\n"))
	}
	if err := t.write("phase-5.txt", bytes.Join(sections, []byte{'\n'})); err != nil {
		return err
	}
	all, err := t.linesSince(t.record.Began)
	if err != nil {
		return err
	}
	return t.write("phase-5-log.txt", lines(all))
}
