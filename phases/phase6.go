package phases

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
)

const (
	// crashProperty halts an instance in the counting sub-topology, before it counts the twentieth order of store-17.
	crashProperty = "lab.crash.after.store17=20"
	// neverIdle leaves the commits to the interval. The lab's counters commit as soon as they have nothing to do, and then a crash would find
	// nothing that is processed and not committed.
	neverIdle = "commit.idle.ms=-1"
	// longInterval is Kafka Streams' own commit interval at least once. The crash comes long before its end.
	longInterval = 30 * time.Second
)

// crashRun is one of the two runs of phase 6: an application of its own that crashes and starts again.
type crashRun struct {
	*run
	name        string // of the instance
	guarantee   string
	application string
	suffix      string   // of its output topics
	more        []string // properties beyond those of both runs
	interval    time.Duration

	atHalt    []byte // what was committed, and what was not
	restarted *counter
	rows      []byte // its running counts, committed
}

func (r *run) crashRuns() []*crashRun {
	return []*crashRun{
		{
			run: r, name: "eos", guarantee: exactlyOnce, application: topology.ApplicationID + "-eos", suffix: ".eos",
			interval: time.Second, // the counter's own
		},
		{
			run: r, name: "alos", guarantee: atLeastOnce, application: topology.ApplicationID + "-alos", suffix: ".alos",
			interval: longInterval, more: []string{fmt.Sprintf("commit.interval.ms=%d", longInterval.Milliseconds())},
		},
	}
}

func phase6() phase {
	return phase{number: 6, title: "a crash under exactly once and under at least once", steps: func(r *run) []step {
		began := time.Now()
		runs := r.crashRuns()
		steps := []step{
			{
				"stop every instance",
				"The two runs that follow are applications of their own, and nothing else is to work beside them.",
				r.stopInstances,
			},
			{
				"give both runs an empty start",
				"Each has an application id and output topics of its own, so that nothing from before can pass for a result: groups, topics " +
					"and local state of these two are deleted.",
				func(ctx context.Context) error {
					for _, c := range runs {
						if err := c.reset(ctx); err != nil {
							return err
						}
					}
					return nil
				},
			},
		}
		for _, c := range runs {
			steps = append(steps, c.steps()...)
		}
		return append(steps, step{
			"compare both with the input and save what was seen",
			"Each order has to be in the final count of its store: once under exactly once, and at least once under at least once.",
			func(ctx context.Context) error { return r.savePhase6(ctx, began, runs) },
		})
	}}
}

func (c *crashRun) steps() []step {
	halt := "The counting stage reads committed records only, so the first stage has committed them with their orders' offsets. The counts are not."
	wait := "The group keeps the dead member's place until its session ends. The new process has the old one's transactional id and aborts what that left."
	again := "Counts that were never committed are gone, so the records that led to them are counted again: for the first time, to any reader."
	if c.guarantee == atLeastOnce {
		halt = "Records go out as they come, offsets only every 30 s. When it halts, orders are in the repartition topic whose offsets are not committed."
		wait = "The group keeps the dead member's place until its session ends. No offset was committed, so all of the input is processed again."
		again = "It takes the 30 s of a commit interval. What reached the repartition topic before the crash is counted beside what comes again."
	}
	return []step{
		{"start instance " + c.name + ", which halts before it counts the 20th order of store-17", halt, c.crash},
		{"start it again without the crash", wait, c.restart},
		{"wait until all of it is counted", again, c.finish},
	}
}

// stopInstances stops all instances of the workspace. It asks before it stops one that a user started.
func (r *run) stopInstances(ctx context.Context) error {
	if err := r.stop(); err != nil {
		return err
	}
	live, err := r.Workspace.Instances()
	if err != nil {
		return err
	}
	for _, in := range live {
		if in.Parent == nil {
			if err := r.stopUsers(ctx, in); err != nil {
				return err
			}
		}
		waiting, cancel := context.WithTimeout(ctx, stopTimeout)
		err := in.Wait(waiting)
		cancel()
		if err != nil {
			return fmt.Errorf("instance %s of %s: %w", in.Name, in.Application, err)
		}
	}
	r.Console.Printf("  no instance runs")
	return nil
}

func (r *run) stopUsers(ctx context.Context, in workspace.Instance) error {
	if err := r.consent(ctx, in.Name, in.PID, fmt.Sprintf("stop instance %s of %s", in.Name, in.Application)); err != nil {
		return err
	}
	if err := in.Terminate(); err != nil && !errors.Is(err, process.ErrGone) {
		return err
	}
	return nil
}

// reset deletes what the application has, and makes its output topics. A group may still keep the place of a member that an interrupted run
// left killed; it is waited for.
func (c *crashRun) reset(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	deleted, err := provision.Reset(waiting, c.conn, c.Workspace, c.application, c.suffix)
	if err != nil {
		return err
	}
	stores, err := filepath.Glob(filepath.Join(c.Workspace.State(), "*", c.application))
	if err != nil {
		return err
	}
	for _, dir := range stores {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		deleted = append(deleted, "state/"+filepath.Base(filepath.Dir(dir))+"/"+c.application)
	}
	if len(deleted) > 0 {
		c.Console.Printf("  deleted %s", strings.Join(deleted, ", "))
	}
	created, err := provision.Create(ctx, c.conn, c.Workspace, c.suffix)
	if err == nil && len(created) > 0 {
		c.Console.Printf("  created %s", strings.Join(created, ", "))
	}
	return err
}

// properties are those of both starts; the first one has the crash in addition.
func (c *crashRun) properties() []string {
	return append([]string{
		"application.id=" + c.application, "processing.guarantee=" + c.guarantee, "lab.output.suffix=" + c.suffix,
		fmt.Sprintf("session.timeout.ms=%d", cmp.Or(c.SessionTimeout, SessionTimeout).Milliseconds()), neverIdle,
	}, c.more...)
}

// crash starts the instance and waits for its end.
func (c *crashRun) crash(ctx context.Context) error {
	_, err := c.halt(ctx, func(e *journal.Event) bool { return e.Halted != nil }, crashProperty)
	if err != nil {
		return err
	}
	c.atHalt, err = c.uncommitted(ctx)
	return err
}

// halt starts the instance with properties that make it crash, and waits for its end. It returns the event with which the instance ended.
func (c *crashRun) halt(ctx context.Context, last func(*journal.Event) bool, properties ...string) (journal.Event, error) {
	began := time.Now()
	instance, err := c.startOf(c.application, c.name, append(c.properties(), properties...)...)
	if err != nil {
		return journal.Event{}, err
	}
	instance.follower = journal.Follow(instance.journal)
	c.counters = append(c.counters, instance)
	halted, err := instance.wait(ctx, startTimeout, "instance "+c.name+" to halt", func(e *journal.Event) bool {
		return last(e) && !e.Time.Before(began) // an earlier process may have had the pid, and with it the journal
	})
	if err != nil {
		return halted, err
	}
	c.Console.Printf("  %s", halted.Line())
	return halted, c.crashed(ctx, instance)
}

// uncommitted tells what the dead instance left: the group's progress, and its transaction.
func (c *crashRun) uncommitted(ctx context.Context) ([]byte, error) {
	var b bytes.Buffer
	group, err := kafkatools.DescribeGroup(ctx, c.conn.Client, c.application)
	if err != nil {
		return nil, err
	}
	committed := slices.DeleteFunc(group.Rows, func(r kafkatools.GroupRow) bool { return r.Current < 0 })
	if len(committed) == 0 {
		fmt.Fprintln(&b, "no offset is committed")
	}
	for _, row := range committed {
		fmt.Fprintf(&b, "%s: committed up to %d of %d\n", row.TopicPartition, row.Current, row.End)
	}
	transactions, err := c.conn.ListTransactions(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range transactions {
		if strings.HasPrefix(t.ID, c.application+"-") {
			fmt.Fprintf(&b, "transaction %s of producer %d: %s\n", t.ID, t.ProducerID, t.State)
		}
	}
	return b.Bytes(), nil
}

// restart starts the instance without the crash and waits until it is RUNNING.
func (c *crashRun) restart(ctx context.Context) error {
	var err error
	if c.restarted, err = c.startOf(c.application, c.name, c.properties()...); err != nil {
		return err
	}
	if _, err := c.join(ctx, c.restarted); err != nil {
		return err
	}
	restores, err := c.restores()
	if err != nil {
		return err
	}
	for _, line := range restores {
		c.Console.Printf("  %s", line)
	}
	return nil
}

// restores are the restore lines of the restarted instance.
func (c *crashRun) restores() ([]string, error) {
	events, err := journal.Read(c.restarted.journal)
	var list []string
	for i := range events {
		if events[i].Started != nil { // an earlier process may have had the pid
			list = nil
		}
		if events[i].RestoreStart != nil || events[i].RestoreEnd != nil {
			list = append(list, events[i].Line())
		}
	}
	return list, err
}

// finish waits for the counts and saves them.
func (c *crashRun) finish(ctx context.Context) error {
	if err := c.count(ctx); err != nil {
		return err
	}
	return c.write(fmt.Sprintf("phase-6-%s.txt", c.name), c.rows)
}

// count waits until everything is committed, dumps the counts and stops the instance.
func (c *crashRun) count(ctx context.Context) error {
	if err := c.noLagOf(ctx, c.restarted, c.application, eventTimeout+c.interval); err != nil {
		return err
	}
	c.Console.Printf("  no lag: all orders are counted and committed")
	c.counters = slices.DeleteFunc(c.counters, func(other *counter) bool { return other == c.restarted })
	if err := c.restarted.stop(); err != nil {
		return err
	}
	var rows bytes.Buffer
	err := kafkatools.Dump(ctx, c.conn.Client, kafkatools.DumpConfig{
		ReadConfig: kafkatools.ReadConfig{Topic: topology.OrdersPerStore + c.suffix, Isolation: kafka.ReadCommitted}, PrintKey: true,
	}, &rows)
	if err != nil {
		return err
	}
	c.rows = rows.Bytes()
	return nil
}

// placedPerStore counts the placed orders in the input.
func (r *run) placedPerStore(ctx context.Context) (map[string]int64, error) {
	placed := map[string]int64{}
	err := kafkatools.Read(ctx, r.conn.Client, kafkatools.ReadConfig{Topic: topology.OrdersPlaced}, func(_ int32, rec *kafka.Record) error {
		if o, err := feed.DecodeOrder(rec.Value); err == nil && o.Status == feed.Placed { // what is no order is counted nowhere
			placed[o.StoreID]++
		}
		return nil
	})
	return placed, err
}

// lastCounts are the final counts by store.
func (c *crashRun) lastCounts() map[string]int64 {
	last := map[string]int64{}
	for line := range strings.Lines(string(c.rows)) {
		store, count, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		last[store] = outputRow{store, count}.count()
	}
	return last
}

// repartitioned is how many records are in the run's repartition topic, and how many of them a reader of committed records sees.
func (c *crashRun) repartitioned(ctx context.Context) (written, committed int64, err error) {
	for _, of := range []struct {
		isolation kafka.Isolation
		n         *int64
	}{{kafka.ReadUncommitted, &written}, {kafka.ReadCommitted, &committed}} {
		cfg := kafkatools.ReadConfig{Topic: c.application + "-" + topology.Repartition, Isolation: of.isolation}
		err := kafkatools.Read(ctx, c.conn.Client, cfg, func(int32, *kafka.Record) error {
			*of.n++
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return written, committed, nil
}

func (r *run) savePhase6(ctx context.Context, began time.Time, runs []*crashRun) error {
	placed, err := r.placedPerStore(ctx)
	if err != nil {
		return err
	}
	var input, settings bytes.Buffer
	for _, store := range slices.Sorted(maps.Keys(placed)) {
		fmt.Fprintf(&input, "%s\t%d\n", store, placed[store])
	}
	if err := r.write("phase-6-input.txt", input.Bytes()); err != nil {
		return err
	}
	var log []string
	var compared, more [][]byte
	for _, c := range runs {
		fmt.Fprintf(&settings, "%s: %s\n", c.name, strings.Join(c.properties(), " "))
		compared = append(compared, section(c.name+": store, orders placed, final count", c.compare(placed)))
		arithmetic, err := c.arithmetic(ctx, placed)
		if err != nil {
			return err
		}
		restores, err := c.restores()
		if err != nil {
			return err
		}
		more = append(more,
			section(c.name+" at the halt", c.atHalt),
			section(c.name+" restored when it started again", lines(restores)),
			section(c.name+": records of "+c.application+"-"+topology.Repartition, arithmetic))
		events, err := journal.ReadAll(r.Workspace.Journals(), c.application)
		if err != nil {
			return err
		}
		for i := range events {
			if !events[i].Time.Before(began) {
				log = append(log, events[i].Line())
			}
		}
	}
	fmt.Fprintf(&settings, "both: the first start has %s too; unless given, commit.interval.ms is the counter's own, 1000\n", crashProperty)
	sections := append([][]byte{section("settings", settings.Bytes())}, append(compared, more...)...)
	sections = append(sections, section("what this shows", []byte(whatItShows(runs, placed))))
	if err := r.write("phase-6.txt", bytes.Join(sections, []byte{'\n'})); err != nil {
		return err
	}
	return r.write("phase-6-log.txt", lines(log))
}

// compare sets the final counts beside the input, and prints them.
func (c *crashRun) compare(placed map[string]int64) []byte {
	var b bytes.Buffer
	last := c.lastCounts()
	c.Console.Printf("  %s: store, orders placed, final count", c.name)
	for _, store := range storesOf(placed, last) {
		line := fmt.Sprintf("%s %d %d", store, placed[store], last[store])
		c.Console.Printf("  %s", line)
		fmt.Fprintln(&b, line)
	}
	return b.Bytes()
}

func storesOf(a, b map[string]int64) []string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}

func sum(counts map[string]int64) int64 {
	var total int64
	for _, n := range counts {
		total += n
	}
	return total
}

// arithmetic compares the sum of the final counts with what the counting stage had to read.
func (c *crashRun) arithmetic(ctx context.Context, placed map[string]int64) ([]byte, error) {
	written, committed, err := c.repartitioned(ctx)
	if err != nil {
		return nil, err
	}
	orders, counted := sum(placed), sum(c.lastCounts())
	equal := "="
	if counted != committed {
		equal = "and not"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "written %d = aborted %d + committed %d\n", written, written-committed, committed)
	fmt.Fprintf(&b, "committed %d = placed orders %d + written again %d\n", committed, orders, committed-orders)
	fmt.Fprintf(&b, "sum of the final counts %d %s committed %d\n", counted, equal, committed)
	return b.Bytes(), nil
}

// whatItShows puts the outcome in words, and says what an outcome does not prove.
func whatItShows(runs []*crashRun, placed map[string]int64) string {
	var b strings.Builder
	for _, c := range runs {
		last := c.lastCounts()
		equal := maps.Equal(last, placed)
		switch {
		case c.guarantee != atLeastOnce && equal:
			b.WriteString("eos: each final count equals the input. What the first stage had committed before the crash stayed committed, as the counting\n" +
				"stage can read nothing else. What the counting stage had done was in no committed transaction: its counts are gone, and its\n" +
				"input was processed again. No single transaction covers the way of an order through the whole topology.\n")
		case c.guarantee != atLeastOnce:
			b.WriteString("eos: final counts differ from the input, which exactly once rules out.\n")
		case equal:
			b.WriteString("alos: each final count equals the input. That is valid for this run and proves no guarantee: the crash came before an order\n" +
				"had reached the repartition topic without its offset being committed. At least once promises only that none is missing.\n")
		default:
			fmt.Fprintf(&b, "alos: %d more were counted than placed. Orders had reached the repartition topic before the crash, and their offsets were\n"+
				"not committed: the restarted instance sent them again, and both copies are counted. How many differs from run to run.\n",
				sum(last)-sum(placed))
		}
	}
	b.WriteString("The crash strikes the counting stage before anything of its own was flushed. So what was counted before is lost with the caches and\n" +
		"counted again from the repartition topic, and each final count is the number of that store's records there: the excess, if there\n" +
		"is one, was made in the first stage. Minute counts are not compared, as which orders are late depends on the order of arrival.\n" +
		"No order is joined: the statuses carry the time of their sending, so a stage that finds both waiting takes the orders first.\n")
	return b.String()
}
