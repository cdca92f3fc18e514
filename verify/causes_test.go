package verify

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

// transaction adds records of one producer with a marker after them.
func (m *memory) transaction(topic string, partition int, producer int64, end kafka.ControlType, records ...kafka.Record) {
	for _, r := range append(records, kafka.Record{Control: end}) {
		r.ProducerID, r.Transactional = producer, true
		m.append(topic, partition, r)
	}
}

func recordOf(o order) kafka.Record {
	return kafka.Record{Timestamp: o.OccurredAt, Key: []byte(o.Store), Value: []byte(orderJSON(o))}
}

// spread puts all orders where another partitioner would have put them, so that the join misses.
func (m *memory) spread(place func(key []byte, i int) int32) {
	var all []kafka.Record
	for p := range labPartitions {
		all = append(all, *m.records(topicPlaced, p)...)
		m.topics[topicPlaced].parts[p] = memoryPartition{}
	}
	for i, r := range all {
		m.append(topicPlaced, int(place(r.Key, i)), r)
	}
	m.topics[topicJoined].parts = make([]memoryPartition, labPartitions)
	m.commitAll()
}

// Each cause is made by hand, and has to be named with what was seen of it. The verdict is what it is without: what may cause it is no excuse.
func TestCauses(t *testing.T) {
	late := order{"ord-9", "store-17", true, 5000, 1893456000000} // 2030-01-01
	tests := map[string]struct {
		change func(t *testing.T, m *memory)
		want   Verdict
		causes [][]string // what each of them says
	}{
		"orders by a client of librdkafka": {
			func(_ *testing.T, m *memory) {
				m.spread(func(key []byte, _ int) int32 { return partitioners[0].place(key, labPartitions) })
			}, Fail,
			[][]string{{" of 307 keys of orders.placed are in another partition than Kafka's default partitioner (murmur2) chooses, first ord-10", "the join misses. All fit CRC32, the default of librdkafka"}},
		},
		"orders by a client of Sarama": {
			func(_ *testing.T, m *memory) {
				m.spread(func(key []byte, _ int) int32 { return partitioners[1].place(key, labPartitions) })
			}, Fail,
			[][]string{{"of 307 keys", "All fit FNV-1a, the default of Sarama"}},
		},
		"orders spread in turn": {
			func(_ *testing.T, m *memory) { m.spread(func(_ []byte, i int) int32 { return int32(i % 3) }) }, Fail,
			[][]string{{"of 307 keys", "No other known hash of the key explains all of them"}},
		},
		"one status by hand in another partition": {
			func(t *testing.T, m *memory) {
				m.topics[topicStatus].parts[1] = m.topics[topicStatus].parts[0]
				m.topics[topicStatus].parts[0] = memoryPartition{}
				m.commitAll()
			}, Fail,
			[][]string{{"2 of 2 keys of orders.status", "first ord-1042 (orders.status partition 1 offset 0) instead of partition 0", "No other known hash"}},
		},
		"another base": {
			func(t *testing.T, m *memory) {
				for p := range labPartitions {
					for i := range *m.records(topicPlaced, p) {
						r := &(*m.records(topicPlaced, p))[i]
						if o, err := readOrder(r.Value); err == nil && ofFeed(firstBase, o) {
							moved := strconv.FormatInt(o.OccurredAt+2*60*minute, 10)
							r.Value = []byte(strings.Replace(string(r.Value), strconv.FormatInt(o.OccurredAt, 10), moved, 1))
						}
					}
				}
			}, Fail,
			[][]string{
				{repartitionTopic + " holds records of orders that orders.placed does not hold: 270, first ord-10"},
				{"the first feed is from 2026-09-12T12:00:00Z (1789214400000), the lab's is from 2026-09-12T10:00:00Z (1789207200000)", "`lab feed 2026-09-12T10:00:00Z`"},
			},
		},
		"fed twice": {
			func(_ *testing.T, m *memory) {
				for p := range labPartitions {
					for _, r := range slices.Clone(*m.records(topicPlaced, p)) {
						if o, err := readOrder(r.Value); err == nil && ofFeed(firstBase, o) {
							m.append(topicPlaced, p, r)
						}
					}
				}
				m.commitAll()
			}, Fail,
			[][]string{{"300 of the 300 events of the feed from 2026-09-12T10:00:00Z are in orders.placed more than once, once more ord-10", "the feed was published again"}},
		},
		"a topic made again under a group": {
			func(_ *testing.T, m *memory) {
				rs := m.records(topicCounts, 1)
				*rs = (*rs)[:7]
				m.committed[kafka.TopicPartition{Topic: topicPlaced, Partition: 1}] = 220
			}, Fail,
			[][]string{{"order-counter has committed offset 220 of orders.placed-1, which ends at 110: the topic was deleted and created again"}},
		},
		"an earlier run in the internal topics": {
			func(_ *testing.T, m *memory) {
				old := byHand("ord-7", 1789207200000)
				old.Store = "store-99"
				m.append(repartitionTopic, 0, recordOf(old))
				m.commitAll()
			}, Fail,
			[][]string{{repartitionTopic + " holds records of orders that orders.placed does not hold: 1, first ord-7 of 2026-09-12T10:00:00Z (" + repartitionTopic + " partition 0 offset 120)"}},
		},
		"an earlier run in the outputs": {
			func(_ *testing.T, m *memory) { m.write(topicCounts, 0, 1789207430000, "store-99", "7") }, Fail,
			[][]string{{"orders.placed holds no order of store-99 (analytics.orders-per-store partition 0 offset 3), which was counted all the same"}},
		},
		"windows kept for a day": {
			func(_ *testing.T, m *memory) {
				p := &m.topics[minuteLogTopic].parts[0]
				p.start, p.records = p.end, nil
			}, Unknown,
			[][]string{{"records of " + minuteLogTopic + " have been deleted: partition 0 before offset 3: windows are kept for a day", "windowstore.changelog.additional.retention.ms=3153600000000"}},
		},
		"results of no order": {
			func(_ *testing.T, m *memory) {
				m.topics[topicPlaced].parts = make([]memoryPartition, labPartitions)
			}, Unknown,
			[][]string{
				{"order-counter has committed offset 94 of orders.placed-0, which ends at 0", "orders.placed-2"},
				{"orders.placed holds no order, and there are results in analytics.high-value-orders, analytics.orders-per-store, ", "and 5 more: those of an earlier run"},
			},
		},
		"results without the orders' topic": {
			func(_ *testing.T, m *memory) { delete(m.topics, topicPlaced) }, Unknown,
			[][]string{{"orders.placed holds no order, and there are results in analytics.high-value-orders"}},
		},
		"an order of years ahead": {
			func(_ *testing.T, m *memory) {
				m.append(topicPlaced, 0, kafka.Record{Timestamp: 1796039837509, Key: []byte(late.ID), Value: []byte(orderJSON(late))})
				rs := m.records(repartitionTopic, 1)
				*rs = slices.Insert(*rs, 100, recordOf(late))
				for i := range *rs {
					(*rs)[i].Offset = int64(i)
				}
				m.topics[repartitionTopic].parts[1].end++
				m.commitAll()
			}, Fail,
			[][]string{{"ord-9 of 2030-01-01T00:00:00Z (" + repartitionTopic + " partition 1 offset 100) moved stream time by 1206 days", "closed the minutes of 57 orders that came after it, first ord-"}},
		},
		"aborted records counted": {
			func(t *testing.T, m *memory) {
				m.transaction(repartitionTopic, 1, 4, kafka.ControlAbort, recordOf(phase3Orders[0]))
				m.transaction(repartitionTopic, 1, 4, kafka.ControlCommit)
				m.write(topicCounts, 1, 1789207430000, "store-17", "58")
				m.write(changelogTopic, 1, 1789207430000, "store-17", long(58))
				m.commitAll()
			}, Fail,
			[][]string{{"analytics.orders-per-store is too high by store-17 1, which is just the number of aborted records of these stores in " + repartitionTopic, "offset 157 by producer 4 epoch 0, in a transaction of offsets 157 to 158 that was aborted", "isolation.level=read_committed"}},
		},
		"aborted orders processed": {
			func(t *testing.T, m *memory) {
				o := byHand("ord-8", 1789207430000)
				m.transaction(topicPlaced, 0, 5, kafka.ControlAbort, kafka.Record{Key: []byte("ord-8"), Value: []byte(orderJSON(o))})
				m.append(repartitionTopic, 1, recordOf(o))
				m.commitAll()
			}, Fail,
			[][]string{
				{repartitionTopic + " is too high by store-17 1, which is just the number of aborted records of these stores in orders.placed, first orders.placed partition 0 offset 94 by producer 5"},
			},
		},
		"aborted records, but another number": {
			func(t *testing.T, m *memory) {
				m.transaction(repartitionTopic, 1, 4, kafka.ControlAbort, recordOf(phase3Orders[0]), recordOf(phase3Orders[1]))
				m.write(topicCounts, 1, 1789207430000, "store-17", "58")
				m.commitAll()
			}, Fail, nil,
		},
		"results deleted by retention": {
			func(_ *testing.T, m *memory) {
				m.topics[topicHighValue].configs = map[string]string{"cleanup.policy": "delete", "retention.ms": "604800000"}
				p := &m.topics[topicHighValue].parts[0]
				p.start, p.records = p.end-1, p.records[len(p.records)-1:]
			}, Unknown,
			[][]string{{"records of analytics.high-value-orders have been deleted: partition 0 before offset 50: cleanup.policy=delete and retention.ms=604800000, 7 days, ", "what is left begins at 2026-09-12T10:00:", "with retention.ms=-1"}},
		},
		"results deleted by hand": {
			func(_ *testing.T, m *memory) {
				m.topics[topicHighValue].configs["retention.ms"] = "-1"
				p := &m.topics[topicHighValue].parts[0]
				p.start, p.records = p.end, nil
			}, Unknown,
			[][]string{{"partition 0 before offset 51, and its configs delete nothing (retention.ms=-1): somebody has done it by hand"}},
		},
		"repartition topic of another application purged, and an event fed twice": {
			func(_ *testing.T, m *memory) {
				m.append("order-counter-2-"+suffixRepartition, 0, kafka.Record{})
				m.topics["order-counter-2-"+suffixRepartition].parts[0].start = 1
				m.write(topicPlaced, byKey("ord-1000"), 1796040000000, "ord-1000", orderJSON(feedEvent(firstBase, 0)))
			}, Unknown,
			[][]string{{"1 of the 300 events of the feed from 2026-09-12T10:00:00Z are in orders.placed more than once"}},
		},
		"repartition topic purged": {
			func(_ *testing.T, m *memory) {
				p := &m.topics[repartitionTopic].parts[0]
				p.start, p.records = p.end, nil
			}, Unknown,
			[][]string{{"records of " + repartitionTopic + " have been deleted: partition 0 before offset 120: Kafka Streams purges", "repartition.purge.interval.ms=86400000"}},
		},
		"results compacted": {
			func(t *testing.T, m *memory) {
				m.topics[topicHighValue].configs["cleanup.policy"] = "compact"
				rs := m.records(topicHighValue, 0)
				*rs = (*rs)[30:]
			}, Fail,
			[][]string{{"analytics.high-value-orders has cleanup.policy=compact, and 30 of its offsets hold no record any more"}},
		},
		"somebody else writes counts": {
			func(_ *testing.T, m *memory) {
				m.append(topicCounts, 1, kafka.Record{Timestamp: 1789207430000, Key: []byte("store-17"), Value: []byte("99"), ProducerID: 31})
			}, Fail,
			[][]string{{"analytics.orders-per-store holds records of somebody who wrote nothing to " + changelogTopic + ": 1, first analytics.orders-per-store partition 1 offset 8 by producer 31"}},
		},
		"a fault that is none of them": {
			func(_ *testing.T, m *memory) { (*m.records(topicCounts, 2))[0].Value = []byte("51") }, Fail, nil,
		},
		"a counter that is not done": {
			func(_ *testing.T, m *memory) {
				o := byHand("ord-8", 1789207430000)
				m.append(topicPlaced, int(partitionOf([]byte(o.ID), labPartitions)), kafka.Record{Key: []byte(o.ID), Value: []byte(orderJSON(o))})
			}, Unknown, nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := golden(t)
			tt.change(t, m)
			r, text := grade(t, m, Options{Phases: []int{1, 2, 3, 4}})
			if r.Verdict() != tt.want || len(r.Causes) != len(tt.causes) {
				t.Fatalf("verdict %s, want %s; causes:\n%s\n%s", r.Verdict(), tt.want, strings.Join(r.Causes, "\n"), text)
			}
			for i, says := range tt.causes {
				for _, s := range says {
					if !strings.Contains(r.Causes[i], s) {
						t.Errorf("does not say %q:\n%s", s, r.Causes[i])
					}
				}
				if !strings.Contains(text, "\nlikely cause: "+r.Causes[i]+"\n") {
					t.Errorf("not in the table:\n%s", text)
				}
			}
		})
	}
}

// A counter that ran under another id left its topics on the broker. A recording holds their names.
func TestOtherApplication(t *testing.T) {
	m := golden(t)
	for _, topic := range internalTopics {
		m.topics["my-counter-"+topic.suffix] = m.topics["order-counter-"+topic.suffix]
		delete(m.topics, "order-counter-"+topic.suffix)
	}
	m.group = "my-counter"
	r, text := grade(t, m, Options{Phases: []int{2}})
	const says = "there is no internal topic of order-counter, and there is my-counter-orders-per-store-changelog: the counter ran with " +
		"application.id=my-counter. Start it with application.id=order-counter"
	if r.Verdict() != Unknown || len(r.Causes) != 1 || !strings.HasPrefix(r.Causes[0], says) {
		t.Errorf("causes %q\n%s", r.Causes, text)
	}
}

// The second feed of another base is none of phase 5.
func TestSecondFeedOfAnotherBase(t *testing.T) {
	m := golden(t)
	const base = secondBase + 60*minute
	for _, o := range append([]order{afterTakeoverOrder}, feedEvent(base, 0), feedEvent(base, 1)) {
		m.append(topicPlaced, int(partitionOf([]byte(o.ID), labPartitions)), kafka.Record{Key: []byte(o.ID), Value: []byte(orderJSON(o))})
	}
	r, text := grade(t, m, Options{Phases: []int{5}})
	const says = "there is a second feed from 2026-09-12T12:00:00Z (1789214400000), that of phase 5 is from 2026-09-12T11:00:00Z (1789210800000): publish that one too"
	if r.Verdict() != Unknown || !slices.Equal(r.Causes, []string{says}) {
		t.Errorf("causes %q\n%s", r.Causes, text)
	}
}

// Of a run that is right there is nothing to explain.
func TestNoCauses(t *testing.T) {
	for name, m := range map[string]*memory{"golden": golden(t), "taken over": takenOver(t), "crashed": crashedRuns(t, 20)} {
		if r, text := grade(t, m, Options{}); r.Verdict() != Pass || len(r.Causes) > 0 || strings.Contains(text, "likely cause") {
			t.Errorf("%s: %v\n%s", name, r.Causes, text)
		}
	}
}

// What is strange about the input is told with it, though all that comes of it is right.
func TestSurprises(t *testing.T) {
	tests := map[string]struct {
		change func(m *memory)
		says   string
	}{
		"fed twice": {func(m *memory) {
			m.append(topicPlaced, 1, (*m.records(topicPlaced, 1))[0])
		}, "1 of the 300 events of the feed from 2026-09-12T10:00:00Z are in orders.placed more than once, once more ord-1000 (orders.placed partition 1 offset 110)"},
		"another partitioner": {func(m *memory) {
			m.append(topicPlaced, 1, kafka.Record{Key: []byte("ord-1042"), Value: []byte("?")})
		}, "1 of 308 keys are not in the partition that Kafka's own clients choose, first ord-1042 (orders.placed partition 1 offset 110), which belongs to partition 0"},
		"null key": {func(m *memory) { m.append(topicPlaced, 1, kafka.Record{Value: []byte("?")}) }, ""},
		"more partitions": {func(m *memory) {
			m.append(topicPlaced, 1, kafka.Record{Key: []byte("ord-1042"), Value: []byte("?")})
			m.partition(topicPlaced, 3)
		}, ""},
		"none": {func(*memory) {}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := golden(t)
			tt.change(m)
			g := &grader{topics: m, opt: Options{ApplicationID: defaultApplicationID}, phases: phases}
			if err := g.load(context.Background()); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(g.surprises(), "\n")
			if !strings.Contains(got, tt.says) || (got == "") != (tt.says == "") {
				t.Errorf("says %q, want %q", got, tt.says)
			}
		})
	}
}

// Orders of phase 3 without a feed before them made verify panic.
func TestByHandWithoutAFeed(t *testing.T) {
	m := golden(t)
	m.topics[topicPlaced].parts = make([]memoryPartition, labPartitions)
	m.append(topicPlaced, 0, kafka.Record{Key: []byte(tooLateOrder.ID), Value: []byte(orderJSON(tooLateOrder))})
	r, text := grade(t, m, Options{})
	if r.Verdict() != Unknown || !strings.Contains(text, "the input is not complete: orders.placed has no ord-1000, ord-1001, ord-1002 and 297 more") {
		t.Errorf("verdict %s:\n%s", r.Verdict(), text)
	}
}

// setProducers gives each record of a topic its writer.
func (m *memory) setProducers(topic string, of func(r kafka.Record) int64) {
	for p := range m.topics[topic].parts {
		for i := range *m.records(topic, p) {
			r := &(*m.records(topic, p))[i]
			r.ProducerID = of(*r)
		}
	}
}

// An instance that goes on with a task that another one has taken over is told from one that takes over with an older count.
func TestTwoOwners(t *testing.T) {
	tests := map[string]struct {
		first, second, third int64 // who wrote the count before the one that repeats, the one that is repeated, and the one that repeats it
		says                 string
		cause                bool
	}{
		"two at once":    {1, 2, 1, " by producer 2, and producer 1 had written before it: two owners at once", true},
		"an older count": {1, 1, 2, " by producer 1: the new owner began with an older count", false},
		"one goes back":  {1, 1, 1, " by producer 1: one and the same instance went back, as after a rebalance", false},
		"without an id":  {-1, -1, -1, " by a producer without an id comes after ", false},
		"three in a row": {1, 2, 3, " by producer 2: the new owner began with an older count", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := takenOver(t)
			rs := m.records(changelogTopic, 1)
			at := slices.IndexFunc(*rs, func(r kafka.Record) bool { return string(r.Key) == "store-17" && string(r.Value) == long(56) })
			*rs = slices.Insert(*rs, at, (*rs)[at])
			m.topics[changelogTopic].parts[1].end++
			for i := range *rs {
				r := &(*rs)[i]
				r.Offset = int64(i)
				switch {
				case i < at:
					r.ProducerID = tt.first
				case i == at:
					r.ProducerID = tt.second
				default:
					r.ProducerID = tt.third
				}
			}
			for _, topic := range []string{topicCounts, topicMinutes, minuteLogTopic} { // so that nobody is strange
				m.setProducers(topic, func(kafka.Record) int64 { return tt.third })
			}
			m.setProducers(changelogTopic, func(r kafka.Record) int64 { return r.ProducerID })
			r, text := grade(t, m, Options{Phases: []int{5}})
			want := fmt.Sprintf("changelog written by two owners: store-17 falls or repeats 1 times, first 56 after 56 at %s partition 1 offset %d; 56 at offset %d by ", changelogTopic, at+1, at+1)
			if r.Verdict() != Fail || !strings.Contains(text, want) || !strings.Contains(text, tt.says) {
				t.Errorf("%s, and it has to say %q and %q:\n%s", r.Verdict(), want, tt.says, text)
			}
			if named := len(r.Causes) == 1 && strings.Contains(r.Causes[0], changelogTopic+" was written by two owners at once (store-17: 56 at offset"); named != tt.cause {
				t.Errorf("causes: %q", r.Causes)
			}
		})
	}
}

// Who wrote what is too much, and what became of what is missing.
func TestWhoWrote(t *testing.T) {
	repeated := func(m *memory, producer int64, epoch int16) kafka.Record {
		r := (*m.records(repartitionTopic, 1))[0]
		r.ProducerID, r.ProducerEpoch = producer, epoch
		return r
	}
	first := ", already at offset 0"
	tests := map[string]struct {
		change func(t *testing.T, m *memory)
		says   []string
	}{
		"by another producer": {
			func(_ *testing.T, m *memory) { m.append(repartitionTopic, 1, repeated(m, 12, 0)) },
			[]string{"offset 157 repeats ord-1000 (", first + "; written by producer 12 after producer 0 had written it first: another instance, or one that was restarted, processed it again"},
		},
		"by the same one": {
			func(_ *testing.T, m *memory) { m.append(repartitionTopic, 1, repeated(m, 0, 0)) },
			[]string{first + "; written by producer 0 after producer 0 had written it first: that instance processed it again"},
		},
		"by the same one, restarted, in a transaction": {
			func(_ *testing.T, m *memory) {
				r := repeated(m, 0, 1)
				r.Transactional = true
				m.append(repartitionTopic, 1, r)
				m.append(repartitionTopic, 1, kafka.Record{Control: kafka.ControlCommit, Transactional: true})
			},
			[]string{first + "; written by producer 0 epoch 1, in a transaction of offsets 157 to 158 that was committed after producer 0 had written it first: that instance was restarted"},
		},
		"by somebody": {
			func(_ *testing.T, m *memory) { m.append(repartitionTopic, 1, repeated(m, -1, -1)) },
			[]string{"written by a producer without an id after producer 0 had written it first: which instance that was, the log does not tell"},
		},
		"of no order": {
			func(_ *testing.T, m *memory) {
				r := repeated(m, 7, 0)
				r.Value = []byte("?")
				m.append(repartitionTopic, 1, r)
			},
			[]string{"offset 157 is of no order, written by producer 7"},
		},
		"in an aborted transaction": {
			func(t *testing.T, m *memory) {
				rs := m.records(repartitionTopic, 1)
				(*rs)[0].Transactional, (*rs)[0].ProducerID = true, 9
				m.append(repartitionTopic, 1, kafka.Record{Control: kafka.ControlAbort, Transactional: true, ProducerID: 9})
			},
			[]string{"no record of ord-1000 (", "that of ord-1000 (" + repartitionTopic + " partition 1 offset 0) was written by producer 9 epoch 0, in a transaction of offsets 0 to 157 that was aborted"},
		},
		"a high-value row by another producer": {
			func(_ *testing.T, m *memory) {
				r := (*m.records(topicHighValue, 0))[0]
				r.ProducerID = 3
				m.append(topicHighValue, 0, r)
			},
			[]string{"partition 0 offset 51 repeats ord-1005", "written by producer 3 after producer 0 had written it first"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := golden(t)
			tt.change(t, m)
			m.commitAll()
			r, text := grade(t, m, Options{Phases: []int{1, 2}})
			if r.Verdict() != Fail {
				t.Errorf("verdict %s:\n%s", r.Verdict(), text)
			}
			for _, says := range tt.says {
				if !strings.Contains(text, says) {
					t.Errorf("does not say %q:\n%s", says, text)
				}
			}
		})
	}
}

// Where the counts leave what the orders come to, by whom, and how far they were right.
func TestMissteps(t *testing.T) {
	// store-17 sets the counts of store-17 to values, each with a time and a producer.
	type step struct {
		value    int64
		time     int64
		producer int64
	}
	right := []step{{50, 1789207258800, 1}, {51, 1789207265000, 1}}
	order2003 := int64(1789207380000) // with it, store-17 has 53
	tests := map[string]struct {
		steps []step
		says  string
	}{
		"a time that no order has": {
			append(slices.Clone(right), step{54, order2003 - 1000, 2}),
			"none of its orders leads to",
		},
		"counted again by a new owner": {
			append(slices.Clone(right), step{56, order2003, 2}),
			"the counts are right up to 51 at offset 1 by producer 1, then comes 56 at offset 2 by producer 2 where the order at " + repartitionTopic +
				" partition 1 offset 153 makes it 54: 2 too many: the new owner counted again what had been counted and not committed",
		},
		"counted again by the same": {
			append(slices.Clone(right), step{56, order2003, 1}),
			"by producer 1 where the order at " + repartitionTopic + " partition 1 offset 153 makes it 54: 2 too many",
		},
		"one left out": {
			append(slices.Clone(right), step{52, order2003, 2}),
			"then comes 52 at offset 2 by producer 2 where the order at " + repartitionTopic + " partition 1 offset 152 makes it 53: 1 too few",
		},
		"wrong from the start": {
			[]step{{52, 1789207258800, 1}},
			"the first count is 52 at offset 0 by producer 1 where the order at " + repartitionTopic,
		},
		"stopped": {
			right,
			"the counts are right up to 51 at offset 1 by producer 1, and the order at " + repartitionTopic + " partition 1 offset 151 was not counted any more; 1 at offset 2 was written by producer 8 epoch 0, in a transaction of offsets 2 to 3 that was aborted",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := golden(t)
			*m.records(topicCounts, 1) = nil
			m.topics[topicCounts].parts[1].end = 0
			for _, s := range tt.steps {
				m.append(topicCounts, 1, kafka.Record{Timestamp: s.time, Key: []byte("store-17"), Value: []byte(strconv.FormatInt(s.value, 10)), ProducerID: s.producer})
			}
			// What was aborted is no step.
			m.transaction(topicCounts, 1, 8, kafka.ControlAbort, kafka.Record{Key: []byte("store-17"), Value: []byte("1")})
			if r, text := grade(t, m, Options{Phases: []int{2}}); r.Verdict() != Fail || !strings.Contains(text, tt.says) {
				t.Errorf("%s, and it has to say %q:\n%s", r.Verdict(), tt.says, text)
			}
		})
	}
}

// An order that came again is told of where it was sent, and one that was counted again where it came to be counted.
func TestExplainIsToldOfRepeats(t *testing.T) {
	m := golden(t)
	m.append(repartitionTopic, 1, (*m.records(repartitionTopic, 1))[0])
	m.write(topicCounts, 1, 1789207430000, "store-17", "58")
	m.change(t, topicCounts, holds("store-18", "40"), func(r *kafka.Record) { r.Value = []byte("41") })
	m.commitAll()
	told := map[string][]Repeat{}
	grade(t, m, Options{Phases: []int{2}, Explain: func(d Difference, again []Repeat) string {
		told[d.Topic+" "+d.Key] = again
		return ""
	}})
	sent := (*m.records(topicPlaced, 1))[0] // ord-1000
	placed := []Repeat{{kafka.TopicPartition{Topic: topicPlaced, Partition: 1}, 0, time.UnixMilli(sent.Timestamp)}}
	counted := slices.IndexFunc(*m.records(repartitionTopic, 0), ofOrder("ord-1295")) // the last one of store-18
	for difference, want := range map[string][]Repeat{
		repartitionTopic + " store-17": placed,
		topicCounts + " store-17":      placed,
		topicCounts + " store-18":      {{TopicPartition: kafka.TopicPartition{Topic: repartitionTopic}, Offset: int64(counted)}},
	} {
		if got := told[difference]; !slices.Equal(got, want) {
			t.Errorf("told of %s: %v, want %v", difference, got, want)
		}
	}
}

// What a user does by hand on any broker is explained too, without a journal and from real logs.
func TestCausesOnABroker(t *testing.T) {
	c := testClient(t, brokertest.Bootstrap(brokertest.Embedded(t)), kafka.Config{})
	ctx := testContext(t)
	m := golden(t)
	m.spread(func(key []byte, _ int) int32 { return partitioners[0].place(key, labPartitions) })
	load(t, c, m)
	send := func(p *kafka.Producer, topic string, partition int32, r kafka.Record) {
		t.Helper()
		if err := p.Send(ctx, kafka.Message{Topic: topic, Partition: partition, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	p := producer(t, c, "by-hand")
	send(p, repartitionTopic, 1, recordOf(phase3Orders[0]))
	if err := p.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	send(producer(t, c, ""), topicCounts, 1, kafka.Record{Timestamp: 1789207430000, Key: []byte("store-17"), Value: []byte("58")})
	end := map[kafka.TopicPartition]kafka.Offset{{Topic: repartitionTopic, Partition: 1}: {Offset: 159, LeaderEpoch: -1}}
	if err := c.CommitOffsets(ctx, kafka.GroupMeta{Group: m.group, Generation: -1}, end); err != nil {
		t.Fatal(err)
	}
	says(t, c, "All fit CRC32, the default of librdkafka", "analytics.orders-per-store is too high by store-17 1, which is just the number of aborted records",
		"analytics.orders-per-store holds records of somebody who wrote nothing to "+changelogTopic+": 1")

	if err := c.DeleteTopics(ctx, topicPlaced); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateTopics(ctx, []kafka.TopicSpec{{Name: topicPlaced, Partitions: labPartitions, Replication: -1}}); err != nil {
		t.Fatal(err)
	}
	old := map[kafka.TopicPartition]kafka.Offset{{Topic: topicPlaced, Partition: 1}: {Offset: 110, LeaderEpoch: -1}}
	if err := c.CommitOffsets(ctx, kafka.GroupMeta{Group: m.group, Generation: -1}, old); err != nil {
		t.Fatal(err)
	}
	says(t, c, "order-counter has committed offset 110 of orders.placed-1, which ends at 0", "orders.placed holds no order, and there are results in",
		"is too high by store-17 1", "of somebody who wrote nothing to")
}

// says expects each text in a cause of a run that is not right.
func says(t *testing.T, c *kafka.Client, texts ...string) {
	t.Helper()
	r, err := Run(testContext(t), c, Options{})
	if err != nil || r.Verdict() == Pass || len(r.Causes) != len(texts) {
		t.Fatalf("%v, %s, causes:\n%s", err, r.Summary(), strings.Join(r.Causes, "\n"))
	}
	for i, s := range texts {
		if !strings.Contains(r.Causes[i], s) {
			t.Errorf("does not say %q: %s", s, r.Causes[i])
		}
	}
}
