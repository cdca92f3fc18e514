package verify

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

const statusLogTopic = "order-counter-order-status-changelog"

// remove takes the records out that match, leaving a gap.
func (m *memory) remove(t *testing.T, topic string, match func(kafka.Record) bool) {
	t.Helper()
	removed := 0
	for p := range m.topics[topic].parts {
		rs := m.records(topic, p)
		before := len(*rs)
		*rs = slices.DeleteFunc(*rs, match)
		removed += before - len(*rs)
	}
	if removed == 0 {
		t.Fatalf("nothing to remove from %s", topic)
	}
}

// change changes the only record that matches.
func (m *memory) change(t *testing.T, topic string, match func(kafka.Record) bool, change func(*kafka.Record)) {
	t.Helper()
	changed := 0
	for p := range m.topics[topic].parts {
		for i := range *m.records(topic, p) {
			if r := &(*m.records(topic, p))[i]; match(*r) {
				change(r)
				changed++
			}
		}
	}
	if changed != 1 {
		t.Fatalf("%d records of %s changed", changed, topic)
	}
}

// write appends a record.
func (m *memory) write(topic string, partition int, timestamp int64, key, value string) {
	p := &m.topics[topic].parts[partition]
	p.records = append(p.records, kafka.Record{Offset: p.end, Timestamp: timestamp, Key: []byte(key), Value: []byte(value)})
	p.end++
}

func holds(key, value string) func(kafka.Record) bool {
	return func(r kafka.Record) bool { return string(r.Key) == key && string(r.Value) == value }
}

func ofOrder(id string) func(kafka.Record) bool {
	return func(r kafka.Record) bool { return strings.Contains(string(r.Value), `"`+id+`"`) }
}

func orderJSON(o order) string {
	return fmt.Sprintf(`{"orderId":"%s","storeId":"%s","status":"PLACED","amount":%d,"occurredAt":%d}`, o.ID, o.Store, o.Amount, o.OccurredAt)
}

func long(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

func windowBytes(key string, start int64) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64([]byte(key), uint64(start)), 0))
}

// byKey is the partition of a key in the topics of the lab.
func byKey(key string) int { return int(partitionOf([]byte(key), labPartitions)) }

// later adds an order of store-17 that comes after everything, with all that has to come of it but a joined row.
func (m *memory) later(o order, running, inMinute int64) {
	start := floorMinute(o.OccurredAt)
	m.write(topicPlaced, byKey(o.ID), 1796040000000, o.ID, orderJSON(o))
	m.write(repartitionTopic, 1, o.OccurredAt, o.Store, orderJSON(o))
	m.write(topicCounts, 1, o.OccurredAt, o.Store, fmt.Sprint(running))
	m.write(changelogTopic, 1, o.OccurredAt, o.Store, long(running))
	m.write(topicMinutes, byKey(minuteKey(o.Store, start)), o.OccurredAt, minuteKey(o.Store, start), fmt.Sprint(inMinute))
	m.write(minuteLogTopic, 1, o.OccurredAt, windowBytes(o.Store, start), long(inMinute))
	m.commitAll()
}

const (
	at1000, at1001, at1003 = "store-17|2026-09-12T10:00:00Z", "store-17|2026-09-12T10:01:00Z", "store-17|2026-09-12T10:03:00Z"
	ms1000, ms1001, ms1003 = 1789207200000, 1789207260000, 1789207380000
)

// Each case is one thing gone wrong, or one that is allowed, in a run of phases 3 and 4 that was right.
func TestByHandMutations(t *testing.T) {
	paid, shipped := "PAID|"+orderJSON(paidOrder), "SHIPPED|"+orderJSON(shippedOrder)
	tests := map[string]struct {
		change func(t *testing.T, m *memory)
		want   Verdict
		says   []string
	}{
		"order of phase 3 not sent": {
			func(t *testing.T, m *memory) { m.remove(t, topicPlaced, ofOrder("ord-2002")) }, Fail,
			[]string{"UNKNOWN  phase 3", "orders.placed has no ord-2002 of 2026-09-12T10:00:30Z", "offset 151 is of no order"},
		},
		"new minute not written": {
			func(t *testing.T, m *memory) { m.remove(t, topicMinutes, holds(at1001, "1")) }, Fail,
			[]string{"FAIL     minute counts ", at1001 + " was never counted, want 1"},
		},
		"minute not revised": {
			func(t *testing.T, m *memory) { m.remove(t, topicMinutes, holds(at1000, "51")) }, Fail,
			[]string{at1000 + " came to 50 of 51"},
		},
		"minute not revised in the changelog": {
			func(t *testing.T, m *memory) {
				m.remove(t, minuteLogTopic, holds(windowBytes("store-17", ms1000), long(51)))
			}, Fail,
			[]string{"FAIL     minute counts in the changelog", at1000 + " came to 50 of 51"},
		},
		"minute passed over by the cache": {
			func(t *testing.T, m *memory) { m.remove(t, topicMinutes, holds(at1003, "1")) }, Pass,
			[]string{"1, 51, (2)", at1003 + " passed over 1 to 2"},
		},
		"minute passed over, and the next not right": {
			func(t *testing.T, m *memory) {
				m.remove(t, topicMinutes, holds(at1003, "1"))
				m.change(t, topicMinutes, holds(at1003, "2"), func(r *kafka.Record) { r.Timestamp -= 200 })
			}, Fail,
			[]string{"UNKNOWN  minute counts ", at1003 + " passed over 1 to 2", "is 2 at time 1789207409800"},
		},
		"revised before the new minute": {
			func(_ *testing.T, m *memory) {
				rs := *m.records(topicMinutes, 1)
				rs[1], rs[2] = rs[2], rs[1]
				rs[1].Offset, rs[2].Offset = 1, 2
			}, Fail,
			[]string{"FAIL     sequence of the minute counts", at1000 + " 51 (analytics.orders-per-store-minute partition 1 offset 1) stands before"},
		},
		"minute with the time of its last order": {
			func(t *testing.T, m *memory) {
				m.change(t, topicMinutes, holds(at1000, "51"), func(r *kafka.Record) { r.Timestamp = 1789207230000 })
			}, Fail,
			[]string{at1000 + " is 51 at time 1789207230000", "want time 1789207258800"},
		},
		"late order counted all the same": {
			func(_ *testing.T, m *memory) {
				m.write(topicMinutes, 1, 1789207258800, at1000, "52")
				m.write(minuteLogTopic, 1, 1789207258800, windowBytes("store-17", ms1000), long(52))
			}, Fail,
			[]string{"FAIL     late order ord-2004", at1000 + " has 52", "51 orders came in time and 1 too late"},
		},
		"late order left out of the running count": {
			func(t *testing.T, m *memory) { m.remove(t, repartitionTopic, ofOrder("ord-2004")) }, Fail,
			[]string{"no record of ord-2004", "ord-2004 of 2026-09-12T10:00:45Z is not in order-counter-orders-by-store-repartition"},
		},
		"running count with the time of the late order": {
			func(t *testing.T, m *memory) {
				m.change(t, topicCounts, holds("store-17", "54"), func(r *kafka.Record) { r.Timestamp = 1789207245000 })
			}, Fail,
			[]string{"FAIL     running count of phase 3", "store-17 is 54 at time 1789207245000", "want time 1789207380000"},
		},
		"running count passed over by the cache": {
			func(t *testing.T, m *memory) { m.remove(t, topicCounts, holds("store-17", "54")) }, Pass,
			[]string{"running count of phase 3        (55)", "store-17 passed over 54 to 55"},
		},
		"order counted twice": {
			func(_ *testing.T, m *memory) {
				m.write(repartitionTopic, 1, shippedOrder.OccurredAt, "store-17", orderJSON(shippedOrder))
				m.write(topicCounts, 1, 1789207430000, "store-17", "58")
				m.write(changelogTopic, 1, 1789207430000, "store-17", long(58))
				m.commitAll()
			}, Fail,
			[]string{"store-17 has 58 of 57 records (at least once may send again after a crash)", "repeats ord-1042"},
		},
		"repartition purged": {
			func(_ *testing.T, m *memory) {
				p := &m.topics[repartitionTopic].parts[1]
				p.start, p.records = p.end, nil
			}, Unknown,
			[]string{"UNKNOWN  late order ord-2004", "PASS     joined orders"},
		},
		"a lone partition of the joined orders lost": {
			func(_ *testing.T, m *memory) { *m.records(topicJoined, 0) = nil }, Fail,
			[]string{"missing: PAID of ord-1042", "missing: SHIPPED of ord-1042"},
		},
		"joined order dropped": {
			func(t *testing.T, m *memory) { m.remove(t, topicJoined, holds("ord-1042", paid)) }, Fail,
			[]string{"FAIL     joined orders", "missing: PAID of ord-1042, which occurred at 2026-09-12T10:03:30Z"},
		},
		"the same, but the statuses are not committed": {
			func(t *testing.T, m *memory) {
				m.remove(t, topicJoined, holds("ord-1042", paid))
				delete(m.committed, kafka.TopicPartition{Topic: topicStatus, Partition: 0})
			}, Unknown,
			[]string{"UNKNOWN  joined orders", "lag 2 on orders.status-0"},
		},
		"joined order twice": {
			func(_ *testing.T, m *memory) { m.write(topicJoined, 0, paidOrder.OccurredAt, "ord-1042", paid) }, Fail,
			[]string{"duplicated: PAID of ord-1042, which occurred at 2026-09-12T10:03:30Z is there 2 times (at least once may write again after a crash)"},
		},
		"joined orders in the wrong order": {
			func(_ *testing.T, m *memory) {
				rs := *m.records(topicJoined, 0)
				rs[0], rs[1] = rs[1], rs[0]
				rs[0].Offset, rs[1].Offset = 0, 1
			}, Fail,
			[]string{"SHIPPED of ord-1042, which occurred at 2026-09-12T10:03:40Z stands before PAID"},
		},
		"first order joined again with the next status": {
			func(_ *testing.T, m *memory) {
				m.write(topicJoined, 0, paidOrder.OccurredAt, "ord-1042", "SHIPPED|"+orderJSON(paidOrder))
			}, Fail,
			[]string{"extra: SHIPPED of ord-1042, which occurred at 2026-09-12T10:03:30Z"},
		},
		"order without a status joined": {
			func(_ *testing.T, m *memory) {
				m.write(topicJoined, 1, noStatusOrder.OccurredAt, "ord-2005", "null|"+orderJSON(noStatusOrder))
			}, Fail,
			[]string{"extra: null of ord-2005", "no status of it was published"},
		},
		"order of the feed joined": {
			func(_ *testing.T, m *memory) {
				o := feedEvent(ms1000, 42)
				m.write(topicJoined, 0, o.OccurredAt, o.ID, "SHIPPED|"+orderJSON(o))
			}, Fail,
			[]string{"extra: SHIPPED of ord-1042, which occurred at 2026-09-12T10:00:08Z"},
		},
		"joined order with the time of its status": {
			func(t *testing.T, m *memory) {
				m.change(t, topicJoined, holds("ord-1042", shipped), func(r *kafka.Record) { r.Timestamp = 1796039923395 })
			}, Fail,
			[]string{"timestamp 1796039923395, want 1789207420000, the order's own"},
		},
		"joined order under its store": {
			func(t *testing.T, m *memory) {
				m.change(t, topicJoined, holds("ord-1042", shipped), func(r *kafka.Record) { r.Key = []byte("store-17") })
			}, Fail,
			[]string{"the key is store-17, and the order ord-1042"},
		},
		"joined order without its status": {
			func(t *testing.T, m *memory) {
				m.change(t, topicJoined, holds("ord-1042", shipped), func(r *kafka.Record) { r.Value = []byte(orderJSON(shippedOrder)) })
			}, Fail,
			[]string{"is no status with an order", "missing: SHIPPED of ord-1042"},
		},
		"the next feed's order of the same id joined": {
			func(_ *testing.T, m *memory) {
				o := feedEvent(ms1000+60*minute, 42)
				m.later(o, 58, 1)
				m.write(topicJoined, 0, o.OccurredAt, o.ID, "SHIPPED|"+orderJSON(o))
			}, Pass, nil,
		},
		"status not in the changelog": {
			func(t *testing.T, m *memory) { m.remove(t, statusLogTopic, holds("ord-1042", "SHIPPED")) }, Fail,
			[]string{"FAIL     changelog of the statuses", "ord-1042 is PAID at time 1796039919471"},
		},
		"changelog of the statuses empty": {
			func(_ *testing.T, m *memory) { *m.records(statusLogTopic, 0) = nil }, Fail,
			[]string{"ord-1042 is SHIPPED in orders.status partition 0 offset 1, and has no entry"},
		},
		"status that nobody published": {
			func(_ *testing.T, m *memory) { m.write(statusLogTopic, 0, 1, "ord-1", "PAID") }, Fail,
			[]string{"ord-1 is PAID in order-counter-order-status-changelog partition 0 offset 2, and no status of it was published"},
		},
		"status in another partition of the changelog": {
			func(_ *testing.T, m *memory) {
				*m.records(statusLogTopic, 0) = nil
				m.write(statusLogTopic, 1, 1796039923395, "ord-1042", "SHIPPED")
			}, Fail,
			[]string{"ord-1042 is in partition 0 of orders.status and in 1 of order-counter-order-status-changelog"},
		},
		"older status compacted away": {
			func(t *testing.T, m *memory) {
				m.remove(t, topicStatus, holds("ord-1042", "PAID"))
				m.remove(t, statusLogTopic, holds("ord-1042", "PAID"))
			}, Pass, nil,
		},
		"status deleted later": {
			func(_ *testing.T, m *memory) {
				for _, topic := range []string{topicStatus, statusLogTopic} {
					m.write(topic, 0, 1796040000000, "ord-1042", "")
					rs := *m.records(topic, 0)
					rs[len(rs)-1].Value = nil
				}
				m.commitAll()
			}, Pass, nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := golden(t)
			tt.change(t, m)
			r, text := grade(t, m, Options{Phases: []int{3, 4}})
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

// caughtUp is what a single task that finds all orders waiting makes of them: it takes them in the order of their times, so that none is late,
// and its cache writes only last values. The statuses have the time of their sending and are read after all orders.
func caughtUp(t *testing.T) *memory {
	m := golden(t)
	rs := *m.records(repartitionTopic, 1)
	slices.SortStableFunc(rs, func(a, b kafka.Record) int { return int(a.Timestamp - b.Timestamp) })
	for i := range rs {
		rs[i].Offset = int64(i)
	}
	*m.records(topicJoined, 0) = nil
	m.remove(t, topicCounts, func(r kafka.Record) bool { return string(r.Key) == "store-17" && string(r.Value) != "57" })
	for _, gone := range []string{"50", "51"} {
		m.remove(t, topicMinutes, holds(at1000, gone))
	}
	for _, gone := range []int64{50, 51} {
		m.remove(t, minuteLogTopic, holds(windowBytes("store-17", ms1000), long(gone)))
	}
	for _, gone := range []int64{1, 2, 3} {
		m.remove(t, topicMinutes, holds(at1003, fmt.Sprint(gone)))
		m.remove(t, minuteLogTopic, holds(windowBytes("store-17", ms1003), long(gone)))
	}
	m.write(topicMinutes, 1, 1789207258800, at1000, "52")
	m.write(minuteLogTopic, 1, 1789207258800, windowBytes("store-17", ms1000), long(52))
	return m
}

// A catch-up accepts the order that comes too late in the lab, and passes over the counts on the way. That is right, and the oracle has to see
// that it is; what the join makes of it depends on times that no topic holds.
func TestCatchUp(t *testing.T) {
	r, text := grade(t, caughtUp(t), Options{})
	var got []Verdict
	for _, p := range r.Phases {
		got = append(got, p.Verdict)
	}
	if !slices.Equal(got[:4], []Verdict{Pass, Pass, Pass, Unknown}) {
		t.Errorf("verdicts %v:\n%s", got, text)
	}
	for _, says := range []string{
		"late order ord-2004             in time, as stream time was 2026-09-12T10:00:45Z",
		"store-17 passed over 50 to 57",
		"UNKNOWN  joined orders",
		"in a catch-up an order is processed before the status",
	} {
		if !strings.Contains(text, says) {
			t.Errorf("does not say %q:\n%s", says, text)
		}
	}

	wrong := caughtUp(t)
	wrong.change(t, topicMinutes, holds(at1000, "52"), func(r *kafka.Record) { r.Value = []byte("51") })
	wrong.change(t, minuteLogTopic, holds(windowBytes("store-17", ms1000), long(52)), func(r *kafka.Record) { r.Value = []byte(long(51)) })
	if r, text := grade(t, wrong, Options{Phases: []int{3}}); r.Verdict() != Fail || !strings.Contains(text, at1000+" has 51 of 52") {
		t.Errorf("an order in time left out: %s\n%s", r.Verdict(), text)
	}
}

// Without time alignment an order may reach the counting task before others that are a minute and more older: these are too late, and their
// minutes stay short. The replay knows which.
func TestLateOrdersOfTheFeed(t *testing.T) {
	const early = 10 // orders of the feed that come before the one that closes their minute
	m := golden(t)
	rs := *m.records(repartitionTopic, 1)
	jump := slices.IndexFunc(rs, ofOrder("ord-2003"))
	ahead := rs[jump]
	rs = slices.Insert(slices.Delete(rs, jump, jump+1), early, ahead)
	replay := newRepartition()
	for i := range rs {
		rs[i].Offset = int64(i)
		replay.add(kafka.TopicPartition{Topic: repartitionTopic, Partition: 1}, &rs[i])
	}
	*m.records(repartitionTopic, 1) = rs
	for p := range 3 {
		*m.records(topicMinutes, p) = slices.DeleteFunc(*m.records(topicMinutes, p), func(r kafka.Record) bool {
			store, _, _ := strings.Cut(string(r.Key), "|")
			return replay.stores[store] != nil
		})
	}
	*m.records(minuteLogTopic, 1) = nil
	for key, c := range replay.minutes {
		store, at, _ := strings.Cut(key, "|")
		start, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		m.write(topicMinutes, byKey(key), c.latest, key, fmt.Sprint(c.placed))
		m.write(minuteLogTopic, 1, c.latest, windowBytes(store, start.UnixMilli()), long(c.placed))
	}
	m.remove(t, topicCounts, func(r kafka.Record) bool { return string(r.Key) == "store-17" && string(r.Value) != "57" })
	r, text := grade(t, m, Options{Phases: []int{2, 3}})
	for _, says := range []string{
		at1000 + " came to 4 of 50, as 48 of its orders came too late",
		"came after ord-2003 of 2026-09-12T10:03:00Z (order-counter-orders-by-store-repartition partition 1 offset 10) had moved stream time from",
		"sent before it: 142, but it is orders.placed partition 0 offset 90 and they are in partition 1 and 2, and its task went ahead",
		"sent after it: 1",
	} {
		if r.Verdict() != Pass || !strings.Contains(text, says) {
			t.Errorf("%s, and it has to say %q:\n%s", r.Verdict(), says, text)
		}
	}

	m.change(t, minuteLogTopic, holds(windowBytes("store-17", ms1000), long(4)), func(r *kafka.Record) { r.Value = []byte(long(3)) })
	m.change(t, topicMinutes, holds(at1000, "4"), func(r *kafka.Record) { r.Value = []byte("3") })
	if r, text := grade(t, m, Options{Phases: []int{2}}); r.Verdict() != Fail {
		t.Errorf("one in time left out: %s\n%s", r.Verdict(), text)
	}
}
