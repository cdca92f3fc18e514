package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Brokers delete records: by retention, and the repartition topic's by the application itself. What is gone is no fault, so no check that passed
// may fail for it, and those that need it say that they do not know. A purge of the minutes once failed "changelog of the minute counts".
func TestPurgedIsUnknown(t *testing.T) {
	own := func(suffix string) string { return "order-counter-" + suffix }
	// needs are the checks that need a topic, by phase: with all of its records gone they are the ones that do not know.
	needs := map[string][]string{
		topicStatus: {
			"4 joined rows by the log", "4 changelog of the statuses", "5 joined rows by the log", "5 changelog of the statuses",
			"6 eos: joined orders", "6 eos: joined rows by the log", "6 alos: joined orders", "6 alos: joined rows by the log",
		},
		topicHighValue: {
			"1 high-value rows", "1 high-value rows of feed 1", "1 high-value record times", "1 partitions by key",
			"5 high-value rows", "5 high-value rows of feeds 1 and 2", "5 high-value record times", "5 partitions by key",
		},
		topicCounts: {
			"2 running counts of feed 1", "2 running counts", "2 partitions by key", "3 running count of phase 3", "3 running counts",
			"4 running count of phase 4", "4 running counts", "5 running count of phase 5", "5 running counts before ord-2006",
			"5 count of store-17 goes on", "5 partitions by key", "5 running counts",
		},
		topicMinutes: {
			"2 minute counts of feed 1", "2 changelog of the minute counts", "2 partitions by key", "3 minute counts",
			"3 sequence of the minute counts", "3 late order ord-2004", "3 changelog of the minute counts", "4 minute counts",
			"4 sequence of the minute counts", "4 changelog of the minute counts", "5 minute counts", "5 sequence of the minute counts",
			"5 minute counts of feed 2", "5 partitions by key", "5 changelog of the minute counts",
		},
		topicJoined: {"4 joined orders", "4 joined rows by the log", "5 joined orders", "5 joined rows by the log"},
		own(suffixRepartition): {
			"2 repartition records", "2 one partition a store", "2 changelog of the minute counts", "3 repartition records",
			"3 late order ord-2004", "3 changelog of the minute counts", "4 repartition records", "4 changelog of the minute counts",
			"5 repartition records", "5 changelog of the minute counts",
		},
		own(suffixCountsChangelog): {
			"2 one partition a store", "2 changelog of the counts", "5 owners of the counts", "5 changelog of the counts",
		},
		own(suffixMinutesChangelog): {
			"2 changelog of the minute counts", "3 minute counts in the changelog", "3 late order ord-2004", "3 changelog of the minute counts",
			"4 minute counts in the changelog", "4 changelog of the minute counts", "5 minute counts in the changelog",
			"5 owners of the minute counts", "5 changelog of the minute counts",
		},
		own(suffixStatusChangelog): {"4 changelog of the statuses", "5 changelog of the statuses"},
	}
	for _, app := range crashApps {
		of := func(checks ...string) []string {
			for i := range checks {
				checks[i] = fmt.Sprintf("6 %s: %s", app.name, checks[i])
			}
			return checks
		}
		counts, minutes, repartition := topicCounts+app.suffix(), topicMinutes+app.suffix(), own(app.name+"-"+suffixRepartition)
		needs[topicHighValue+app.suffix()] = of("high-value rows", "partitions by key")
		needs[counts] = of("final counts", "partitions by key")
		needs[minutes] = of("changelog of the minute counts", "partitions by key")
		needs[repartition] = of("repartition records", "changelog of the minute counts")
		needs[own(app.name+"-"+suffixCountsChangelog)] = of("changelog of the counts", "owners of the counts")
		needs[own(app.name+"-"+suffixMinutesChangelog)] = of("changelog of the minute counts", "owners of the minute counts")
		needs[topicJoined+app.suffix()], needs[own(app.name+"-"+suffixStatusChangelog)] = nil, nil // empty from the start
		if app.exactlyOnce {
			needs[counts] = append(needs[counts], of("steps of the counts")...)
			needs[minutes] = append(needs[minutes], of("steps of the minute counts")...)
			needs[repartition] = append(needs[repartition], of("steps of the counts")...)
		} else {
			needs[repartition] = append(needs[repartition], of("final counts", "changelog of the counts")...)
		}
	}
	whole := crashedRuns(t, 20)
	for topic := range whole.topics {
		if _, listed := needs[topic]; !listed && topic != topicPlaced {
			t.Errorf("%s is missing in the table", topic)
		}
	}
	for topic, want := range needs {
		for _, share := range []int64{1, 2} {
			t.Run(fmt.Sprintf("1 of %d of %s", share, topic), func(t *testing.T) {
				m := crashedRuns(t, 20)
				for i := range m.topics[topic].parts {
					p := &m.topics[topic].parts[i]
					p.start = p.end / share
					p.records = slices.DeleteFunc(p.records, func(r kafka.Record) bool { return r.Offset < p.start })
				}
				var unknown []string
				r, text := grade(t, m, Options{})
				for _, p := range r.Phases {
					for _, c := range p.Checks {
						switch c.Verdict {
						case Fail:
							t.Errorf("phase %d: %s fails:\n%s", p.Phase, c.Name, text)
						case Unknown:
							unknown = append(unknown, fmt.Sprintf("%d %s", p.Phase, c.Name))
						}
					}
				}
				if slices.Sort(unknown); share == 1 && !slices.Equal(unknown, slices.Sorted(slices.Values(want))) {
					t.Errorf("not known:\n%s\nwant:\n%s", strings.Join(unknown, "\n"), strings.Join(slices.Sorted(slices.Values(want)), "\n"))
				}
				if share > 1 && len(want) > 0 && len(unknown) == 0 && topic != own(suffixStatusChangelog) { // which needs its last record alone
					t.Errorf("nothing is unknown:\n%s", text)
				}
			})
		}
	}
}
