package topology_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// labInput is all that the lab's first five phases put into orders.placed, in their order: 608 events, 548 of them placed.
func labInput() []row {
	var rows []row
	add := func(orders ...feed.Order) {
		for _, o := range orders {
			rows = append(rows, row{Timestamp: 1796039837509, Key: o.OrderID, Value: string(feed.AppendOrder(nil, o))})
		}
	}
	one := func(id string, at int64) {
		add(feed.Order{OrderID: id, StoreID: "store-17", Status: feed.Placed, Amount: 5000, OccurredAt: at})
	}
	base := time.UnixMilli(1789207200000)
	add(feed.Events(base)...)
	one("ord-2001", 1789207265000)
	one("ord-2002", 1789207230000)
	one("ord-2003", 1789207380000)
	one("ord-2004", 1789207245000)
	one("ord-1042", 1789207410000)
	one("ord-1042", 1789207420000)
	one("ord-2005", 1789207430000)
	add(feed.Events(base.Add(time.Hour))...)
	one("ord-2006", 1789211100000)
	return rows
}

func minuteKey(store int, clock string) string {
	return fmt.Sprintf("store-%d|2026-09-12T%s:00Z", store, clock)
}

// A new application reads the whole lab at once from three partitions. Its tasks go through them in time order, so nothing is late
// downstream: Java's catch-up over the same input dropped 102 of the 548. ord-2004, which was late when it came, is counted now: ord-2003,
// which closed its window then, lies on another partition and waits its turn.
func TestCatchUpDropsNothing(t *testing.T) {
	l := newLab(t)
	rows := labInput()
	if len(rows) != 608 {
		t.Fatalf("%d events", len(rows))
	}
	l.send(topology.OrdersPlaced, rows...)
	var skipped []streams.Skipped
	stop := l.start(topology.Hooks{}, streams.Listener{Skipped: func(s streams.Skipped) { skipped = append(skipped, s) }})
	l.awaitLag()
	stop()
	if len(skipped) != 0 {
		t.Errorf("%d records skipped, the first: %s", len(skipped), skipped[0])
	}
	want := map[string]string{
		minuteKey(17, "10:00"): "52", minuteKey(17, "10:01"): "1", minuteKey(17, "10:03"): "4", minuteKey(17, "11:00"): "50", minuteKey(17, "11:05"): "1",
	}
	for store, n := range map[int]string{18: "40", 19: "50", 20: "40", 21: "50", 22: "40"} {
		want[minuteKey(store, "10:00")], want[minuteKey(store, "11:00")] = n, n
	}
	got := map[string]string{}
	for key, r := range last(l.read(topology.OrdersPerStoreMinute)) {
		got[key] = r.Value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("minute counts (-want +got):\n%s", diff)
	}
}

// Without the alignment the tasks go through their partitions one after the other, and whole feeds come late. Each drop is in the ledger with
// the record that closed its window; the counts without a window miss nothing.
func TestCatchUpWithoutAlignment(t *testing.T) {
	l := newLab(t)
	l.config.TaskTimeAlignment = false
	l.send(topology.OrdersPlaced, labInput()...)
	var skipped []streams.Skipped
	stop := l.start(topology.Hooks{}, streams.Listener{Skipped: func(s streams.Skipped) { skipped = append(skipped, s) }})
	l.awaitLag()
	stop()
	if len(skipped) == 0 {
		t.Error("nothing was late: this input no longer shows what the alignment is for")
	}
	for _, s := range skipped {
		if s.Kind != streams.ExpiredWindow || s.Mover.Timestamp != s.StreamTime || s.Mover.Offset >= s.Offset || s.Mover.Partition != s.Partition {
			t.Errorf("a ledger entry does not name the record that closed the window: %+v", s)
		}
	}
	want := map[string]string{"store-17": "108", "store-18": "80", "store-19": "100", "store-20": "80", "store-21": "100", "store-22": "80"}
	got := map[string]string{}
	for key, r := range last(l.read(topology.OrdersPerStore)) {
		got[key] = r.Value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("running counts (-want +got):\n%s", diff)
	}
}

// A restore reports each record that it replays, as Kafka Streams 4.3.1 does: also those of windows that have expired by the end of the
// changelog, of which the store keeps nothing.
func TestRestoreCountsExpiredWindows(t *testing.T) {
	l := newLab(t)
	l.send(topology.OrdersPlaced, labInput()...)
	stop := l.start(topology.Hooks{}, streams.Listener{})
	l.awaitLag()
	stop()
	if err := os.RemoveAll(l.config.StateDir); err != nil {
		t.Fatal(err)
	}
	restored := int64(0)
	stop = l.start(topology.Hooks{}, streams.Listener{RestoreEnd: func(e streams.RestoreEnd) {
		if e.Store == "orders-per-store-minute" {
			restored += e.Restored
		}
	}})
	stop()
	if want := len(l.read(topology.ApplicationID + "-" + topology.PerStoreMinuteChangelog)); restored != int64(want) {
		t.Errorf("%d records restored, the changelog has %d", restored, want)
	}
}
