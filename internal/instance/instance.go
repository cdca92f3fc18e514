// Package instance is `lab counter`: one instance of the lab's application in the foreground, with the lines that a person reads and the
// journal that programs read.
package instance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

const (
	// suffixProperty, prefixProperty and crashProperty are the lab's own properties: what is appended to the names of the output topics, what
	// the names of all user topics begin with, and which record of store-17 the instance crashes at instead of counting it. crashPointProperty
	// and crashCommitProperty crash it in the middle of a commit.
	suffixProperty      = "lab.output.suffix"
	prefixProperty      = "lab.topic.prefix"
	crashProperty       = "lab.crash.after.store17"
	crashPointProperty  = "lab.crash.at"
	crashCommitProperty = "lab.crash.commit"
	// tasksEvery is how often an instance prints what it owns.
	tasksEvery = 5 * time.Second
)

// names are fit for a file name on every system.
var names = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$`)

// Config is an instance before it has a broker.
type Config struct {
	Name      string
	Streams   streams.Config
	Topics    topology.Options
	CrashAt   int64 // the record of topology.CrashStore, from 1; 0: none
	Crash     Crash // in the middle of a commit
	Workspace *workspace.Workspace
}

// Configure reads an instance's name and its key=value properties. The lab commits every second, and keeps window counts for a hundred
// years, as their event times may lie far back. Errors are usage errors: *args.UsageError or *streams.PropertyError.
func Configure(w *workspace.Workspace, name string, properties []string) (Config, error) {
	if !names.MatchString(name) {
		return Config{}, args.Errorf("instance name %q: letters, digits, dashes and underscores, beginning with a letter or digit", name)
	}
	cfg := Config{Name: name, Workspace: w}
	rest := make([]string, 0, len(properties))
	for _, pair := range properties {
		key, value, _ := strings.Cut(pair, "=")
		switch {
		case key == suffixProperty:
			cfg.Topics.Suffix = value
		case key == prefixProperty:
			cfg.Topics.Prefix = value
		case key == crashProperty:
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 {
				return Config{}, args.Errorf("property %s: %q is not the number of a record, from 1", crashProperty, value)
			}
			cfg.CrashAt = n
		case key == crashPointProperty:
			cfg.Crash.At = streams.Stage(value)
		case key == crashCommitProperty:
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 1 {
				return Config{}, args.Errorf("property %s: %q is not the number of a commit, from 1", crashCommitProperty, value)
			}
			cfg.Crash.Commit = n
		case strings.HasPrefix(key, "lab."):
			return Config{}, args.Unknown("property", key, []string{
				suffixProperty, prefixProperty, crashProperty, crashPointProperty, crashCommitProperty,
			})
		default:
			rest = append(rest, pair)
		}
	}
	base := streams.DefaultConfig()
	base.ApplicationID = topology.ApplicationID
	base.StateDir = w.InstanceState(name)
	base.CommitInterval = time.Second
	base.RepartitionPurgeInterval = 24 * time.Hour // verify counts the repartition topic, a user's own counter's too
	// A killed instance is taken for dead after the session timeout, or, if it was killed while it joined, after the rebalance timeout on the
	// embedded broker. Kafka's own 45 s and 5 min are long when one watches.
	// A survivor hears of it with its next heartbeat, and what it takes over stands still until then.
	base.SessionTimeout, base.HeartbeatInterval, base.RebalanceTimeout = 6*time.Second, 300*time.Millisecond, 15*time.Second
	base.WindowChangelogAdditionalRetention = 100 * 365 * 24 * time.Hour
	var err error
	if cfg.Streams, err = streams.ParseProperties(base, rest); err != nil {
		return cfg, err
	}
	return cfg, cfg.Crash.check(cfg.Streams.ProcessingGuarantee)
}

// Options is what an instance needs beside its configuration.
type Options struct {
	Out      io.Writer // lines for people
	Terminal io.Writer // where progress bars go; nil for none
	Logger   *slog.Logger
	// Parent, where set, is a pipe that the phase that started the instance holds open: its end stops the instance, however the parent ended.
	Parent io.Reader
}

// Run runs the instance until ctx ends, which is a clean stop, or until it fails.
func Run(ctx context.Context, conn *connect.Conn, cfg Config, opt Options) (err error) {
	if opt.Parent != nil {
		var cancel context.CancelFunc
		ctx, cancel = untilEOF(ctx, opt.Parent)
		defer cancel()
	}
	top, err := topology.Build(cfg.Topics)
	if err != nil {
		return err
	}
	cfg.Streams.Bootstrap = strings.Split(conn.Bootstrap(), ",")
	cfg.Streams.TLS, cfg.Streams.SASL = conn.Security.TLS, conn.Security.SASL
	cfg.Streams.Logger = opt.Logger
	r := &reporter{
		out: opt.Out, bar: restoreBar{terminal: opt.Terminal}, instance: cfg.Name, crashAt: cfg.CrashAt, crash: topology.NewCrashTrigger(cfg.CrashAt),
		seen: map[string]bool{}, dead: map[string]int64{}, caughtUp: map[streams.TopicPartition]bool{}, threads: cfg.Streams.Threads,
	}
	cfg.Streams.Listener = r.listener()
	cfg.Streams.Observers = topology.Observers(topology.Hooks{BeforeCount: r.beforeCount, TableApplied: r.tableApplied, Joined: r.joined})
	cfg.Streams.Failpoint = r.failpoint(conn.Client, cfg)
	app, err := streams.NewApp(top, cfg.Streams)
	if err != nil {
		return err
	}
	if conn.Ours() && cfg.Topics.Prefix == "" { // those with a prefix are of whoever chose it
		created, err := provision.Create(ctx, conn, cfg.Workspace, cfg.Topics.Suffix)
		if ctx.Err() != nil {
			return nil // told to stop before it began
		}
		if err != nil {
			return err
		}
		if len(created) > 0 {
			r.print("created topics " + strings.Join(created, ", "))
		}
	}

	if !conn.Ours() {
		// Not everyone may ask; then the wait is only felt.
		if delay, err := conn.InitialRebalanceDelay(ctx); err == nil && delay > 0 {
			r.print(fmt.Sprintf("the brokers let the first member of an empty group wait %s for others (group.initial.rebalance.delay.ms)", delay))
		}
	}
	record, err := cfg.record(conn, opt.Parent != nil)
	if err != nil {
		return err
	}
	if err := cfg.Workspace.AddInstance(record); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cfg.Workspace.RemoveInstance(record)) }()
	r.journal, err = journal.Create(record.Journal, record.Application, cfg.Name, time.Now)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.journal.Close()) }()

	r.write(&journal.Started{
		PID: record.PID, Bootstrap: record.Bootstrap, Guarantee: record.Guarantee, Properties: cfg.Streams.Properties(),
	})
	r.print(top.Describe())
	stop := r.printTasks(ctx)
	defer stop()
	err = app.Run(ctx)
	r.printDead()
	stopped := &journal.Stopped{}
	if err != nil {
		stopped.Error = err.Error()
	}
	r.write(stopped)
	return err
}

func (c Config) record(conn *connect.Conn, child bool) (workspace.Instance, error) {
	self, err := process.Self()
	if err != nil {
		return workspace.Instance{}, err
	}
	in := workspace.Instance{
		ID: self, Application: c.Streams.ApplicationID, Name: c.Name, Bootstrap: conn.Bootstrap(),
		Guarantee: string(c.Streams.ProcessingGuarantee), Started: time.Now().UTC(),
		Journal: journal.Path(c.Workspace.Journals(), c.Streams.ApplicationID, c.Name, self.PID),
	}
	if child {
		// A parent that has died meanwhile has closed the pipe: the instance stops by itself.
		parent, err := process.Of(os.Getppid())
		if err != nil && !errors.Is(err, process.ErrGone) {
			return workspace.Instance{}, err
		}
		in.Parent = &parent
	}
	return in, nil
}

// untilEOF returns a context that also ends when r does. Its reader lives as long as r: a pipe's read cannot be cancelled.
func untilEOF(ctx context.Context, r io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r) // any end is the end of the parent
		cancel()
	}()
	return ctx, cancel
}

// reporter turns what the engine tells into lines and journal events.
type reporter struct {
	instance string
	journal  *journal.Writer
	crashAt  int64
	crash    *topology.CrashTrigger
	threads  int // stream threads

	mu       sync.Mutex
	out      io.Writer
	bar      restoreBar
	tasks    *journal.Tasks                  // the last assignment
	standbys *journal.Standbys               // nil until there was one
	caughtUp map[streams.TopicPartition]bool // changelogs that a standby has followed to their end
	seen     map[string]bool                 // stores whose first record was told
	dead     map[string]int64                // dead letters by kind
}

// print writes a line. A terminal that has gone away does not stop the counting.
func (r *reporter) print(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bar.clear()
	_, _ = fmt.Fprintln(r.out, line)
}

func (r *reporter) write(p journal.Payload) {
	e := r.journal.Write(p)
	r.print(e.Line())
}

func (r *reporter) listener() streams.Listener {
	return streams.Listener{
		StateChanged: func(c streams.StateChange) {
			r.write(&journal.State{From: string(c.From), To: string(c.To)})
		},
		TasksAssigned:    r.assigned,
		StandbysAssigned: r.standbysAssigned,
		StandbyUpdated:   r.standbyUpdated,
		RestoreStart:     r.restoreStart,
		RestoreProgress:  r.restoreProgress,
		RestoreSuspended: r.restoreSuspended,
		RestoreEnd:       r.restoreEnd,
		Skipped:          func(s streams.Skipped) { r.write(skipped(s)) },
		DeadLetter:       r.deadLetter,
		Misplaced: func(m streams.Misplaced) {
			at := streams.TopicPartition{Topic: m.Topic, Partition: m.Partition}
			r.write(&journal.Misplaced{Partition: at.String(), Offset: m.Offset, Want: m.Want, Records: m.Count})
		},
		Excused: func(e streams.TaskExcused) {
			p := &journal.Excused{Task: e.Task.String(), WaitedMs: e.Waited.Milliseconds()}
			if e.Partition.Topic != "" {
				p.Partition = e.Partition.String()
			}
			r.write(p)
		},
		Waiting: func(reason string) { r.write(&journal.Waiting{Reason: reason}) },
	}
}

func (r *reporter) assigned(tasks []streams.Task) {
	p := &journal.Tasks{}
	for _, t := range tasks {
		task := journal.Task{ID: t.ID.String()}
		if r.threads > 1 {
			task.Thread = t.Thread
		}
		for _, tp := range t.Partitions {
			task.Partitions = append(task.Partitions, tp.String())
		}
		p.Active = append(p.Active, task)
	}
	r.mu.Lock()
	r.tasks = p
	r.mu.Unlock()
	r.write(p)
}

// deadLetter prints the first of each kind, since there may be very many; the journal has them all.
func (r *reporter) deadLetter(d streams.DeadLetter) {
	from := streams.TopicPartition{Topic: d.Topic, Partition: d.Partition}
	e := r.journal.Write(&journal.DeadLetter{Partition: from.String(), Offset: d.Offset, Kind: d.Kind, Error: d.Err.Error()})
	r.mu.Lock()
	r.dead[d.Kind]++
	first := r.dead[d.Kind] == 1
	r.mu.Unlock()
	if first {
		r.print(e.Line())
	}
}

// printDead prints how many dead letters there were of each kind.
func (r *reporter) printDead() {
	r.mu.Lock()
	kinds := maps.Clone(r.dead)
	r.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		r.print(fmt.Sprintf("dead letters %d: %s", kinds[kind], kind))
	}
}

// printTasks prints the active and the standby tasks every few seconds until the returned function is called.
func (r *reporter) printTasks(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var printer sync.WaitGroup
	printer.Go(func() {
		ticker := time.NewTicker(tasksEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				for _, line := range r.owned() {
					r.print(line)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		printer.Wait()
	}
}

// beforeCount is called before each order is counted.
func (r *reporter) beforeCount(ctx *streams.Context, store string) {
	r.firstRecord(ctx, store)
	if r.crash.Due(store) {
		r.halt(store)
	}
}

// halt crashes the instance, once what it says has left the process.
func (r *reporter) halt(store string) {
	r.write(&journal.Halted{Store: store, Record: r.crashAt})
	r.print(fmt.Sprintf("cannot halt: %v", process.Halt())) // it returns only if it failed
}

// firstRecord tells of the first order of a store.
func (r *reporter) firstRecord(ctx *streams.Context, store string) {
	r.mu.Lock()
	seen := r.seen[store]
	r.seen[store] = true
	r.mu.Unlock()
	if !seen {
		from := streams.TopicPartition{Topic: ctx.Topic(), Partition: ctx.Partition()}
		r.write(&journal.FirstRecord{Store: store, Partition: from.String()})
	}
}

func (r *reporter) tableApplied(orderID, status string) {
	r.write(&journal.TableApplied{Key: orderID, Value: status})
}

func (r *reporter) joined(orderID, joined string) {
	r.write(&journal.Joined{Key: orderID, Value: joined})
}

// skipped is the journal's entry for a dropped record, with what the late ledger shows if it was dropped for being late.
func skipped(s streams.Skipped) *journal.Skipped {
	e := &journal.Skipped{
		Text:      s.String(),
		Partition: streams.TopicPartition{Topic: s.Topic, Partition: s.Partition}.String(),
		Offset:    s.Offset,
	}
	if s.Kind != streams.ExpiredWindow {
		return e
	}
	e.Late = &journal.Late{
		Timestamp: s.Timestamp, WindowStart: s.WindowStart, WindowEnd: s.WindowEnd,
		Closes: s.WindowEnd + s.StreamTime - s.Expiration, StreamTime: s.StreamTime,
	}
	if m := s.Mover; m.Topic != "" {
		e.Late.Mover = &journal.Mover{
			Partition: streams.TopicPartition{Topic: m.Topic, Partition: m.Partition}.String(),
			Offset:    m.Offset, Timestamp: m.Timestamp, Before: m.Before,
		}
	}
	return e
}
