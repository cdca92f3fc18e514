package phases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/topology"
)

// target is an instance that a run strikes.
type target struct {
	name    string
	counter *counter // the process of now; nil while it is dead
	id      process.ID
	paused  bool
	doomed  bool // it is about to end by itself, as planned
}

// wake lets a suspended instance go on.
func (t *target) wake() error {
	if !t.paused {
		return nil
	}
	t.paused = false
	if err := t.id.Resume(); !errors.Is(err, process.ErrGone) {
		return err
	}
	return nil
}

// targetName is a, b, c … and i26 from the 27th on.
func targetName(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return fmt.Sprintf("i%d", i)
}

// startTarget starts an instance, with more properties for this once.
func (c *chaosRun) startTarget(t *target, more ...string) error {
	properties := append(chaosProperties(c.application, c.prefix, c.o, c.seed, t.name), "bootstrap.servers="+c.conn.Bootstrap())
	counter, err := c.startOf(c.application, t.name, append(properties, more...)...)
	if err != nil {
		return err
	}
	counter.follower = journal.Follow(counter.journal)
	c.counters = append(c.counters, counter)
	t.counter, t.doomed = counter, len(more) > 0
	if t.id, err = process.Of(counter.pid); err != nil {
		return fmt.Errorf("instance %s: %w, see %s", t.name, err, counter.child.log)
	}
	c.watch.started(t)
	return nil
}

// startFleet starts all instances, waits until they share the tasks and have read the statuses, and begins to publish.
func (c *chaosRun) startFleet(ctx context.Context) error {
	for i := range c.o.Instances {
		t := &target{name: targetName(i)}
		c.fleet = append(c.fleet, t)
		if err := c.startTarget(t); err != nil {
			return err
		}
	}
	if err := c.stable(ctx); err != nil {
		return err
	}
	c.watch.addParts(c.application+"-"+topology.Repartition, topology.RepartitionPartitions)
	if err := c.counted(ctx, eventTimeout); err != nil {
		return fmt.Errorf("the statuses: %w", err)
	}
	c.load.start(ctx, c.conn.Client)
	return nil
}

// stable waits until all instances are RUNNING and the group consists of their threads and nobody else.
func (c *chaosRun) stable(ctx context.Context) error {
	want := c.o.Instances * max(1, c.o.Threads)
	return c.watch.until(ctx, startTimeout, "the group to be stable", func() (bool, error) {
		if !c.watch.fresh || !c.watch.allRunning(c.fleet) {
			return false, nil
		}
		g, err := c.conn.DescribeGroup(ctx, c.application)
		return err == nil && g.State == "Stable" && len(g.Members) == want, err
	})
}

// counted waits until all that is published is committed.
func (c *chaosRun) counted(ctx context.Context, limit time.Duration) error {
	since := time.Now()
	return c.watch.until(ctx, limit, "all to be counted", func() (bool, error) {
		return c.watch.samples[len(c.watch.samples)-1].begun.After(since) && c.watch.lag() == 0, nil
	})
}

// due is something to do in a round.
type due struct {
	at time.Duration // since the round began
	do func(context.Context) error
}

// strikes goes through the plan.
func (c *chaosRun) strikes(ctx context.Context) error {
	progress := c.bar()
	c.watch.progress = func() { _ = progress.Set64(c.load.published.Load()) } // a bar that cannot be drawn is no reason to stop
	for i, round := range c.plan {
		if err := c.stable(ctx); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		if c.o.Rate == 0 {
			c.load.share(i+1, len(c.plan)+1)
		}
		if err := c.round(ctx, i+1, round, func() { _ = progress.Clear() }); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	if err := c.stable(ctx); err != nil {
		return err
	}
	c.load.finish(c.o.Rate == 0)
	return nil
}

func (c *chaosRun) round(ctx context.Context, n int, strikes []planned, clear func()) error {
	began := time.Now()
	var todo []due
	for _, s := range strikes {
		t := c.fleet[s.victim]
		todo = append(todo, due{s.after, func(ctx context.Context) error {
			// What it comes to later hangs on when it struck: a broker that is slow to answer makes a strike late.
			back, err := c.strike(ctx, n, s, t)
			if err != nil || back == nil {
				return err
			}
			clear()
			c.Console.Printf("  %s", c.result.Strikes[len(c.result.Strikes)-1].line())
			todo = append(todo, due{time.Since(began) + s.down, back})
			return nil
		}})
	}
	for len(todo) > 0 {
		slices.SortStableFunc(todo, func(a, b due) int { return int(a.at - b.at) })
		next := todo[0]
		todo = todo[1:]
		if err := c.watch.pass(ctx, next.at-time.Since(began)); err != nil {
			return err
		}
		if err := next.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// strike does what is planned to an instance and returns what brings it back.
func (c *chaosRun) strike(ctx context.Context, round int, p planned, t *target) (back func(context.Context) error, err error) {
	s := Strike{
		Round: round, Kind: string(p.kind), Point: p.point, Instance: t.name, PID: t.counter.pid, DownS: p.down.Seconds(),
		InputOver: c.load.over(),
	}
	start := func(context.Context) error { return c.startTarget(t) }
	switch p.kind {
	case strikeKill:
		if err := c.freeze(ctx, t, &s); err != nil {
			return nil, err
		}
		if err := c.kill(ctx, t); err != nil {
			return nil, err
		}
		back = start
	case strikePause:
		if err := c.freeze(ctx, t, &s); err != nil {
			return nil, err
		}
		back = func(context.Context) error {
			c.watch.resumed(t)
			return t.wake()
		}
	case strikeRestart:
		s.at(c.began, time.Now())
		if err := c.halt(t); err != nil {
			return nil, err
		}
		back = start
	case strikeCrash:
		if err := c.crashAt(ctx, t, &s, p.point); err != nil {
			return nil, err
		}
		back = start
	}
	c.result.Strikes = append(c.result.Strikes, s)
	return back, nil
}

// freeze suspends an instance and notes in the middle of what it was. Asked about a process that goes on, the broker would tell of another
// moment than that of the strike. Where a system cannot suspend a process, it is asked about one that goes on.
func (c *chaosRun) freeze(ctx context.Context, t *target, s *Strike) error {
	err := t.id.Suspend()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("instance %s: %w", t.name, err)
	}
	t.paused = err == nil
	return c.struck(ctx, t, s)
}

// struck notes what an instance that does nothing any more was in the middle of.
func (c *chaosRun) struck(ctx context.Context, t *target, s *Strike) (err error) {
	now := time.Now()
	s.at(c.began, now)
	c.watch.struck(t, now)
	if err := c.watch.sample(ctx); err != nil {
		return err
	}
	s.Lag, s.hit = c.watch.lagOf(t)
	if c.o.Guarantee != atLeastOnce {
		s.Transactions, err = c.openTransactions(ctx, t)
	}
	return err
}

// openTransactions are the transactional ids of an instance that the coordinator has an open transaction of.
func (c *chaosRun) openTransactions(ctx context.Context, t *target) ([]string, error) {
	id := provision.ProcessID(c.Workspace, c.application, t.name)
	all, err := c.conn.ListTransactions(ctx)
	if err != nil {
		return nil, err
	}
	var open []string
	for _, l := range all {
		if id == "" || !strings.HasPrefix(l.ID, c.application+"-"+id+"-") {
			continue
		}
		d, err := c.conn.DescribeTransaction(ctx, l.ID)
		if err != nil {
			return nil, err
		}
		if d.State == "Ongoing" {
			open = append(open, d.ID)
		}
	}
	return open, nil
}

// kill ends a process as hard as that goes, and waits for its end.
func (c *chaosRun) kill(ctx context.Context, t *target) error {
	if err := t.id.Kill(); err != nil {
		return fmt.Errorf("instance %s: %w", t.name, err)
	}
	return c.gone(ctx, t)
}

// gone waits for the end of an instance that is not to end cleanly.
func (c *chaosRun) gone(ctx context.Context, t *target) error {
	dead := t.counter
	t.counter, t.paused = nil, false
	return c.crashed(ctx, dead)
}

// halt stops an instance cleanly.
func (c *chaosRun) halt(t *target) error {
	stopping := t.counter
	t.counter = nil
	c.counters = slices.DeleteFunc(c.counters, func(other *counter) bool { return other == stopping })
	return stopping.stop()
}

// crashAt starts an instance again so that it ends itself at a point of a commit, and waits for that.
func (c *chaosRun) crashAt(ctx context.Context, t *target, s *Strike, point string) error {
	if err := c.halt(t); err != nil {
		return err
	}
	if err := c.startTarget(t, "lab.crash.at="+point); err != nil {
		return err
	}
	s.PID = t.counter.pid
	ended := t.counter.child.done
	err := c.watch.until(ctx, startTimeout, fmt.Sprintf("instance %s to crash at %s", t.name, point), func() (bool, error) {
		select {
		case <-ended:
			return true, nil
		default:
		}
		if c.load.waiting() && c.watch.lag() == 0 { // without orders there are no commits
			c.load.more()
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	s.InputOver = c.load.over()
	if err := c.struck(ctx, t, s); err != nil {
		return err
	}
	return c.gone(ctx, t)
}

// drain waits until all orders are published and counted, and stops the instances.
func (c *chaosRun) drain(ctx context.Context) error {
	err := c.watch.until(ctx, startTimeout+time.Duration(float64(c.o.Records)/c.load.rate*float64(time.Second)), "all orders to be published",
		func() (bool, error) { return c.load.over(), nil })
	if err != nil {
		return err
	}
	<-c.load.done
	if c.load.err != nil {
		return c.load.err
	}
	if err := c.counted(ctx, eventTimeout+startTimeout); err != nil {
		return err
	}
	for _, t := range c.fleet {
		t.counter = nil
	}
	return c.stop()
}
