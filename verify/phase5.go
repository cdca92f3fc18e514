package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Phase 5: a second feed was counted by two instances, the one that counted store-17 was killed, and another one counted on. The topics do not
// tell which instance wrote what. They tell that each order was counted once, before and after, and that nobody wrote counts from before
// somebody else's.
//
// All was committed before the kill, so although the guarantee is at least once there is nothing to count again: a count above its orders is a
// difference here like anywhere, and the journals may explain it.
var phase5 = phase{
	number:     5,
	ran:        func(g *grader) (bool, string) { return g.in.sent(afterTakeoverOrder) },
	milestones: phase5Milestones,
	grade: func(ctx context.Context, g *grader) []Check {
		inputs := []Check{g.checkByHand(3, phase3Orders), g.checkByHand(4, phase4Orders), g.checkSecondFeed()}
		for _, c := range inputs {
			if c.Verdict != Pass {
				return inputs
			}
		}
		checks := g.gradeByHand(ctx, 5, phase5Orders, func() []Check { return g.gradeTakeover(ctx) })
		return slices.Insert(checks, 1, inputs...) // after the first feed
	},
}

func phase5Milestones(in *input, rs *repartition) []milestone {
	list := slices.Concat(rs.milestones(phase5Orders), rs.secondFeedMinutes(in))
	return append(list, milestonesOf(in.countsBeforeTakeover())...)
}

// countsBeforeTakeover are the running counts once both feeds and the orders of phases 3 and 4 are counted.
func (in *input) countsBeforeTakeover() map[string]int64 {
	counts := map[string]int64{}
	for _, f := range []*feedInput{in.feed1(), in.feeds[secondBase]} {
		if f == nil {
			return nil
		}
		for store, n := range f.counts() {
			counts[store] += n
		}
	}
	for _, o := range slices.Concat(phase3Orders, phase4Orders) {
		counts[o.Store]++
	}
	return counts
}

// secondFeedMinutes are the minute counts that the second feed led to.
func (rs *repartition) secondFeedMinutes(in *input) []milestone {
	f := in.feeds[secondBase]
	if f == nil {
		return nil
	}
	var list []milestone
	for _, key := range slices.Sorted(maps.Keys(f.minuteCounts())) {
		if m := rs.minutes[key]; m.placed > 0 {
			list = append(list, milestone{key, m.placed, m.latest})
		}
	}
	return list
}

// checkSecondFeed tells whether the second feed is wholly there.
func (g *grader) checkSecondFeed() Check {
	c := Check{Name: "input, feed 2", Want: fmt.Sprintf("%d events from %s", feedSize, instant(secondBase)), Verdict: Pass}
	f := g.in.feeds[secondBase]
	if f == nil {
		f = &feedInput{base: secondBase}
	}
	c.Got = fmt.Sprintf("%d events from %s", f.have(), instant(f.base))
	if f.have() < feedSize {
		c.Verdict = Unknown
		c.Details = append(c.Details, fmt.Sprintf("the input is not complete: %s has no %s", topicPlaced, f.missing()))
		c.Details = append(c.Details, f.differs...)
	}
	return c
}

// gradeTakeover are the checks of phase 5 beside those for the order that it sends by itself.
func (g *grader) gradeTakeover(ctx context.Context) []Check {
	counts, countsErr := g.readCounts(ctx)
	minutes, minutesErr := g.readMinutes(ctx)
	changelog, changelogErr := g.readChangelog(ctx)
	minuteLog, minuteLogErr := g.readMinuteLog(ctx)
	before := milestonesOf(g.in.countsBeforeTakeover())
	name := "running counts before " + afterTakeoverOrder.ID
	checks := []Check{
		g.checkMilestones(ctx, name, topicCounts, before, counts, countsErr),
		g.checkBeforeAndAfter(ctx, counts, countsErr),
	}
	// Without the whole repartition topic there is nothing to replay, which another check says.
	if rs, err := g.readRepartition(ctx); err == nil && g.deleted(g.internal(suffixRepartition)) == "" {
		checks = append(checks,
			g.checkMilestones(ctx, "minute counts of feed 2", topicMinutes, rs.secondFeedMinutes(g.in), minutes, minutesErr))
	}
	checks = append(checks,
		g.checkOneOwner(ctx, "owners of the counts", suffixCountsChangelog, changelog, changelogErr),
		g.checkOneOwner(ctx, "owners of the minute counts", suffixMinutesChangelog, minuteLog, minuteLogErr),
		g.checkLast(ctx, "changelog of the counts", g.internal(suffixCountsChangelog), changelog, changelogErr))
	checks = append(checks, g.checkHighValue(ctx, "feeds 1 and 2", g.in.feed1(), g.in.feeds[secondBase])...)
	checks = append(checks, g.checkJoined(ctx, joinsOfPhase5), g.checkJoinLog(ctx), g.checkStatusLog(ctx))
	checks = append(checks, g.checkPartitions(ctx, topicHighValue, topicCounts, topicMinutes))
	return append(checks, g.checkState(ctx)...)
}

// checkBeforeAndAfter looks whether the count that was there before the kill and the one with the order after it stand in that order.
func (g *grader) checkBeforeAndAfter(ctx context.Context, counts *seriesOf, err error) Check {
	store := afterTakeoverOrder.Store
	before := milestone{store, g.in.countsBeforeTakeover()[store], -1}
	name, want := "count of "+store+" goes on", fmt.Sprintf("%d before the count with %s", before.value, afterTakeoverOrder.ID)
	if err != nil {
		return unread(name, want, err)
	}
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	var f findings
	first, then := counts.reached(before).self, counts.reached(rs.moments[afterTakeoverOrder].count).self
	var got string
	switch {
	case counts.keys[store] == nil:
		got = "none"
		f.shortf("%s was never counted", store)
	case first.value == 0 || then.value == 0:
		got = "not both of them were written" // what that means, other checks say
	case first.at.TopicPartition != then.at.TopicPartition:
		got = fmt.Sprintf("%d in partition %d, %d in partition %d", first.value, first.at.Partition, then.value, then.at.Partition)
		f.wrongf("counts of %s are in two partitions: %s", store, got)
	default:
		got = fmt.Sprintf("%d at offset %d, %d at offset %d", first.value, first.at.offset, then.value, then.at.offset)
		if first.at.offset > then.at.offset && before.value < then.value {
			f.wrongf("%d (%s) stands before %d (%s)", then.value, then.at, first.value, first.at)
		}
	}
	return g.check(name, topicCounts, want, got, f)
}

// checkOneOwner looks for counts in a changelog that are not above the one before. An owner restores the changelog to its end before it counts,
// also what was never committed, so after a crash counts can come out too high, but they never fall or repeat. If one does, two instances
// counted a key at the same time: one of them had lost its task without knowing.
func (g *grader) checkOneOwner(ctx context.Context, name, suffix string, log *seriesOf, err error) Check {
	return g.checkRising(ctx, name, g.internal(suffix), "one at a time: each count is above the one before", "changelog written by two owners", log, err)
}

// checkRising looks for counts that are not above the one before, and says what that means.
func (g *grader) checkRising(ctx context.Context, name, topic, want, means string, s *seriesOf, err error) Check {
	if err != nil {
		return unread(name, want, err)
	}
	f := g.incomplete(topic)
	if len(s.keys) == 0 {
		f.shortf("there is no count")
	}
	right := 0
	for _, key := range slices.SortedFunc(maps.Keys(s.keys), strings.Compare) {
		k := s.keys[key]
		if k.falls == 0 {
			right++
			continue
		}
		text := fmt.Sprintf("%s: %s falls or repeats %d times, first %s", means, key, k.falls, k.firstFall)
		f.wrong = append(f.wrong, joinNonEmpty("; ", text, g.misstep(ctx, topic, key).text))
	}
	return g.check(name, topic, want, fmt.Sprintf("%d of %d keys rise only", right, len(s.keys)), f)
}
