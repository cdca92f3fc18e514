package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Phase 2: the orders were counted per store, by way of a repartition topic and with a changelog.
var phase2 = phase{
	number: 2,
	ran:    feed1Ran,
	milestones: func(in *input, _ *repartition) []milestone {
		f := in.feed1()
		if f == nil {
			return nil
		}
		return append(milestonesOf(f.counts()), milestonesOf(f.minuteCounts())...)
	},
	grade: func(ctx context.Context, g *grader) []Check {
		input := g.checkInput()
		if input.Verdict != Pass {
			return []Check{input}
		}
		f := g.in.feed1()
		counts, countsErr := g.readCounts(ctx)
		changelog, changelogErr := g.readChangelog(ctx)
		minutes, minutesErr := g.readMinutes(ctx)
		checks := append([]Check{input}, g.checkBadInput()...)
		checks = append(checks,
			g.checkMilestones(ctx, "running counts of feed 1", topicCounts, milestonesOf(f.counts()), counts, countsErr),
			g.checkLast(ctx, "running counts", topicCounts, counts, countsErr),
			g.checkRepartition(ctx),
			g.checkOnePartition(ctx),
			g.checkInternalNames(),
		)
		for _, want := range internalTopics {
			checks = append(checks, g.checkInternalTopic(want))
		}
		checks = append(checks,
			g.checkLast(ctx, "changelog of the counts", g.internal(suffixCountsChangelog), changelog, changelogErr),
			g.checkMilestones(ctx, "minute counts of feed 1", topicMinutes, milestonesOf(f.minuteCounts()), minutes, minutesErr),
			g.checkMinutes(ctx),
			g.checkPartitions(ctx, topicCounts, topicMinutes),
		)
		return append(append(checks, g.checkState(ctx)...), g.checkAtRest(ctx, false))
	},
}

// checkLast compares the last count of each store, and its timestamp, with all orders that were placed. Under at least once a restart may
// write values again, so a fall on the way is allowed, and said.
func (g *grader) checkLast(ctx context.Context, name, topic string, s *seriesOf, err error) Check {
	want := map[string]int64{}
	for store, in := range g.in.stores {
		want[store] = in.placed.n
	}
	if err != nil {
		return unread(name, countsText(want), err)
	}
	var f findings
	var differ []string
	got := map[string]int64{}
	for _, store := range unionKeys(want, s.keys, strings.Compare) {
		w, k := g.in.stores[store], s.keys[store]
		switch {
		case k == nil && want[store] == 0: // its one order was routed, and refused further on
		case k == nil:
			differ = append(differ, store)
		case w == nil:
			f.wrongf("%s is counted (%s), and no order of it was placed", store, k.lastAt)
		case k.bad != "":
			f.wrongf("%s: %s is %s and no count", store, k.lastAt, k.bad)
		case len(k.partitions) > 1:
			f.wrongf("%s is in partitions %s of %s", store, join(k.partitions), topic)
		default:
			got[store] = k.last
			if k.last != w.placed.n {
				differ = append(differ, store)
			} else if k.lastTime != w.latest {
				f.wrongf("%s: timestamp %d (%s), want %d, the largest occurredAt", store, k.lastTime, k.lastAt, w.latest)
			}
			if k.falls > 0 {
				f.notef("%s falls or repeats %d times, first %s: an instance took over and wrote again", store, k.falls, k.firstFall)
			}
		}
	}
	reasons := g.whyCounts(ctx, differ)
	for _, store := range differ {
		d := Difference{topic, store, want[store], got[store]}
		text := joinNonEmpty(": ", fmt.Sprintf("%s has %d of %d", store, d.Got, d.Want), reasons[store])
		text = g.explain(ctx, d, text)
		if d.Got < d.Want {
			f.short = append(f.short, text)
		} else {
			f.wrong = append(f.wrong, text)
		}
	}
	return g.check(name, topic, countsText(want), countsText(got), f)
}

// whyCounts looks for the reason of wrong counts in the repartition topic, which is what was counted.
func (g *grader) whyCounts(ctx context.Context, stores []string) map[string]string {
	reasons := map[string]string{}
	rs, err := g.readRepartition(ctx)
	topic := g.internal(suffixRepartition)
	if err != nil || len(stores) == 0 || g.deleted(topic) != "" {
		return reasons
	}
	pairs, err := g.pairRepartition(ctx, stores[:min(len(stores), maxDetails)])
	if err != nil {
		return reasons
	}
	for _, store := range stores {
		want := g.in.stores[store].placed
		got := rs.digest(store)
		if got == want {
			reasons[store] = fmt.Sprintf("%s holds each of its %d orders once, so they were not counted once each", topic, want.n)
			continue
		}
		reasons[store] = joinNonEmpty(", ", fmt.Sprintf("%s holds %d", topic, got.n), pairs.explanation(store))
	}
	return reasons
}

// checkRepartition compares the repartition topic with the placed orders, record by record: each order once, under its store, with its own
// bytes and time. Data records are counted, not offsets: transaction markers and aborted records take offsets too.
func (g *grader) checkRepartition(ctx context.Context) Check {
	topic := g.internal(suffixRepartition)
	const name = "repartition records"
	want := map[string]int64{}
	for store, in := range g.in.stores {
		want[store] = in.placed.n
	}
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return unread(name, countsText(want), err)
	}
	var f findings
	gone := g.deleted(topic)
	if gone != "" {
		f.unknown = append(f.unknown, gone)
	}
	var differ []string
	got := map[string]int64{}
	for _, store := range unionKeys(want, rs.stores, strings.Compare) {
		got[store] = rs.digest(store).n
		in := g.in.stores[store]
		if in == nil {
			f.wrongf("%s has %d records, and no order of it was placed", store, got[store])
		} else if rs.digest(store) != in.placed {
			differ = append(differ, store)
		}
	}
	pairs := newLedger(nil)
	if gone == "" {
		if pairs, err = g.pairRepartition(ctx, differ[:min(len(differ), maxDetails)]); err != nil {
			return unread(name, countsText(want), err)
		}
	}
	for _, store := range differ {
		d := Difference{topic, store, want[store], got[store]}
		text := fmt.Sprintf("%s has %d of %d records", store, d.Got, d.Want)
		switch {
		case d.Got == d.Want:
			text = fmt.Sprintf("%s has %d records, but not those of its orders", store, d.Got)
		case d.Got > d.Want:
			text += " (at least once may send again after a crash)"
		}
		text = g.explain(ctx, d, joinNonEmpty("; ", text, pairs.explanation(store)))
		if d.Got < d.Want {
			f.short = append(f.short, text)
		} else {
			f.wrong = append(f.wrong, text)
		}
	}
	return g.check(name, topic, countsText(want), countsText(got), f)
}

// checkOnePartition tells whether all orders of a store reach one task, that of the hash of its key: that is what the repartition topic is
// for. Its count is then in the same partition of the changelog, as that partition is the task's.
func (g *grader) checkOnePartition(ctx context.Context) Check {
	const name, want = "one partition a store", "repartition = changelog"
	topic := g.internal(suffixRepartition)
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	log, err := g.readChangelog(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	f := g.incomplete(topic)
	f.beside = []string{g.internal(suffixCountsChangelog)}
	right := 0
	for _, store := range g.in.placedStores() {
		if rs.stores[store] == nil {
			f.shortf("%s has no record in the repartition topic", store)
		}
	}
	for _, store := range slices.Sorted(maps.Keys(rs.stores)) {
		parts := rs.stores[store].partitions
		k := log.keys[store]
		home := partitionOf([]byte(store), g.found[topic].partitions)
		switch {
		case len(parts) > 1:
			f.wrongf("%s is in partitions %s of the repartition topic: no task sees all of its orders", store, join(parts))
		case parts[0] != home:
			f.wrongf("%s is in partition %s of the repartition topic, and by the hash of its key it belongs to %d", store, join(parts), home)
		case k == nil:
			f.shortf("%s is in partition %s of the repartition topic and not in the changelog", store, join(parts))
		case !slices.Equal(k.partitions, parts):
			f.wrongf("%s is in partition %s of the repartition topic and in %s of the changelog", store, join(parts), join(k.partitions))
		default:
			right++
		}
	}
	return g.check(name, topic, want, fmt.Sprintf("%d of %d stores", right, max(len(rs.stores), len(g.in.placedStores()))), f)
}

// checkInternalNames looks for internal topics that should not be there, such as those of an operator too many, or that are missing.
func (g *grader) checkInternalNames() Check {
	prefix := g.opt.ApplicationID + "-"
	var f findings
	there := 0
	for _, name := range slices.Sorted(maps.Keys(g.found)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || !strings.HasSuffix(rest, "-repartition") && !strings.HasSuffix(rest, "-changelog") {
			continue
		}
		known, other := false, false
		for _, t := range internalTopics {
			known = known || rest == t.suffix
			other = other || strings.HasSuffix(rest, "-"+t.suffix) // of an application whose id begins with ours
		}
		if known {
			there++
		} else if !other {
			f.wrongf("%s is none of the lab's internal topics", name)
		}
	}
	if there < len(internalTopics) {
		f.shortf("%d of them are not there", len(internalTopics)-there)
	}
	return g.check("internal topics", topicPlaced, strconv.Itoa(len(internalTopics)), strconv.Itoa(there+len(f.wrong)), f)
}

// checkInternalTopic compares an internal topic's partitions and configs with what Kafka Streams sets. Others may be set as well, by the
// brokers.
func (g *grader) checkInternalTopic(want internalTopic) Check {
	name := g.internal(want.suffix)
	parts := []string{partitionsText(want.partitions)}
	for _, c := range want.configs {
		parts = append(parts, c.name+"="+c.value)
	}
	wantText := strings.Join(parts, ", ")
	t, ok := g.found[name]
	var f findings
	if !ok {
		f.shortf("topic %s does not exist", name)
		return g.check(want.suffix, topicPlaced, wantText, "no such topic", f)
	}
	parts = []string{partitionsText(t.partitions)}
	if t.partitions != want.partitions {
		f.wrongf("%s has %s, want %d", name, partitionsText(t.partitions), want.partitions)
	}
	for _, c := range want.configs {
		got, set := t.configs[c.name]
		if !set {
			got = "(default)"
		}
		parts = append(parts, c.name+"="+got)
		if got != c.value && (set || c.value != defaultConfig[c.name]) {
			f.wrongf("%s has %s=%s, want %s", name, c.name, got, c.value)
		}
	}
	return g.check(want.suffix, topicPlaced, wantText, strings.Join(parts, ", "), f)
}

// checkMinutes compares the last minute counts in the output and in the changelog with each other, and with what counting the repartition
// topic comes to. Where that was purged, a count is known only to be no higher than the orders of its minute, so the rest is unknown.
func (g *grader) checkMinutes(ctx context.Context) Check {
	topic := g.internal(suffixMinutesChangelog)
	const name = "changelog of the minute counts"
	wantText := "each minute's orders but for the late ones, as in " + g.output(topicMinutes)
	out, err := g.readMinutes(ctx)
	if err != nil {
		return unread(name, wantText, err)
	}
	log, err := g.readMinuteLog(ctx)
	if err != nil {
		return unread(name, wantText, err)
	}
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return unread(name, wantText, err)
	}
	most := map[string]minuteInput{}
	for store, in := range g.in.stores {
		for start, m := range in.minutes {
			most[minuteKey(store, start)] = *m
		}
	}
	counted := rs.minutes
	purged := g.deleted(g.internal(suffixRepartition)) != ""
	if purged {
		counted = map[string]minuteInput{}
	}
	f := g.incomplete(g.internal(suffixRepartition))
	f.beside = []string{g.output(topicMinutes)}
	for _, store := range g.in.placedStores() {
		if !purged && rs.stores[store] == nil {
			f.shortf("no order of %s came to be counted", store)
		}
	}
	right := 0
	var short []string
	all := maps.Clone(counted)
	for key := range log.keys {
		all[key] = counted[key]
	}
	keys := unionKeys(all, out.keys, strings.Compare)
	for _, key := range keys {
		o, l, m := out.keys[key], log.keys[key], most[key]
		want, late := counted[key], rs.late[key]
		var text string
		switch {
		case l == nil && o == nil:
			f.shortf("%s was never counted, want %d", key, want.placed)
		case l == nil:
			f.shortf("%s is %d in %s and has no entry in %s", key, o.last, g.output(topicMinutes), topic)
		case o == nil:
			f.shortf("%s is %d in %s and was not written to %s", key, l.last, topic, g.output(topicMinutes))
		case o.bad+l.bad != "":
			f.wrongf("%s: %s is no count (%s, %s)", key, joinNonEmpty(" and ", o.bad, l.bad), o.lastAt, l.lastAt)
		case len(o.partitions) > 1 || len(l.partitions) > 1:
			f.wrongf("%s is in partitions %s of the output and %s of the changelog", key, join(o.partitions), join(l.partitions))
		case l.partitions[0] != partitionOf(storeOf(key), g.found[topic].partitions):
			f.wrongf("%s is in partition %d of the changelog, and its store is counted by another task", key, l.partitions[0])
		case o.last != l.last || o.lastTime != l.lastTime:
			f.shortf("%s is %d at time %d (%s) and %d at time %d (%s)", key, o.last, o.lastTime, o.lastAt, l.last, l.lastTime, l.lastAt)
		case l.last > m.placed && !g.again:
			text = fmt.Sprintf("%s has %d, and %d such orders were placed", key, l.last, m.placed)
			f.wrong = append(f.wrong, g.explain(ctx, Difference{topic, key, m.placed, l.last}, text))
		case purged:
			right++
		case l.last > want.placed:
			text = fmt.Sprintf("%s has %d, and %d of its orders came in time, %d too late", key, l.last, want.placed, late)
			f.wrong = append(f.wrong, g.explain(ctx, Difference{topic, key, want.placed, l.last}, text))
		case l.last < want.placed:
			text = fmt.Sprintf("%s has %d of the %d orders that came in time (%d came too late)", key, l.last, want.placed, late)
			f.short = append(f.short, g.explain(ctx, Difference{topic, key, want.placed, l.last}, text))
		case l.lastTime != want.latest:
			f.wrongf("%s: timestamp %d (%s), want %d, the largest occurredAt", key, l.lastTime, l.lastAt, want.latest)
		default:
			right++
		}
		if late > 0 {
			short = append(short, fmt.Sprintf("%s: orders that came too late for it: %d", key, late))
		}
	}
	if !purged {
		why, err := g.whyLate(ctx)
		if err != nil {
			return unread(name, wantText, err)
		}
		f.notes = append(f.notes, why...)
	}
	f.notes = append(f.notes, short...)
	return g.check(name, topic, wantText, fmt.Sprintf("%d of %d minutes", right, len(keys)), f)
}

// maxCounts bounds the counts listed in a table's cell.
const maxCounts = 12

// countsText shows counts by key: each if there are few, else their number and sum.
func countsText(counts map[string]int64) string {
	if len(counts) == 0 {
		return "none"
	}
	if len(counts) > maxCounts {
		var sum int64
		for _, n := range counts {
			sum += n
		}
		return fmt.Sprintf("%d keys, %d in all", len(counts), sum)
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", key, counts[key]))
	}
	return strings.Join(parts, ", ")
}

func join(partitions []int32) string {
	parts := make([]string, len(partitions))
	for i, p := range partitions {
		parts[i] = strconv.Itoa(int(p))
	}
	return strings.Join(parts, " and ")
}

func partitionsText(n int) string {
	if n == 1 {
		return "1 partition"
	}
	return fmt.Sprintf("%d partitions", n)
}
