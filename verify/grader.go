package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// grader holds what was read so far. Each topic is read at most once, when the first check asks for it.
type grader struct {
	topics topics
	opt    Options
	phases []phase
	suffix string // of the output topics
	// again is true where orders may have been counted again after a crash, each time as an order of its own.
	again bool

	found  map[string]description
	bounds map[kafka.TopicPartition]bounds
	lag    string // what the application has not done yet; "": nothing
	in     *input

	crashed   []*grader // one for each application of phase 6 that there is
	committed map[kafka.TopicPartition]int64

	highValue   memo[rows]
	counts      memo[*seriesOf]
	minutes     memo[*seriesOf]
	changelog   memo[*seriesOf]
	minuteLog   memo[*seriesOf]
	repartition memo[*repartition]
	late        memo[[]string]
	joined      memo[*joinedRows]
	statuses    memo[table]
	statusLog   memo[table]
	joinLog     memo[*joinLog]
	rest        memo[rest]
	state       memo[[]Check]

	ledgers  map[string]*ledger            // by topic and keys
	repeats  map[string][]Repeat           // orders with too many records, by the key that differs
	missteps map[string]map[string]misstep // by topic and key
}

// memo is a topic's content, once read.
type memo[T any] struct {
	done  bool
	value T
	err   error
}

func (m *memo[T]) get(read func() (T, error)) (T, error) {
	if !m.done {
		m.value, m.err = read()
		m.done = true
	}
	return m.value, m.err
}

// internal is the full name of an internal topic of the application under test.
func (g *grader) internal(suffix string) string { return g.opt.ApplicationID + "-" + suffix }

// output is the full name of an output topic of the application under test.
func (g *grader) output(topic string) string { return topic + g.suffix }

// ours tells the topics that matter from others on the same cluster.
func (g *grader) ours(name string) bool {
	for _, t := range labTopics {
		if name == t || isCrashOutput(name, t) {
			return true
		}
	}
	return strings.HasPrefix(name, g.opt.ApplicationID+"-")
}

// load reads everything but the outputs; the dead letters are one, but they say what the others need not hold.
//
// The order matters while the application is at work. Committed offsets come first: all results up to them were written before them, so are
// within the ends of the outputs, which come second. The ends of the inputs come last: so no result can be there whose order or status is not.
func (g *grader) load(ctx context.Context) error {
	var err error
	if g.found, err = g.topics.Describe(ctx, g.ours); err != nil {
		return err
	}
	if _, ok := g.found[topicPlaced]; !ok {
		return &missingError{topicPlaced}
	}
	g.committed, err = g.topics.Committed(ctx, g.opt.ApplicationID)
	if err != nil {
		return err
	}
	if err := g.findCrashed(ctx); err != nil {
		return err
	}
	if err := g.readBounds(ctx); err != nil {
		return err
	}
	g.lag = g.lagBehind(g.committed)
	if err := g.settleCrashed(ctx); err != nil {
		return err
	}
	if gone := g.deleted(topicPlaced); gone != "" {
		return fmt.Errorf("the input is not complete: %s", gone)
	}
	letters, err := g.readDeadLetters(ctx)
	if err != nil {
		return err
	}
	in := newInput(letters)
	if err := g.read(ctx, topicPlaced, in.add); err != nil {
		return err
	}
	g.in = in
	return g.settleRefused(ctx)
}

// readBounds asks for the bounds of all topics, those of the inputs last.
func (g *grader) readBounds(ctx context.Context) error {
	g.bounds = map[kafka.TopicPartition]bounds{}
	var outputs []kafka.TopicPartition
	for name := range g.found {
		if name != topicPlaced && name != topicStatus {
			outputs = append(outputs, g.partitions(name)...)
		}
	}
	for _, parts := range [][]kafka.TopicPartition{outputs, append(g.partitions(topicPlaced), g.partitions(topicStatus)...)} {
		found, err := g.topics.Bounds(ctx, parts)
		if err != nil {
			return err
		}
		maps.Copy(g.bounds, found)
	}
	return nil
}

func (g *grader) partitions(topic string) []kafka.TopicPartition {
	parts := make([]kafka.TopicPartition, g.found[topic].partitions)
	for p := range parts {
		parts[p] = kafka.TopicPartition{Topic: topic, Partition: int32(p)}
	}
	return parts
}

// lagBehind says what of the inputs and of the repartition topic the application has not committed yet. A partition without records has no
// committed offset, and no lag either.
func (g *grader) lagBehind(committed map[kafka.TopicPartition]int64) string {
	return g.lagOn(committed, topicPlaced, topicStatus, g.internal(suffixRepartition))
}

func (g *grader) lagOn(committed map[kafka.TopicPartition]int64, topics ...string) string {
	var behind []string
	for _, topic := range topics {
		for _, tp := range g.partitions(topic) {
			b := g.bounds[tp]
			done, ok := committed[tp]
			if !ok {
				done = b.start
			}
			if done < b.end {
				behind = append(behind, fmt.Sprintf("%d on %s", b.end-done, tp))
			}
		}
	}
	if len(behind) == 0 {
		return ""
	}
	if len(committed) == 0 {
		return fmt.Sprintf("%s has committed nothing yet: has a counter run?", g.opt.ApplicationID)
	}
	return fmt.Sprintf("%s has not committed all its input, lag %s: is a counter running?", g.opt.ApplicationID, someOf(behind))
}

// deleted names records of a topic that are gone.
func (g *grader) deleted(topic string) string {
	var gone []string
	for _, tp := range g.partitions(topic) {
		if b := g.bounds[tp]; b.start > 0 {
			gone = append(gone, fmt.Sprintf("partition %d before offset %d", tp.Partition, b.start))
		}
	}
	if len(gone) == 0 {
		return ""
	}
	return fmt.Sprintf("records of %s have been deleted: %s", topic, someOf(gone))
}

// missingError is a topic that is not there.
type missingError struct{ topic string }

func (e *missingError) Error() string { return fmt.Sprintf("topic %s does not exist", e.topic) }

func (g *grader) read(ctx context.Context, topic string, fn func(kafka.TopicPartition, *kafka.Record)) error {
	if _, ok := g.found[topic]; !ok {
		return &missingError{topic}
	}
	return g.topics.Read(ctx, g.boundsOf(topic), fn)
}

// logOf hands fn the whole log of a topic: markers too, and what was aborted.
func (g *grader) logOf(ctx context.Context, topic string, fn func(kafka.TopicPartition, *kafka.Record)) error {
	return g.topics.Log(ctx, g.boundsOf(topic), fn)
}

func (g *grader) boundsOf(topic string) map[kafka.TopicPartition]bounds {
	parts := map[kafka.TopicPartition]bounds{}
	for _, tp := range g.partitions(topic) {
		parts[tp] = g.bounds[tp]
	}
	return parts
}

func (g *grader) readHighValue(ctx context.Context) (rows, error) {
	return g.highValue.get(func() (rows, error) {
		rs := rows{}
		return rs, g.read(ctx, g.output(topicHighValue), rs.add)
	})
}

func (g *grader) readRepartition(ctx context.Context) (*repartition, error) {
	return g.repartition.get(func() (*repartition, error) {
		rs := newRepartition()
		return rs, g.read(ctx, g.internal(suffixRepartition), rs.add)
	})
}

func (g *grader) readCounts(ctx context.Context) (*seriesOf, error) {
	return g.counts.get(func() (*seriesOf, error) { return g.readSeries(ctx, g.output(topicCounts), text, decimalCount) })
}

func (g *grader) readMinutes(ctx context.Context) (*seriesOf, error) {
	return g.minutes.get(func() (*seriesOf, error) { return g.readSeries(ctx, g.output(topicMinutes), text, decimalCount) })
}

func (g *grader) readChangelog(ctx context.Context) (*seriesOf, error) {
	return g.changelog.get(func() (*seriesOf, error) {
		return g.readSeries(ctx, g.internal(suffixCountsChangelog), text, longCount)
	})
}

func (g *grader) readMinuteLog(ctx context.Context) (*seriesOf, error) {
	return g.minuteLog.get(func() (*seriesOf, error) {
		return g.readSeries(ctx, g.internal(suffixMinutesChangelog), windowKey, longCount)
	})
}

// reachedAt replays the repartition topic once more, for the timestamps with which some counts were reached.
func (g *grader) reachedAt(ctx context.Context, asks []ask) (map[ask]int64, error) {
	rs := newRepartition()
	for _, a := range asks {
		rs.asked[a] = -1
	}
	if len(asks) == 0 {
		return rs.asked, nil
	}
	return rs.asked, g.read(ctx, g.internal(suffixRepartition), rs.add)
}

func (g *grader) readJoined(ctx context.Context) (*joinedRows, error) {
	return g.joined.get(func() (*joinedRows, error) {
		rs := &joinedRows{}
		return rs, g.read(ctx, topicJoined, rs.add)
	})
}

func (g *grader) readStatuses(ctx context.Context) (table, error) {
	return g.statuses.get(func() (table, error) {
		t := table{}
		return t, g.read(ctx, topicStatus, t.add)
	})
}

func (g *grader) readStatusLog(ctx context.Context) (table, error) {
	return g.statusLog.get(func() (table, error) {
		t := table{}
		return t, g.read(ctx, g.internal(suffixStatusChangelog), t.add)
	})
}

// readSeries reads a topic of counts, on the watch for the milestones of all phases.
func (g *grader) readSeries(ctx context.Context, topic string, key func([]byte) string, count func([]byte) (int64, bool)) (*seriesOf, error) {
	s := &seriesOf{keys: map[string]*series{}, milestones: map[string][]int64{}, key: key, count: count}
	rs, err := g.readRepartition(ctx)
	if err != nil {
		rs = newRepartition() // those that depend on it are checked with it
	}
	for _, p := range g.phases {
		for _, m := range p.milestones(g.in, rs) {
			s.milestones[m.key] = append(s.milestones[m.key], m.value)
		}
	}
	return s, g.read(ctx, topic, s.add)
}

// unread is a check whose topic could not be read.
func unread(name, want string, err error) Check {
	c := Check{Name: name, Want: want, Got: reasonOf(err), Verdict: Unknown}
	var missing *missingError
	if errors.As(err, &missing) {
		c.Got = "no such topic"
		c.Details = []string{err.Error()}
	}
	return c
}
