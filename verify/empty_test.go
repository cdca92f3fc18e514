package verify

import (
	"slices"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// ofNoOutput are the checks that look at the input, at which topics there are, or for what was left open: all that may pass while the outputs hold
// nothing.
var ofNoOutput = []string{"input, ", "topics of the lab", "internal topics", "orders read", "at rest"}

// A check that compared all of nothing passed: "one partition a store: 0 of 0 stores". No check of any phase may pass on topics that hold
// nothing, whether it was purged or never written.
func TestNothingIsNoPass(t *testing.T) {
	outputs := func(m *memory, empty func(p *memoryPartition)) {
		for name, topic := range m.topics {
			if name == topicPlaced {
				continue
			}
			for i := range topic.parts {
				empty(&topic.parts[i])
			}
		}
	}
	tests := map[string]struct {
		spoil func(m *memory)
		want  Verdict
	}{
		"purged": {func(m *memory) {
			outputs(m, func(p *memoryPartition) { p.start, p.records = p.end, nil })
		}, Unknown},
		"not counted yet": {func(m *memory) {
			outputs(m, func(p *memoryPartition) { *p = memoryPartition{} })
			m.committed = nil
			clear(m.others)
		}, Unknown},
		// As if all had been processed and nothing had come of it.
		"lost": {func(m *memory) {
			outputs(m, func(p *memoryPartition) { *p = memoryPartition{} })
			for tp := range m.committed {
				if tp.Topic != topicPlaced {
					delete(m.committed, tp)
				}
			}
		}, Fail},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := crashedRuns(t, 20)
			tt.spoil(m)
			r, text := grade(t, m, Options{Phases: []int{1, 2, 3, 4, 5, 6}})
			for _, p := range r.Phases {
				for _, c := range p.Checks {
					known := slices.ContainsFunc(ofNoOutput, func(s string) bool { return strings.Contains(c.Name, s) }) ||
						slices.ContainsFunc(internalTopics, func(topic internalTopic) bool { return topic.suffix == c.Name })
					if c.Verdict == Pass && !known {
						t.Errorf("phase %d: %s passes: %s", p.Phase, c.Name, c.Got)
					}
				}
				if p.Verdict == Pass {
					t.Errorf("phase %d passes", p.Phase)
				}
			}
			if r.Verdict() != tt.want {
				t.Errorf("verdict %s, want %s:\n%s", r.Verdict(), tt.want, text)
			}
		})
	}
}

// One store that never came to be counted is missed where the others are there.
func TestAMissingStoreIsMissed(t *testing.T) {
	m := golden(t)
	for p := range m.topics[repartitionTopic].parts {
		rs := m.records(repartitionTopic, p)
		*rs = slices.DeleteFunc(*rs, func(r kafka.Record) bool { return string(r.Key) == "store-19" })
	}
	_, text := grade(t, m, Options{Phases: []int{2}})
	for _, says := range []string{"FAIL     one partition a store", "5 of 6 stores", "no order of store-19 came to be counted"} {
		if !strings.Contains(text, says) {
			t.Errorf("does not say %q:\n%s", says, text)
		}
	}
}
