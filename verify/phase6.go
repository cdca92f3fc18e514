package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Phase 6: two more applications have counted all orders, each from the beginning and with a crash in the middle, one exactly once and one at
// least once.
//
// Each is judged on the orders whose offsets it has committed: those of the lab have to be among them, later ones need not be. Only committed
// records are read, so a count that came from an aborted transaction would show as a difference.
var phase6 = phase{
	number:     6,
	ran:        (*grader).crashesRan,
	milestones: func(*input, *repartition) []milestone { return nil },
	grade: func(ctx context.Context, g *grader) []Check {
		input := g.checkInput()
		if input.Verdict != Pass {
			return []Check{input}
		}
		checks := []Check{input}
		for _, app := range crashApps {
			checks = append(checks, g.gradeCrashed(ctx, app)...)
		}
		return checks
	},
}

// crashApp is an application of phase 6.
type crashApp struct {
	name        string // what its id ends with after a dash, and its outputs after a dot
	exactlyOnce bool
}

var crashApps = []crashApp{{"eos", true}, {"alos", false}}

func (a crashApp) suffix() string { return "." + a.name }

func isCrashOutput(name, topic string) bool {
	return strings.HasPrefix(topic, "analytics.") && slices.ContainsFunc(crashApps, func(a crashApp) bool { return name == topic+a.suffix() })
}

func (g *grader) crashesRan() (bool, string) {
	if len(g.crashed) == 0 {
		return false, fmt.Sprintf("there is no topic of %s-%s or %s-%s", g.opt.ApplicationID, crashApps[0].name, g.opt.ApplicationID, crashApps[1].name)
	}
	return true, ""
}

// findCrashed makes a grader for each application of phase 6 that has topics. Like the first one's, its committed offsets are asked for
// before the ends of its outputs.
func (g *grader) findCrashed(ctx context.Context) error {
	for _, app := range crashApps {
		id := g.opt.ApplicationID + "-" + app.name
		if _, ok := g.found[id+"-"+suffixRepartition]; !ok {
			continue
		}
		committed, err := g.topics.Committed(ctx, id)
		if err != nil {
			return err
		}
		g.crashed = append(g.crashed, &grader{
			topics: g.topics, opt: Options{ApplicationID: id, State: g.opt.State}, suffix: app.suffix(), again: !app.exactlyOnce,
			found: g.found, committed: committed,
		})
	}
	return nil
}

// settleCrashed gives the graders of phase 6 their bounds, and finds out which of their applications are at work.
func (g *grader) settleCrashed(ctx context.Context) error {
	for _, c := range g.crashed {
		c.bounds = maps.Clone(g.bounds)
		now, err := g.topics.Committed(ctx, c.opt.ApplicationID)
		if err != nil {
			return err
		}
		if !maps.Equal(now, c.committed) {
			c.lag = c.opt.ApplicationID + " is at work"
		}
	}
	return nil
}

// loadCrashed reads the input of an application of phase 6: what it has committed, if that is all of the lab's. The results of one that is not
// done may be ahead of what it has committed, so all orders are its input then.
func (g *grader) loadCrashed(ctx context.Context, lab *input) error {
	var behind []string
	for _, tp := range g.partitions(topicPlaced) {
		if end := lab.labEnd(tp.Partition); g.committed[tp] < end {
			behind = append(behind, fmt.Sprintf("%d on %s", end-g.committed[tp], tp))
		}
	}
	for _, tp := range g.partitions(g.internal(suffixRepartition)) {
		if b := g.bounds[tp]; max(b.start, g.committed[tp]) < b.end {
			behind = append(behind, fmt.Sprintf("%d on %s", b.end-max(b.start, g.committed[tp]), tp))
		}
	}
	if len(behind) > 0 && g.lag == "" {
		g.lag = fmt.Sprintf("%s has not committed all its input, lag %s", g.opt.ApplicationID, someOf(behind))
	}
	for _, tp := range g.partitions(topicPlaced) {
		if b := g.bounds[tp]; g.lag == "" {
			b.end = min(b.end, max(b.start, g.committed[tp]))
			g.bounds[tp] = b
		}
	}
	letters, err := g.readDeadLetters(ctx)
	if err != nil {
		return err
	}
	g.in = newInput(letters)
	if err := g.read(ctx, topicPlaced, g.in.add); err != nil {
		return err
	}
	return g.settleRefused(ctx)
}

// labEnd is the offset after the last order of the lab's own in a partition of the input: the two feeds and the orders sent by hand.
func (in *input) labEnd(partition int32) int64 {
	var end int64
	for _, base := range []int64{in.feed1().base, secondBase} {
		if f := in.feeds[base]; f != nil {
			end = max(end, f.ends[partition])
		}
	}
	for _, places := range in.byHand {
		if at := places[0]; at.Partition == partition { // a repetition is none of the lab's
			end = max(end, at.offset+1)
		}
	}
	return end
}

// gradeCrashed grades one of the two applications.
func (g *grader) gradeCrashed(ctx context.Context, app crashApp) []Check {
	i := slices.IndexFunc(g.crashed, func(c *grader) bool { return c.suffix == app.suffix() })
	label := app.name + ": "
	if i < 0 {
		return []Check{{
			Name: label + "run", Want: "topics of " + g.opt.ApplicationID + "-" + app.name, Got: "none", Verdict: Unknown,
			Details: []string{"this half of the phase has not been run"},
		}}
	}
	c := g.crashed[i]
	if err := c.loadCrashed(ctx, g.in); err != nil {
		return []Check{unread(label+"orders read", "the lab's", err)}
	}
	var checks []Check
	if app.exactlyOnce {
		checks = c.checkExactlyOnce(ctx)
	} else {
		checks = c.checkAtLeastOnce(ctx)
	}
	changelog, changelogErr := c.readChangelog(ctx)
	minuteLog, minuteLogErr := c.readMinuteLog(ctx)
	checks = append(checks, c.checkMinutes(ctx),
		c.checkOneOwner(ctx, "owners of the counts", suffixCountsChangelog, changelog, changelogErr),
		c.checkOneOwner(ctx, "owners of the minute counts", suffixMinutesChangelog, minuteLog, minuteLogErr),
		c.checkNoJoins(ctx), c.checkJoinLog(ctx))
	checks = append(checks, c.checkPartitions(ctx, topicHighValue, topicCounts, topicMinutes))
	checks = append(append(checks, c.checkState(ctx)...), c.checkAtRest(ctx, true))
	for i := range checks {
		checks[i].Name = label + checks[i].Name
	}
	return append([]Check{c.checkCrashInput(label, g.in)}, checks...)
}

// checkCrashInput says how much the application has read.
func (g *grader) checkCrashInput(label string, lab *input) Check {
	c := Check{
		Name: label + "orders read", Want: "all of the lab's", Got: fmt.Sprintf("%d of %d", g.in.orders, lab.orders), Verdict: Pass,
	}
	if g.lag != "" {
		c.Verdict, c.Details = Unknown, []string{g.lag}
	} else if more := lab.orders - g.in.orders; more > 0 {
		c.Details = append(c.Details, fmt.Sprintf("%d orders came after it, which it need not have counted", more))
	}
	return c
}

// checkExactlyOnce expects each order just once everywhere.
func (g *grader) checkExactlyOnce(ctx context.Context) []Check {
	counts, countsErr := g.readCounts(ctx)
	minutes, minutesErr := g.readMinutes(ctx)
	changelog, changelogErr := g.readChangelog(ctx)
	const rising, means = "each count is above the one before", "a committed count was taken back"
	return []Check{
		g.checkLast(ctx, "final counts", g.output(topicCounts), counts, countsErr),
		g.checkSteps(ctx),
		g.checkRising(ctx, "steps of the minute counts", g.output(topicMinutes), rising, means, minutes, minutesErr),
		g.checkRepartition(ctx),
		g.checkLast(ctx, "changelog of the counts", g.internal(suffixCountsChangelog), changelog, changelogErr),
		g.checkRouted(ctx),
	}
}

// checkAtLeastOnce expects no order to be missing anywhere, and of those that came again to the counting stage that each was counted.
func (g *grader) checkAtLeastOnce(ctx context.Context) []Check {
	counts, countsErr := g.readCounts(ctx)
	changelog, changelogErr := g.readChangelog(ctx)
	return []Check{
		g.checkReplayed(ctx),
		g.checkCounted(ctx, "final counts", g.output(topicCounts), counts, countsErr),
		g.checkCounted(ctx, "changelog of the counts", g.internal(suffixCountsChangelog), changelog, changelogErr),
		g.checkRouted(ctx),
	}
}

// maxSteps bounds the values of a key that checkSteps looks at. With a commit interval of a second, phase 6 writes a few.
const maxSteps = 64

// checkSteps follows the counts of each store as they were written. Under exactly once a reader of committed records sees each count rise, and
// each value with just the timestamp that counting the repartition topic gives it: no crash may take a committed count back, or show one
// that was aborted.
func (g *grader) checkSteps(ctx context.Context) Check {
	const name, want = "steps of the counts", "rising, each as its orders came"
	topic := g.output(topicCounts)
	steps := map[string][]written{}
	var bad []string
	err := g.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
		v, ok := decimalCount(r.Value)
		key, at := text(r.Key), place{tp, r.Offset}
		switch {
		case !ok:
			bad = append(bad, fmt.Sprintf("%s: %q is no count (%s)", key, text(r.Value), at))
		case len(steps[key]) < maxSteps:
			steps[key] = append(steps[key], written{v, r.Timestamp, at})
		}
	})
	if err != nil {
		return unread(name, want, err)
	}
	f := findings{wrong: bad[:min(len(bad), maxDetails)]}
	for _, store := range g.in.placedStores() {
		if len(steps[store]) == 0 {
			f.shortf("%s was never counted", store)
		}
	}
	var asks []ask
	var got int64
	for key, list := range steps {
		for _, w := range list {
			got++
			asks = append(asks, ask{key, w.value})
		}
	}
	times, err := g.reachedAt(ctx, asks)
	if err != nil {
		return unread(name, want, err)
	}
	for _, key := range slices.Sorted(maps.Keys(steps)) {
		var before written
		for _, w := range steps[key] {
			at := times[ask{key, w.value}]
			switch {
			case w.value <= before.value:
				f.wrongf("%s is %d (%s) after %d (%s)", key, w.value, w.at, before.value, before.at)
			case g.deleted(g.internal(suffixRepartition)) != "":
				f.unknown = append(f.unknown, g.deleted(g.internal(suffixRepartition)))
			case at < 0:
				f.wrongf("%s is %d (%s), and its orders do not come to that", key, w.value, w.at)
			case at != w.time:
				f.wrongf("%s is %d at time %d (%s), want time %d", key, w.value, w.time, w.at, at)
			}
			before = w
		}
	}
	f.unknown = slices.Compact(f.unknown)
	return g.check(name, topic, want, fmt.Sprintf("%d values of %d stores", got, len(steps)), f)
}

// checkReplayed compares the repartition topic with the placed orders: each has to be there, and nothing else. An order may be there again.
func (g *grader) checkReplayed(ctx context.Context) Check {
	topic := g.internal(suffixRepartition)
	const name = "repartition records"
	want := map[string]int64{}
	for store, in := range g.in.stores {
		want[store] = in.placed.n
	}
	wantText := "no fewer than " + countsText(want)
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return unread(name, wantText, err)
	}
	var f findings
	if gone := g.deleted(topic); gone != "" {
		f.unknown = append(f.unknown, gone)
		return g.check(name, topic, wantText, "not known", f)
	}
	got := map[string]int64{}
	var differ []string
	for _, store := range unionKeys(want, rs.stores, strings.Compare) {
		got[store] = rs.digest(store).n
		in := g.in.stores[store]
		switch {
		case in == nil && g.lag == "":
			f.wrongf("%s has %d records, and no order of it was placed", store, got[store])
		case in == nil:
		case rs.digest(store) != in.placed:
			differ = append(differ, store)
		}
	}
	pairs, err := g.pairRepartition(ctx, differ)
	if err != nil {
		return unread(name, wantText, err)
	}
	if len(differ) > 0 && pairs.size >= maxLedger {
		f.unknownf("%s are more orders than can be looked at one by one", someOf(differ))
		differ = nil
	}
	again := map[string]int64{}
	for _, store := range differ {
		missing, repeated, foreign := pairs.balance(store)
		switch {
		case missing > 0:
			f.shortf("%s: %d orders are missing; %s", store, missing, pairs.explanation(store))
		case foreign > 0 && g.lag == "":
			f.wrongf("%s: %d records are of no order; %s", store, foreign, pairs.explanation(store))
		default:
			again[store] = repeated
		}
	}
	switch {
	case len(again) > 0:
		f.notef("came again: %s: replay after the crash, as the orders' offsets were not committed", countsText(again))
	case len(f.short)+len(f.wrong)+len(f.unknown) == 0:
		f.notef("no order came again, which proves no guarantee: the crash found none whose offset was not committed")
	}
	return g.check(name, topic, wantText, countsText(got), f)
}

// balance counts what a pairing left over under a key: orders without a record, records that repeat an order, and records of none.
func (l *ledger) balance(key string) (missing, repeated, foreign int64) {
	for _, e := range l.keys[key] {
		switch {
		case e.open > 0:
			missing += e.open
		case e.open < 0 && len(e.orders) > 0:
			repeated -= e.open
		case e.open < 0:
			foreign -= e.open
		}
	}
	return missing, repeated, foreign
}

// checkCounted compares final counts at least once with the repartition topic: the crash of phase 6 comes before anything of the counting
// stage is flushed, so whatever is in that topic was counted once. None may be below the placed orders.
func (g *grader) checkCounted(ctx context.Context, name, topic string, s *seriesOf, err error) Check {
	want := map[string]int64{}
	for store, in := range g.in.stores {
		want[store] = in.placed.n
	}
	rs, rerr := g.readRepartition(ctx)
	if rerr == nil && g.deleted(g.internal(suffixRepartition)) == "" {
		for store := range rs.stores {
			want[store] = rs.digest(store).n
		}
	}
	wantText := countsText(want)
	if err != nil {
		return unread(name, wantText, err)
	}
	if rerr != nil {
		return unread(name, wantText, rerr)
	}
	var f findings
	if gone := g.deleted(g.internal(suffixRepartition)); gone != "" {
		f.unknown = append(f.unknown, gone)
	}
	got, again := map[string]int64{}, map[string]int64{}
	for _, store := range unionKeys(want, s.keys, strings.Compare) {
		k := s.keys[store]
		var placed int64
		if in := g.in.stores[store]; in != nil {
			placed = in.placed.n
		}
		if k != nil {
			got[store] = k.last
		}
		switch {
		case k == nil:
			f.shortf("%s was never counted, want %d", store, want[store])
		case k.bad != "":
			f.wrongf("%s: %s is %s and no count", store, k.lastAt, k.bad)
		case len(k.partitions) > 1:
			f.wrongf("%s is in partitions %s of %s", store, join(k.partitions), topic)
		case k.last < placed:
			f.shortf("%s has %d of %d orders (%s): at least once loses none", store, k.last, placed, k.lastAt)
		case len(f.unknown) > 0:
		case k.last < want[store]:
			f.shortf("%s has %d of the %d records that came to be counted (%s)", store, k.last, want[store], k.lastAt)
		case k.last > want[store]:
			f.wrongf("%s has %d, and %d records came to be counted (%s)", store, k.last, want[store], k.lastAt)
		case rs.stores[store] != nil && k.lastTime != rs.stores[store].latest:
			f.wrongf("%s: timestamp %d (%s), want %d, the largest occurredAt", store, k.lastTime, k.lastAt, rs.stores[store].latest)
		case k.last > placed:
			again[store] = k.last - placed
		}
	}
	if len(again) > 0 {
		f.notef("counted again: %s", countsText(again))
	}
	return g.check(name, topic, wantText, countsText(got), f)
}

// checkRouted compares the high-value topic with the high-value orders: each once, or at least once.
func (g *grader) checkRouted(ctx context.Context) Check {
	const name = "high-value rows"
	want := g.wantedRows()
	var total, have int64
	for _, d := range want {
		total += d.n
	}
	wantText := fmt.Sprint(total)
	if g.again {
		wantText = "no fewer than " + wantText
	}
	got, err := g.readHighValue(ctx)
	if err != nil {
		return unread(name, wantText, err)
	}
	keys := unionKeys(want, got, func(a, b row) int { return strings.Compare(a.String(), b.String()) })
	var differ []row
	for _, k := range keys {
		if digestOf(want, k) != digestOf(got, k) {
			differ = append(differ, k)
		}
	}
	pairs, err := g.pairHighValue(ctx, differ)
	if err != nil {
		return unread(name, wantText, err)
	}
	var f findings
	if len(differ) > 0 && pairs.size >= maxLedger {
		f.unknownf("%d rows are more than can be looked at one by one", len(differ))
	}
	for _, k := range keys {
		w, h := digestOf(want, k), digestOf(got, k)
		have += h.n
		missing, _, foreign := pairs.balance(k.String())
		switch {
		case h.n < w.n:
			f.shortf("missing: %s is there %d of %d times", k, h.n, w.n)
		case w.n == 0 && (!g.again || g.lag == ""):
			f.wrongf("extra: %s is there %d times, and no such order was placed", k, h.n)
		case h.n > w.n && !g.again:
			f.wrongf("duplicated: %s is there %d times instead of %d", k, h.n, w.n)
		case missing > 0: // behind the repetition of another one
			f.shortf("missing: %s is there %d times, but %d of its orders not at all; %s", k, h.n, missing, pairs.explanation(k.String()))
		case foreign > 0 && g.lag == "":
			f.wrongf("%s: not the times of the orders; %s", k, pairs.explanation(k.String()))
		}
	}
	if g.again && have > total {
		f.notef("%d rows were written again", have-total)
	}
	return g.check(name, g.output(topicHighValue), wantText, fmt.Sprint(have), f)
}

// checkNoJoins expects no joined row: the statuses carry the time of their sending, which is after all event times of the lab, so an
// application that begins at the front takes the orders first. Of orders that occurred after the status that is no rule.
func (g *grader) checkNoJoins(ctx context.Context) Check {
	const name, want = "joined orders", "none, as the statuses are younger than the orders"
	statuses, err := g.readStatuses(ctx)
	if err != nil {
		return unread(name, want, err)
	}
	f := g.incomplete(g.output(topicJoined))
	if len(statuses) == 0 {
		f.unknownf("%s holds no row, so there is nothing to join with", topicStatus)
	}
	if gone := g.deleted(topicStatus); gone != "" {
		f.unknown = append(f.unknown, gone)
	}
	n := 0
	err = g.read(ctx, g.output(topicJoined), func(tp kafka.TopicPartition, r *kafka.Record) {
		n++
		status := statuses[text(r.Key)]
		known := status != nil || g.deleted(topicStatus) == ""
		if younger := status != nil && r.Timestamp > status.timestamp; known && !younger && len(f.wrong) < maxDetails {
			f.wrongf("%s is joined (%s)", text(r.Key), place{tp, r.Offset})
		}
	})
	if err != nil {
		return unread(name, want, err)
	}
	got := "none"
	if n > 0 {
		got = fmt.Sprint(n)
	}
	return g.check(name, g.output(topicJoined), want, got, f)
}
