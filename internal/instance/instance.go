// Package instance is `lab counter`: one instance of the lab's application in the foreground, with the lines that a person reads and the
// journal that programs read.
package instance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
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
	// suffixProperty is the lab's own property: what is appended to the names of the output topics.
	suffixProperty = "lab.output.suffix"
	// tasksEvery is how often an instance prints what it owns.
	tasksEvery = 5 * time.Second
)

// names are fit for a file name on every system.
var names = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$`)

// Config is an instance before it has a broker.
type Config struct {
	Name      string
	Streams   streams.Config
	Suffix    string // of the output topics
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
			cfg.Suffix = value
		case strings.HasPrefix(key, "lab."):
			return Config{}, args.Unknown("property", key, []string{suffixProperty})
		default:
			rest = append(rest, pair)
		}
	}
	base := streams.DefaultConfig()
	base.ApplicationID = topology.ApplicationID
	base.StateDir = w.InstanceState(name)
	base.CommitInterval = time.Second
	base.WindowChangelogAdditionalRetention = 100 * 365 * 24 * time.Hour
	var err error
	cfg.Streams, err = streams.ParseProperties(base, rest)
	return cfg, err
}

// Options is what an instance needs beside its configuration.
type Options struct {
	Out    io.Writer // lines for people
	Logger *slog.Logger
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
	top, err := topology.Build(cfg.Suffix)
	if err != nil {
		return err
	}
	cfg.Streams.Bootstrap = strings.Split(conn.Bootstrap(), ",")
	cfg.Streams.Logger = opt.Logger
	r := &reporter{out: opt.Out, instance: cfg.Name, seen: map[string]bool{}}
	cfg.Streams.Listener = r.listener()
	cfg.Streams.Observers = topology.Observers(topology.Hooks{BeforeCount: r.firstRecord, TableApplied: r.tableApplied, Joined: r.joined})
	app, err := streams.NewApp(top, cfg.Streams)
	if err != nil {
		return err
	}
	if conn.Ours() {
		created, err := provision.Create(ctx, conn, cfg.Workspace, cfg.Suffix)
		if err != nil {
			return err
		}
		if len(created) > 0 {
			r.print("created topics " + strings.Join(created, ", "))
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

	mu    sync.Mutex
	out   io.Writer
	tasks *journal.Tasks  // the last assignment
	seen  map[string]bool // stores whose first record was told
}

// print writes a line. A terminal that has gone away does not stop the counting.
func (r *reporter) print(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
		TasksAssigned: r.assigned,
		RestoreStart: func(s streams.RestoreStart) {
			if s.Reason != "" {
				r.print(fmt.Sprintf("local state of %s in task %s is not used: %s", s.Store, s.Task, s.Reason))
			}
			r.write(&journal.RestoreStart{Store: s.Store, Partition: s.Changelog.String(), From: s.From, To: s.To, Reason: s.Reason})
		},
		RestoreEnd: func(s streams.RestoreEnd) {
			r.write(&journal.RestoreEnd{Store: s.Store, Partition: s.Changelog.String(), Restored: s.Restored})
		},
		Skipped: func(s streams.Skipped) { r.write(skipped(s)) },
		// Not printed: there may be very many, and the engine logs the first of each kind.
		DeadLetter: func(d streams.DeadLetter) {
			from := streams.TopicPartition{Topic: d.Topic, Partition: d.Partition}
			r.journal.Write(&journal.DeadLetter{Partition: from.String(), Offset: d.Offset, Kind: d.Kind, Error: d.Err.Error()})
		},
		Waiting: func(reason string) { r.write(&journal.Waiting{Reason: reason}) },
	}
}

func (r *reporter) assigned(tasks []streams.Task) {
	p := &journal.Tasks{}
	for _, t := range tasks {
		task := journal.Task{ID: t.ID.String()}
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

// printTasks prints the active tasks every few seconds until the returned function is called.
func (r *reporter) printTasks(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var printer sync.WaitGroup
	printer.Go(func() {
		ticker := time.NewTicker(tasksEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.mu.Lock()
				tasks := r.tasks
				r.mu.Unlock()
				if tasks != nil {
					r.print(tasks.Line(&journal.Event{Instance: r.instance}))
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

// firstRecord is called before each order is counted.
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
