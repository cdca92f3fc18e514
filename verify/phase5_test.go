package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

const (
	at1100 = "store-17|2026-09-12T11:00:00Z"
	at1105 = "store-17|2026-09-12T11:05:00Z"
)

// secondFeed adds the second feed, with all that has to come of it as two instances write it that commit once: the last count of each store, and
// of each store's minute.
func (m *memory) secondFeed() {
	task := func(store string) int { return int(partitionOf([]byte(store), 2)) }
	running := map[string]int64{"store-17": 57, "store-18": 40, "store-19": 50, "store-20": 40, "store-21": 50, "store-22": 40}
	inMinute, latest := map[string]int64{}, map[string]int64{}
	for i := range feedSize {
		o := feedEvent(secondBase, i)
		value := orderJSON(o)
		if !o.Placed {
			m.write(topicPlaced, byKey(o.ID), 1796040000000, o.ID, strings.Replace(value, "PLACED", "CANCELLED", 1))
			continue
		}
		m.write(topicPlaced, byKey(o.ID), 1796040000000, o.ID, value)
		m.write(repartitionTopic, task(o.Store), o.OccurredAt, o.Store, value)
		if o.Amount >= highValue {
			m.write(topicHighValue, byKey(o.Store), o.OccurredAt, o.Store, fmt.Sprint(o.Amount))
		}
		if o.ID == shippedOrder.ID {
			m.write(topicJoined, byKey(o.ID), o.OccurredAt, o.ID, "SHIPPED|"+value)
		}
		running[o.Store]++
		inMinute[o.Store]++
		latest[o.Store] = o.OccurredAt
	}
	for _, store := range slices.Sorted(maps.Keys(running)) {
		m.write(topicCounts, byKey(store), latest[store], store, fmt.Sprint(running[store]))
		m.write(changelogTopic, task(store), latest[store], store, long(running[store]))
		m.write(topicMinutes, byKey(minuteKey(store, secondBase)), latest[store], minuteKey(store, secondBase), fmt.Sprint(inMinute[store]))
		m.write(minuteLogTopic, task(store), latest[store], windowBytes(store, secondBase), long(inMinute[store]))
	}
	m.commitAll()
}

// takenOver is the state after phase 5.
func takenOver(t testing.TB) *memory {
	t.Helper()
	m := golden(t)
	m.secondFeed()
	m.later(afterTakeoverOrder, 108, 1)
	return m
}

// After phase 5 the earlier phases are still what they were.
func TestTakeover(t *testing.T) {
	r, text := grade(t, takenOver(t), Options{Phases: []int{1, 2, 3, 4, 5}})
	if r.Verdict() != Pass {
		t.Errorf("verdict %s:\n%s", r.Verdict(), text)
	}
	for _, says := range []string{
		"high-value rows of feeds 1 and 2  230",
		"running counts before ord-2006    107, 80, 100, 80, 100, 80",
		"count of store-17 goes on         107 at offset 8, 108 at offset 9",
		"joined orders                     PAID|ord-1042, SHIPPED|ord-1042, SHIPPED|ord-1042",
	} {
		if !strings.Contains(text, says) {
			t.Errorf("does not say %q:\n%s", says, text)
		}
	}
}

func TestSecondFeedAloneIsNotPhase5(t *testing.T) {
	m := golden(t)
	m.secondFeed()
	r, text := grade(t, m, Options{})
	if r.Verdict() != Pass || !strings.Contains(text, "NOT RUN  phase 5: orders.placed has no ord-2006 of 2026-09-12T11:05:00Z") {
		t.Errorf("verdict %s:\n%s", r.Verdict(), text)
	}
}

// Each case is one thing gone wrong, or one that is allowed, in a run of phase 5 that was right.
func TestTakeoverMutations(t *testing.T) {
	second := feedEvent(secondBase, 42)
	tests := map[string]struct {
		change func(t *testing.T, m *memory)
		want   Verdict
		says   []string
	}{
		"event of the second feed dropped": {
			func(t *testing.T, m *memory) {
				m.remove(t, topicPlaced, func(r kafka.Record) bool { return string(r.Value) == orderJSON(feedEvent(secondBase, 7)) })
			}, Unknown,
			[]string{"UNKNOWN  input, feed 2   299 events", "orders.placed has no ord-1007"},
		},
		"no second feed": {
			func(_ *testing.T, m *memory) {
				c := golden(t)
				c.later(afterTakeoverOrder, 58, 1)
				*m = *c
			}, Unknown,
			[]string{"UNKNOWN  input, feed 2   0 events from 2026-09-12T11:00:00Z"},
		},
		"order of phase 4 not sent": {
			func(t *testing.T, m *memory) { m.remove(t, topicPlaced, ofOrder("ord-2005")) }, Unknown,
			[]string{"UNKNOWN  input, phase 4  2 orders"},
		},
		"order after the takeover not counted": {
			func(t *testing.T, m *memory) {
				m.remove(t, topicCounts, holds("store-17", "108"))
				m.remove(t, changelogTopic, holds("store-17", long(108)))
			}, Fail,
			[]string{"store-17 came to 107 of 108", "store-17 has 107 of 108"},
		},
		"order lost with its owner": {
			func(t *testing.T, m *memory) { m.remove(t, repartitionTopic, ofOrder("ord-2006")) }, Fail,
			[]string{"FAIL     repartition records", "store-17 has 107 of 108 records; no record of ord-2006", "FAIL     orders at the counting task"},
		},
		"order not counted yet": {
			func(t *testing.T, m *memory) {
				c := golden(t)
				c.secondFeed()
				c.write(topicPlaced, 0, 1796040000000, afterTakeoverOrder.ID, orderJSON(afterTakeoverOrder))
				*m = *c
			}, Unknown,
			[]string{"UNKNOWN  repartition records", "UNKNOWN  running counts  ", "lag 1 on orders.placed-0"},
		},
		"an order counted again by the new owner": {
			func(_ *testing.T, m *memory) {
				m.write(repartitionTopic, 1, afterTakeoverOrder.OccurredAt, "store-17", orderJSON(afterTakeoverOrder))
				m.write(topicCounts, 1, afterTakeoverOrder.OccurredAt, "store-17", "109")
				m.write(changelogTopic, 1, afterTakeoverOrder.OccurredAt, "store-17", long(109))
				m.write(topicMinutes, 0, afterTakeoverOrder.OccurredAt, at1105, "2")
				m.write(minuteLogTopic, 1, afterTakeoverOrder.OccurredAt, windowBytes("store-17", floorMinute(afterTakeoverOrder.OccurredAt)), long(2))
				m.commitAll()
			}, Fail,
			[]string{"store-17 has 109 of 108 records (at least once may send again after a crash)", "repeats ord-2006", "PASS     owners of the counts "},
		},
		"counted from an old state": {
			func(t *testing.T, m *memory) {
				for topic, value := range map[string]string{topicCounts: "58", changelogTopic: long(58)} {
					want := map[string]string{topicCounts: "108", changelogTopic: long(108)}[topic]
					m.change(t, topic, holds("store-17", want), func(r *kafka.Record) { r.Value = []byte(value) })
				}
			}, Fail,
			[]string{"FAIL     owners of the counts", "changelog written by two owners: store-17 falls or repeats 1 times, first 58 after 107", "store-17 has 58 of 108"},
		},
		"two owners wrote the same count": {
			func(_ *testing.T, m *memory) {
				m.write(changelogTopic, 1, afterTakeoverOrder.OccurredAt, "store-17", long(108))
			}, Fail,
			[]string{"FAIL     owners of the counts", "store-17 falls or repeats 1 times, first 108 after 108", "PASS     owners of the minute counts"},
		},
		"two owners wrote the same minute count": {
			func(_ *testing.T, m *memory) {
				m.write(minuteLogTopic, 1, afterTakeoverOrder.OccurredAt, windowBytes("store-17", floorMinute(afterTakeoverOrder.OccurredAt)), long(1))
			}, Fail,
			[]string{"FAIL     owners of the minute counts", at1105 + " falls or repeats 1 times"},
		},
		"count before the kill passed over": {
			func(t *testing.T, m *memory) { m.remove(t, topicCounts, holds("store-17", "107")) }, Pass,
			[]string{"(108), 80, 100, 80, 100, 80", "store-17 passed over 107 to 108", "not both of them were written"},
		},
		"counts before and after in the wrong order": {
			func(_ *testing.T, m *memory) {
				rs := *m.records(topicCounts, 1)
				last := len(rs) - 1
				before := slices.IndexFunc(rs, func(r kafka.Record) bool { return string(r.Value) == "107" })
				rs[before].Value, rs[last].Value = rs[last].Value, rs[before].Value
				rs[before].Timestamp, rs[last].Timestamp = rs[last].Timestamp, rs[before].Timestamp
			}, Fail,
			[]string{"FAIL     count of store-17 goes on", "stands before 107"},
		},
		"count of another store too high": {
			func(t *testing.T, m *memory) {
				m.change(t, topicCounts, holds("store-18", "80"), func(r *kafka.Record) { r.Value = []byte("81") })
			}, Fail,
			[]string{"store-18 has 81 of 80", "store-18 passed over 80 to 81"},
		},
		"window of the second feed short": {
			func(t *testing.T, m *memory) {
				m.change(t, topicMinutes, holds(at1100, "50"), func(r *kafka.Record) { r.Value = []byte("49") })
				m.change(t, minuteLogTopic, holds(windowBytes("store-17", secondBase), long(50)), func(r *kafka.Record) { r.Value = []byte(long(49)) })
			}, Fail,
			[]string{"FAIL     minute counts of feed 2", at1100 + " came to 49 of 50"},
		},
		"window after the takeover missing": {
			func(t *testing.T, m *memory) { m.remove(t, topicMinutes, holds(at1105, "1")) }, Fail,
			[]string{"FAIL     minute counts  ", at1105 + " was never counted, want 1"},
		},
		"high-value order of the second feed routed twice": {
			func(_ *testing.T, m *memory) {
				o := feedEvent(secondBase, 4)
				m.write(topicHighValue, 0, o.OccurredAt, o.Store, fmt.Sprint(o.Amount))
			}, Fail,
			[]string{"FAIL     high-value rows  ", "231", "repeats ord-1004"},
		},
		"order of the second feed not joined": {
			func(t *testing.T, m *memory) {
				m.remove(t, topicJoined, holds("ord-1042", "SHIPPED|"+orderJSON(second)))
			}, Fail,
			[]string{"FAIL     joined orders", "missing: SHIPPED of ord-1042, which occurred at 2026-09-12T11:00:08Z"},
		},
		"joined with a status from before": {
			func(t *testing.T, m *memory) {
				m.change(t, topicJoined, holds("ord-1042", "SHIPPED|"+orderJSON(second)), func(r *kafka.Record) {
					r.Value = []byte("PAID|" + orderJSON(second))
				})
			}, Fail,
			[]string{"extra: PAID of ord-1042, which occurred at 2026-09-12T11:00:08Z", "missing: SHIPPED of ord-1042, which occurred at 2026-09-12T11:00:08Z"},
		},
		"ord-2006 joined": {
			func(_ *testing.T, m *memory) {
				m.write(topicJoined, 1, afterTakeoverOrder.OccurredAt, "ord-2006", "PAID|"+orderJSON(afterTakeoverOrder))
			}, Fail,
			[]string{"extra: PAID of ord-2006", "no status of it was published"},
		},
		"repartition purged": {
			func(_ *testing.T, m *memory) {
				p := &m.topics[repartitionTopic].parts[1]
				p.start, p.records = p.end, nil
			}, Unknown,
			[]string{"UNKNOWN  repartition records", "PASS     owners of the counts"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := takenOver(t)
			tt.change(t, m)
			r, text := grade(t, m, Options{Phases: []int{5}})
			if r.Verdict() != tt.want {
				t.Errorf("verdict %s, want %s:\n%s", r.Verdict(), tt.want, text)
			}
			for _, says := range tt.says {
				if !strings.Contains(text, says) {
					t.Errorf("does not say %q:\n%s", says, text)
				}
			}
		})
	}
}
