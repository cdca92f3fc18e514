package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// causes find what often goes wrong in a run, each by what the topics hold of it: sentences that say what was seen, what it means and what
// to do. They are tried only if not all is right. What cannot be read explains nothing, so an error of one is no error of the report.
var causes = []func(ctx context.Context, g *grader, r Report) ([]string, error){
	otherApplication, oldOffsets, oldResults, deletedRecords, compactedRecords, // causes.go
	otherPartitioner, wrongBase, fedTwice, // causes_input.go
	movedStreamTime, uncommittedReads, twoOwners, strangeWriters, // causes_counts.go
}

// beginAgain is what helps against topics that do not belong together.
const beginAgain = "Delete the outputs, the internal topics and the group too, and begin again (here: `lab clean`)"

func (g *grader) findCauses(ctx context.Context, r Report) []string {
	if r.Verdict() == Pass {
		return nil
	}
	var found []string
	for _, find := range causes {
		if sentences, err := find(ctx, g, r); err == nil {
			found = append(found, sentences...)
		}
	}
	return found
}

// graded are the application under test and those of phase 6, as far as their input is known.
func (g *grader) graded() []*grader {
	return slices.DeleteFunc(append([]*grader{g}, g.crashed...), func(app *grader) bool { return app.in == nil })
}

// otherApplication: the counter ran under another application id.
func otherApplication(ctx context.Context, g *grader, _ Report) ([]string, error) {
	for _, t := range internalTopics {
		if _, ok := g.found[g.internal(t.suffix)]; ok {
			return nil, nil
		}
	}
	found, err := g.topics.Describe(ctx, func(name string) bool {
		return strings.HasSuffix(name, "-"+suffixCountsChangelog) && !strings.HasPrefix(name, g.opt.ApplicationID+"-")
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	topic := slices.Sorted(maps.Keys(found))[0]
	id := strings.TrimSuffix(topic, "-"+suffixCountsChangelog)
	return []string{fmt.Sprintf("there is no internal topic of %s, and there is %s: the counter ran with application.id=%s. "+
		"Start it with application.id=%s, so that its group and its internal topics have the names that are graded",
		g.opt.ApplicationID, topic, id, g.opt.ApplicationID)}, nil
}

// oldOffsets: a topic was deleted and made again, and the group kept its offsets.
func oldOffsets(_ context.Context, g *grader, _ Report) ([]string, error) {
	var found []string
	for _, app := range slices.Concat([]*grader{g}, g.crashed) {
		for _, tp := range slices.SortedFunc(maps.Keys(app.committed), kafka.TopicPartition.Compare) {
			b, known := app.bounds[tp]
			if done := app.committed[tp]; known && done > b.end {
				found = append(found, fmt.Sprintf("%s has committed offset %d of %s, which ends at %d", app.opt.ApplicationID, done, tp, b.end))
			}
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	return []string{someOf(found) + ": the topic was deleted and created again while the group kept its offsets, so the first records of " +
		"the new one are skipped. " + beginAgain}, nil
}

// oldResults: the topics hold what an earlier run has made of other orders.
func oldResults(ctx context.Context, g *grader, _ Report) ([]string, error) {
	if _, ok := g.found[topicPlaced]; !ok || g.in != nil && g.in.records == 0 {
		return resultsOfNothing(ctx, g)
	}
	if g.in == nil {
		return nil, nil
	}
	known := map[uint64]bool{}
	// Orders of aborted transactions were there: that they were processed is another cause.
	err := g.logOf(ctx, topicPlaced, func(_ kafka.TopicPartition, r *kafka.Record) {
		if o, err := readOrder(r.Value); err == nil && len(known) < maxLedger {
			known[fingerprint([]byte(o.ID), o.OccurredAt)] = true
		}
	})
	if err != nil || len(known) == maxLedger {
		return nil, err
	}
	topic := g.internal(suffixRepartition)
	n, first := 0, ""
	err = g.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
		o, err := readOrder(r.Value)
		if err != nil || known[fingerprint([]byte(o.ID), o.OccurredAt)] {
			return
		}
		if n++; n == 1 {
			first = fmt.Sprintf("%s of %s (%s)", o.ID, instant(o.OccurredAt), place{tp, r.Offset})
		}
	})
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return oldStores(ctx, g)
	}
	return []string{fmt.Sprintf("%s holds records of orders that %s does not hold: %d, first %s: results of an earlier run, whose orders "+
		"were deleted. %s", topic, topicPlaced, n, first, beginAgain)}, nil
}

// oldStores are counted, and no order of them came to be counted.
func oldStores(ctx context.Context, g *grader) ([]string, error) {
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return nil, err
	}
	counts, err := g.readCounts(ctx)
	if err != nil {
		return nil, err
	}
	var old []string
	for _, store := range slices.Sorted(maps.Keys(counts.keys)) {
		if g.in.stores[store] == nil && rs.stores[store] == nil {
			old = append(old, fmt.Sprintf("%s (%s)", store, counts.keys[store].lastAt))
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("%s holds no order of %s, which %s counted all the same: results of an earlier run. %s",
		topicPlaced, someOf(old), was(len(old)), beginAgain)}, nil
}

func was(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// resultsOfNothing are results without any order.
func resultsOfNothing(ctx context.Context, g *grader) ([]string, error) {
	var full []string
	for _, topic := range slices.Sorted(maps.Keys(g.found)) {
		if topic == topicPlaced || topic == topicStatus {
			continue
		}
		limits, err := g.topics.Bounds(ctx, g.partitions(topic))
		if err != nil {
			return nil, err
		}
		var n int64
		for _, b := range limits {
			n += b.end - b.start
		}
		if n > 0 {
			full = append(full, topic)
		}
	}
	if len(full) == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("%s holds no order, and there are results in %s: those of an earlier run. %s",
		topicPlaced, someOf(full), beginAgain)}, nil
}

// deletedRecords: retention, a purge or a person has deleted records.
func deletedRecords(ctx context.Context, g *grader, _ Report) ([]string, error) {
	var found []string
	topics := []string{topicPlaced, topicStatus}
	for _, app := range append([]*grader{g}, g.crashed...) {
		topics = append(topics, app.written()...) // not those of an application whose id begins with this one's
	}
	slices.Sort(topics)
	for _, topic := range topics {
		gone := g.deleted(topic)
		if gone == "" {
			continue
		}
		configs := g.found[topic].configs
		ms, err := strconv.ParseInt(configs["retention.ms"], 10, 64)
		switch {
		case strings.HasSuffix(topic, "-"+suffixRepartition):
			found = append(found, gone+": Kafka Streams purges what it has processed, each 30 s if repartition.purge.interval.ms is not set. "+
				"Start the counter with repartition.purge.interval.ms=86400000, on new topics")
		case strings.HasSuffix(topic, "-"+suffixMinutesChangelog):
			found = append(found, gone+": windows are kept for a day from the time of their orders if nothing else is set. Start the counter with "+
				"windowstore.changelog.additional.retention.ms=3153600000000, on new topics")
		case err == nil && ms >= 0 && strings.Contains(configs["cleanup.policy"], "delete"):
			left, err := g.earliest(ctx, topic)
			if err != nil {
				return nil, err
			}
			found = append(found, fmt.Sprintf("%s: cleanup.policy=%s and retention.ms=%d, %s, counted from the records' own times%s. "+
				"Results carry the time at which the order occurred, so create the topic with retention.ms=-1",
				gone, configs["cleanup.policy"], ms, age(time.Duration(ms)*time.Millisecond), left))
		default:
			found = append(found, fmt.Sprintf("%s, and its configs delete nothing (retention.ms=%s): somebody has done it by hand. Begin again on "+
				"new topics", gone, configs["retention.ms"]))
		}
	}
	return found, nil
}

// earliest says of which time the first record is that a topic still holds.
func (g *grader) earliest(ctx context.Context, topic string) (string, error) {
	earliest := int64(-1)
	err := g.read(ctx, topic, func(_ kafka.TopicPartition, r *kafka.Record) {
		if earliest < 0 || r.Timestamp < earliest {
			earliest = r.Timestamp
		}
	})
	if err != nil || earliest < 0 {
		return "", err
	}
	return ", and what is left begins at " + instant(earliest), nil
}

// age shows a long time in days.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		return d.String()
	}
	return fmt.Sprintf("%d days", d/day)
}

// compactedRecords: a topic whose records all count keeps only the last one of each key.
func compactedRecords(ctx context.Context, g *grader, _ Report) ([]string, error) {
	var found []string
	for _, topic := range slices.Concat(labTopics, []string{g.internal(suffixRepartition)}) {
		if topic == topicStatus || !strings.Contains(g.found[topic].configs["cleanup.policy"], "compact") {
			continue
		}
		var gaps int64
		for _, tp := range g.partitions(topic) {
			gaps += g.bounds[tp].end - g.bounds[tp].start
		}
		if err := g.logOf(ctx, topic, func(kafka.TopicPartition, *kafka.Record) { gaps-- }); err != nil {
			return nil, err
		}
		if gaps > 0 {
			found = append(found, fmt.Sprintf("%s has cleanup.policy=%s, and %d of its offsets hold no record any more: compaction has deleted "+
				"all but the last of a key. Create it with cleanup.policy=delete and retention.ms=-1",
				topic, g.found[topic].configs["cleanup.policy"], gaps))
		}
	}
	return found, nil
}
