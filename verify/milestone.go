package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// milestonesOf are milestones without a time, by key.
func milestonesOf(counts map[string]int64) []milestone {
	var list []milestone
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, milestone{key, counts[key], -1})
	}
	return list
}

func milestonesText(list []milestone) string {
	if len(list) == 0 {
		return "none"
	}
	parts := make([]string, len(list))
	for i, m := range list {
		parts[i] = fmt.Sprintf("%s %d", m.key, m.value)
	}
	return strings.Join(parts, ", ")
}

// checkMilestones tells whether values on the way to the last were written. They need not be the last: later orders raise a count. One may be
// passed over, as the cache writes only the last value of a commit; that it was counted right is then seen from the next higher value, if
// that has just the timestamp with which the oracle gets there. And a minute may not come so far, if orders came too late for it.
func (g *grader) checkMilestones(ctx context.Context, name, topic string, want []milestone, s *seriesOf, err error) Check {
	wantText := milestonesText(want)
	if err != nil {
		return unread(name, wantText, err)
	}
	rs, err := g.readRepartition(ctx)
	if err != nil || g.deleted(g.internal(suffixRepartition)) != "" {
		rs = nil // what depends on the order of arrival is then unknown
	}
	var asks []ask
	if rs != nil {
		for _, m := range want {
			if r := s.reached(m); r.self.value == 0 && r.higher.value > 0 {
				asks = append(asks, ask{m.key, r.higher.value})
			}
		}
	}
	times, err := g.reachedAt(ctx, asks)
	if err != nil {
		times = nil // passed over is then unknown
	}
	var f findings
	if len(want) == 0 {
		f.unknownf("nothing that leads to them came to be counted")
	}
	var marks []string
	for _, m := range want {
		k, r := s.keys[m.key], s.reached(m)
		mark := "-"
		last := int64(0)
		if k != nil {
			last = k.last
		}
		switch {
		case last < m.value && rs != nil && rs.late[m.key] > 0 && last == rs.minutes[m.key].placed:
			f.notef("%s came to %d of %d, as %d of its orders came too late", m.key, last, m.value, rs.late[m.key])
		case k == nil:
			f.shortf("%s was never counted, want %d", m.key, m.value)
		case r.self.value > 0 && m.time >= 0 && r.self.time != m.time:
			f.wrongf("%s is %d at time %d (%s), want time %d", m.key, m.value, r.self.time, r.self.at, m.time)
		case r.self.value > 0:
			mark = strconv.FormatInt(m.value, 10)
		case r.higher.value == 0:
			text := fmt.Sprintf("%s came to %d of %d (%s)", m.key, k.last, m.value, k.lastAt)
			f.short = append(f.short, g.explain(ctx, Difference{topic, m.key, m.value, k.last}, text))
		default:
			text := fmt.Sprintf("%s passed over %d to %d: the cache combines updates of one commit", m.key, m.value, r.higher.value)
			if at, asked := times[ask{m.key, r.higher.value}]; asked && at == r.higher.time {
				mark = fmt.Sprintf("(%d)", r.higher.value)
				f.notef("%s", text)
			} else {
				f.unknownf("%s", text)
			}
		}
		marks = append(marks, mark)
	}
	return g.check(name, topic, wantText, strings.Join(marks, ", "), f)
}

// reached is what is known of a milestone.
func (s *seriesOf) reached(m milestone) reached {
	if k := s.keys[m.key]; k != nil && k.milestones[m.value] != nil {
		return *k.milestones[m.value]
	}
	return reached{}
}
