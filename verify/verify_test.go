package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func grade(t *testing.T, m topics, opt Options) (Report, string) {
	t.Helper()
	r, err := run(t.Context(), m, opt)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteTable(&b, false); err != nil {
		t.Fatal(err)
	}
	sameWhenRecorded(t, m, opt)
	return r, b.String()
}

func TestGoldenPasses(t *testing.T) {
	r, text := grade(t, golden(t), Options{})
	if r.Verdict() != Pass || r.ExitCode() != 0 {
		t.Errorf("verdict %s, exit code %d:\n%s", r.Verdict(), r.ExitCode(), text)
	}
	if want := "PASS phases 1, 2, 3, 4: 48 checks\n"; !strings.HasSuffix(text, want) {
		t.Errorf("last line is not %q:\n%s", want, text)
	}
	for _, p := range r.Phases {
		for _, c := range p.Checks {
			if c.Want == "" || c.Got == "" || c.Name == "" {
				t.Errorf("check without words: %+v", c)
			}
		}
	}
	if testing.Verbose() {
		t.Log("\n" + text)
	}
}

const (
	repartitionTopic = "order-counter-orders-by-store-repartition"
	changelogTopic   = "order-counter-orders-per-store-changelog"
	minuteLogTopic   = "order-counter-orders-per-store-minute-changelog"
)

// Each case is one thing gone wrong in a run that was right.
func TestMutationsAreFound(t *testing.T) {
	drop := func(m *memory, topic string, partition, i int) {
		rs := m.records(topic, partition)
		*rs = slices.Delete(*rs, i, i+1)
	}
	repeat := func(m *memory, topic string, partition, i int) {
		rs := m.records(topic, partition)
		again := (*rs)[i]
		p := &m.topics[topic].parts[partition]
		again.Offset = p.end
		p.end++
		*rs = append(*rs, again)
	}
	find := func(t *testing.T, m *memory, topic, text string) (partition, i int) {
		for p := range m.topics[topic].parts {
			for i, r := range m.topics[topic].parts[p].records {
				if strings.Contains(string(r.Value), text) {
					return p, i
				}
			}
		}
		t.Fatalf("no %s in %s", text, topic)
		return 0, 0
	}
	tests := map[string]struct {
		change func(t *testing.T, m *memory)
		want   Verdict
		says   []string // each must be in the table
	}{
		"high-value record dropped": {
			func(_ *testing.T, m *memory) { drop(m, topicHighValue, 0, 0) }, Fail,
			[]string{"FAIL     high-value rows ", "missing: store-22 130000 is there 5 of 6 times", "no record of ord-1005 (orders.placed partition 1 offset 2)", "missing: store-22 130000 is there 5 times, in feed 1 6 times"},
		},
		"high-value record twice": {
			func(_ *testing.T, m *memory) { repeat(m, topicHighValue, 0, 0); m.commitAll() }, Fail,
			[]string{"duplicated: store-22 130000 is there 7 times instead of 6", "analytics.high-value-orders partition 0 offset 51 repeats ord-1005"},
		},
		"high-value amount changed": {
			func(_ *testing.T, m *memory) { (*m.records(topicHighValue, 0))[0].Value = []byte("130001") }, Fail,
			[]string{"missing: store-22 130000", "extra: store-22 130001 is there 1 times"},
		},
		"high-value record of a cancelled order": {
			func(_ *testing.T, m *memory) {
				repeat(m, topicHighValue, 0, 0)
				rs := *m.records(topicHighValue, 0)
				last := &rs[len(rs)-1]
				last.Key, last.Value = []byte("store-20"), []byte("155000")
			}, Fail,
			[]string{"duplicated: store-20 155000", "is of no order"},
		},
		"high-value null": {
			func(_ *testing.T, m *memory) { (*m.records(topicHighValue, 0))[0].Value = nil }, Fail,
			[]string{"extra: store-22 null"},
		},
		"high-value timestamp wrong": {
			func(_ *testing.T, m *memory) { (*m.records(topicHighValue, 0))[0].Timestamp++ }, Fail,
			[]string{"FAIL     high-value record times", "store-22 130000: not the times of the orders; no record of ord-1005", "is of no order"},
		},
		"high-value topic gone": {
			func(_ *testing.T, m *memory) { delete(m.topics, topicHighValue) }, Fail,
			[]string{"topic analytics.high-value-orders does not exist", "UNKNOWN  high-value rows"},
		},
		"high-value records deleted by retention": {
			func(_ *testing.T, m *memory) {
				p := &m.topics[topicHighValue].parts[0]
				p.start, p.records = p.end, nil
			}, Unknown,
			[]string{"records of analytics.high-value-orders have been deleted: partition 0 before offset 51"},
		},
		"input topic with another partition count": {
			func(_ *testing.T, m *memory) { m.topic(topicStatus).parts = m.topics[topicStatus].parts[:2] }, Fail,
			[]string{"orders.status has 2 partitions, want 3"},
		},
		"status topic not compacted": {
			func(_ *testing.T, m *memory) { m.topics[topicStatus].configs["cleanup.policy"] = "delete" }, Fail,
			[]string{"orders.status has cleanup.policy=delete, want compact"},
		},
		"event of the feed dropped": {
			func(t *testing.T, m *memory) {
				p, i := find(t, m, topicPlaced, "ord-1007")
				drop(m, topicPlaced, p, i)
			}, Unknown,
			[]string{"UNKNOWN  input, feed 1", "299 events", "orders.placed has no ord-1007"},
		},
		"event of the feed with another amount": {
			func(t *testing.T, m *memory) {
				p, i := find(t, m, topicPlaced, "ord-1007")
				r := &(*m.records(topicPlaced, p))[i]
				r.Value = bytes.Replace(r.Value, []byte(`"amount":5000`), []byte(`"amount":5001`), 1)
			}, Unknown,
			[]string{"orders.placed has no ord-1007", "ord-1007 (orders.placed partition"},
		},
		"input deleted": {
			func(_ *testing.T, m *memory) { m.topics[topicPlaced].parts[1].start = 3 }, Unknown,
			[]string{"the input is not complete: records of orders.placed have been deleted: partition 1 before offset 3"},
		},
		"order after the fact not counted": {
			func(_ *testing.T, m *memory) {
				rs := m.records(topicPlaced, 1)
				m.topics[topicPlaced].parts[1].end++
				*rs = append(*rs, kafka.Record{Offset: 110, Key: []byte("x"), Value: []byte(`{"orderId":"x","storeId":"store-18","status":"PLACED","amount":1,"occurredAt":1789207440000}`)})
				m.commitAll()
			}, Fail,
			[]string{"store-18 has 40 of 41: order-counter-orders-by-store-repartition holds 40, no record of x (orders.placed partition 1 offset 110)", "store-18 has 40 of 41 records; no record of x"},
		},
		"the same, but the application has not come so far": {
			func(_ *testing.T, m *memory) {
				rs := m.records(topicPlaced, 1)
				m.topics[topicPlaced].parts[1].end++
				*rs = append(*rs, kafka.Record{Offset: 110, Key: []byte("x"), Value: []byte(`{"orderId":"x","storeId":"store-18","status":"PLACED","amount":1,"occurredAt":1789207440000}`)})
			}, Unknown,
			[]string{"UNKNOWN  running counts ", "lag 1 on orders.placed-1"},
		},
		"nothing committed, nothing written": {
			func(_ *testing.T, m *memory) {
				m.committed = nil
				for name, topic := range m.topics {
					if strings.HasPrefix(name, "analytics.") {
						for p := range topic.parts {
							topic.parts[p] = memoryPartition{}
						}
					} else if strings.HasPrefix(name, "order-counter-") {
						delete(m.topics, name)
					}
				}
			}, Unknown,
			[]string{"order-counter has committed nothing yet: has a counter run?"},
		},
		"bad input is not among the dead letters": {
			func(_ *testing.T, m *memory) {
				rs := m.records(topicPlaced, 1)
				for i, bad := range []string{"", "hello", `{"orderId":"x","storeId":"store-18","status":"PLACED","amount":1e3,"occurredAt":1}`} {
					*rs = append(*rs, kafka.Record{Offset: int64(110 + i), Value: []byte(bad)})
					m.topics[topicPlaced].parts[1].end++
				}
				m.commitAll()
			}, Fail,
			[]string{"3 records are no orders", "FAIL     dead letters ", "amount is 1e3, and it is not among the dead letters"},
		},
		"count dropped": {
			func(_ *testing.T, m *memory) {
				m.topics[topicCounts].parts[1].records = slices.DeleteFunc(*m.records(topicCounts, 1), func(r kafka.Record) bool { return r.Offset == 7 })
			}, Fail,
			[]string{"FAIL     running counts ", "store-17 has 56 of 57: order-counter-orders-by-store-repartition holds each of its 57 orders once"},
		},
		"count of a store missing": {
			func(_ *testing.T, m *memory) { drop(m, topicCounts, 0, 2) }, Fail,
			[]string{"store-18 was never counted, want 40", "store-18 has 0 of 40"},
		},
		"count too high": {
			func(_ *testing.T, m *memory) { (*m.records(topicCounts, 2))[0].Value = []byte("51") }, Fail,
			[]string{"store-19 has 51 of 50", "store-19 passed over 50 to 51"},
		},
		"count no number": {
			func(_ *testing.T, m *memory) { (*m.records(topicCounts, 2))[0].Value = []byte("050") }, Fail,
			[]string{`store-19: analytics.orders-per-store partition 2 offset 0 is "050" and no count`},
		},
		"count of a store nobody ordered from": {
			func(_ *testing.T, m *memory) { (*m.records(topicCounts, 2))[0].Key = []byte("store-99") }, Fail,
			[]string{"store-99 is counted"},
		},
		"count with the timestamp of the last order instead of the latest": {
			func(_ *testing.T, m *memory) { (*m.records(topicCounts, 2))[0].Timestamp -= 200 }, Fail,
			[]string{"store-19: timestamp 1789207259000 (analytics.orders-per-store partition 2 offset 0), want 1789207259200"},
		},
		"count of the feed passed over by the cache": {
			func(_ *testing.T, m *memory) { drop(m, topicCounts, 1, 0) }, Pass,
			[]string{"PASS     running counts of feed 1           (51), 40", "store-17 passed over 50 to 51"},
		},
		"counts written again after a restart": {
			func(_ *testing.T, m *memory) {
				repeat(m, topicCounts, 1, 6)
				repeat(m, topicCounts, 1, 7)
			}, Pass,
			[]string{"store-17 falls or repeats 1 times, first 56 after 57 at analytics.orders-per-store partition 1 offset 8"},
		},
		"counts of one store in two partitions": {
			func(_ *testing.T, m *memory) {
				r := (*m.records(topicCounts, 1))[7]
				r.Offset = 2
				*m.records(topicCounts, 2) = append(*m.records(topicCounts, 2), r)
				m.topics[topicCounts].parts[2].end++
			}, Fail,
			[]string{"store-17 is in partitions 1 and 2 of analytics.orders-per-store"},
		},
		"repartition record dropped": {
			func(_ *testing.T, m *memory) { drop(m, repartitionTopic, 1, 0) }, Fail,
			[]string{"FAIL     repartition records", "store-17 has 56 of 57 records; no record of ord-1000 (orders.placed partition"},
		},
		"repartition record twice": {
			func(_ *testing.T, m *memory) { repeat(m, repartitionTopic, 1, 0); m.commitAll() }, Fail,
			[]string{"store-17 has 58 of 57 records (at least once may send again after a crash)", "offset 157 repeats ord-1000"},
		},
		"repartition record with other bytes": {
			func(_ *testing.T, m *memory) {
				r := &(*m.records(repartitionTopic, 1))[0]
				r.Value = append(slices.Clone(r.Value), ' ')
			}, Fail,
			[]string{"store-17 has 57 records, but not those of its orders", "is of no order"},
		},
		"repartition record without event time": {
			func(_ *testing.T, m *memory) { (*m.records(repartitionTopic, 1))[0].Timestamp = 1796039837509 }, Fail,
			[]string{"store-17 has 57 records, but not those of its orders"},
		},
		"repartition purged": {
			func(_ *testing.T, m *memory) {
				for p := range 2 {
					p := &m.topics[repartitionTopic].parts[p]
					p.start, p.records = p.end, nil
				}
			}, Unknown,
			[]string{"UNKNOWN  repartition records", "records of order-counter-orders-by-store-repartition have been deleted: partition 0 before offset 120, partition 1 before offset 157"},
		},
		"repartition purged where it does not show": {
			func(_ *testing.T, m *memory) {
				p := &m.topics[repartitionTopic].parts[0]
				p.start++
				for i := range p.records {
					p.records[i].Offset++
				}
				p.end++
				m.commitAll()
			}, Unknown,
			[]string{"UNKNOWN  repartition records"},
		},
		"store in both partitions of the repartition topic": {
			func(_ *testing.T, m *memory) {
				from, to := m.records(repartitionTopic, 1), m.records(repartitionTopic, 0)
				r := (*from)[0]
				r.Offset = m.topics[repartitionTopic].parts[0].end
				m.topics[repartitionTopic].parts[0].end++
				*from, *to = (*from)[1:], append(*to, r)
				m.commitAll()
			}, Fail,
			[]string{"store-17 is in partitions 0 and 1 of the repartition topic"},
		},
		"changelog partition by key instead of by task": {
			func(_ *testing.T, m *memory) {
				from, to := m.records(changelogTopic, 0), m.records(changelogTopic, 1)
				r := (*from)[2]
				r.Offset = m.topics[changelogTopic].parts[1].end
				m.topics[changelogTopic].parts[1].end++
				*from, *to = (*from)[:2], append(*to, r)
			}, Fail,
			[]string{"store-18 is in partition 0 of the repartition topic and in 1 of the changelog"},
		},
		"internal topic missing": {
			func(_ *testing.T, m *memory) { delete(m.topics, changelogTopic) }, Fail,
			[]string{"topic order-counter-orders-per-store-changelog does not exist", "UNKNOWN  changelog of the counts"},
		},
		"internal topic too many": {
			func(_ *testing.T, m *memory) { m.partition("order-counter-KSTREAM-MAP-0000000009-repartition", 2) }, Fail,
			[]string{"order-counter-KSTREAM-MAP-0000000009-repartition is none of the lab's internal topics"},
		},
		"internal topics of other applications": {
			func(_ *testing.T, m *memory) {
				m.partition("order-counter-eos-orders-per-store-changelog", 1)
				m.partition("order-counter-dead-letters", 0)
				m.partition("other-orders-per-store-changelog", 1)
			}, Pass, nil,
		},
		"repartition topic with 3 partitions": {
			func(_ *testing.T, m *memory) { m.partition(repartitionTopic, 2) }, Fail,
			[]string{"order-counter-orders-by-store-repartition has 3 partitions, want 2"},
		},
		"window changelog with the default retention": {
			func(_ *testing.T, m *memory) { m.topics[minuteLogTopic].configs["retention.ms"] = "86490000" }, Fail,
			[]string{"order-counter-orders-per-store-minute-changelog has retention.ms=86490000, want 3153600090000"},
		},
		"changelog not compacted": {
			func(_ *testing.T, m *memory) { delete(m.topics[changelogTopic].configs, "cleanup.policy") }, Fail,
			[]string{"order-counter-orders-per-store-changelog has cleanup.policy=(default), want compact"},
		},
		"default config not listed": {
			func(_ *testing.T, m *memory) { delete(m.topics[changelogTopic].configs, "message.timestamp.type") }, Pass, nil,
		},
		"changelog timestamp wrong": {
			func(_ *testing.T, m *memory) { (*m.records(changelogTopic, 0))[0].Timestamp = 1796039837509 }, Fail,
			[]string{"FAIL     changelog of the counts", "store-20: timestamp 1796039837509"},
		},
		"changelog value little endian": {
			func(_ *testing.T, m *memory) {
				(*m.records(changelogTopic, 0))[0].Value = binary.LittleEndian.AppendUint64(nil, 40)
			}, Fail,
			[]string{"FAIL     changelog of the counts", "store-20 has"},
		},
		"changelog value as text": {
			func(_ *testing.T, m *memory) { (*m.records(changelogTopic, 0))[0].Value = []byte("40") }, Fail,
			[]string{`is "40" and no count`},
		},
		"changelog tombstone": {
			func(_ *testing.T, m *memory) { (*m.records(changelogTopic, 0))[0].Value = nil }, Fail,
			[]string{`is "null" and no count`},
		},
		"minute count dropped": {
			func(_ *testing.T, m *memory) { drop(m, topicMinutes, 0, 0) }, Fail,
			[]string{"store-20|2026-09-12T10:00:00Z was never counted, want 40", "store-20|2026-09-12T10:00:00Z is 40 in order-counter-orders-per-store-minute-changelog and was not written"},
		},
		"minute count other than in the changelog": {
			func(_ *testing.T, m *memory) { (*m.records(topicMinutes, 0))[0].Value = []byte("39") }, Fail,
			[]string{"store-20|2026-09-12T10:00:00Z came to 39 of 40", "is 39 at time 1789207259400"},
		},
		"minute count without its sequence number": {
			func(_ *testing.T, m *memory) {
				r := &(*m.records(minuteLogTopic, 0))[0]
				r.Key = r.Key[:len(r.Key)-4]
			}, Fail,
			[]string{"FAIL     changelog of the minute counts"},
		},
		"minute count above its orders": {
			func(_ *testing.T, m *memory) {
				out, log := m.records(topicMinutes, 0), m.records(minuteLogTopic, 0)
				(*out)[0].Value, (*log)[2].Value = []byte("41"), binary.BigEndian.AppendUint64(nil, 41)
			}, Fail,
			[]string{"store-20|2026-09-12T10:00:00Z has 41, and 40 such orders were placed"},
		},
		"late order counted all the same": {
			func(_ *testing.T, m *memory) {
				r := (*m.records(topicMinutes, 1))[2]
				r.Offset, r.Value = 3, []byte("52")
				*m.records(topicMinutes, 1) = append(*m.records(topicMinutes, 1), r)
				m.topics[topicMinutes].parts[1].end++
				log := m.records(minuteLogTopic, 1)
				(*log)[4].Value = binary.BigEndian.AppendUint64(nil, 52)
			}, Fail,
			[]string{"store-17|2026-09-12T10:00:00Z has 52, and 51 of its orders came in time, 1 too late"},
		},
		"order in time left out of its minute": {
			func(_ *testing.T, m *memory) {
				drop(m, topicMinutes, 1, 2)
				drop(m, minuteLogTopic, 1, 4)
			}, Fail,
			[]string{"store-17|2026-09-12T10:00:00Z has 50 of the 51 orders that came in time (1 came too late)"},
		},
		"minute never counted": {
			func(_ *testing.T, m *memory) {
				drop(m, topicMinutes, 1, 1)
				drop(m, minuteLogTopic, 1, 3)
			}, Fail,
			[]string{"store-17|2026-09-12T10:01:00Z was never counted, want 1"},
		},
		"broker gone in the middle": {
			func(_ *testing.T, m *memory) { m.fail = map[string]error{topicCounts: errStalled} }, Unknown,
			[]string{"UNKNOWN  running counts ", "no answer from the broker"},
		},
		"open transaction": {
			func(_ *testing.T, m *memory) {
				m.fail = map[string]error{topicCounts: &OpenTransactionError{kafka.TopicPartition{Topic: topicCounts, Partition: 1}, 3, 8}}
			}, Unknown,
			[]string{"analytics.orders-per-store-1: an open transaction at offset 3 hides what comes after it, up to 8"},
		},
		"orders.placed gone": {
			func(_ *testing.T, m *memory) { delete(m.topics, topicPlaced) }, Unknown,
			[]string{"topic orders.placed does not exist"},
		},
		"no feed": {
			func(_ *testing.T, m *memory) {
				for p := range 3 {
					m.topics[topicPlaced].parts[p] = memoryPartition{}
				}
			}, Unknown,
			[]string{"orders.placed holds no event of a feed"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := golden(t)
			tt.change(t, m)
			r, text := grade(t, m, Options{Phases: []int{1, 2}})
			if r.Verdict() != tt.want {
				t.Errorf("verdict %s, want %s:\n%s", r.Verdict(), tt.want, text)
			}
			for _, says := range tt.says {
				if !strings.Contains(text, says) {
					t.Errorf("does not say %q:\n%s", says, text)
				}
			}
			last := text[strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1:]
			if !strings.HasPrefix(last, tt.want.String()+" phase") {
				t.Errorf("last line: %s", last)
			}
		})
	}
}

func TestPhases(t *testing.T) {
	empty := &memory{topics: map[string]*memoryTopic{}}
	empty.partition(topicPlaced, 2)
	notRun := func(n int) []Verdict { return slices.Repeat([]Verdict{NotRun}, n) }
	tests := map[string]struct {
		topics topics
		phases []int
		want   []Verdict
		code   int
		last   string
	}{
		"all that were run":    {golden(t), nil, append([]Verdict{Pass, Pass, Pass, Pass}, notRun(len(phases)-4)...), 0, "PASS phases 1, 2, 3, 4: 48 checks"},
		"one":                  {golden(t), []int{1}, []Verdict{Pass}, 0, "PASS phase 1: 7 checks"},
		"none was run":         {empty, nil, notRun(len(phases)), 2, "UNKNOWN: nothing to judge"},
		"one that was not run": {empty, []int{2}, []Verdict{Unknown}, 2, "UNKNOWN phase 2: orders.placed holds no event of a feed"},
		"one by hand that was not": {
			empty, []int{4}, []Verdict{Unknown}, 2, "UNKNOWN phase 4: orders.placed has no ord-2005 of 2026-09-12T10:03:50Z",
		},
		"nothing there, all asked": {&memory{}, nil, nil, 2, "UNKNOWN: topic orders.placed does not exist"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, text := grade(t, tt.topics, Options{Phases: tt.phases})
			var got []Verdict
			for _, p := range r.Phases {
				got = append(got, p.Verdict)
			}
			if !slices.Equal(got, tt.want) || r.ExitCode() != tt.code || !strings.HasSuffix(text, "\n"+tt.last+"\n") && text != tt.last+"\n" {
				t.Errorf("verdicts %v, exit code %d\n%s", got, r.ExitCode(), text)
			}
		})
	}
	_, err := run(t.Context(), empty, Options{Phases: []int{1, 9}})
	var e *PhaseError
	if !errors.As(err, &e) || e.Phase != 9 || !strings.Contains(err.Error(), "1 2") {
		t.Errorf("phase 9: %v", err)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := run(ctx, golden(t), Options{})
	if err != nil || r.Verdict() != Unknown || r.Summary() != "UNKNOWN: interrupted" {
		t.Errorf("%s, %v", r.Summary(), err)
	}
}

func TestOtherApplicationID(t *testing.T) {
	m := golden(t)
	m.group = "mine"
	for _, topic := range internalTopics {
		m.topics["mine-"+topic.suffix] = m.topics["order-counter-"+topic.suffix]
		delete(m.topics, "order-counter-"+topic.suffix)
	}
	for tp, o := range m.committed {
		if rest, ok := strings.CutPrefix(tp.Topic, "order-counter-"); ok {
			delete(m.committed, tp)
			m.committed[kafka.TopicPartition{Topic: "mine-" + rest, Partition: tp.Partition}] = o
		}
	}
	if r, text := grade(t, m, Options{ApplicationID: "mine"}); r.Verdict() != Pass {
		t.Error(text)
	}
}

func TestExplainAddsToDifferences(t *testing.T) {
	m := golden(t)
	(*m.records(topicCounts, 2))[0].Value = []byte("51")
	var asked []Difference
	r, text := grade(t, m, Options{Explain: func(d Difference, _ []Repeat) string {
		asked = append(asked, d)
		return "a was killed at 10:00"
	}})
	if want := (Difference{topicCounts, "store-19", 50, 51}); r.Verdict() != Fail || !slices.Contains(asked, want) || !strings.Contains(text, "; a was killed at 10:00") {
		t.Errorf("asked for %v\n%s", asked, text)
	}
}

func TestJSONEndsWithTheVerdict(t *testing.T) {
	m := golden(t)
	delete(m.topics, topicHighValue)
	r, _ := grade(t, m, Options{Phases: []int{1}})
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(b), `,"verdict":"FAIL"}`) {
		t.Errorf("%s", b)
	}
	var back struct {
		Phases []struct {
			Phase   int
			Verdict string
			Checks  []struct {
				Name, Want, Got, Verdict string
				Details                  []string
			}
		}
		Verdict string
	}
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Phases) != 1 || back.Phases[0].Verdict != "FAIL" || back.Phases[0].Checks[1].Verdict != "FAIL" || len(back.Phases[0].Checks[1].Details) == 0 {
		t.Errorf("%+v", back)
	}
}

func TestColorsOnlyWhenAsked(t *testing.T) {
	r, plain := grade(t, golden(t), Options{})
	if strings.Contains(plain, "\x1b") {
		t.Errorf("escape sequences: %q", plain)
	}
	var b bytes.Buffer
	if err := r.WriteTable(&b, true); err != nil {
		t.Fatal(err)
	}
	if got := strings.NewReplacer("\x1b[32m", "", "\x1b[2m", "", "\x1b[0m", "").Replace(b.String()); got != plain || b.String() == plain {
		t.Errorf("%q", b.String())
	}
}

// The boundary is Kafka's: with a window end E and a grace g, stream time E+g-1 still accepts and E+g drops.
func TestLateness(t *testing.T) {
	tests := []struct {
		name       string
		streamTime int64
		want, late int64
	}{
		{"in order", 0, 1, 0},
		{"last moment", minute + grace - 1, 1, 0},
		{"just too late", minute + grace, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rs := newRepartition()
			rs.count(0, "other", tt.streamTime)
			rs.count(1, "other", 1<<40) // another task's time does not matter
			rs.count(0, "store", 5)
			key := minuteKey("store", 0)
			if got, late := rs.minutes[key], rs.late[key]; got.placed != tt.want || late != tt.late {
				t.Errorf("%d counted, %d late", got.placed, late)
			}
		})
	}
}

// BenchmarkInput is the cost of an order for the oracle.
func BenchmarkInput(b *testing.B) {
	value := []byte(`{"orderId":"ord-1000","storeId":"store-17","status":"PLACED","amount":105000,"occurredAt":1789207200000}`)
	in := newInput(newDeadLetters())
	r := kafka.Record{Value: value}
	b.ReportAllocs()
	for b.Loop() {
		in.add(kafka.TopicPartition{Topic: topicPlaced}, &r)
	}
}

func TestReadOrder(t *testing.T) {
	const good = `{"orderId":"ord-1000","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207200000}`
	edit := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	tests := map[string]struct {
		value string
		want  *order // nil: no order
	}{
		"plain":                  {good, &order{"ord-1000", "store-17", true, 5000, 1789207200000}},
		"cancelled":              {edit("PLACED", "CANCELLED"), &order{"ord-1000", "store-17", false, 5000, 1789207200000}},
		"extra field":            {edit(`{`, `{"x":[{"amount":1}],"x":1,`), &order{"ord-1000", "store-17", true, 5000, 1789207200000}},
		"beyond 2^53":            {edit("5000", "9007199254740993"), &order{"ord-1000", "store-17", true, 9007199254740993, 1789207200000}},
		"negative amount":        {edit("5000", "-1"), &order{"ord-1000", "store-17", true, -1, 1789207200000}},
		"surrogate pair":         {edit("ord-1000", `\ud83d\ude00`), &order{"😀", "store-17", true, 5000, 1789207200000}},
		"escaped backslash":      {edit("ord-1000", `\\ud83d`), &order{`\ud83d`, "store-17", true, 5000, 1789207200000}},
		"null":                   {"", nil},
		"text":                   {"hello", nil},
		"byte-order mark":        {"\ufeff" + good, nil},
		"two documents":          {good + good, nil},
		"truncated":              {good[:len(good)-1], nil},
		"missing":                {edit(`"amount":5000,`, ""), nil},
		"name in other case":     {edit("amount", "Amount"), nil},
		"duplicate":              {edit(`"amount"`, `"amount":1,"amount"`), nil},
		"duplicate with escapes": {edit(`"amount"`, `"\u0061mount":1,"amount"`), nil},
		"1e3":                    {edit("5000", "1e3"), nil},
		"5000.0":                 {edit("5000", "5000.0"), nil},
		"text for a number":      {edit("5000", `"5000"`), nil},
		"null for a number":      {edit("5000", `null`), nil},
		"number for a text":      {edit(`"store-17"`, `17`), nil},
		"object for a text":      {edit(`"store-17"`, `{"orderId":"x"}`), nil},
		"beyond int64":           {edit("5000", "9223372036854775808"), nil},
		"negative time":          {edit("1789207200000", "-1"), nil},
		"unknown status":         {edit("PLACED", "placed"), nil},
		"invalid UTF-8":          {edit("ord-1000", "\xff"), nil},
		"half a surrogate pair":  {edit("ord-1000", `\ud83d`), nil},
		"the other half":         {edit("ord-1000", `\ude00`), nil},
		"two first halves":       {edit("ord-1000", `\ud83d\ud83d`), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readOrder([]byte(tt.value))
			switch {
			case tt.want == nil && !errors.Is(err, errNoOrder):
				t.Errorf("accepted as %+v (%v)", got, err)
			case tt.want != nil && (err != nil || got != *tt.want):
				t.Errorf("got %+v, %v; want %+v", got, err, *tt.want)
			}
		})
	}
}

// A million orders must not need memory for each of them.
func TestMemoryGrowsWithKeysOnly(t *testing.T) {
	in := newInput(newDeadLetters())
	value := func(i int) []byte {
		return fmt.Appendf(nil, `{"orderId":"o-%d","storeId":"store-%d","status":"PLACED","amount":%d,"occurredAt":%d}`, i, i%6, 100000+i%7, 1789207200000+i%60000)
	}
	for i := range 20_000 {
		in.add(kafka.TopicPartition{Topic: topicPlaced}, &kafka.Record{Offset: int64(i), Value: value(i)})
	}
	entries := 0
	for _, s := range in.stores {
		entries += 1 + len(s.high) + len(s.minutes)
	}
	if in.orders != 20_000 || entries > 6*(1+7+1) || len(in.feeds) != 0 {
		t.Errorf("%d orders, %d entries, %d feeds", in.orders, entries, len(in.feeds))
	}
}
