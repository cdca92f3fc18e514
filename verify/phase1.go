package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Phase 1: one feed has been published, and its high-value orders were filtered and routed.
var phase1 = phase{
	number:     1,
	ran:        feed1Ran,
	milestones: func(*input, *repartition) []milestone { return nil },
	grade: func(ctx context.Context, g *grader) []Check {
		input := g.checkInput()
		if input.Verdict != Pass {
			return []Check{input}
		}
		checks := append([]Check{input}, g.checkBadInput()...)
		checks = append(append(checks, g.checkLabTopics()), g.checkHighValue(ctx, "feed 1", g.in.feed1())...)
		return append(checks, g.checkPartitions(ctx, topicHighValue), g.checkAtRest(ctx, false))
	},
}

func feed1Ran(g *grader) (bool, string) {
	if g.in.feed1() == nil {
		return false, fmt.Sprintf("%s holds no event of a feed", topicPlaced)
	}
	return true, ""
}

// checkInput tells whether the first feed is wholly there: without it the lab's numbers mean nothing.
func (g *grader) checkInput() Check {
	f := g.in.feed1()
	if f == nil { // orders sent by hand alone
		f = &feedInput{base: firstBase}
	}
	c := Check{
		Name:    "input, feed 1",
		Want:    fmt.Sprintf("%d events", feedSize),
		Got:     fmt.Sprintf("%d events from %s", f.have(), instant(f.base)),
		Verdict: Pass,
	}
	if f.have() < feedSize {
		c.Verdict = Unknown
		c.Details = append(c.Details, fmt.Sprintf("the input is not complete: %s has no %s", topicPlaced, f.missing()))
		c.Details = append(c.Details, f.differs...)
	}
	if more := g.in.orders - int64(f.have()); more > 0 {
		c.Details = append(c.Details, fmt.Sprintf("%d more orders after or beside it", more))
	}
	if g.in.broken > 0 {
		c.Details = append(c.Details, fmt.Sprintf("%d records are no orders and must not be counted", g.in.broken))
	}
	c.Details = append(c.Details, g.surprises()...)
	return c
}

// checkLabTopics looks at the topics created before the application starts. The two inputs of the join must have as many partitions as
// each other, and each order has one current status, so that topic is compacted.
func (g *grader) checkLabTopics() Check {
	var f findings
	right := 0
	for _, name := range labTopics {
		t, ok := g.found[name]
		switch {
		case !ok:
			f.wrongf("topic %s does not exist", name)
		case t.partitions != labPartitions:
			f.wrongf("%s has %d partitions, want %d", name, t.partitions, labPartitions)
		case name == topicStatus && t.configs["cleanup.policy"] != "compact":
			f.wrongf("%s has cleanup.policy=%s, want compact", name, t.configs["cleanup.policy"])
		default:
			right++
		}
	}
	want := fmt.Sprintf("%d of %d partitions", len(labTopics), labPartitions)
	return g.check("topics of the lab", topicPlaced, want, fmt.Sprintf("%d as wanted", right), f)
}

// checkHighValue compares the high-value topic with the high-value orders as multisets: over the whole input, and for some feeds, whose rows
// stay there whatever comes later.
func (g *grader) checkHighValue(ctx context.Context, feedNames string, feeds ...*feedInput) []Check {
	const nameAll, nameTimes = "high-value rows", "high-value record times"
	nameFeed := "high-value rows of " + feedNames
	want := g.wantedRows()
	var total int64
	for _, d := range want {
		total += d.n
	}
	wantFeed := map[row]int64{}
	var totalFeed int64
	for _, f := range feeds {
		for k, n := range f.highRows() {
			wantFeed[k] += n
			totalFeed += n
		}
	}
	got, err := g.readHighValue(ctx)
	if err != nil {
		return []Check{unread(nameAll, fmt.Sprint(total), err)}
	}

	keys := unionKeys(want, got, func(a, b row) int {
		return cmp.Or(strings.Compare(a.store, b.store), cmp.Compare(len(a.amount), len(b.amount)), strings.Compare(a.amount, b.amount))
	})
	var differ []row
	var gotTotal, gotFeed int64
	for _, k := range keys {
		w, h := digestOf(want, k), digestOf(got, k)
		gotTotal += h.n
		gotFeed += min(h.n, wantFeed[k])
		if w != h && len(differ) < maxDetails {
			differ = append(differ, k)
		}
	}
	pairs, err := g.pairHighValue(ctx, differ)
	if err != nil {
		return []Check{unread(nameAll, fmt.Sprint(total), err)}
	}

	var all, feed, times findings
	for _, k := range keys {
		w, h := digestOf(want, k), digestOf(got, k)
		text := ""
		switch {
		case h.n < w.n:
			text = fmt.Sprintf("missing: %s is there %d of %d times", k, h.n, w.n)
		case w.n == 0:
			text = fmt.Sprintf("extra: %s is there %d times, and no such order was placed", k, h.n)
		case h.n > w.n:
			text = fmt.Sprintf("duplicated: %s is there %d times instead of %d (at least once may write again after a crash)", k, h.n, w.n)
		case h.sum != w.sum:
			times.wrong = append(times.wrong, joinNonEmpty("; ", fmt.Sprintf("%s: not the times of the orders", k), pairs.explanation(k.String())))
		}
		if text != "" {
			text = joinNonEmpty("; ", text, pairs.explanation(k.String()))
			text = g.explain(ctx, Difference{topicHighValue, k.String(), w.n, h.n}, text)
		}
		switch {
		case h.n < w.n:
			all.short = append(all.short, text)
		case h.n > w.n:
			all.wrong = append(all.wrong, text)
		}
		if h.n < wantFeed[k] {
			feed.shortf("missing: %s is there %d times, in %s %d times", k, h.n, feedNames, wantFeed[k])
		}
	}
	if gotTotal == 0 {
		times.shortf("there is no row")
	}
	timesGot := "of the orders"
	if len(times.wrong) > 0 {
		timesGot = fmt.Sprintf("%d rows with others", len(times.wrong))
	}
	return []Check{
		g.check(nameAll, topicHighValue, fmt.Sprint(total), fmt.Sprint(gotTotal), all),
		g.check(nameFeed, topicHighValue, fmt.Sprint(totalFeed), fmt.Sprint(gotFeed), feed),
		g.check(nameTimes, topicHighValue, "occurredAt", timesGot, times),
	}
}

// wantedRows are the rows that the high-value topic has to hold for the whole input.
func (g *grader) wantedRows() rows {
	want := rows{}
	for store, s := range g.in.stores {
		for amount, d := range s.high {
			want[rowOf(order{Store: store, Amount: amount})] = d
		}
	}
	return want
}

func digestOf(rs rows, k row) digest {
	if d := rs[k]; d != nil {
		return *d
	}
	return digest{}
}

// unionKeys are the keys of both maps, sorted.
func unionKeys[K comparable, A, B any](a map[K]A, b map[K]B, compare func(K, K) int) []K {
	keys := make([]K, 0, len(a))
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		if _, both := a[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compare)
	return keys
}

func joinNonEmpty(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}
