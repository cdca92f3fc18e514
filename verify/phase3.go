package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Phase 3: four orders were sent one by one, two of them late. One was within the grace period of its minute, the other not.
//
// Which orders are too late follows from the order of arrival at the counting task, which the repartition topic holds. So the figures of this
// phase are those of a replay of that topic: where the orders came one by one, as the lab sends them, these are 51 in the minute 10:00 and 54
// in the running count; where one task caught up with all of them in the order of their times, none was late.
var phase3 = phase{
	number:     3,
	ran:        func(g *grader) (bool, string) { return g.in.sent(tooLateOrder) },
	milestones: func(_ *input, rs *repartition) []milestone { return rs.milestones(phase3Orders) },
	grade: func(ctx context.Context, g *grader) []Check {
		return g.gradeByHand(ctx, 3, phase3Orders, func() []Check { return []Check{g.checkTooLate(ctx)} })
	},
}

// sent tells whether an order is in the input.
func (in *input) sent(o order) (bool, string) {
	if len(in.byHand[o]) == 0 {
		return false, fmt.Sprintf("%s has no %s of %s", topicPlaced, o.ID, instant(o.OccurredAt))
	}
	return true, ""
}

// gradeByHand grades what phases 3 to 5 have in common: their orders are there, and are counted in the running count of their store and in
// their minutes, each minute's count being a revision under the same key. more are the checks of the phase alone.
func (g *grader) gradeByHand(ctx context.Context, number int, orders []order, more func() []Check) []Check {
	inputs := []Check{g.checkInput(), g.checkByHand(number, orders)}
	for _, c := range inputs {
		if c.Verdict != Pass {
			return inputs
		}
	}
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return append(inputs, unread("repartition records", "each order once", err))
	}
	counts, countsErr := g.readCounts(ctx)
	checks := append(append(inputs, g.checkBadInput()...), g.checkRepartition(ctx))
	// Without the whole topic there is nothing to replay, and nothing is to be seen of what has not arrived.
	if came := rs.inOrder(orders); g.deleted(g.internal(suffixRepartition)) == "" && len(came) == 0 {
		checks = append(checks, g.checkArrived(rs, orders))
	} else if g.deleted(g.internal(suffixRepartition)) == "" {
		minutes, minutesErr := g.readMinutes(ctx)
		log, logErr := g.readMinuteLog(ctx)
		running := []milestone{came[len(came)-1].count} // with all of the orders
		windows := rs.minuteMilestones(orders)
		checks = append(checks,
			g.checkArrived(rs, orders),
			g.checkMilestones(ctx, fmt.Sprintf("running count of phase %d", number), topicCounts, running, counts, countsErr),
		)
		if len(windows) > 0 { // else all came too late
			checks = append(checks,
				g.checkMilestones(ctx, "minute counts", topicMinutes, windows, minutes, minutesErr),
				g.checkMilestones(ctx, "minute counts in the changelog", g.internal(suffixMinutesChangelog), windows, log, logErr),
			)
		}
		if countsErr == nil && minutesErr == nil {
			checks = append(checks, g.checkSequence(rs, orders, counts, minutes))
		}
	}
	checks = append(checks, more()...)
	return append(checks,
		g.checkLast(ctx, "running counts", topicCounts, counts, countsErr), g.checkMinutes(ctx), g.checkAtRest(ctx, false))
}

// checkByHand tells whether the orders of a phase are all there, and once.
func (g *grader) checkByHand(number int, orders []order) Check {
	c := Check{Name: fmt.Sprintf("input, phase %d", number), Want: ordersText(len(orders)), Verdict: Pass}
	have := 0
	for _, o := range orders {
		if ok, missing := g.in.sent(o); !ok {
			c.Verdict = Unknown
			c.Details = append(c.Details, "the input is not complete: "+missing)
			continue
		}
		have++
		if n := len(g.in.byHand[o]); n > 1 {
			c.Details = append(c.Details, fmt.Sprintf("%s was sent %d times, so it is to be counted as often", o.ID, n))
		}
	}
	c.Got = ordersText(have)
	return c
}

func ordersText(n int) string {
	if n == 1 {
		return "1 order"
	}
	return fmt.Sprintf("%d orders", n)
}

// inOrder are the moments of some orders, in the order in which they were counted. Those that have not reached the counting task are left out.
func (rs *repartition) inOrder(orders []order) []moment {
	var list []moment
	for _, o := range orders {
		if m := rs.moments[o]; m.count.value > 0 {
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, func(a, b moment) int { return int(a.count.value - b.count.value) })
	return list
}

// milestones are all counts that the orders led to.
func (rs *repartition) milestones(orders []order) []milestone {
	list := rs.minuteMilestones(orders)
	for _, m := range rs.inOrder(orders) {
		list = append(list, m.count)
	}
	return list
}

// minuteMilestones are the minute counts that the orders led to, in order.
func (rs *repartition) minuteMilestones(orders []order) []milestone {
	var list []milestone
	for _, m := range rs.inOrder(orders) {
		if m.minute.value > 0 {
			list = append(list, m.minute)
		}
	}
	return list
}

// checkArrived tells whether each of the orders reached the task that counts its store.
func (g *grader) checkArrived(rs *repartition, orders []order) Check {
	topic := g.internal(suffixRepartition)
	var f findings
	var got []string
	for _, m := range rs.inOrder(orders) {
		got = append(got, fmt.Sprint(m.count.value))
	}
	for _, o := range orders {
		if rs.moments[o].count.value == 0 {
			f.shortf("%s of %s is not in %s", o.ID, instant(o.OccurredAt), topic)
		}
	}
	want := ordersText(len(orders)) + " of " + orders[0].Store
	text := "none"
	if len(got) > 0 {
		text = "as number " + strings.Join(got, ", ") + " of " + orders[0].Store
	}
	return g.check("orders at the counting task", topic, want, text, f)
}

// checkSequence looks whether the minute counts stand in the output in the order in which the orders came. That holds within a partition, and
// for orders whose running counts were written one by one: counts of one commit may be written in any order.
func (g *grader) checkSequence(rs *repartition, orders []order, counts, minutes *seriesOf) Check {
	f := g.incomplete(topicMinutes)
	var got []string
	latest := map[int32]written{}
	there := false
	for _, m := range rs.inOrder(orders) {
		r := minutes.reached(m.minute)
		there = there || m.minute.value == 0 || r.self.value > 0 || r.higher.value > 0
		at := minutes.reached(m.minute).self
		if at.value == 0 || counts.reached(m.count).self.value == 0 {
			continue
		}
		p := at.at.Partition
		if before := latest[p]; before.value > 0 && at.at.offset < before.at.offset {
			f.wrongf("%s %d (%s) stands before the count of an earlier order (%s)", m.minute.key, at.value, at.at, before.at)
		}
		latest[p] = at
		got = append(got, fmt.Sprintf("partition %d offset %d", p, at.at.offset))
	}
	if len(got) == 0 {
		got = []string{"counted in one commit"}
	}
	if !there {
		got = []string{"none"}
		f.shortf("the minutes of these orders were not counted")
	}
	return g.check("sequence of the minute counts", topicMinutes, "as the orders came", strings.Join(got, ", "), f)
}

// checkTooLate looks at the order that came too late, if it did: no minute has it. That the running count has it, another check says.
func (g *grader) checkTooLate(ctx context.Context) Check {
	topic := g.internal(suffixMinutesChangelog)
	start := floorMinute(tooLateOrder.OccurredAt)
	name, key := "late order "+tooLateOrder.ID, minuteKey(tooLateOrder.Store, start)
	want := "in no minute if it came after " + instant(start+minute+grace)
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	out, err := g.readMinutes(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	log, err := g.readMinuteLog(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	f := findings{beside: []string{topicMinutes}}
	if gone := g.deleted(g.internal(suffixRepartition)); gone != "" {
		f.unknown = append(f.unknown, gone)
		return g.check(name, topic, want, "not known", f)
	}
	m := rs.moments[tooLateOrder]
	if m.count.value == 0 {
		f.shortf("%s is not in %s", tooLateOrder.ID, g.internal(suffixRepartition))
		return g.check(name, topic, want, "not counted yet", f)
	}
	got := fmt.Sprintf("dropped, as stream time was %s", instant(m.streamTime))
	if m.minute.value > 0 {
		got = fmt.Sprintf("in time, as stream time was %s", instant(m.streamTime))
	}
	counted, late := rs.minutes[key].placed, rs.late[key]
	for _, of := range []struct {
		topic  string
		series *seriesOf
	}{{topicMinutes, out}, {topic, log}} {
		k := of.series.keys[key]
		switch {
		case k == nil:
			f.shortf("%s was never counted in %s", key, of.topic)
		case k.last < counted:
			f.shortf("%s has %d of %d in %s", key, k.last, counted, of.topic)
		case k.last > counted:
			text := fmt.Sprintf("%s has %d (%s): %d orders came in time and %d too late", key, k.last, k.lastAt, counted, late)
			f.wrong = append(f.wrong, g.explain(ctx, Difference{of.topic, key, counted, k.last}, text))
		}
	}
	return g.check(name, topic, want, got, f)
}
