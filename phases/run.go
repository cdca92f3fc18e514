package phases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/console"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/verify"
)

// Config is what all of the lab's commands share.
type Config struct {
	Workspace *workspace.Workspace
	Connect   connect.Options
	Console   *console.Console
	Logger    *slog.Logger
	// SessionTimeout of the counters that are started here (session.timeout.ms). Default: the counter's own.
	SessionTimeout time.Duration
	// CrashPoints are the points of phase 6 at which its instances crash in addition (topology.CrashPoints).
	CrashPoints []string
	// Version of this program, which the recording of a run names. Nothing is recorded without one.
	Version string
	// Warn gets a line that says why a run could not be recorded.
	Warn func(line string)
	// Command starts this program as a counter: the path, and arguments before those of the counter. Default: this executable.
	Command []string
}

// phase is one phase of the lab.
type phase struct {
	number int
	title  string
	steps  func(*run) []step
	// checks are the phase's own, beside those of verify. Its steps run each time that it is asked for, and the workspace does not remember it.
	checks func() []verify.Check
}

// step is one thing that a phase does. A step that finds its work done by an interrupted run says so and does nothing.
type step struct {
	what, why string
	do        func(ctx context.Context) error
}

func all() []phase { return []phase{phase1(), phase2(), phase3(), phase4(), phase5(), phase6()} }

// Numbers lists the phases of this version.
func Numbers() []int {
	var numbers []int
	for _, p := range all() {
		numbers = append(numbers, p.number)
	}
	return numbers
}

// StepError is a phase that did not come to its end.
type StepError struct {
	Phase, Step int    // steps count from 1; 0 is what comes before them
	What        string // the step's title
	Err         error
}

func (e *StepError) Error() string {
	if e.Step == 0 {
		return fmt.Sprintf("phase %d (%s): %v", e.Phase, e.What, e.Err)
	}
	return fmt.Sprintf("phase %d, step %d (%s): %v", e.Phase, e.Step, e.What, e.Err)
}

// Unwrap returns what went wrong.
func (e *StepError) Unwrap() error { return e.Err }

// ErrInterrupted says that a command was told to stop.
var ErrInterrupted = errors.New("interrupted")

// Interrupted reports whether the phase was told to stop.
func (e *StepError) Interrupted() bool { return errors.Is(e.Err, ErrInterrupted) }

// run is one command's work on phases.
type run struct {
	Config
	conn     *connect.Conn
	counters []*counter
	watches  []*watch
}

// Fresh cleans the workspace for a run from the beginning. It returns the config with which the new broker is of the old one's kind and gets its
// port, unless others are asked for.
func Fresh(ctx context.Context, cfg Config) (Config, error) {
	if cfg.Connect.Bootstrap == "" {
		kind, nodes, port, err := broker.Kept(cfg.Workspace.Dir())
		if err != nil {
			return cfg, err
		}
		if cfg.Connect.Kind == "" || cfg.Connect.Kind == string(kind) {
			cfg.Connect.Kind, cfg.Connect.Nodes = string(kind), cmp.Or(cfg.Connect.Nodes, nodes)
		}
		cfg.Connect.Port = cmp.Or(cfg.Connect.Port, port)
	}
	return cfg, Clean(ctx, cfg)
}

// Run brings the workspace through the wanted phases. Missing earlier ones come first, and one that has passed is only graded again. It
// returns the grades of all the phases that it ran or graded; a phase that does not pass ends the run. The error is a *StepError for a
// phase that did not come to its end.
func Run(ctx context.Context, cfg Config, wanted []int) (report verify.Report, err error) {
	lock, err := cfg.Workspace.LockPhase()
	if err != nil {
		return verify.Report{}, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if err := checkClock(time.Now()); err != nil {
		return verify.Report{}, err
	}
	r := &run{Config: cfg}
	defer func() {
		err = errors.Join(err, r.stop())
		if r.conn != nil {
			r.conn.Close()
		}
	}()
	record, err := r.connect(ctx)
	if err != nil {
		return verify.Report{}, stepError(ctx, slices.Min(wanted), 0, "connect to the broker", err)
	}
	var grade verify.Report
	for _, p := range r.plan(wanted, record) {
		grade, err = r.phase(ctx, p)
		report.Phases = append(slices.DeleteFunc(report.Phases, func(earlier verify.PhaseReport) bool {
			return len(grade.Phases) > 0 && earlier.Phase == p.number // it is graded once more
		}), grade.Phases...)
		report.Reason = grade.Reason
		if err != nil || grade.Verdict() != verify.Pass {
			break
		}
	}
	err = errors.Join(err, r.stop())
	if len(report.Phases) > 0 {
		if n := r.Record(ctx, r.conn); n > 0 {
			r.Console.Printf("  wrote observations/%s (%d records)", recordingName, n)
		}
	}
	if err != nil || grade.Verdict() != verify.Pass {
		return report, err
	}
	r.Console.Printf("evidence is in %s", cfg.Workspace.Observation(""))
	if r.conn.Ours() {
		r.Console.Printf("the broker stays up on %s with all topics: `lab broker down` stops it, `lab clean` removes everything",
			r.conn.Bootstrap())
	}
	return report, nil
}

// plan lists the wanted phases and, before each, those that it builds on and that have not passed.
func (r *run) plan(wanted []int, record provision.Record) []phase {
	var todo []phase
	for _, p := range all() {
		switch {
		case slices.Contains(wanted, p.number):
			todo = append(todo, p)
		case p.number < slices.Max(wanted) && !record.Has(p.number):
			r.Console.Printf("phase %d has not passed here yet, so it comes first", p.number)
			todo = append(todo, p)
		}
	}
	if len(r.CrashPoints) == 0 {
		return todo
	}
	// They come on top of the plain phase.
	todo = slices.DeleteFunc(todo, func(p phase) bool { return p.number == 6 && record.Has(6) })
	return append(todo, crashPointPhase(r.CrashPoints))
}

// connect finds or starts the broker, and makes sure that what is on it is known here.
func (r *run) connect(ctx context.Context) (provision.Record, error) {
	err := r.Console.Step(ctx, "connect to the broker",
		"All that the lab does is records in topics. A workspace without a running broker starts one.")
	if err != nil {
		return provision.Record{}, err
	}
	// What is told of a broker that is started says where it is too.
	at, told := r.Connect, false
	at.Progress = func(line string) {
		told = true
		r.Console.Printf("  %s", line)
	}
	r.conn, err = connect.Up(ctx, at)
	if err != nil {
		return provision.Record{}, err
	}
	if !told {
		r.Console.Printf("  broker %s on %s", r.conn.Broker.Kind, r.conn.Bootstrap())
	}
	return provision.Check(ctx, r.conn, r.Workspace)
}

// stepError words what stopped a phase. The end of ctx, or of the input that the steps wait for, is an interruption and no failure.
func stepError(ctx context.Context, phase, step int, what string, err error) error {
	if ctx.Err() != nil || errors.Is(err, console.ErrEnded) {
		err = errors.Join(ErrInterrupted, err)
	}
	return &StepError{Phase: phase, Step: step, What: what, Err: err}
}

// phase runs the steps of a phase, unless it has passed, and grades it.
func (r *run) phase(ctx context.Context, p phase) (verify.Report, error) {
	r.Console.Title("phase %d: %s", p.number, p.title)
	passed, err := r.passed(ctx, p.number)
	if err != nil {
		return verify.Report{}, stepError(ctx, p.number, 0, "look at what is there", err)
	}
	steps := p.steps(r)
	if passed && p.checks == nil {
		r.Console.Printf("  it has passed before and is only graded again")
		steps = nil
	}
	for i, s := range steps {
		err := r.Console.Step(ctx, fmt.Sprintf("%d.%d %s", p.number, i+1, s.what), s.why)
		if err == nil {
			err = s.do(ctx)
		}
		if err != nil {
			return verify.Report{}, stepError(ctx, p.number, i+1, s.what, err)
		}
	}
	grade, err := verify.Run(ctx, r.conn.Client, verify.Options{Phases: []int{p.number}, State: r.Workspace.State(), Explain: r.Explain()})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return verify.Report{}, stepError(ctx, p.number, len(steps)+1, "grade", err)
	}
	if p.checks != nil {
		for i := range grade.Phases {
			grade.Phases[i].Add(p.checks()...)
		}
		return grade, nil
	}
	if grade.Verdict() != verify.Pass {
		return grade, nil
	}
	progress, _, err := r.Workspace.Progress()
	if err != nil {
		return grade, err
	}
	progress.Pass(p.number)
	return grade, r.Workspace.SaveProgress(progress)
}

// passed reports whether a phase has passed on the very topics that the broker now holds.
func (r *run) passed(ctx context.Context, number int) (bool, error) {
	record, err := provision.Check(ctx, r.conn, r.Workspace)
	return err == nil && record.Known && record.Has(number), err
}

// stop stops the counters that this run started, and what looks at them. It does not end with the run's context: a counter told to stop
// still commits.
func (r *run) stop() error {
	var errs []error
	for _, w := range r.watches {
		errs = append(errs, w.stop())
	}
	r.watches = nil
	for _, c := range slices.Backward(r.counters) {
		errs = append(errs, c.stop())
	}
	r.counters = nil
	return errors.Join(errs...)
}

// earliestStart is when the lab can run from: brokers refuse records more than an hour ahead of their clock.
func earliestStart() time.Time { return firstBase.Add(-time.Hour) }

// checkClock refuses to run before the lab's event times: brokers refuse records more than an hour ahead of their clock.
func checkClock(now time.Time) error {
	if earliest := earliestStart(); now.Before(earliest) {
		return fmt.Errorf("the clock says %s: a broker refuses event times more than an hour ahead, so the lab runs from %s on",
			now.UTC().Format(time.RFC3339), earliest.Format(time.RFC3339))
	}
	return nil
}

// executable is how a counter is started.
func (c Config) executable() ([]string, error) {
	if len(c.Command) > 0 {
		return slices.Clone(c.Command), nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the lab's own program: %w", err)
	}
	return []string{self}, nil
}
