package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

func whyLate(t *testing.T, m *memory) []string {
	t.Helper()
	g := &grader{topics: m, opt: Options{ApplicationID: defaultApplicationID}, phases: phases}
	if err := g.load(context.Background()); err != nil {
		t.Fatal(err)
	}
	notes, err := g.whyLate(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return notes
}

// The order of the repartition topic alone makes an order late, and when the orders were sent tells whether it was.
func TestWhyLate(t *testing.T) {
	// reorder moves ord-2003, which closes the minute of the feed, to the front of some orders of its task.
	reorder := func(m *memory, ahead int) {
		rs := *m.records(repartitionTopic, 1)
		at := slices.IndexFunc(rs, ofOrder("ord-2003"))
		jump := rs[at]
		rs = slices.Insert(slices.Delete(rs, at, at+1), at-ahead, jump)
		for i := range rs {
			rs[i].Offset = int64(i)
		}
		*m.records(repartitionTopic, 1) = rs
	}
	tests := map[string]struct {
		change func(t *testing.T, m *memory)
		says   []string
		not    []string
	}{
		"sent late": {
			func(*testing.T, *memory) {},
			[]string{"1 of 277 orders came too late", "1 came after ord-2003 of 2026-09-12T10:03:00Z", "ord-2004 of 2026-09-12T10:00:45Z (offset 153); sent after it: 1"},
			[]string{"sent before it"},
		},
		"a task ahead of another": {
			func(_ *testing.T, m *memory) { reorder(m, 3) },
			[]string{"sent after it: 1; sent before it: 3, but it is orders.placed partition 0 offset 90 and they are in partition"}, nil,
		},
		"the first of its task": {
			func(_ *testing.T, m *memory) {
				reorder(m, slices.IndexFunc(*m.records(repartitionTopic, 1), ofOrder("ord-2003")))
			},
			[]string{"had moved stream time from its first to 2026-09-12T10:03:00Z", "and 150 more"}, nil,
		},
		"sent twice": {
			func(_ *testing.T, m *memory) {
				m.write(topicPlaced, 1, 1796040000000, "ord-2003", orderJSON(phase3Orders[2]))
			},
			[]string{"1 came after ord-2003"}, []string{"sent after it", "sent before it"},
		},
		"no order at all": {
			func(t *testing.T, m *memory) {
				m.change(t, repartitionTopic, ofOrder("ord-2003"), func(r *kafka.Record) { r.Value = []byte("?") })
			},
			[]string{"1 came after a record that is no order of 2026-09-12T10:03:00Z"}, []string{"sent after it"},
		},
		"nothing late": {
			func(t *testing.T, m *memory) { m.remove(t, repartitionTopic, ofOrder("ord-2004")) },
			nil, []string{"too late"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := golden(t)
			tt.change(t, m)
			notes := whyLate(t, m)
			text := strings.Join(notes, "\n")
			for _, says := range tt.says {
				if !strings.Contains(text, says) {
					t.Errorf("does not say %q:\n%s", says, text)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(text, not) {
					t.Errorf("says %q:\n%s", not, text)
				}
			}
		})
	}
}

// However many orders close minutes for others, only some are told of, and those first that did it for most.
func TestWhyLateIsShort(t *testing.T) {
	m := golden(t)
	for i := range 10 {
		start := int64(secondBase) + int64(i)*10*minute
		closing, late := byHand(fmt.Sprint("c-", i), start+5*minute), byHand(fmt.Sprint("l-", i), start)
		for range i + 1 {
			m.write(topicPlaced, 0, 1796040000000, late.ID, orderJSON(late))
		}
		m.write(topicPlaced, 1, 1796040000000, closing.ID, orderJSON(closing))
		m.write(repartitionTopic, 1, closing.OccurredAt, closing.Store, orderJSON(closing))
		for range i + 1 {
			m.write(repartitionTopic, 1, late.OccurredAt, late.Store, orderJSON(late))
		}
	}
	notes := whyLate(t, m)
	if len(notes) != maxGroups+2 || !strings.HasPrefix(notes[1], "10 came after c-9 ") || !strings.HasPrefix(notes[len(notes)-1], "and 7 more orders") {
		t.Errorf("%d notes:\n%s", len(notes), strings.Join(notes, "\n"))
	}
}
