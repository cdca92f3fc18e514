package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// movedStreamTime: an order far ahead of the others closed their minutes.
func movedStreamTime(ctx context.Context, g *grader, r Report) ([]string, error) {
	if g.in == nil || !r.differs("minute") || g.deleted(g.internal(suffixRepartition)) != "" {
		return nil, nil
	}
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return nil, err
	}
	var worst *lateGroup
	for _, group := range rs.groups {
		labs := group.n == 1 && group.first[0].id == tooLateOrder.ID // it has to be late
		if !labs && (worst == nil || group.n > worst.n || group.n == worst.n && group.closer.at.compare(worst.closer.at) < 0) {
			worst = group
		}
	}
	if worst == nil {
		return nil, nil
	}
	from := "from nothing"
	if before := worst.closer.before; before >= 0 {
		from = "by " + age(time.Duration(worst.closer.occurredAt-before)*time.Millisecond)
	}
	return []string{fmt.Sprintf("%s moved stream time %s, and so closed the minutes of %d orders that came after it, first %s: they are in "+
		"the running count alone. Publish orders in the order of their times, and none ahead of them",
		worst.closer, from, worst.n, worst.first[0])}, nil
}

// differs tells whether a check with that in its name is not right.
func (r Report) differs(name string) bool {
	return slices.ContainsFunc(r.Phases, func(p PhaseReport) bool {
		return slices.ContainsFunc(p.Checks, func(c Check) bool { return c.Verdict != Pass && strings.Contains(c.Name, name) })
	})
}

// uncommittedReads: counts are too high by just the records of aborted transactions.
func uncommittedReads(ctx context.Context, g *grader, _ Report) ([]string, error) {
	var found []string
	for _, app := range g.graded() {
		repartition := app.internal(suffixRepartition)
		if app.deleted(repartition) != "" {
			continue
		}
		rs, err := app.readRepartition(ctx)
		if err != nil {
			return nil, err
		}
		counts, err := app.readCounts(ctx)
		if err != nil {
			return nil, err
		}
		passed, counted := map[string]int64{}, map[string]int64{} // too many, by store
		for store, k := range rs.stores {
			if in := app.in.stores[store]; in != nil && k.n > in.placed.n {
				passed[store] = k.n - in.placed.n
			}
		}
		for store, k := range counts.keys {
			if n := rs.digest(store).n; k.last > n {
				counted[store] = k.last - n
			}
		}
		for _, stage := range []struct {
			input, output string
			excess        map[string]int64
			store         func(*kafka.Record) string
		}{
			{topicPlaced, repartition, passed, placedStore},
			{repartition, app.output(topicCounts), counted, func(r *kafka.Record) string { return text(r.Key) }},
		} {
			first, err := app.abortedExcess(ctx, stage.input, stage.excess, stage.store)
			if err != nil {
				return nil, err
			}
			if first != "" {
				found = append(found, fmt.Sprintf("%s is too high by %s, which is just the number of aborted records of these stores in %s, first %s: "+
					"they were read before their transaction ended. Whoever reads it needs isolation.level=read_committed; under exactly_once_v2 "+
					"Kafka Streams sets it", stage.output, countsText(stage.excess), stage.input, first))
			}
		}
	}
	return found, nil
}

// placedStore is the store of a placed order; "" if the record is none.
func placedStore(r *kafka.Record) string {
	if o, err := readOrder(r.Value); err == nil && o.Placed {
		return o.Store
	}
	return ""
}

// abortedExcess names the first aborted record of some stores, if each has as many as it has too many; else "".
func (g *grader) abortedExcess(
	ctx context.Context, topic string, excess map[string]int64, store func(*kafka.Record) string,
) (string, error) {
	if len(excess) == 0 {
		return "", nil
	}
	stores := map[place]string{}
	writers, err := g.authors(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) bool {
		s := ""
		if r.Transactional {
			s = store(r)
		}
		if excess[s] > 0 {
			stores[place{tp, r.Offset}] = s
		}
		return excess[s] > 0
	})
	if err != nil || len(writers) >= maxLedger {
		return "", err
	}
	aborted := map[string]int64{}
	for at, a := range writers {
		if !a.committed() {
			aborted[stores[at]]++
		}
	}
	if !maps.Equal(aborted, excess) {
		return "", nil
	}
	_, first := firstOf(writers, func(a author) bool { return !a.committed() })
	return fmt.Sprintf("%s by %s", first.at, first.told()), nil
}

// twoOwners: a task was counted by two instances at the same time.
func twoOwners(ctx context.Context, g *grader, _ Report) ([]string, error) {
	var found []string
	for _, app := range g.graded() {
		for _, suffix := range []string{suffixCountsChangelog, suffixMinutesChangelog} {
			topic := app.internal(suffix)
			app.misstep(ctx, topic, "")
			all := app.missteps[topic]
			for _, key := range slices.Sorted(maps.Keys(all)) {
				if all[key].twoOwners {
					found = append(found, fmt.Sprintf("%s was written by two owners at once (%s: %s): an instance went on with a task that another one "+
						"had taken over, or two groups run as %s. Stop all counters, look for members that you do not know (lab groups %s), and begin again",
						topic, key, all[key].text, app.opt.ApplicationID, app.opt.ApplicationID))
					break
				}
			}
		}
	}
	return found, nil
}

// strangeWriters: somebody else writes to an output. A task writes a count to its changelog and to the output, by one producer.
func strangeWriters(ctx context.Context, g *grader, _ Report) ([]string, error) {
	var found []string
	for _, app := range g.graded() {
		for _, of := range []struct{ output, changelog string }{
			{app.output(topicCounts), app.internal(suffixCountsChangelog)},
			{app.output(topicMinutes), app.internal(suffixMinutesChangelog)},
		} {
			owners := map[int64]bool{}
			var gaps int64 // where compaction was at work, who wrote is not known any more
			for _, tp := range app.partitions(of.changelog) {
				gaps += app.bounds[tp].end
			}
			err := app.logOf(ctx, of.changelog, func(_ kafka.TopicPartition, r *kafka.Record) {
				gaps--
				owners[r.ProducerID] = true
			})
			if err != nil {
				return nil, err
			}
			if gaps > 0 || len(owners) == 0 {
				continue
			}
			strange := func(_ kafka.TopicPartition, r *kafka.Record) bool { return !owners[r.ProducerID] }
			writers, err := app.authors(ctx, of.output, strange)
			if err != nil {
				return nil, err
			}
			if n, first := firstOf(writers, author.committed); n > 0 {
				found = append(found, fmt.Sprintf("%s holds records of somebody who wrote nothing to %s: %d, first %s by %s: another "+
					"application, or a person, writes to this output. Stop it, and begin again on new topics",
					of.output, of.changelog, n, first.at, first.told()))
			}
		}
	}
	return found, nil
}

// firstOf counts the records of some kind, and finds the first of them.
func firstOf(writers map[place]author, kind func(author) bool) (n int, first author) {
	for _, a := range writers {
		if !kind(a) {
			continue
		}
		if n++; n == 1 || a.at.compare(first.at) < 0 {
			first = a
		}
	}
	return n, first
}
