package streams_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/streams"
)

// static is an instance with a group.instance.id and two threads.
func (c *counting) static(id string) (streams.Config, assignments) {
	cfg, given := c.config(), make(assignments, 100)
	cfg.Threads, cfg.GroupInstanceID, cfg.StateDir = 2, id, c.t.TempDir()
	cfg.SessionTimeout = 20 * time.Second // longer than any restart
	given.listen(&cfg)
	return cfg, given
}

// changed drains the state changes so far. With one task a thread, all are there once words have been counted on all partitions: a thread
// says that it runs before it processes.
func (r *running) changed() (states []streams.State) {
	for {
		select {
		case s := <-r.states:
			states = append(states, s.To)
		default:
			return states
		}
	}
}

// Two instances of static members are restarted in turn, the leader's among them. Each has its tasks back at once, in the same generation,
// and goes on from its commit; the other one hears of nothing. The embedded broker takes a member whose join data has changed, here by the
// tasks on its disk, for a reason to rebalance; Apache Kafka looks at the protocol's name alone (KIP-345). So the one is about the counts,
// and the other about the quiet too.
func TestStaticRestartIsNoRebalance(t *testing.T) { eachGuarantee(t, staticRestartIsNoRebalance) }

func staticRestartIsNoRebalance(t *testing.T, c *counting) {
	one, oneHas := c.static("one")
	two, twoHas := c.static("two")
	a := start(t, c.topology(), one)
	oneHas.await(t, 4)
	b := start(t, c.topology(), two)
	oneHas.await(t, 2)
	twoHas.await(t, 2)
	c.send(words...)
	c.awaitCounts(each(1))
	a.changed()
	b.changed()
	restart := func(r *running, cfg streams.Config, given assignments, other *running, total int) *running {
		t.Helper()
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		c.send(words...) // some of them have to wait for the one that is away
		r = start(t, c.topology(), cfg)
		given.await(t, 2)
		c.awaitCounts(each(total))
		if states := other.changed(); onRealBroker() && len(states) > 0 {
			t.Errorf("a restart within the session made the other instance %v", states)
		}
		if states := r.changed(); onRealBroker() && !slices.Equal(states, []streams.State{streams.StateRebalancing, streams.StateRunning}) {
			t.Errorf("the restarted instance went through %v", states)
		}
		return r
	}
	a = restart(a, one, oneHas, b, 2)
	b = restart(b, two, twoHas, a, 3)
	if n := len(oneHas) + len(twoHas); onRealBroker() && n != 0 {
		t.Errorf("%d more assignments", n)
	}
	two.LeaveGroup = true
	b = restart(b, two, twoHas, a, 4)

	// This stop gives the tasks away: nobody waits for the session to end.
	left := time.Now()
	if err := b.end(); err != nil {
		t.Fatal(err)
	}
	oneHas.await(t, 4)
	if took := time.Since(left); took > two.SessionTimeout {
		t.Errorf("the tasks of an instance that left were taken over after %s", took)
	}
	c.send(words...)
	c.awaitCounts(each(5))
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	c.must(func(ctx context.Context) error {
		g, err := c.client.DescribeGroup(ctx, c.app)
		if len(g.Members) != 2 {
			t.Errorf("after the clean stop of static members the group has %d members, want the two threads that may come back", len(g.Members))
		}
		return err
	})
}

// Two processes have the same group.instance.id. The first one ends, and says that it is the id; the second has the tasks and counts on.
func TestInstanceIDTaken(t *testing.T) { eachGuarantee(t, instanceIDTaken) }

func instanceIDTaken(t *testing.T, c *counting) {
	cfg, given := c.static("same")
	first := start(t, c.topology(), cfg)
	given.await(t, 4)
	c.send(words...)
	c.awaitCounts(each(1))
	cfg.StateDir = t.TempDir()
	second := start(t, c.topology(), cfg)
	err := first.wait()
	var taken *streams.InstanceIDTakenError
	if !errors.As(err, &taken) || !strings.Contains(err.Error(), "another process uses group instance id same-") {
		t.Errorf("the first ended with %v", err)
	}
	given.await(t, 4)
	c.send(words...)
	c.awaitCounts(each(2))
	if err := second.end(); err != nil {
		t.Fatal(err)
	}
}
