package phases

import (
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/topology"
	"github.com/windowed-order-counter/lab/verify"
)

// pointRunOf is a run that has come to its end: three orders of store-a placed, and a final count.
func pointRunOf(point, guarantee, rows string, crash *journal.CrashPoint) *pointRun {
	return &pointRun{
		crashRun: &crashRun{run: &run{}, name: "crash-x", guarantee: guarantee, rows: []byte(rows)}, point: point,
		crash: crash, placed: map[string]int64{"store-a": 3},
	}
}

// A run passes only if what was predicted is what was seen, store by store, and only if the crash could have led to something.
func TestCrashPointIsJudged(t *testing.T) {
	log := func(partition string, from, to int64) journal.InFlight {
		return journal.InFlight{Partition: partition, Store: countsStore, Committed: from, Position: to}
	}
	flushed := []journal.InFlight{log("log-0", 0, 2), log("log-1", 1, 2)}
	half := []journal.InFlight{log("log-0", 0, 2), log("log-1", 1, 1)}
	for name, tt := range map[string]struct {
		point, guarantee, rows string
		crash                  journal.CrashPoint
		want                   verify.Verdict
		says                   string
	}{
		"at least once, as predicted": {
			topology.CrashBeforeOffsetCommit, atLeastOnce, "store-a\t2\nstore-a\t6\n", journal.CrashPoint{
				InFlight: flushed, Stores: []journal.Excess{{Store: "store-a", Orders: 2, OrdersAgain: 2, Records: 1, RecordsAgain: 1}},
			}, verify.Pass, "",
		},
		"at least once, fewer than predicted": {
			topology.CrashBeforeOffsetCommit, atLeastOnce, "store-a\t5\n", journal.CrashPoint{
				InFlight: flushed, Stores: []journal.Excess{{Store: "store-a", Orders: 2, OrdersAgain: 2, Records: 1, RecordsAgain: 1}},
			}, verify.Fail, "store-a has 3 orders and was counted to 5: 2 more, and 3 were predicted",
		},
		"at least once, an order lost": {
			topology.CrashAfterOffsetCommit, atLeastOnce, "store-a\t2\n", journal.CrashPoint{InFlight: flushed},
			verify.Fail, "counted to 2: -1 more, and 0 were predicted",
		},
		"at least once, a store that nobody placed an order in": {
			topology.CrashAfterOffsetCommit, atLeastOnce, "store-a\t3\nstore-b\t1\n", journal.CrashPoint{InFlight: flushed},
			verify.Fail, "store-b has 0 orders and was counted to 1",
		},
		"at least once, all committed": {
			topology.CrashAfterOffsetCommit, atLeastOnce, "store-a\t3\n", journal.CrashPoint{InFlight: flushed}, verify.Pass, "",
		},
		"at least once, nothing written in that commit": {
			topology.CrashAfterOffsetCommit, atLeastOnce, "store-a\t3\n", journal.CrashPoint{}, verify.Unknown, "no count was written in that commit",
		},
		"at least once, the changelog alone was in flight": {
			topology.CrashBeforeOffsetCommit, atLeastOnce, "store-a\t4\n", journal.CrashPoint{
				InFlight: flushed, Stores: []journal.Excess{{Store: "store-a", Records: 1, RecordsAgain: 1}},
			}, verify.Unknown, "no order was in flight",
		},
		"at least once, no count was in the changelog": {
			topology.CrashBeforeOffsetCommit, atLeastOnce, "store-a\t5\n", journal.CrashPoint{
				Stores: []journal.Excess{{Store: "store-a", Orders: 2, OrdersAgain: 2, Records: 1}},
			}, verify.Unknown, "no count was in the changelog",
		},
		"exactly once": {
			topology.CrashInTransaction, exactlyOnce, "store-a\t3\n", journal.CrashPoint{
				InFlight: half, Stores: []journal.Excess{{Store: "store-a", Orders: 2, Records: 1}},
			}, verify.Pass, "",
		},
		"exactly once, the whole transaction was written": {
			topology.CrashInTransaction, exactlyOnce, "store-a\t3\n", journal.CrashPoint{
				InFlight: flushed, Stores: []journal.Excess{{Store: "store-a", Orders: 2, Records: 1}},
			}, verify.Unknown, "the counts of 2 tasks were in the transaction and those of 0 not",
		},
		"exactly once, counted twice": {
			topology.CrashAfterEndTransaction, exactlyOnce, "store-a\t4\n", journal.CrashPoint{InFlight: flushed},
			verify.Fail, "1 more, and 0 were predicted",
		},
		"exactly once, counted twice as predicted": {
			topology.CrashBeforeOffsetCommit, exactlyOnce, "store-a\t4\n", journal.CrashPoint{
				InFlight: flushed, Stores: []journal.Excess{{Store: "store-a", Orders: 2, Records: 1, RecordsAgain: 1}},
			}, verify.Fail, "which exactly once rules out",
		},
		"exactly once, nothing in flight": {
			topology.CrashCachesNotFlushed, exactlyOnce, "store-a\t3\n", journal.CrashPoint{}, verify.Unknown, "the crash has proved nothing",
		},
	} {
		c := pointRunOf(tt.point, tt.guarantee, tt.rows, &tt.crash).check()
		if c.Verdict != tt.want || !strings.Contains(strings.Join(c.Details, "\n"), tt.says) || tt.says == "" && len(c.Details) > 0 {
			t.Errorf("%s: %s %q, want %s %q", name, c.Verdict, c.Details, tt.want, tt.says)
		}
	}
}

// The table has a row for each point, and says where a guarantee has no such point.
func TestCrashPointsTable(t *testing.T) {
	points := []string{topology.CrashBeforeOffsetCommit, topology.CrashAfterEndTransaction}
	stores := []journal.Excess{{Store: "store-a", Orders: 2, OrdersAgain: 2, Records: 1, RecordsAgain: 1}}
	logs := []journal.InFlight{{Partition: "log-0", Store: countsStore, Committed: 4, Position: 9}, {Partition: "in-0", Committed: 7, Position: 7}}
	got := string(crashPointsText(points, []*pointRun{
		pointRunOf(points[0], exactlyOnce, "store-a\t4\n", &journal.CrashPoint{
			InFlight: logs, Stores: []journal.Excess{{Store: "store-a", Orders: 2, Records: 1}},
		}),
		pointRunOf(points[0], atLeastOnce, "store-a\t6\n", &journal.CrashPoint{InFlight: logs, Stores: stores}),
		pointRunOf(points[1], exactlyOnce, "store-a\t3\n", &journal.CrashPoint{InFlight: logs}),
	}))
	for _, line := range []string{
		"point                  exactly_once_v2          at_least_once",
		"before-offset-commit   0 / 1 FAIL               3 / 3 PASS",
		"after-end-transaction  0 / 0 PASS               n/a: no transaction",
		"in flight: log-0 from 4 to 9",
		"store-a 3 6: 3 = 2 + 1, 3",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
	if strings.Contains(got, "in-0") {
		t.Errorf("a partition with nothing in flight is listed:\n%s", got)
	}
}
