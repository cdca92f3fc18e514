package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

const (
	eosID, alosID = "order-counter-eos", "order-counter-alos"

	eosCounts, eosRepartition   = topicCounts + ".eos", eosID + "-" + suffixRepartition
	alosCounts, alosRepartition = topicCounts + ".alos", alosID + "-" + suffixRepartition
	alosMinutes, alosMinuteLog  = topicMinutes + ".alos", alosID + "-" + suffixMinutesChangelog
	alosChangelog               = alosID + "-" + suffixCountsChangelog
)

// crashedRuns is the state after phase 6, with that many records of each repartition partition written again at least once.
func crashedRuns(t testing.TB, again int) *memory {
	t.Helper()
	m := takenOver(t)
	m.crashedRuns(again)
	return m
}

func (m *memory) crashedRuns(again int) {
	m.others = map[string]map[kafka.TopicPartition]int64{}
	m.crashedRun(eosID, ".eos", 0)
	m.crashedRun(alosID, ".alos", again)
}

// crashedRun makes the topics of an application that read the orders in the order of the first application's repartition topic. The first
// records of each partition are there twice, as far as they were sent before the crash, and it writes each count once.
func (m *memory) crashedRun(id, suffix string, again int) {
	for _, topic := range []string{topicHighValue, topicCounts, topicMinutes, topicJoined} {
		m.partition(topic+suffix, labPartitions-1)
	}
	for _, topic := range internalTopics {
		m.partition(id+"-"+topic.suffix, topic.partitions-1)
	}
	running, latest := map[string]int64{}, map[string]int64{}
	inMinute, minuteLatest := map[string]int64{}, map[string]int64{}
	home := map[string]int{}
	for p := range m.topics[repartitionTopic].parts {
		orders := *m.records(repartitionTopic, p)
		streamTime := int64(0)
		for _, r := range slices.Concat(orders[:again], orders) {
			store := string(r.Key)
			m.write(id+"-"+suffixRepartition, p, r.Timestamp, store, string(r.Value))
			home[store] = p
			running[store]++
			latest[store] = max(latest[store], r.Timestamp)
			streamTime = max(streamTime, r.Timestamp)
			start := r.Timestamp - r.Timestamp%60_000
			if streamTime >= start+90_000 {
				continue
			}
			key := fmt.Sprintf("%s %d", store, start)
			inMinute[key]++
			minuteLatest[key] = max(minuteLatest[key], r.Timestamp)
		}
	}
	for p := range m.topics[topicHighValue].parts {
		rows := *m.records(topicHighValue, p)
		for _, r := range slices.Concat(rows[:min(again, len(rows))], rows) {
			m.write(topicHighValue+suffix, p, r.Timestamp, string(r.Key), string(r.Value))
		}
	}
	for _, store := range slices.Sorted(maps.Keys(running)) {
		m.write(topicCounts+suffix, byKey(store), latest[store], store, fmt.Sprint(running[store]))
		m.write(id+"-"+suffixCountsChangelog, home[store], latest[store], store, long(running[store]))
	}
	for _, key := range slices.Sorted(maps.Keys(inMinute)) {
		store, text, _ := strings.Cut(key, " ")
		start := int64(atoi(text))
		m.write(topicMinutes+suffix, byKey(minuteKey(store, start)), minuteLatest[key], minuteKey(store, start), fmt.Sprint(inMinute[key]))
		m.write(id+"-"+suffixMinutesChangelog, home[store], minuteLatest[key], windowBytes(store, start), long(inMinute[key]))
	}
	m.others[id] = map[kafka.TopicPartition]int64{}
	for _, topic := range []string{topicPlaced, id + "-" + suffixRepartition} {
		for p, part := range m.topics[topic].parts {
			m.others[id][kafka.TopicPartition{Topic: topic, Partition: int32(p)}] = part.end
		}
	}
}

// Each case is a run of phase 6 with one thing gone wrong, or with one that is allowed.
func TestCrashes(t *testing.T) {
	const replayed = 20
	tests := map[string]struct {
		again  int
		change func(t *testing.T, m *memory)
		want   Verdict
		says   []string
	}{
		"replayed at least once": {
			replayed, func(*testing.T, *memory) {}, Pass,
			[]string{
				"PASS     eos: final counts ", "store-17 108, store-18 80, store-19 100, store-20 80, store-21 100, store-22 80",
				"PASS     alos: final counts ", "came again: store-17 8, store-18 6, store-19 5, ", "replay after the crash", "counted again: store-17 8, ",
			},
		},
		"equal at least once": {
			0, func(*testing.T, *memory) {}, Pass,
			[]string{"no order came again, which proves no guarantee"},
		},
		"exactly once: count too high": {
			0, func(_ *testing.T, m *memory) { m.write(eosCounts, 1, 1789211100000, "store-17", "109") }, Fail,
			[]string{"FAIL     eos: final counts", "store-17 has 109 of 108", "FAIL     eos: steps of the counts", "its orders do not come to that"},
		},
		"exactly once: count too low": {
			0, func(t *testing.T, m *memory) {
				m.change(t, eosCounts, holds("store-17", "108"), func(r *kafka.Record) { r.Value = []byte("107") })
			}, Fail,
			[]string{"FAIL     eos: final counts", "store-17 has 107 of 108"},
		},
		"exactly once: a count that falls on the way": {
			0, func(_ *testing.T, m *memory) {
				rs := m.records(eosCounts, 1)
				i := slices.IndexFunc(*rs, holds("store-17", "108"))
				last := (*rs)[i]
				m.write(eosCounts, 1, last.Timestamp, "store-17", "108")
			}, Fail,
			[]string{"FAIL     eos: steps of the counts", "store-17 is 108", "after 108"},
		},
		"exactly once: a count with another's time": {
			0, func(_ *testing.T, m *memory) {
				*m.records(eosCounts, 1) = slices.Insert(*m.records(eosCounts, 1), 0, kafka.Record{
					Offset: -1, Timestamp: 1789207200001, Key: []byte("store-17"), Value: []byte("1"),
				})
				m.topics[eosCounts].parts[1].start = -1
			}, Fail,
			[]string{"FAIL     eos: steps of the counts", "store-17 is 1 at time 1789207200001", "want time 1789207200000"},
		},
		"exactly once: a step on the way": {
			0, func(_ *testing.T, m *memory) {
				*m.records(eosCounts, 1) = slices.Insert(*m.records(eosCounts, 1), 0, kafka.Record{
					Offset: -1, Timestamp: 1789207200000, Key: []byte("store-17"), Value: []byte("1"),
				})
				m.topics[eosCounts].parts[1].start = -1
			}, Pass, nil,
		},
		"exactly once: an order twice in the repartition topic": {
			0, func(_ *testing.T, m *memory) {
				r := (*m.records(eosRepartition, 1))[3]
				m.write(eosRepartition, 1, r.Timestamp, string(r.Key), string(r.Value))
				m.others[eosID][kafka.TopicPartition{Topic: eosRepartition, Partition: 1}]++
			}, Fail,
			[]string{"FAIL     eos: repartition records", "repeats ord-"},
		},
		"exactly once: a high-value row twice": {
			0, func(_ *testing.T, m *memory) {
				r := (*m.records(topicHighValue+".eos", 0))[0]
				m.write(topicHighValue+".eos", 0, r.Timestamp, string(r.Key), string(r.Value))
			}, Fail,
			[]string{"FAIL     eos: high-value rows", "duplicated: "},
		},
		"exactly once: a minute that counts a late order": {
			0, func(_ *testing.T, m *memory) {
				m.write(topicMinutes+".eos", 1, 1789207258800, at1000, "52")
				m.write(eosID+"-"+suffixMinutesChangelog, 1, 1789207258800, windowBytes("store-17", ms1000), long(52))
			}, Fail,
			[]string{"FAIL     eos: changelog of the minute counts", at1000 + " has 52, and 51 of its orders came in time, 1 too late"},
		},
		"an order joined": {
			0, func(_ *testing.T, m *memory) {
				m.write(topicJoined+".eos", 0, paidOrder.OccurredAt, paidOrder.ID, "PAID|"+orderJSON(paidOrder))
			}, Fail,
			[]string{"FAIL     eos: joined orders", "ord-1042 is joined"},
		},
		"an order joined that is younger than its status": {
			0, func(t *testing.T, m *memory) {
				c, o := takenOver(t), byHand("ord-1042", 1796040000000)
				c.later(o, 109, 1)
				c.crashedRuns(0)
				c.write(topicJoined+".alos", byKey(o.ID), o.OccurredAt, o.ID, "SHIPPED|"+orderJSON(o))
				*m = *c
			}, Pass, nil,
		},
		"restarted and not done": {
			0, func(t *testing.T, m *memory) {
				delete(m.others[eosID], kafka.TopicPartition{Topic: topicPlaced, Partition: 1})
				m.remove(t, eosCounts, holds("store-17", "108"))
			}, Unknown,
			[]string{"UNKNOWN  eos: orders read", "order-counter-eos has not committed all its input"},
		},
		"not started again": {
			0, func(_ *testing.T, m *memory) {
				delete(m.others, alosID)
				for p := range labPartitions {
					*m.records(alosCounts, p) = nil
				}
			}, Unknown,
			[]string{"UNKNOWN  alos: orders read", "PASS     eos: final counts"},
		},
		"only one of the two": {
			0, func(_ *testing.T, m *memory) {
				for name := range m.topics {
					if strings.HasPrefix(name, alosID) {
						delete(m.topics, name)
					}
				}
			}, Unknown,
			[]string{"UNKNOWN  alos: run", "this half of the phase has not been run"},
		},
		"orders sent after it": {
			replayed, func(_ *testing.T, m *memory) { m.later(byHand("ord-3000", 1789211200000), 109, 1) }, Pass,
			[]string{"1 orders came after it, which it need not have counted"},
		},
		"at least once: an order lost": {
			replayed, func(t *testing.T, m *memory) { m.remove(t, alosRepartition, ofOrder("ord-2006")) }, Fail,
			[]string{"FAIL     alos: repartition records", "store-17: 1 orders are missing; no record of ord-2006"},
		},
		"at least once: a record of no order": {
			replayed, func(_ *testing.T, m *memory) {
				o := byHand("ord-9999", 1789207260000)
				m.write(alosRepartition, 1, o.OccurredAt, o.Store, orderJSON(o))
				m.others[alosID][kafka.TopicPartition{Topic: alosRepartition, Partition: 1}]++
			}, Fail,
			[]string{"FAIL     alos: repartition records", "store-17: 1 records are of no order"},
		},
		"at least once: count below the orders": {
			0, func(t *testing.T, m *memory) {
				m.change(t, alosCounts, holds("store-17", "108"), func(r *kafka.Record) { r.Value = []byte("107") })
			}, Fail,
			[]string{"FAIL     alos: final counts", "store-17 has 107 of 108 orders", "at least once loses none"},
		},
		"at least once: count below what came to be counted": {
			replayed, func(t *testing.T, m *memory) {
				m.change(t, alosCounts, holds("store-17", "116"), func(r *kafka.Record) { r.Value = []byte("110") })
			}, Fail,
			[]string{"store-17 has 110 of the 116 records that came to be counted"},
		},
		"at least once: count above what came to be counted": {
			replayed, func(t *testing.T, m *memory) {
				m.change(t, alosChangelog, holds("store-17", long(116)), func(r *kafka.Record) { r.Value = []byte(long(117)) })
			}, Fail,
			[]string{"FAIL     alos: changelog of the counts", "store-17 has 117, and 116 records came to be counted"},
		},
		"at least once: a minute other than the replay's": {
			replayed, func(t *testing.T, m *memory) {
				key := "store-18|2026-09-12T11:00:00Z"
				m.change(t, alosMinutes, holds(key, "40"), func(r *kafka.Record) { r.Value = []byte("41") })
				m.change(t, alosMinuteLog, holds(windowBytes("store-18", secondBase), long(40)), func(r *kafka.Record) { r.Value = []byte(long(41)) })
			}, Fail,
			[]string{"FAIL     alos: changelog of the minute counts", "store-18|2026-09-12T11:00:00Z has 41, and 40 of its orders came in time"},
		},
		"exactly once: a minute count that falls on the way": {
			0, func(_ *testing.T, m *memory) {
				r := (*m.records(topicMinutes+".eos", 0))[0]
				m.write(topicMinutes+".eos", 0, r.Timestamp, string(r.Key), string(r.Value))
			}, Fail,
			[]string{"FAIL     eos: steps of the minute counts", "a committed count was taken back: "},
		},
		"two owners of the counts": {
			0, func(_ *testing.T, m *memory) {
				r := (*m.records(alosChangelog, 1))[0]
				m.write(alosChangelog, 1, r.Timestamp, string(r.Key), string(r.Value))
			}, Fail,
			[]string{"FAIL     alos: owners of the counts", "changelog written by two owners: "},
		},
		// There were as many rows as orders, and more: one was lost behind the repetition of another one.
		"at least once: a high-value row lost behind another": {
			0, func(_ *testing.T, m *memory) {
				rs := *m.records(topicHighValue+".alos", 0)
				i := slices.IndexFunc(rs[6:], func(r kafka.Record) bool {
					return string(r.Key) == string(rs[5].Key) && string(r.Value) == string(rs[5].Value)
				})
				rs[5].Timestamp = rs[6+i].Timestamp
				m.write(topicHighValue+".alos", 0, rs[5].Timestamp, string(rs[5].Key), string(rs[5].Value))
			}, Fail,
			[]string{"FAIL     alos: high-value rows", "but 1 of its orders not at all; no record of ord-"},
		},
		// Where another row came again, the orders are looked at one by one, and the one whose row no broker took was said to be missing.
		"at least once: a high-value row refused, and another one written again": {
			0, func(t *testing.T, m *memory) {
				o := feedEvent(secondBase, 4)
				m.remove(t, topicHighValue+".alos", func(r kafka.Record) bool { return r.Timestamp == o.OccurredAt })
				home := byKey(o.ID)
				i := slices.IndexFunc(*m.records(topicPlaced, home), func(r kafka.Record) bool { return string(r.Value) == orderJSON(o) })
				m.append(alosID+"-"+suffixDeadLetters, 0, kafka.Record{Headers: []kafka.Header{
					{Key: headerKind, Value: []byte(kindRefused)}, {Key: headerTopic, Value: []byte(topicPlaced)},
					{Key: headerPartition, Value: []byte(fmt.Sprint(home))},
					{Key: headerOffset, Value: []byte(fmt.Sprint((*m.records(topicPlaced, home))[i].Offset))},
				}})
				again := feedEvent(firstBase, 4)
				m.write(topicHighValue+".alos", byKey(o.Store), again.OccurredAt, o.Store, fmt.Sprint(o.Amount))
			}, Pass, nil,
		},
		"at least once: a high-value row of no order": {
			0, func(_ *testing.T, m *memory) {
				r := (*m.records(topicHighValue+".alos", 0))[5]
				m.write(topicHighValue+".alos", 0, r.Timestamp+1, string(r.Key), string(r.Value))
			}, Fail,
			[]string{"FAIL     alos: high-value rows", "not the times of the orders; ", "is of no order"},
		},
		"a row joined twice": {
			0, func(t *testing.T, m *memory) {
				c, o := takenOver(t), byHand("ord-1042", 1796040000000)
				c.later(o, 109, 1)
				c.crashedRuns(0)
				for range 2 {
					c.write(topicJoined+".eos", byKey(o.ID), o.OccurredAt, o.ID, "SHIPPED|"+orderJSON(o))
				}
				*m = *c
			}, Fail,
			[]string{"FAIL     eos: joined rows by the log", "a row of ord-1042 for the 2. time"},
		},
		"at least once: a high-value row lost": {
			0, func(_ *testing.T, m *memory) {
				rs := m.records(topicHighValue+".alos", 0)
				*rs = slices.Delete(*rs, 5, 6)
			}, Fail,
			[]string{"FAIL     alos: high-value rows", "missing: "},
		},
		"repartition topic purged": {
			replayed, func(_ *testing.T, m *memory) {
				p := &m.topics[alosRepartition].parts[1]
				p.start, p.records = p.end, nil
			}, Unknown,
			[]string{"UNKNOWN  alos: repartition records", "PASS     eos: final counts"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := crashedRuns(t, tt.again)
			tt.change(t, m)
			r, text := grade(t, m, Options{Phases: []int{6}})
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

// The phases before it stay what they were.
func TestAllPhases(t *testing.T) {
	r, text := grade(t, crashedRuns(t, 20), Options{})
	if r.Verdict() != Pass || !strings.Contains(text, "\nPASS phases 1, 2, 3, 4, 5, 6: ") {
		t.Errorf("verdict %s:\n%s", r.Verdict(), text)
	}
}

// committing commits one more order each time that it is asked for a group's offsets.
type committing struct {
	topics
	group string
	tp    kafka.TopicPartition
	done  int64
}

func (c *committing) Committed(ctx context.Context, group string) (map[kafka.TopicPartition]int64, error) {
	offsets, err := c.topics.Committed(ctx, group)
	if group == c.group {
		c.done++
		offsets = maps.Clone(offsets)
		offsets[c.tp] = c.done
	}
	return offsets, err
}

// What an application at work has done is not cut off at an offset that it has passed meanwhile.
func TestCrashedAtWork(t *testing.T) {
	m := crashedRuns(t, 0)
	r, text := grade(t, &committing{topics: m, group: eosID, tp: kafka.TopicPartition{Topic: topicPlaced}}, Options{Phases: []int{6}})
	if r.Verdict() != Unknown || !strings.Contains(text, "order-counter-eos is at work") || strings.Contains(text, "FAIL") {
		t.Errorf("verdict %s:\n%s", r.Verdict(), text)
	}
}
