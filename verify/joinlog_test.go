package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Each case is one thing that the engine did with an order and its statuses, or that somebody did with the topics, after a run of phase 5 that was
// right: three orders of ord-1042 were joined, with PAID, SHIPPED and SHIPPED.
func TestJoinLog(t *testing.T) {
	second := feedEvent(secondBase, 42)
	home := byKey(second.ID)
	next := byHand(second.ID, 1789211200000)
	row := func(status string, o order) func(kafka.Record) bool { return holds(o.ID, status+"|"+orderJSON(o)) }
	publish := func(m *memory, partition int, o order) {
		m.write(topicPlaced, partition, 1796040000000, o.ID, orderJSON(o))
		m.commitAll()
	}
	join := func(m *memory, status string, o order) {
		m.write(topicJoined, home, o.OccurredAt, o.ID, status+"|"+orderJSON(o))
	}
	status := func(m *memory, partition int, id, status string) {
		m.write(topicStatus, partition, 1796040000000, id, status)
		m.commitAll()
	}
	tests := map[string]struct {
		change func(t *testing.T, m *memory)
		again  bool
		want   Verdict
		says   string
	}{
		"right": {func(*testing.T, *memory) {}, false, Pass, "3 rows of 1 order ids"},
		"joined twice": {
			func(_ *testing.T, m *memory) { join(m, "SHIPPED", second) }, false, Fail,
			"offset 3: a row of ord-1042 for the 2. time, and the order was published 1 times",
		},
		"joined twice at least once": {
			func(_ *testing.T, m *memory) { join(m, "PAID", second) }, true, Pass, "rows of ord-1042 that were written again: 1",
		},
		"published twice, joined twice": {
			func(_ *testing.T, m *memory) { publish(m, home, second); join(m, "SHIPPED", second) }, false, Pass, "4 rows of 1 order ids",
		},
		"other bytes": {
			func(t *testing.T, m *memory) {
				m.change(t, topicJoined, row("SHIPPED", second), func(r *kafka.Record) { r.Value = append(slices.Clone(r.Value), ' ') })
			}, false, Fail, "a row of ord-1042 that is none of its placed orders, byte by byte and with its time",
		},
		"another time": {
			func(t *testing.T, m *memory) {
				m.change(t, topicJoined, row("SHIPPED", second), func(r *kafka.Record) { r.Timestamp++ })
			},
			false, Fail, "a row of ord-1042 that is none of its placed orders",
		},
		"no row": {
			func(t *testing.T, m *memory) {
				m.change(t, topicJoined, row("SHIPPED", second), func(r *kafka.Record) { r.Value = []byte("SHIPPED") })
			}, false, Fail, "a row of ord-1042 that is none of its placed orders",
		},
		"a later order not joined": {
			func(t *testing.T, m *memory) { m.remove(t, topicJoined, row("SHIPPED", second)) }, false, Fail,
			"ord-1042 of 2026-09-12T11:00:08Z (orders.placed partition 0 offset ",
		},
		"an order between them not joined": {
			func(t *testing.T, m *memory) { m.remove(t, topicJoined, row("SHIPPED", shippedOrder)) }, false, Fail,
			"was not joined, and one before it was (analytics.orders-with-status partition 0 offset 0)",
		},
		"the first ones not joined": {
			func(t *testing.T, m *memory) {
				m.remove(t, topicJoined, func(r kafka.Record) bool { return !row("SHIPPED", second)(r) })
			}, false, Pass, "1 rows of 1 order ids",
		},
		"a later order not processed yet": {
			func(_ *testing.T, m *memory) {
				committed := m.committed
				publish(m, home, next)
				m.committed = committed
			}, false, Unknown, "was not joined, and one before it was",
		},
		"its status deleted before the last order": {
			func(t *testing.T, m *memory) {
				m.write(topicStatus, home, 1796040000000, second.ID, "")
				last := len(*m.records(topicStatus, home)) - 1
				(*m.records(topicStatus, home))[last].Value = nil
				m.commitAll()
				m.remove(t, topicJoined, row("SHIPPED", second))
			}, false, Pass, "2 rows of 1 order ids",
		},
		// The deletion once had to be there to be seen: with a status published after it, compaction removes it.
		"its status deleted before the last order, and compacted away": {
			func(t *testing.T, m *memory) {
				m.topics[topicStatus].parts[home].end++
				m.commitAll()
				m.remove(t, topicJoined, row("SHIPPED", second))
				publish(m, home, next)
				status(m, home, second.ID, "PAID")
				join(m, "PAID", next)
			}, false, Unknown, "was not joined, and one before it was (analytics.orders-with-status partition 0 offset 1): orders.status, which has been compacted",
		},
		"rows in another order": {
			func(_ *testing.T, m *memory) {
				rs := *m.records(topicJoined, home)
				rs[1].Value, rs[2].Value = rs[2].Value, rs[1].Value
				rs[1].Timestamp, rs[2].Timestamp = rs[2].Timestamp, rs[1].Timestamp
			}, false, Fail, "offset 1: the row of ord-1042 stands behind that of a later order",
		},
		"back to the old status": {
			func(t *testing.T, m *memory) {
				m.change(t, topicJoined, row("SHIPPED", second), func(r *kafka.Record) { r.Value = []byte("PAID|" + orderJSON(second)) })
			}, false, Fail, `offset 2: a row of ord-1042 with "PAID", and a row before it has a later status`,
		},
		"back to a status that was published again": {
			func(t *testing.T, m *memory) {
				status(m, home, second.ID, "PAID")
				m.change(t, topicJoined, row("SHIPPED", second), func(r *kafka.Record) { r.Value = []byte("PAID|" + orderJSON(second)) })
			}, false, Pass, "3 rows",
		},
		"a status that nobody published": {
			func(t *testing.T, m *memory) {
				m.change(t, topicJoined, row("SHIPPED", second), func(r *kafka.Record) { r.Value = []byte("LOST|" + orderJSON(second)) })
			}, false, Fail, `with "LOST", and orders.status holds no such status of it in the order's partition`,
		},
		"a status that has been compacted away": {
			func(t *testing.T, m *memory) { m.remove(t, topicStatus, holds(second.ID, "PAID")) }, false, Pass,
			`with "PAID", and orders.status holds no such status of it in the order's partition: the topic of the statuses has been compacted`,
		},
		"a status with a bar and a brace": {
			func(_ *testing.T, m *memory) {
				status(m, home, second.ID, "SENT|{2}")
				publish(m, home, next)
				join(m, "SENT|{2}", next)
			}, false, Pass, "4 rows",
		},
		"an order without a status": {
			func(_ *testing.T, m *memory) {
				o := feedEvent(secondBase, 43)
				m.write(topicJoined, byKey(o.ID), o.OccurredAt, o.ID, "|"+orderJSON(o))
			}, false, Fail, "ord-1043 is joined (analytics.orders-with-status partition 1 offset 0), and no status of it was published",
		},
		"an order without a status, and statuses compacted away": {
			func(t *testing.T, m *memory) {
				o := feedEvent(secondBase, 43)
				m.write(topicJoined, byKey(o.ID), o.OccurredAt, o.ID, "PAID|"+orderJSON(o))
				m.remove(t, topicStatus, holds(second.ID, "PAID"))
			}, false, Unknown, "which has been compacted, has no status of it",
		},
		// Partitions are joined one by one, so the status of another one is not seen.
		"a status of another partition": {
			func(_ *testing.T, m *memory) {
				o := feedEvent(secondBase, 43)
				status(m, (byKey(o.ID)+1)%labPartitions, o.ID, "PAID")
				m.write(topicJoined, byKey(o.ID), o.OccurredAt, o.ID, "PAID|"+orderJSON(o))
			}, false, Fail, `a row of ord-1043 with "PAID", and orders.status holds no such status of it in the order's partition`,
		},
		"orders of one id in two partitions": {
			func(_ *testing.T, m *memory) {
				publish(m, (home+1)%labPartitions, next)
			}, false, Pass, "3 rows",
		},
		"a row on another partition": {
			func(_ *testing.T, m *memory) {
				publish(m, home, next)
				m.write(topicJoined, (home+1)%labPartitions, next.OccurredAt, next.ID, "SHIPPED|"+orderJSON(next))
			}, false, Fail, "ord-1042 belongs to partition 0, by the hash of its key",
		},
		"an order without a key, and a status with an empty one": {
			func(_ *testing.T, m *memory) {
				o := byHand("", 1789211200000)
				at := int(partitionOf(nil, labPartitions))
				status(m, at, "", "PAID")
				publish(m, at, o)
				m.write(topicJoined, at, o.OccurredAt, "", "PAID|"+orderJSON(o))
				o.OccurredAt++
				m.append(topicPlaced, at, kafka.Record{Value: []byte(orderJSON(o))})
				m.commitAll()
			}, false, Pass, "4 rows of 2 order ids",
		},
		"an order among the dead letters": {
			func(_ *testing.T, m *memory) {
				at := m.append(topicPlaced, home, kafka.Record{Key: []byte(next.ID), Value: []byte(orderJSON(next))})
				m.bury(home, at, kindRefused)
				m.commitAll()
			}, false, Pass, "3 rows",
		},
		"no status at all": {
			func(_ *testing.T, m *memory) {
				*m.records(topicStatus, home), *m.records(topicJoined, home) = nil, nil
				m.topics[topicStatus].parts[home].end = 0
			}, false, Unknown, "orders.status holds no row",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := takenOver(t)
			tt.change(t, m)
			g := loaded(t, m)
			g.again = tt.again
			c := g.checkJoinLog(t.Context())
			if text := strings.Join(append(c.Details, c.Got), "\n"); c.Verdict != tt.want || !strings.Contains(text, tt.says) {
				t.Errorf("%s, want %s with %q:\n%s", c.Verdict, tt.want, tt.says, text)
			}
		})
	}
}

// Of the orders only those are kept whose ids had a status.
func TestJoinLogIsSmall(t *testing.T) {
	l, err := loaded(t, takenOver(t)).readJoinLog(t.Context())
	if err != nil || l.size != 2+4+3 { // statuses, orders, rows
		t.Errorf("%d records kept, %v", l.size, err)
	}
}

// A recording may be made to take long: many orders of one id, each joined, with a status of its own; and a row that is all bars and braces.
func TestJoinLogOfOneID(t *testing.T) {
	if raceEnabled {
		t.Skip("180,000 records, and no second goroutine")
	}
	m := takenOver(t)
	home := byKey(paidOrder.ID)
	const n = 60_000
	for i := range n {
		o := byHand(paidOrder.ID, 1789211200000+int64(i))
		m.write(topicStatus, home, 1796040000000, o.ID, fmt.Sprint(i))
		m.write(topicPlaced, home, 1796040000000, o.ID, orderJSON(o))
		m.write(topicJoined, home, o.OccurredAt, o.ID, fmt.Sprintf("%d|%s", i, orderJSON(o)))
	}
	m.write(topicJoined, home, 1, paidOrder.ID, strings.Repeat("|{", 1<<21))
	m.commitAll()
	begin := time.Now()
	c := loaded(t, m).checkJoinLog(t.Context())
	if took := time.Since(begin); took > 20*time.Second || c.Verdict != Fail {
		t.Errorf("%s after %s:\n%s", c.Verdict, took, strings.Join(c.Details, "\n"))
	}
}
