package topology_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// The first four phases without a broker: the test driver gives what Kafka Streams 4.3.1 wrote into each topic, and drops the one late order
// with its words.
func TestDriverSameAsJava(t *testing.T) {
	program, err := topology.Build(topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var joined []string
	d, err := streams.NewTestDriver(program, streams.DriverConfig{
		ApplicationID: topology.ApplicationID, Partitions: topology.Partitions, ManualCommit: true,
		Observers: topology.Observers(topology.Hooks{Joined: func(id, _ string) { joined = append(joined, id) }}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	pipe := func(topic string, rows ...row) {
		t.Helper()
		in := streams.Input(d, topic, streams.Text(), streams.Text())
		for _, r := range rows {
			if err := in.PipeAt(r.Timestamp, r.Key, r.Value); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	placed, status := readDump(t, topology.OrdersPlaced), readDump(t, topology.OrdersStatus)
	slices.SortStableFunc(placed, func(a, b row) int { return int(a.Timestamp - b.Timestamp) })
	pipe(topology.OrdersPlaced, placed[:304]...)
	pipe(topology.OrdersStatus, status[0])
	pipe(topology.OrdersPlaced, placed[304])
	pipe(topology.OrdersStatus, status[1])
	pipe(topology.OrdersPlaced, placed[305:]...)

	const warning = "Skipping record for expired window. topic=[order-counter-orders-by-store-repartition] partition=[1] offset=[153] " +
		"timestamp=[1789207245000] window=[1789207200000,1789207260000) expiration=[1789207350000] streamTime=[1789207380000]"
	late := d.Late()
	if len(late) != 1 || late[0].String() != warning || late[0].Mover.Offset != 152 || late[0].Mover.Timestamp != 1789207380000 {
		t.Errorf("late %+v", late)
	}
	if diff := cmp.Diff([]string{"ord-1042", "ord-1042"}, joined); diff != "" {
		t.Errorf("joined (-want +got):\n%s", diff)
	}
	written := func(topic string) []row {
		t.Helper()
		records, err := streams.Output(d, topic, streams.Text(), streams.Text()).Records()
		if err != nil {
			t.Fatal(err)
		}
		var rows []row
		for _, r := range records {
			rows = append(rows, row{Timestamp: r.Timestamp, Key: r.Key, Value: r.Value})
		}
		return rows
	}
	java := func(topic string) []row {
		rows := readDump(t, topic)
		for i := range rows {
			rows[i].Partition = 0 // the driver's records do not tell
		}
		return rows
	}
	for _, topic := range []string{topology.HighValueOrders, topology.OrdersWithStatus} {
		if diff := cmp.Diff(sorted(java(topic)), sorted(written(topic))); diff != "" {
			t.Errorf("%s (-Java +driver):\n%s", topic, diff)
		}
	}
	for _, topic := range []string{topology.OrdersPerStore, topology.OrdersPerStoreMinute, topology.ApplicationID + "-" + topology.PerStoreChangelog,
		topology.ApplicationID + "-" + topology.PerStoreMinuteChangelog, topology.ApplicationID + "-" + topology.StatusChangelog} {
		if diff := cmp.Diff(last(java(topic)), last(written(topic))); diff != "" {
			t.Errorf("%s, last per key (-Java +driver):\n%s", topic, diff)
		}
	}
}
