package phases

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/topology"
	"github.com/windowed-order-counter/lab/verify"
)

func chaosOptions() ChaosOptions {
	return ChaosOptions{Guarantee: exactlyOnce, Records: 1000, Instances: 3, Kills: 20, Pauses: 20, Restarts: 5, CrashPoints: 7, Repeat: 1, Threads: 1}
}

// A seed gives the same strikes and the same orders each time, and another seed others.
func TestSeedRepeatsItself(t *testing.T) {
	o := chaosOptions()
	type all struct {
		Plan   [][]string
		Orders []feed.Order
		Status []feed.StatusRow
	}
	of := func(seed uint64) (a all) {
		for _, round := range newPlan(o, seed, SessionTimeout) {
			var words []string
			for _, s := range round {
				words = append(words, string(s.kind), s.point, targetName(s.victim), s.after.String(), s.down.String())
			}
			a.Plan = append(a.Plan, words)
		}
		orders := newChaosOrders(seed, o.Records, 100)
		for i := range o.Records {
			a.Orders = append(a.Orders, orders.order(i))
			if row, ok := orders.restatus(i); ok {
				a.Status = append(a.Status, row)
			}
		}
		return a
	}
	one := of(1)
	if diff := cmp.Diff(one, of(1)); diff != "" {
		t.Errorf("the second time (-first +second):\n%s", diff)
	}
	two := of(2)
	if cmp.Equal(one.Plan, two.Plan) || cmp.Equal(one.Orders, two.Orders) {
		t.Error("another seed gives the same")
	}
}

// All strikes that were asked for are in the plan, none of a round hits an instance twice, and pauses end on both sides of the session timeout.
func TestPlan(t *testing.T) {
	o := chaosOptions()
	kinds, points, short := map[strikeKind]int{}, map[string]int{}, 0
	for i, round := range newPlan(o, 3, SessionTimeout) {
		victims := map[int]bool{}
		if !slices.IsSortedFunc(round, func(a, b planned) int { return int(a.after - b.after) }) {
			t.Errorf("round %d is not in the order of time", i)
		}
		for _, s := range round {
			kinds[s.kind]++
			if victims[s.victim] || s.victim >= o.Instances {
				t.Errorf("round %d strikes instance %d again", i, s.victim)
			}
			victims[s.victim] = true
			if s.point != "" {
				points[s.point]++
			}
			if s.kind == strikePause && s.down < SessionTimeout {
				short++
			}
			if s.after < leastSettle || s.after > mostSettle+mostSpread {
				t.Errorf("round %d strikes after %s", i, s.after)
			}
		}
	}
	want := map[strikeKind]int{strikeKill: o.Kills, strikePause: o.Pauses, strikeRestart: o.Restarts, strikeCrash: o.CrashPoints}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	if len(points) != len(topology.CrashPoints(exactlyOnce)) {
		t.Errorf("crash points %v", points)
	}
	if short == 0 || short == o.Pauses {
		t.Errorf("%d of %d pauses are shorter than the session", short, o.Pauses)
	}
}

// The orders of a run have late ones among them, and most are not: else the windows would prove nothing.
func TestChaosOrdersGoBack(t *testing.T) {
	orders := newChaosOrders(5, 20_000, 1000)
	var latest, late, placed int64
	for i := range orders.n {
		o := orders.order(i)
		latest = max(latest, o.OccurredAt)
		if o.Status == feed.Placed {
			placed++
			if o.OccurredAt-o.OccurredAt%60_000+90_000 <= latest {
				late++
			}
		}
	}
	if late < 20 || late > placed/10 {
		t.Errorf("%d of %d are late even in the order of publishing", late, placed)
	}
}

// A strike after the end of the input leaves the verdict open.
func TestStrikeAfterTheInput(t *testing.T) {
	passed := verify.ChaosReport{Checks: []verify.Check{{Verdict: verify.Pass}}}
	lost := verify.ChaosReport{Checks: []verify.Check{{Verdict: verify.Fail}}}
	for name, tc := range map[string]struct {
		report verify.ChaosReport
		over   bool
		want   verify.Verdict
	}{
		"before": {passed, false, verify.Pass}, "after": {passed, true, verify.Unknown}, "after, and lost": {lost, true, verify.Fail},
	} {
		r := ChaosRunResult{Report: tc.report, Strikes: []Strike{{Kind: string(strikeKill), Lag: 3}, {Kind: string(strikeKill), InputOver: tc.over}}}
		r.conclude(ChaosOptions{Kills: 2})
		if r.Verdict != tc.want || (r.Reason != "") != (tc.want == verify.Unknown) {
			t.Errorf("%s: %s %q", name, r.Verdict, r.Reason)
		}
		if line := r.summary(); !strings.Contains(line, "1 of 2 (50 %) with lag") {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// Without strikes a run needs a rate, and is judged by its orders alone: somebody else strikes the brokers.
func TestNoStrikes(t *testing.T) {
	o := chaosOptions()
	o.Kills, o.Pauses, o.Restarts, o.CrashPoints = 0, 0, 0, 0
	if err := o.Check(); err == nil || !strings.Contains(err.Error(), "--rate") {
		t.Errorf("without a rate: %v", err)
	}
	o.Rate = 100
	if err := o.Check(); err != nil {
		t.Errorf("with a rate: %v", err)
	}
	if p := newPlan(o, 1, SessionTimeout); len(p) != 0 {
		t.Errorf("the plan is %v", p)
	}
	for verdict, tally := range map[verify.Verdict]verify.Tally{verify.Pass: {}, verify.Fail: {Lost: 1}} {
		r := ChaosRunResult{Guarantee: exactlyOnce, Report: verify.ChaosReport{Checks: []verify.Check{{Verdict: verdict}}, Tally: tally}}
		r.conclude(o)
		if want := fmt.Sprintf("%s chaos seed 0, exactly_once_v2: 0 strikes, lost %d, duplicated 0, unknown 0", verdict, tally.Lost); r.summary() != want {
			t.Errorf("got %q, want %q", r.summary(), want)
		}
	}
}

// What may have been processed twice is what a task's last owner can have read when it stopped, beyond what was committed when the task was
// opened again. Times are in seconds, and the topic ends at ten times the second, of which the group has committed what was there 2 s ago.
func TestReplays(t *testing.T) {
	const input, changelog = "in-0", "app-changelog-0"
	in := kafka.TopicPartition{Topic: "in"}
	start := time.Unix(1_000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	event := func(s float64, instance string, set func(*journal.Event)) journal.Event {
		e := journal.Event{Time: at(s), Instance: instance}
		set(&e)
		return e
	}
	began := func(e *journal.Event) { e.Started = &journal.Started{} }
	rebalancing := func(e *journal.Event) { e.State = &journal.State{To: stateRebalancing} }
	owns := func(e *journal.Event) {
		e.Tasks = &journal.Tasks{Active: []journal.Task{{ID: "1_0", Partitions: []string{input}}}}
	}
	nothing := func(e *journal.Event) { e.Tasks = &journal.Tasks{} }
	opens := func(e *journal.Event) { e.RestoreStart = &journal.RestoreStart{Partition: changelog} }
	stopped := func(e *journal.Event) { e.Stopped = &journal.Stopped{} }
	failed := func(e *journal.Event) { e.Stopped = &journal.Stopped{Error: "it broke"} }
	var samples []sample
	for s := range 31 {
		samples = append(samples, sample{
			begun: at(float64(s)), done: at(float64(s) + 0.1),
			committed: map[kafka.TopicPartition]int64{in: int64(10 * max(0, s-2))}, ends: map[kafka.TopicPartition]int64{in: int64(10 * s)},
		})
	}
	a := []journal.Event{event(0, "a", began), event(1, "a", owns), event(1, "a", opens)}
	b := []journal.Event{event(0, "b", began), event(1, "b", nothing)}
	for name, tc := range map[string]struct {
		events []journal.Event
		struck []strikeTime
		want   []verify.Replay
	}{
		"the first owner": {events: a},
		"killed": {
			events: slices.Concat(a, b, []journal.Event{event(9, "b", rebalancing), event(9, "b", owns), event(9, "b", opens)}),
			struck: []strikeTime{{instance: "a", from: at(8)}},
			want:   []verify.Replay{{TopicPartition: in, From: 60, To: 80}}, // 10*(8-2), by the sample of second 8
		},
		"killed long before": {
			events: slices.Concat(a, b, []journal.Event{event(20, "b", owns), event(20, "b", opens)}),
			struck: []strikeTime{{instance: "a", from: at(8)}}, // committed is 170, so there is nothing to repeat
		},
		"killed and restarted, and it opens the same": {
			events: slices.Concat(a, []journal.Event{event(9, "a", began), event(9.5, "a", owns), event(9.5, "a", opens)}),
			struck: []strikeTime{{instance: "a", from: at(9)}},
			want:   []verify.Replay{{TopicPartition: in, From: 70, To: 90}},
		},
		"given away in a rebalance": {
			events: slices.Concat(a, b, []journal.Event{
				event(8, "a", rebalancing), event(9, "a", nothing), event(9, "b", owns), event(9.5, "b", opens),
			}),
			want: []verify.Replay{{TopicPartition: in, From: 70, To: 80}}, // this group had not committed before
		},
		"stopped cleanly": {
			events: slices.Concat(a, b, []journal.Event{event(8, "a", stopped), event(9, "b", owns), event(9, "b", opens)}),
		},
		"ended with an error": {
			events: slices.Concat(a, b, []journal.Event{event(8, "a", failed), event(9, "b", owns), event(9.5, "b", opens)}),
			want:   []verify.Replay{{TopicPartition: in, From: 70, To: 80}},
		},
		"suspended": {
			events: slices.Concat(a, b, []journal.Event{event(9, "b", owns), event(9, "b", opens)}),
			struck: []strikeTime{{instance: "a", from: at(8), to: at(12)}},
			want:   []verify.Replay{{TopicPartition: in, From: 60, To: 80}},
		},
		"suspended, and awake before": {
			events: slices.Concat(a, b, []journal.Event{event(9, "b", owns), event(9.5, "b", opens)}),
			struck: []strikeTime{{instance: "a", from: at(7), to: at(8)}},
			want:   []verify.Replay{{TopicPartition: in, From: 70, To: 100}},
		},
		"opened again by itself": {
			events: slices.Concat(a, []journal.Event{event(9.5, "a", opens)}),
			want:   []verify.Replay{{TopicPartition: in, From: 70, To: 100}},
		},
		"another partition": {
			events: slices.Concat(a, []journal.Event{event(9, "a", func(e *journal.Event) {
				e.RestoreStart = &journal.RestoreStart{Partition: "app-changelog-1"}
			})}),
		},
	} {
		got := findReplays(tc.events, tc.struck, samples, map[string]kafka.TopicPartition{changelog: in})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
