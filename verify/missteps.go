package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// misstep is where the counts of a key, as they were written, first leave what its orders come to. It is empty if they do not.
type misstep struct {
	text      string
	repeats   []Repeat // the order up to which they were right, if it came to be counted again
	twoOwners bool     // somebody wrote on after another had taken over
}

// countTopic is a topic of counts.
type countTopic struct {
	series  *seriesOf
	minutes bool // else running counts
}

func (g *grader) countTopic(ctx context.Context, topic string) (countTopic, error) {
	t := countTopic{minutes: topic == g.output(topicMinutes) || topic == g.internal(suffixMinutesChangelog)}
	var err error
	switch topic {
	case g.output(topicCounts):
		t.series, err = g.readCounts(ctx)
	case g.internal(suffixCountsChangelog):
		t.series, err = g.readChangelog(ctx)
	case g.output(topicMinutes):
		t.series, err = g.readMinutes(ctx)
	case g.internal(suffixMinutesChangelog):
		t.series, err = g.readMinuteLog(ctx)
	}
	return t, err
}

// misstep explains a wrong count of a key. All wrong keys of a topic are looked at together, when the first is asked for.
func (g *grader) misstep(ctx context.Context, topic, key string) misstep {
	if found, done := g.missteps[topic]; done {
		return found[key]
	}
	if g.missteps == nil {
		g.missteps = map[string]map[string]misstep{}
	}
	found, err := g.findMissteps(ctx, topic)
	if err != nil {
		found = nil // it only explains
	}
	g.missteps[topic] = found
	return found[key]
}

// steps are the counts of a key in the order in which they were written, and what its orders come to: with n orders the count has the
// timestamp times[n-1], and the last of them stands at orders[n-1] in the repartition topic.
type steps struct {
	written []written
	times   []int64
	orders  []place
}

func (g *grader) findMissteps(ctx context.Context, topic string) (map[string]misstep, error) {
	t, err := g.countTopic(ctx, topic)
	if err != nil || t.series == nil {
		return nil, err
	}
	wrong, err := g.wrongCounts(ctx, t)
	if err != nil || len(wrong) == 0 {
		return nil, err
	}
	size := 0
	writers, err := g.authors(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) bool {
		s := wrong[t.series.key(r.Key)]
		v, ok := t.series.count(r.Value)
		if s == nil || !ok || size >= maxLedger {
			return false
		}
		size++
		s.written = append(s.written, written{v, r.Timestamp, place{tp, r.Offset}})
		return true
	})
	if err == nil && size < maxLedger {
		err = g.replay(ctx, t, wrong)
	}
	if err != nil || size >= maxLedger {
		return nil, err
	}
	found := map[string]misstep{}
	for key, s := range wrong {
		found[key] = s.misstep(writers)
	}
	return found, nil
}

// wrongCounts are up to maxDetails keys whose last count is not that of their orders, or whose counts do not only rise.
func (g *grader) wrongCounts(ctx context.Context, t countTopic) (map[string]*steps, error) {
	rs, err := g.readRepartition(ctx)
	if err != nil {
		return nil, err
	}
	purged := g.deleted(g.internal(suffixRepartition)) != ""
	wrong := map[string]*steps{}
	for _, key := range slices.Sorted(maps.Keys(t.series.keys)) {
		k := t.series.keys[key]
		want := rs.digest(key).n
		if t.minutes {
			want = rs.minutes[key].placed
		}
		if len(k.partitions) == 1 && len(wrong) < maxDetails && (k.falls > 0 || !purged && k.last != want) {
			wrong[key] = &steps{}
		}
	}
	return wrong, nil
}

// replay counts the repartition topic for the keys of some steps. Beyond maxLedger counts, or where records of it are gone, nothing is
// known of them.
func (g *grader) replay(ctx context.Context, t countTopic, keys map[string]*steps) error {
	topic := g.internal(suffixRepartition)
	if g.deleted(topic) != "" {
		return nil
	}
	rs := newRepartition()
	size := 0
	err := g.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
		if r.Key == nil || r.Timestamp < 0 {
			return
		}
		key, at := text(r.Key), r.Timestamp
		if t.minutes {
			m := rs.count(tp.Partition, key, r.Timestamp)
			key, at = m.key, m.time
			if m.value == 0 {
				return
			}
		}
		s := keys[key]
		if s == nil {
			return
		}
		if size++; size > maxLedger {
			return
		}
		if n := len(s.times); n > 0 {
			at = max(at, s.times[n-1])
		}
		s.times, s.orders = append(s.times, at), append(s.orders, place{tp, r.Offset})
	})
	if size > maxLedger || err != nil {
		for _, s := range keys {
			s.times, s.orders = nil, nil
		}
	}
	return err
}

// misstep finds the first count that is not above the one before, or that does not belong to its timestamp.
func (s *steps) misstep(writers map[place]author) misstep {
	var right written // the last one that was
	var before author
	wrote := map[int64]bool{} // by producer
	aborted := ""
	for _, w := range s.written {
		a := writers[w.at]
		if !a.committed() {
			aborted = fmt.Sprintf("; %s was written by %s", w, a.told())
			continue
		}
		if right.value > 0 && w.value <= right.value {
			return s.fall(w, right, a, before, wrote[a.producer])
		}
		// Orders that came late do not move the timestamp, so several counts can have the same.
		low := int64(sort.Search(len(s.times), func(i int) bool { return s.times[i] >= w.time }))
		high := int64(sort.Search(len(s.times), func(i int) bool { return s.times[i] > w.time }))
		if len(s.times) > 0 && (w.value <= low || w.value > high) {
			return s.leap(w, right, a, before, low+1, high)
		}
		right, before = w, a
		wrote[a.producer] = true
	}
	if n := int64(len(s.orders)); right.value > 0 && right.value < n {
		return misstep{text: fmt.Sprintf("the counts are right up to %s by %s, and the order at %s was not counted any more%s",
			right, before, s.orders[right.value], aborted)}
	}
	return misstep{}
}

func (w written) String() string { return fmt.Sprintf("%d at offset %d", w.value, w.at.offset) }

// fall words a count that is not above the one before.
func (s *steps) fall(w, right written, a, before author, wrote bool) misstep {
	m := misstep{text: fmt.Sprintf("%s by %s comes after %s by %s", w, a.told(), right, before), repeats: s.repeats(w.value)}
	switch {
	case a.producer < 0 || before.producer < 0:
	case a.same(before):
		m.text += ": one and the same instance went back, as after a rebalance"
	case a.producer != before.producer && wrote:
		m.twoOwners = true
		m.text += fmt.Sprintf(", and %s had written before it: two owners at once", a)
	default:
		m.text += ": the new owner began with an older count"
	}
	return m
}

// leap words a count whose timestamp says that another one, of a range, should stand there.
func (s *steps) leap(w, right written, a, before author, low, high int64) misstep {
	text := fmt.Sprintf("the first count is %s by %s", w, a.told())
	if right.value > 0 {
		text = fmt.Sprintf("the counts are right up to %s by %s, then comes %s by %s", right, before, w, a.told())
	}
	switch {
	case low > high:
		return misstep{text: text + fmt.Sprintf(", whose timestamp %d none of its orders leads to", w.time)}
	case w.value > high:
		text += fmt.Sprintf(" where the order at %s makes it %d: %d too many", s.orders[high-1], high, w.value-high)
		if right.value > 0 && !a.same(before) {
			text += ": the new owner counted again what had been counted and not committed"
		}
		return misstep{text: text, repeats: s.repeats(high)}
	default:
		return misstep{text: text + fmt.Sprintf(" where the order at %s makes it %d: %d too few", s.orders[low-1], low, low-w.value)}
	}
}

// repeats is the order that made a count, as the last one that is known to have been counted twice.
func (s *steps) repeats(count int64) []Repeat {
	if count < 1 || count > int64(len(s.orders)) {
		return nil
	}
	at := s.orders[count-1]
	return []Repeat{{TopicPartition: at.TopicPartition, Offset: at.offset}}
}
