package verify

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"text/tabwriter"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Each mutant is a mistake that a counter can make, put into the topics of a run that was right as that counter would have left them. It has to
// be found by its phase's check and explained; grade tells the same from a recording of it. `make mutants` prints the table.
func TestDataMutants(t *testing.T) {
	lab := func(t *testing.T) *memory { return takenOver(t) }
	crashed := func(t *testing.T) *memory { return crashedRuns(t, 20) }
	set := func(value string) func(*kafka.Record) { return func(r *kafka.Record) { r.Value = []byte(value) } }
	ordered := func(o order, value string) func(kafka.Record) bool { return holds(o.ID, value+"|"+orderJSON(o)) }
	second := feedEvent(secondBase, 42)
	tests := []struct {
		name   string
		run    func(t *testing.T) *memory
		change func(t *testing.T, m *memory)
		phase  int
		check  string
		says   string // a regular expression
		cause  string // another, of a likely cause that has to be named
	}{
		{
			"a count one off", lab, func(t *testing.T, m *memory) {
				m.change(t, topicCounts, holds("store-18", "80"), set("81"))
				m.change(t, changelogTopic, holds("store-18", long(80)), set(long(81)))
			}, 2, "running counts", `^store-18 has 81 of 80: .* holds each of its 80 orders once, so they were not counted once each`, "",
		},
		{
			"a window shifted by a minute", lab, func(t *testing.T, m *memory) {
				shift := func(topic, from, to string) {
					for p := range m.topics[topic].parts {
						for i := range *m.records(topic, p) {
							if r := &(*m.records(topic, p))[i]; string(r.Key) == from {
								r.Key = []byte(to)
							}
						}
					}
				}
				shift(topicMinutes, minuteKey("store-20", ms1000), minuteKey("store-20", ms1001))
				shift(minuteLogTopic, windowBytes("store-20", ms1000), windowBytes("store-20", ms1001))
			}, 2, "changelog of the minute counts", `^store-20\|2026-09-12T10:00:00Z was never counted, want 40$`, "",
		},
		{
			"an aborted record counted", lab, func(t *testing.T, m *memory) {
				again := (*m.records(repartitionTopic, 1))[0]
				p := &m.topics[repartitionTopic].parts[1]
				again.Offset, again.ProducerID, again.Transactional = p.end, 99, true
				abort := kafka.Record{Offset: p.end + 1, ProducerID: 99, Transactional: true, Control: kafka.ControlAbort}
				p.records, p.end = append(p.records, again, abort), p.end+2
				m.change(t, topicCounts, holds("store-17", "108"), set("109"))
				m.change(t, changelogTopic, holds("store-17", long(108)), set(long(109)))
				m.commitAll()
			}, 2, "running counts", `^store-17 has 109 of 108: .* holds each of its 108 orders once, so they were not counted once each`,
			`^analytics.orders-per-store is too high by store-17 1, which is just the number of aborted records`,
		},
		{
			"a late record admitted", lab, func(t *testing.T, m *memory) {
				m.change(t, topicMinutes, holds(at1000, "51"), set("52"))
				m.change(t, minuteLogTopic, holds(windowBytes("store-17", ms1000), long(51)), set(long(52)))
			}, 3, "late order ord-2004", `^store-17\|2026-09-12T10:00:00Z has 52 \(.*\): 51 orders came in time and 1 too late`, "",
		},
		{
			"a record dropped that was in time", lab, func(t *testing.T, m *memory) {
				m.remove(t, topicMinutes, holds(at1000, "51"))
				m.remove(t, minuteLogTopic, holds(windowBytes("store-17", ms1000), long(51)))
			}, 3, "changelog of the minute counts", `^store-17\|2026-09-12T10:00:00Z has 50 of the 51 orders that came in time \(1 came too late\)`, "",
		},
		{
			"a late record left out of the running count", lab, func(t *testing.T, m *memory) { m.remove(t, repartitionTopic, ofOrder("ord-2004")) },
			3, "orders at the counting task", `^ord-2004 of 2026-09-12T10:00:45Z is not in order-counter-orders-by-store-repartition$`, "",
		},
		{
			"a join with the old row", lab, func(t *testing.T, m *memory) {
				m.change(t, topicJoined, ordered(shippedOrder, "SHIPPED"), set("PAID|"+orderJSON(shippedOrder)))
			}, 4, "joined orders", `^extra: PAID of ord-1042, which occurred at 2026-09-12T10:03:40Z`, "",
		},
		{
			"a row joined once more when the table changed", lab, func(_ *testing.T, m *memory) {
				m.write(topicJoined, int(partitionOf([]byte(paidOrder.ID), labPartitions)), paidOrder.OccurredAt, paidOrder.ID, "SHIPPED|"+orderJSON(paidOrder))
			}, 4, "joined orders", `^extra: SHIPPED of ord-1042, which occurred at 2026-09-12T10:03:30Z`, "",
		},
		{
			"an outer join", lab, func(_ *testing.T, m *memory) {
				m.write(topicJoined, 1, noStatusOrder.OccurredAt, noStatusOrder.ID, "null|"+orderJSON(noStatusOrder))
			}, 4, "joined orders", `^extra: null of ord-2005.*, and no status of it was published$`, "",
		},
		{
			"a table without its last row after a restore", lab, func(t *testing.T, m *memory) {
				m.change(t, topicJoined, ordered(second, "SHIPPED"), set("PAID|"+orderJSON(second)))
			}, 5, "joined orders", `^missing: SHIPPED of ord-1042, which occurred at 2026-09-12T11:00:08Z`, "",
		},
		{
			"a restore that skips the last record", lab, func(t *testing.T, m *memory) {
				m.change(t, topicCounts, holds("store-17", "108"), set("107"))
				m.change(t, changelogTopic, holds("store-17", long(108)), set(long(107)))
			}, 5, "owners of the counts", `^changelog written by two owners: store-17 falls or repeats 1 times, first 107 after 107 at `, "",
		},
		{
			"a restore from nothing", lab, func(t *testing.T, m *memory) {
				m.change(t, topicCounts, holds("store-17", "108"), set("1"))
				m.change(t, changelogTopic, holds("store-17", long(108)), set(long(1)))
			}, 5, "running counts", `^store-17 has 1 of 108: .* holds each of its 108 orders once, so they were not counted once each`, "",
		},
		{
			"two owners", lab, func(t *testing.T, m *memory) {
				m.change(t, changelogTopic, holds("store-17", long(108)), func(r *kafka.Record) { r.ProducerID = 7 })
				m.write(changelogTopic, 1, afterTakeoverOrder.OccurredAt, "store-17", long(108))
			}, 5, "owners of the counts", `^changelog written by two owners: store-17 falls or repeats 1 times, first 108 after 108 at `,
			`^order-counter-orders-per-store-changelog was written by two owners at once`,
		},
		{
			"an order counted again after the takeover", lab, func(_ *testing.T, m *memory) {
				m.write(repartitionTopic, 1, afterTakeoverOrder.OccurredAt, "store-17", orderJSON(afterTakeoverOrder))
				m.commitAll()
			}, 5, "repartition records", `^store-17 has 109 of 108 records \(at least once may send again after a crash\); .* repeats ord-2006`, "",
		},
		{
			"an order lost with its owner", lab, func(t *testing.T, m *memory) { m.remove(t, repartitionTopic, ofOrder("ord-2006")) },
			5, "repartition records", `^store-17 has 107 of 108 records; no record of ord-2006`, "",
		},
		{
			"one store, two tasks", lab, func(_ *testing.T, m *memory) {
				from, to := &m.topics[repartitionTopic].parts[1], &m.topics[repartitionTopic].parts[0]
				i := slices.IndexFunc(from.records, ofOrder("ord-1000"))
				moved := from.records[i]
				moved.Offset = to.end
				to.records, to.end = append(to.records, moved), to.end+1
				from.records = slices.Delete(from.records, i, i+1)
				m.commitAll()
			}, 2, "one partition a store", `^store-17 is in partitions 0 and 1 of the repartition topic: no task sees all of its orders$`, "",
		},
		{
			"a repartition topic by another hash", lab, func(_ *testing.T, m *memory) {
				for _, topic := range []string{repartitionTopic, changelogTopic, minuteLogTopic} {
					slices.Reverse(m.topics[topic].parts)
				}
				m.commitAll()
			}, 2, "one partition a store", `^store-17 is in partition 0 of the repartition topic, and by the hash of its key it belongs to 1$`, "",
		},
		{
			"results in the partitions of another hash", lab, func(_ *testing.T, m *memory) { slices.Reverse(m.topics[topicHighValue].parts) },
			1, "partitions by key", `^analytics.high-value-orders partition \d offset 0: store-\d+ belongs to partition \d, by the hash of its key$`, "",
		},
		{
			"the changelog in the partition of the key", lab, func(t *testing.T, m *memory) {
				m.remove(t, changelogTopic, func(r kafka.Record) bool { return string(r.Key) == "store-18" })
				m.write(changelogTopic, 1, 1789210859200, "store-18", long(80))
			}, 2, "one partition a store", `^store-18 is in partition 0 of the repartition topic and in 1 of the changelog$`, "",
		},
		{
			"a dear order not routed", lab, func(_ *testing.T, m *memory) {
				rs := m.records(topicHighValue, 0)
				*rs = slices.Delete(*rs, 0, 1)
			}, 1, "high-value rows", `^missing: store-22 130000 is there \d+ of \d+ times; no record of ord-1005 \(orders.placed partition 1 offset 2\)`, "",
		},
		{
			"a cancelled order routed", lab, func(_ *testing.T, m *memory) {
				m.write(topicHighValue, int(partitionOf([]byte("store-20"), labPartitions)), 1789207201800, "store-20", "55000")
			}, 1, "high-value rows", `^extra: store-20 55000 is there 1 times, and no such order was placed; .* is of no order`, "",
		},
		{
			"a count with the time of its last order", lab, func(t *testing.T, m *memory) {
				m.change(t, topicCounts, holds("store-19", "100"), func(r *kafka.Record) { r.Timestamp -= 1200 })
			}, 2, "running counts", `^store-19: timestamp \d+ \(.*\), want \d+, the largest occurredAt$`, "",
		},
		{
			"a changelog that lacks the last count", lab, func(t *testing.T, m *memory) { m.remove(t, changelogTopic, holds("store-19", long(100))) },
			2, "changelog of the counts", `^store-19 has 50 of 100: .* holds each of its 100 orders once, so they were not counted once each`, "",
		},
		{
			"windows kept for a day", lab, func(_ *testing.T, m *memory) { m.topics[minuteLogTopic].configs["retention.ms"] = "86490000" },
			2, "orders-per-store-minute-changelog", `has retention.ms=86490000, want 3153600090000$`, "",
		},
		{
			"exactly once, and an order twice", crashed, func(_ *testing.T, m *memory) {
				r := (*m.records(eosRepartition, 1))[3]
				m.write(eosRepartition, 1, r.Timestamp, string(r.Key), string(r.Value))
				m.others[eosID][kafka.TopicPartition{Topic: eosRepartition, Partition: 1}]++
			}, 6, "eos: repartition records", `^store-\d+ has \d+ of \d+ records .* repeats ord-`, "",
		},
		{
			"exactly once, and a count of an aborted transaction", crashed, func(_ *testing.T, m *memory) {
				m.write(eosCounts, 1, 1789211100000, "store-17", "109")
			}, 6, "eos: steps of the counts", `^store-17 is 109 \(.*\), and its orders do not come to that$`, "",
		},
		{
			"at least once, and an order lost", crashed, func(t *testing.T, m *memory) { m.remove(t, alosRepartition, ofOrder("ord-2006")) },
			6, "alos: repartition records", `^store-17: 1 orders are missing; no record of ord-2006`, "",
		},
		{
			"at least once, and a replay not counted", crashed, func(t *testing.T, m *memory) {
				m.change(t, alosCounts, holds("store-17", "116"), set("115"))
			}, 6, "alos: final counts", `^store-17 has \d+ of the \d+ records that came to be counted`, "",
		},
	}
	for _, run := range []func(t *testing.T) *memory{lab, crashed} {
		if r, text := grade(t, run(t), Options{}); r.Verdict() != Pass {
			t.Fatalf("without a mutant:\n%s", text)
		}
	}
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nmutant\tcaught by\texplanation")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := tt.run(t)
			tt.change(t, m)
			r, text := grade(t, m, Options{})
			found := failed(r, tt.phase, tt.check, regexp.MustCompile(tt.says))
			if r.ExitCode() != 1 || found == "" {
				t.Fatalf("phase %d does not fail at %q with %q:\n%s", tt.phase, tt.check, tt.says, text)
			}
			if tt.cause != "" && !slices.ContainsFunc(r.Causes, regexp.MustCompile(tt.cause).MatchString) {
				t.Errorf("the likely causes are %q", r.Causes)
			}
			fmt.Fprintf(w, "%s\tphase %d, %s\t%.160s\n", tt.name, tt.phase, tt.check, found)
		})
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log(table.String())
}

// failed returns the first detail of a failed check that matches, "" if there is none.
func failed(r Report, phase int, check string, says *regexp.Regexp) string {
	for _, p := range r.Phases {
		for _, c := range p.Checks {
			if p.Phase == phase && c.Name == check && c.Verdict == Fail {
				if i := slices.IndexFunc(c.Details, says.MatchString); i >= 0 {
					return c.Details[i]
				}
			}
		}
	}
	return ""
}
