package phases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/instance"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/verify"
)

// ChaosOptions say what a chaos run does to its instances.
type ChaosOptions struct {
	Guarantee   string // exactly_once_v2 or at_least_once
	Records     int    // orders to publish
	Instances   int
	Kills       int // kill -9
	Pauses      int // SIGSTOP, half of them for longer than the session
	Restarts    int // clean ones
	CrashPoints int // of a commit, in turn
	Seed        uint64
	Repeat      int // runs, with seeds that follow one another
	// Rate is how many orders are published a second. 0 takes what lasts until the last strike, and never lets the input end before it.
	// Without strikes it is needed: something else befalls the run then, its brokers for instance.
	Rate       int
	Static     bool // static membership: group.instance.id
	Threads    int  // num.stream.threads
	Standby    int  // num.standby.replicas
	Keep       bool // topics, journals and state of runs that pass, too
	Properties []string
	Progress   io.Writer // for a progress bar; nil for none
}

// RandomSeed is a seed for who names none.
func RandomSeed() uint64 { return uint64(rand.Uint32()) }

// Check finds what makes no sense. The error is a usage error.
func (o ChaosOptions) Check() error {
	for _, f := range []struct {
		name     string
		n, least int
	}{
		{"records", o.Records, 1}, {"instances", o.Instances, 1}, {"repeat", o.Repeat, 1}, {"threads", o.Threads, 1},
		{"kills", o.Kills, 0}, {"pauses", o.Pauses, 0}, {"restarts", o.Restarts, 0}, {"crash-points", o.CrashPoints, 0},
		{"rate", o.Rate, 0}, {"standby", o.Standby, 0},
	} {
		if f.n < f.least {
			return args.Errorf("chaos: --%s is at least %d", f.name, f.least)
		}
	}
	if guarantees := []string{exactlyOnce, atLeastOnce}; !slices.Contains(guarantees, o.Guarantee) {
		return args.Unknown("guarantee", o.Guarantee, guarantees)
	}
	if o.total() == 0 && o.Rate == 0 {
		return args.Errorf("chaos: --kills 0 and no other strikes need a --rate: nothing else says how long the orders last")
	}
	if o.Pauses > 0 && !process.CanSuspend {
		return args.Errorf("chaos: --pauses needs a system that can suspend a process")
	}
	return nil
}

func (o ChaosOptions) total() int { return o.Kills + o.Pauses + o.Restarts + o.CrashPoints }

// ChaosError is a run that did not come to its end: something happened that no plan had in it.
type ChaosError struct {
	Seed uint64
	What string
	Err  error
}

func (e *ChaosError) Error() string { return fmt.Sprintf("seed %d, %s: %v", e.Seed, e.What, e.Err) }

// Unwrap returns what happened.
func (e *ChaosError) Unwrap() error { return e.Err }

// Chaos runs the application under a seeded plan of kills and grades what came of it, as often as asked. Each run has an application, topics,
// state and journals of its own, so the lab's phases in the same workspace and on the same broker do not notice. A run that passes leaves
// nothing behind but its evidence; another one is kept, and ends the command.
func Chaos(ctx context.Context, cfg Config, o ChaosOptions) (result ChaosResult, err error) {
	result.Command = o.command()
	// A mistake in a property is told before anything is begun.
	if _, err := instance.Configure(cfg.Workspace, "a", chaosProperties("chaos", "chaos.", o, o.Seed, "a")); err != nil {
		return result, err
	}
	if err := checkClock(time.Now()); err != nil {
		return result, err
	}
	lock, err := cfg.Workspace.LockPhase()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	conn, err := connect.Up(ctx, cfg.Connect)
	if err != nil {
		return result, err
	}
	defer conn.Close()
	result.Broker = fmt.Sprintf("%s on %s", conn.Broker.Kind, conn.Bootstrap())
	for i := range o.Repeat {
		c, err := newChaosRun(cfg, conn, o, o.Seed+uint64(i))
		if err != nil {
			return result, err
		}
		err = c.do(ctx)
		if o.Repeat > 1 {
			c.Console.Printf("  %s", c.result.summary())
		}
		result.Runs = append(result.Runs, c.result)
		if werr := (&run{Config: cfg}).write("chaos.txt", result.text()); err == nil {
			err = werr
		}
		if err != nil || c.result.Verdict != verify.Pass {
			return result, err
		}
	}
	return result, nil
}

// chaosProperties are those of every start of an instance.
func chaosProperties(application, prefix string, o ChaosOptions, seed uint64, name string) []string {
	// Left to themselves the lab's counters commit as soon as they have nothing to do, and a kill would find nothing that is not committed. A
	// transaction opens with the first batch, 100 ms after the last commit, so this is how it is open most of the time.
	interval := 500 * time.Millisecond
	if o.Guarantee == atLeastOnce {
		interval = time.Second
	}
	all := []string{
		"application.id=" + application, "processing.guarantee=" + o.Guarantee, "lab.topic.prefix=" + prefix,
		fmt.Sprintf("session.timeout.ms=%d", SessionTimeout.Milliseconds()),
		fmt.Sprintf("commit.interval.ms=%d", interval.Milliseconds()), neverIdle,
	}
	// Every other seed is without a cache: what is counted then goes out at once, and not with the commit that makes it final.
	if seed%2 == 0 {
		all = append(all, "statestore.cache.max.bytes=0")
	}
	if o.Threads > 1 {
		all = append(all, "num.stream.threads="+strconv.Itoa(o.Threads))
	}
	if o.Standby > 0 {
		all = append(all, "num.standby.replicas="+strconv.Itoa(o.Standby))
	}
	if o.Static {
		all = append(all, "group.instance.id="+application+"-"+name)
	}
	return append(all, o.Properties...)
}

// chaosRun is one run with one seed.
type chaosRun struct {
	*run        // in a workspace of its own, below the given one
	o           ChaosOptions
	seed        uint64
	application string
	prefix      string
	plan        plan

	began  time.Time
	fleet  []*target
	load   *load
	watch  *chaosWatch
	result ChaosRunResult
}

func newChaosRun(cfg Config, conn *connect.Conn, o ChaosOptions, seed uint64) (*chaosRun, error) {
	// The time makes the name one of its own, also when a seed is run again beside what an earlier run of it left.
	short := "eos"
	if o.Guarantee == atLeastOnce {
		short = "alos"
	}
	name := fmt.Sprintf("chaos-%s-%d-%s", short, seed, strconv.FormatInt(time.Now().UnixMilli(), 36))
	w, err := workspace.Open(filepath.Join(chaosFolder(cfg.Workspace), name))
	if err != nil {
		return nil, err
	}
	cfg.Workspace, cfg.SessionTimeout = w, 0
	c := &chaosRun{
		run: &run{Config: cfg, conn: conn}, o: o, seed: seed, application: name, prefix: chaosPrefix(name),
		plan: newPlan(o, seed, SessionTimeout), began: time.Now(),
	}
	c.result = ChaosRunResult{Seed: seed, Application: name, Workspace: w.Dir(), Records: o.Records, Guarantee: o.Guarantee}
	return c, nil
}

// do does the run and grades it. The error is a *ChaosError, or says that the run was interrupted.
func (c *chaosRun) do(ctx context.Context) error {
	c.Console.Title("chaos: seed %d, %s, %d orders, %d instances, %d strikes in %d rounds",
		c.seed, c.o.Guarantee, c.o.Records, c.o.Instances, c.o.total(), len(c.plan))
	what, err := c.steps(ctx)
	err = errors.Join(err, c.end())
	c.result.Seconds = time.Since(c.began).Seconds()
	switch {
	case err == nil:
		c.result.conclude(c.o)
	case ctx.Err() != nil:
		c.result.Verdict, c.result.Reason = verify.Unknown, fmt.Sprintf("interrupted at step %q", what)
		err = errors.Join(ErrInterrupted, err)
	case connect.IsGone(err):
		c.result.Verdict, c.result.Reason = verify.Unknown, oneLine(fmt.Sprintf("%s: %v", what, err))
		err = &ChaosError{c.seed, what, err}
	default:
		c.result.Verdict, c.result.Reason = verify.Fail, oneLine(fmt.Sprintf("%s: %v", what, err))
		err = &ChaosError{c.seed, what, err}
	}
	if !c.o.Keep && (c.result.Verdict == verify.Pass || errors.Is(err, ErrInterrupted)) {
		return errors.Join(err, c.remove(ctx))
	}
	again := c.o
	again.Seed, again.Repeat = c.seed, 1
	c.result.Kept = fmt.Sprintf("topics %s* and %s-*, group %s; journals, logs and state in %s; again: %s",
		c.prefix, c.application, c.application, c.Workspace.Dir(), again.command())
	return err
}

// steps does the work and says in which part it ended.
func (c *chaosRun) steps(ctx context.Context) (what string, err error) {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"make the topics", c.makeTopics},
		{"start the instances", c.startFleet},
		{"strike", c.strikes},
		{"count the rest", c.drain},
		{"grade", c.grade},
	} {
		if err := step.do(ctx); err != nil {
			return step.what, err
		}
	}
	return "", nil
}

// chaosPrefix is what the names of an application's user topics begin with.
func chaosPrefix(application string) string { return application + "." }

// chaosTopics are the user topics of a run.
func chaosTopics(application string) []kafka.TopicSpec {
	specs := provision.Topics("")
	for i := range specs {
		specs[i].Name = chaosPrefix(application) + specs[i].Name
	}
	return specs
}

func (c *chaosRun) makeTopics(ctx context.Context) error {
	if err := os.MkdirAll(c.Workspace.Lab(), 0o755); err != nil {
		return err
	}
	// clean deletes what is kept on a cluster that outlives the workspace.
	_, _, cluster, err := c.conn.Brokers(ctx)
	if err != nil {
		return err
	}
	if err := c.Workspace.SaveProgress(workspace.Progress{
		ClusterID: cluster, Broker: string(c.conn.Broker.Kind), Bootstrap: c.conn.Bootstrap(), Started: c.began.UTC(), Passed: []int{},
	}); err != nil {
		return err
	}
	switch there, err := c.conn.CreateTopics(ctx, chaosTopics(c.application)); {
	case err != nil:
		return err
	case len(there) > 0:
		return fmt.Errorf("another run has made %s", strings.Join(there, ", "))
	}
	rate := float64(c.o.Rate)
	if rate == 0 {
		rate = float64(c.o.Records) / float64(len(c.plan)+1) / c.roundTime().Seconds()
	}
	c.load = &load{prefix: c.prefix, orders: newChaosOrders(c.seed, c.o.Records, rate), rate: rate}
	if c.o.Rate > 0 {
		c.load.share(1, 1)
	}
	if err := c.load.statuses(ctx, c.conn.Client); err != nil {
		return fmt.Errorf("publish the statuses: %w", err)
	}
	c.watch = newChaosWatch(c)
	return nil
}

// roundTime is about how long a round takes: the group waits out the session of a dead member, unless that keeps its place.
func (c *chaosRun) roundTime() time.Duration {
	if c.o.Static {
		return 3 * time.Second
	}
	return SessionTimeout + 2*time.Second
}

// grade lets the oracle judge what is in the topics.
func (c *chaosRun) grade(ctx context.Context) error {
	graded := verify.ChaosRun{
		ApplicationID: c.application, Prefix: c.prefix, Orders: int64(c.o.Records), ExactlyOnce: c.o.Guarantee != atLeastOnce,
	}
	if !graded.ExactlyOnce {
		graded.Replays = c.replays()
	}
	c.result.Report = verify.Chaos(ctx, c.conn.Client, graded)
	c.result.recovered(c.watch)
	return ctx.Err()
}

// end leaves no process behind, whatever happened.
func (c *chaosRun) end() error {
	var errs []error
	for _, t := range c.fleet {
		errs = append(errs, t.wake())
	}
	if c.load != nil && c.load.done != nil {
		c.load.stop()
	}
	errs = append(errs, c.stop())
	if c.watch != nil {
		errs = append(errs, c.watch.close())
	}
	return errors.Join(errs...)
}

// remove deletes what the run has made on the broker and here.
func (c *chaosRun) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	_, err := deleteChaosRun(ctx, c.conn, c.Workspace)
	return errors.Join(err, os.RemoveAll(c.Workspace.Dir()))
}

// chaosFolder holds the workspaces of the runs, each with the name of its application.
func chaosFolder(w *workspace.Workspace) string { return filepath.Join(w.Lab(), "chaos") }

// deleteChaosRun deletes what the run of a workspace has made on the broker, and returns what there was.
func deleteChaosRun(ctx context.Context, conn *connect.Conn, w *workspace.Workspace) (deleted []string, err error) {
	application := filepath.Base(w.Dir())
	var topics []string
	for _, s := range chaosTopics(application) {
		topics = append(topics, s.Name)
	}
	return provision.DeleteApplication(ctx, conn, w, application, topics...)
}
