package verify

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

const (
	chaosID     = "chaos-7"
	chaosPrefix = "chaos-7."

	chaosRepartition = chaosID + "-" + suffixRepartition
	chaosCounts      = chaosPrefix + topicCounts
	chaosMinutes     = chaosPrefix + topicMinutes
	chaosMinuteLog   = chaosID + "-" + suffixMinutesChangelog
	chaosCountLog    = chaosID + "-" + suffixCountsChangelog
)

// chaosInput is 40 orders of two stores, a second and a half apart, so that they fall into two minutes. Each tenth is cancelled, the last one
// occurred long before the others, and each fourth has a status.
func chaosInput() []order {
	orders := make([]order, 40)
	for i := range orders {
		orders[i] = order{
			ID: fmt.Sprintf("ord-%d", i), Store: fmt.Sprintf("store-%d", 3*(i%2)), Placed: i%10 != 9, Amount: int64(50_000 * (1 + i%3)),
			OccurredAt: 1789207200000 + 1500*int64(i),
		}
	}
	orders[38].OccurredAt -= 600_000
	return orders
}

// chaosRuns is what an application makes of that input. The first orders of each partition of the input are processed twice, of which the
// second time is left out of the counts.
func chaosRuns(again int) *memory {
	m := &memory{topics: map[string]*memoryTopic{}, committed: map[kafka.TopicPartition]int64{}, group: chaosID}
	for _, topic := range labTopics {
		m.partition(chaosPrefix+topic, labPartitions-1)
	}
	for _, topic := range internalTopics {
		m.partition(chaosID+"-"+topic.suffix, topic.partitions-1)
	}
	orders := chaosInput()
	for i := 0; i < len(orders); i += 4 {
		m.write(chaosPrefix+topicStatus, i%labPartitions, 1, orders[i].ID, "PAID")
		m.write(chaosID+"-"+suffixStatusChangelog, i%labPartitions, 1, orders[i].ID, "PAID")
	}
	perPartition := map[int][]order{}
	for i, o := range orders {
		value := orderJSON(o)
		if !o.Placed {
			value = strings.Replace(value, "PLACED", "CANCELLED", 1)
		}
		m.write(chaosPrefix+topicPlaced, i%labPartitions, 1796040000000, o.ID, value)
		perPartition[i%labPartitions] = append(perPartition[i%labPartitions], o)
	}
	out := slices.Clone(orders)
	for p := range labPartitions {
		out = append(perPartition[p][:again:again], out...)
	}
	for _, o := range out {
		if !o.Placed {
			continue
		}
		if o.Amount >= highValue {
			m.write(chaosPrefix+topicHighValue, byKey(o.Store), o.OccurredAt, o.Store, fmt.Sprint(o.Amount))
		}
		m.write(chaosRepartition, int(partitionOf([]byte(o.Store), 2)), o.OccurredAt, o.Store, orderJSON(o))
		if atoi(o.ID[4:])%4 == 0 {
			m.write(chaosPrefix+topicJoined, byKey(o.ID), o.OccurredAt, o.ID, "PAID|"+orderJSON(o))
		}
	}
	for p := range m.topics[chaosRepartition].parts {
		m.countPartition(p)
	}
	for name, topic := range m.topics {
		for p := range topic.parts {
			m.committed[kafka.TopicPartition{Topic: name, Partition: int32(p)}] = topic.parts[p].end
		}
	}
	return m
}

// countPartition writes each count of a partition of the repartition topic, by hand: no count of an order whose minute has been closed for
// half a minute.
func (m *memory) countPartition(p int) {
	counts, times := map[string]int64{}, map[string]int64{}
	var streamTime int64
	for _, r := range *m.records(chaosRepartition, p) {
		store := string(r.Key)
		counts[store]++
		times[store] = max(times[store], r.Timestamp)
		m.write(chaosCounts, byKey(store), times[store], store, fmt.Sprint(counts[store]))
		m.write(chaosCountLog, p, times[store], store, long(counts[store]))
		streamTime = max(streamTime, r.Timestamp)
		start := r.Timestamp - r.Timestamp%60_000
		if streamTime >= start+90_000 {
			continue
		}
		key := minuteKey(store, start)
		counts[key]++
		times[key] = max(times[key], r.Timestamp)
		m.write(chaosMinutes, byKey(key), times[key], key, fmt.Sprint(counts[key]))
		m.write(chaosMinuteLog, p, times[key], windowBytes(store, start), long(counts[key]))
	}
}

// last changes the last record of a key.
func (m *memory) last(t *testing.T, topic, key string, change func(*kafka.Record)) {
	t.Helper()
	for p := range m.topics[topic].parts {
		rs := *m.records(topic, p)
		for i := range slices.Backward(rs) {
			if string(rs[i].Key) == key {
				change(&rs[i])
				return
			}
		}
	}
	t.Fatalf("%s has no record of %s", topic, key)
}

// repeat writes the first record that matches once more.
func (m *memory) repeat(t *testing.T, topic string, match func(kafka.Record) bool) {
	t.Helper()
	for p := range m.topics[topic].parts {
		rs := *m.records(topic, p)
		if i := slices.IndexFunc(rs, match); i >= 0 {
			m.write(topic, p, rs[i].Timestamp, string(rs[i].Key), string(rs[i].Value))
			m.committed[kafka.TopicPartition{Topic: topic, Partition: int32(p)}]++
			return
		}
	}
	t.Fatalf("%s has no such record", topic)
}

func value(v string) func(*kafka.Record) { return func(r *kafka.Record) { r.Value = []byte(v) } }

// Each case is a run with one thing gone wrong, or with one that is allowed.
func TestChaos(t *testing.T) {
	const minuteOfStore0 = "store-0|2026-09-12T10:00:00Z" // its only one: 19 orders, and the one too late
	replayOf := func(topic string, p int32, from, to int64) Replay {
		return Replay{kafka.TopicPartition{Topic: topic, Partition: p}, from, to}
	}
	inputReplayed := []Replay{
		replayOf(chaosPrefix+topicPlaced, 0, 0, 3), replayOf(chaosPrefix+topicPlaced, 1, 0, 3), replayOf(chaosPrefix+topicPlaced, 2, 0, 3),
	}
	tests := map[string]struct {
		again   int
		change  func(t *testing.T, m *memory)
		alos    bool
		replays []Replay
		orders  int64
		verdict Verdict
		tally   Tally
		says    []string
	}{
		"all of it once": {
			verdict: Pass,
			says:    []string{"40, 36 of them placed", "36 records: lost 0, duplicated 0", "1 came too late", "24 rows: lost 0"},
		},
		"one order lost": {
			change: func(t *testing.T, m *memory) {
				m.remove(t, chaosRepartition, ofOrder("ord-7"))
				m.last(t, chaosCounts, "store-3", value("15"))
				m.last(t, chaosCountLog, "store-3", value(long(15)))
				m.last(t, chaosMinutes, "store-3|2026-09-12T10:00:00Z", value("15"))
				m.last(t, chaosMinuteLog, windowBytes("store-3", 1789207200000), value(long(15)))
			},
			verdict: Fail, tally: Tally{Lost: 1}, says: []string{"FAIL     orders by store", "lost: ord-7: 0 of 1"},
		},
		"one order doubled": {
			change: func(t *testing.T, m *memory) { m.repeat(t, chaosRepartition, ofOrder("ord-8")) },
			// The counts are those without it.
			verdict: Fail, tally: Tally{Lost: 2, Duplicated: 1}, says: []string{"duplicated: ord-8: 2 instead of 1", "lost: store-0: 20 of 21"},
		},
		"a count too high": {
			change: func(t *testing.T, m *memory) {
				m.last(t, chaosCounts, "store-0", value("21"))
				m.last(t, chaosCountLog, "store-0", value(long(21)))
			},
			verdict: Fail, tally: Tally{Duplicated: 1},
			says: []string{"FAIL     counts per store ", "duplicated: store-0: 21 instead of 20"},
		},
		"a minute one too low": {
			change: func(t *testing.T, m *memory) {
				m.last(t, chaosMinutes, minuteOfStore0, value("18"))
				m.last(t, chaosMinuteLog, windowBytes("store-0", 1789207200000), value(long(18)))
			},
			verdict: Fail, tally: Tally{Lost: 1},
			says: []string{"FAIL     counts per store and minute", "lost: " + minuteOfStore0 + ": 18 of 19"},
		},
		"a minute that counts the late order": {
			change: func(_ *testing.T, m *memory) {
				start := int64(1789207200000 + 38*1500 - 600_000)
				start -= start % 60_000
				m.write(chaosMinutes, 0, start, minuteKey("store-0", start), "1")
				m.write(chaosMinuteLog, 0, start, windowBytes("store-0", start), long(1))
			},
			verdict: Fail, tally: Tally{Duplicated: 1}, says: []string{"store-0|2026-09-12T09:50:00Z is counted, and no order came to be counted there"},
		},
		"a store on another task": {
			change: func(t *testing.T, m *memory) {
				r := (*m.records(chaosRepartition, 1))[0]
				m.remove(t, chaosRepartition, func(o kafka.Record) bool { return string(o.Value) == string(r.Value) })
				m.write(chaosRepartition, 0, r.Timestamp, string(r.Key), string(r.Value))
				m.committed[kafka.TopicPartition{Topic: chaosRepartition}]++
			},
			verdict: Fail, says: []string{"chaos-7-orders-by-store-repartition partition 0 offset 20: store-3 belongs to partition 1, by the hash of its key"},
		},
		"an output on another partition": {
			change: func(_ *testing.T, m *memory) {
				parts := m.topics[chaosCounts].parts
				parts[1], parts[2] = parts[2], parts[1]
			},
			verdict: Fail, says: []string{"store-3 is in partition 2 of chaos-7.analytics.orders-per-store, and by the hash of its key it belongs to another"},
		},
		"an output behind its changelog": {
			change:  func(t *testing.T, m *memory) { m.last(t, chaosCounts, "store-0", value("19")) },
			verdict: Fail, says: []string{"store-0 is 19 at time", "and 20 at time"},
		},
		"a count that falls on the way": {
			change:  func(t *testing.T, m *memory) { m.repeat(t, chaosCounts, holds("store-0", "20")) },
			verdict: Fail, says: []string{"store-0 falls or repeats 1 times: 20 after 20"},
		},
		"a high-value row lost behind another's duplicate": {
			alos: true, replays: inputReplayed, again: 1,
			change: func(t *testing.T, m *memory) {
				m.remove(t, chaosPrefix+topicHighValue, func(r kafka.Record) bool { return r.Timestamp == 1789207200000+1500*10 })
			},
			verdict: Fail, tally: Tally{Lost: 1, Again: 6}, says: []string{"FAIL     high-value rows", "lost: store-0 100000 at 1789207215000: 0 of 1"},
		},
		"a row of the join lost": {
			change:  func(t *testing.T, m *memory) { m.remove(t, chaosPrefix+topicJoined, ofOrder("ord-16")) },
			verdict: Fail, tally: Tally{Lost: 1}, says: []string{"FAIL     joined orders", "lost: ord-16: 0 of 1"},
		},
		"a row of the join doubled": {
			change:  func(t *testing.T, m *memory) { m.repeat(t, chaosPrefix+topicJoined, ofOrder("ord-16")) },
			verdict: Fail, tally: Tally{Duplicated: 1}, says: []string{"duplicated: ord-16: 2 instead of 1"},
		},
		"a join with a status of nobody": {
			change: func(t *testing.T, m *memory) {
				m.change(t, chaosPrefix+topicJoined, ofOrder("ord-16"), func(r *kafka.Record) { r.Value = append([]byte("LOST"), r.Value[4:]...) })
			},
			verdict: Fail, tally: Tally{Lost: 1, Duplicated: 1}, says: []string{"is no order with one of its statuses"},
		},
		"a status that the table does not have": {
			change: func(t *testing.T, m *memory) {
				m.remove(t, chaosID+"-"+suffixStatusChangelog, func(r kafka.Record) bool { return string(r.Key) == "ord-16" })
			},
			verdict: Fail, tally: Tally{Lost: 1}, says: []string{"FAIL     changelog of the statuses", "lost: ord-16 is PAID"},
		},
		"replayed at least once": {
			alos: true, again: 1, replays: inputReplayed,
			verdict: Pass, tally: Tally{Again: 6}, says: []string{"39 records: lost 0, duplicated 0, again 3"},
		},
		"again, and nothing was replayed": {
			alos: true, again: 1,
			verdict: Fail, tally: Tally{Duplicated: 6}, says: []string{"duplicated: ord-1: 2 instead of 1, and replays explain 0 more"},
		},
		"again, and exactly once": {
			again: 1, replays: inputReplayed,
			verdict: Fail, tally: Tally{Duplicated: 6}, says: []string{"duplicated: ord-1: 2 instead of 1"},
		},
		"counted again by as many as were replayed": {
			alos: true, replays: []Replay{replayOf(chaosRepartition, 0, 4, 6)},
			change: func(t *testing.T, m *memory) {
				m.last(t, chaosCounts, "store-0", value("22"))
				m.last(t, chaosCountLog, "store-0", value(long(22)))
			},
			verdict: Pass, tally: Tally{Again: 2},
		},
		"counted again by one more": {
			alos: true, replays: []Replay{replayOf(chaosRepartition, 0, 4, 6)},
			change: func(t *testing.T, m *memory) {
				m.last(t, chaosCounts, "store-0", value("23"))
				m.last(t, chaosCountLog, "store-0", value(long(23)))
			},
			verdict: Fail, tally: Tally{Duplicated: 1, Again: 2}, says: []string{"store-0: 23 instead of 20", "replays explain 2 more"},
		},
		"not all published": {
			orders:  41,
			verdict: Unknown, tally: Tally{Unknown: 1}, says: []string{"UNKNOWN  orders published", "holds 40 records"},
		},
		"not done": {
			change: func(_ *testing.T, m *memory) {
				m.committed[kafka.TopicPartition{Topic: chaosRepartition, Partition: 1}]--
			},
			verdict: Unknown, tally: Tally{Unknown: 1}, says: []string{"chaos-7 has not committed all its input, lag 1 on " + chaosRepartition + "-1"},
		},
		"dead letters": {
			change: func(_ *testing.T, m *memory) {
				m.partition(chaosID+"-dead-letters", 0)
				m.write(chaosID+"-dead-letters", 0, 1, "k", "v")
			},
			verdict: Fail, says: []string{"chaos-7-dead-letters is not empty"},
		},
		"purged": {
			change:  func(_ *testing.T, m *memory) { m.topics[chaosRepartition].parts[0].start = 2 },
			verdict: Unknown, tally: Tally{Unknown: 1}, says: []string{"records of " + chaosRepartition + " have been deleted"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := chaosRuns(tc.again)
			if tc.change != nil {
				tc.change(t, m)
			}
			if tc.orders == 0 {
				tc.orders = 40
			}
			r := gradeChaos(t.Context(), m, ChaosRun{
				ApplicationID: chaosID, Prefix: chaosPrefix, Orders: tc.orders, ExactlyOnce: !tc.alos, Replays: tc.replays,
			})
			table := r.Table(false)
			if r.Verdict() != tc.verdict || r.Tally != tc.tally {
				t.Errorf("%s %+v, want %s %+v", r.Verdict(), r.Tally, tc.verdict, tc.tally)
			}
			for _, want := range tc.says {
				if !strings.Contains(table, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if t.Failed() {
				t.Log("\n" + table)
			}
		})
	}
}

// A topic that cannot be read leaves the verdict open, and what can be read is judged all the same.
func TestChaosUnread(t *testing.T) {
	for topic, wantChecks := range map[string]int{chaosPrefix + topicPlaced: 1, chaosCounts: 7, chaosPrefix + topicJoined: 7} {
		m := chaosRuns(0)
		m.fail = map[string]error{topic: errors.New("the broker is gone")}
		r := gradeChaos(t.Context(), m, ChaosRun{ApplicationID: chaosID, Prefix: chaosPrefix, Orders: 40, ExactlyOnce: true})
		if r.Verdict() != Unknown || r.Unknown != 1 || len(r.Checks) != wantChecks {
			t.Errorf("%s: %s, %+v, %d checks", topic, r.Verdict(), r.Tally, len(r.Checks))
		}
	}
	m := chaosRuns(0)
	maps.DeleteFunc(m.topics, func(name string, _ *memoryTopic) bool { return name == chaosRepartition })
	r := gradeChaos(t.Context(), m, ChaosRun{ApplicationID: chaosID, Prefix: chaosPrefix, Orders: 40})
	if r.Verdict() != Unknown || !strings.Contains(r.Reason, chaosRepartition) {
		t.Errorf("%s: %s", r.Verdict(), r.Reason)
	}
}
