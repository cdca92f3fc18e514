package verify

import (
	"slices"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// A counter with another partitioner keeps each store together, and all of its counts are right. But the next producer of the topic, or a join
// with it, looks for the store elsewhere.
func TestPartitionsByKey(t *testing.T) {
	// move takes the records of a store to another partition.
	move := func(m *memory, topic, store string, to int) {
		ofStore := func(r kafka.Record) bool { return strings.HasPrefix(string(r.Key), store) }
		for p := range m.topics[topic].parts {
			for _, r := range *m.records(topic, p) {
				if p != to && ofStore(r) {
					m.write(topic, to, r.Timestamp, string(r.Key), string(r.Value))
				}
			}
			if p != to {
				*m.records(topic, p) = slices.DeleteFunc(*m.records(topic, p), ofStore)
			}
		}
		m.commitAll()
	}
	tests := map[string]struct {
		change func(m *memory)
		phase  int
		says   string
	}{
		"the repartition topic": {
			func(m *memory) {
				for _, topic := range []string{repartitionTopic, changelogTopic, minuteLogTopic} {
					move(m, topic, "store-18", 1)
				}
			}, 2, "store-18 is in partition 1 of the repartition topic, and by the hash of its key it belongs to 0",
		},
		"the changelog of the minutes": {
			func(m *memory) { move(m, minuteLogTopic, "store-18", 1) }, 2,
			"store-18|2026-09-12T10:00:00Z is in partition 1 of the changelog, and its store is counted by another task",
		},
		"the dear orders": {
			func(m *memory) { move(m, topicHighValue, "store-19", 0) }, 1, ": store-19 belongs to partition 2, by the hash of its key",
		},
		"the counts": {
			func(m *memory) { move(m, topicCounts, "store-19", 0) }, 2, "offset 6: store-19 belongs to partition 2, by the hash of its key",
		},
		"the minutes": {
			func(m *memory) { move(m, topicMinutes, "store-19", 0) }, 5, "store-19|2026-09-12T10:00:00Z belongs to partition 2",
		},
		"the counts of phase 6": {
			func(m *memory) { move(m, alosCounts, "store-19", 0) }, 6, "store-19 belongs to partition 2, by the hash of its key",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := crashedRuns(t, 0)
			tt.change(m)
			r, text := grade(t, m, Options{Phases: []int{tt.phase}})
			if r.Verdict() != Fail || !strings.Contains(text, tt.says) {
				t.Errorf("%s, want FAIL with %q:\n%s", r.Verdict(), tt.says, text)
			}
		})
	}
}
