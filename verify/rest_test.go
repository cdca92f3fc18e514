package verify

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// openIn leaves a transaction of producer 7 open at the end of a partition.
func (m *memory) openIn(topic string, partition int) {
	p := &m.topics[topic].parts[partition]
	p.stable = p.end
	p.records = append(p.records, kafka.Record{
		Offset: p.end, Transactional: true, ProducerID: 7, ProducerEpoch: 3, Key: []byte("store-17"), Value: []byte("1"),
	})
	p.end++
}

// settling ends the open transactions once its bounds have been asked for that often.
type settling struct {
	topics
	after int
}

func (s *settling) Bounds(ctx context.Context, parts []kafka.TopicPartition) (map[kafka.TopicPartition]bounds, error) {
	found, err := s.topics.Bounds(ctx, parts)
	s.after--
	for tp, b := range found {
		if s.after < 0 {
			found[tp] = bounds{b.start, b.end, b.end}
		}
	}
	return found, err
}

// working ends its transactions one after the other and begins new ones.
type working struct {
	topics
	looks int64
}

func (w *working) Bounds(ctx context.Context, parts []kafka.TopicPartition) (map[kafka.TopicPartition]bounds, error) {
	found, err := w.topics.Bounds(ctx, parts)
	w.looks++
	for tp, b := range found {
		if b.stable < b.end {
			found[tp] = bounds{b.start, b.end + w.looks, b.stable + w.looks}
		}
	}
	return found, err
}

func TestAtRest(t *testing.T) {
	none := func(*memory) {}
	tests := map[string]struct {
		change  func(m *memory)
		settles int // after so many looks; 0: never; -1: each transaction does, and there is always one
		app     int // of phase 6; -1: that of the phases before it
		want    Verdict
		says    string
	}{
		"at rest": {none, 0, -1, Pass, "transactions open: 0, members: none"},
		"left open": {
			func(m *memory) { m.openIn(topicCounts, 1) }, 0, -1, Fail,
			"analytics.orders-per-store partition 1 offset 10: a transaction of producer 7 epoch 3 is open and hides what comes after it, up to 11, " +
				"and order-counter has no member that could end it",
		},
		"left open in the dead letters": {
			func(m *memory) {
				m.append(deadLetterTopic, 0, kafka.Record{})
				m.openIn(deadLetterTopic, 0)
			}, 0, -1, Fail, deadLetterTopic + " partition 0 offset 1",
		},
		"left open by nobody knows whom": {
			func(m *memory) {
				p := &m.topics[topicCounts].parts[1]
				p.stable = p.end
				p.end++
			}, 0, -1, Fail,
			"analytics.orders-per-store partition 1 offset 10: a transaction is open",
		},
		// The coordinator has written the decision, and not all of the markers.
		"just ended": {func(m *memory) { m.openIn(topicCounts, 1) }, 3, -1, Pass, "transactions open: 0"},
		"a counter at work": {
			func(m *memory) {
				m.openIn(changelogTopic, 1)
				m.members = map[string][]string{defaultApplicationID: {"b", "a"}}
			}, 0, -1, Pass, "transactions open: 1, members: a, b",
		},
		// A group of Kafka's streams protocol has no members that DescribeGroups tells of.
		"at work, by members that are not to be seen": {func(m *memory) { m.openIn(topicCounts, 1) }, -1, -1, Pass, "transactions open: 0"},
		"a counter that waits":                        {func(m *memory) { m.members = map[string][]string{defaultApplicationID: {"a"}} }, 0, -1, Pass, "members: a"},
		"a user's own producer":                       {func(m *memory) { m.openIn(topicPlaced, 1) }, 0, -1, Pass, "transactions open: 0"},
		"another application's":                       {func(m *memory) { m.openIn(eosCounts, 1) }, 0, -1, Pass, "transactions open: 0"},
		"phase 6: at rest":                            {func(m *memory) { m.openIn(topicCounts, 1) }, 0, 0, Pass, "transactions open: 0, members: none"},
		"phase 6: left open":                          {func(m *memory) { m.openIn(eosCounts, 1) }, 0, 0, Fail, "and order-counter-eos has no member"},
		// A Java program that was closed is a member for 45 s more.
		"phase 6: left a member":  {func(m *memory) { m.members = map[string][]string{alosID: {"x"}} }, 0, 1, Unknown, "order-counter-alos still has members: x"},
		"phase 6: of the other":   {func(m *memory) { m.members = map[string][]string{alosID: {"x"}} }, 0, 0, Pass, "members: none"},
		"phase 6: still counting": {func(m *memory) { m.members = map[string][]string{alosID: {"x"}}; m.others[alosID] = nil }, 0, 1, Unknown, "still has members"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := crashedRuns(t, 0)
			tt.change(m)
			synctest.Test(t, func(t *testing.T) {
				g := loaded(t, m)
				if tt.app >= 0 {
					of := g.crashed[tt.app]
					if err := of.loadCrashed(t.Context(), g.in); err != nil {
						t.Fatal(err)
					}
					g = of
				}
				switch {
				case tt.settles > 0:
					g.topics = &settling{m, tt.settles}
				case tt.settles < 0:
					g.topics = &working{topics: m}
				}
				c := g.checkAtRest(t.Context(), tt.app >= 0)
				if text := strings.Join(append(c.Details, c.Got), "\n"); c.Verdict != tt.want || !strings.Contains(text, tt.says) {
					t.Errorf("%s, want %s with %q:\n%s", c.Verdict, tt.want, tt.says, text)
				}
			})
		})
	}
}

// loaded is a grader that has read the input.
func loaded(t *testing.T, m topics) *grader {
	t.Helper()
	g := &grader{topics: m, opt: Options{ApplicationID: defaultApplicationID}, phases: phases}
	if err := g.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}
