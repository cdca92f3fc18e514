package provision_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/topology"
)

// One application is reset: neither the lab's own, nor the other one of phase 6, nor any whose name begins alike loses anything.
func TestResetIsExact(t *testing.T) {
	conn := dial(t, brokertest.Bootstrap(brokertest.Embedded(t)))
	w := newWorkspace(t)
	for _, suffix := range []string{"", ".eos", ".alos"} {
		if _, err := provision.Create(t.Context(), conn, w, suffix); err != nil {
			t.Fatal(err)
		}
	}
	var internals []kafka.TopicSpec
	for _, name := range []string{
		"order-counter-eos-orders-by-store-repartition", "order-counter-eos-dead-letters", "order-counter-alos-orders-by-store-repartition",
		"order-counter-orders-by-store-repartition", "order-counter-eos-2-orders-by-store-repartition", "analytics.orders-per-store.eos2",
	} {
		internals = append(internals, kafka.TopicSpec{Name: name, Partitions: 1, Replication: -1})
	}
	if _, err := conn.CreateTopics(t.Context(), internals); err != nil {
		t.Fatal(err)
	}
	offsets := map[kafka.TopicPartition]kafka.Offset{{Topic: topology.OrdersPlaced}: {Offset: 0, LeaderEpoch: -1}}
	for _, group := range []string{"order-counter", "order-counter-eos", "order-counter-alos"} {
		if err := conn.CommitOffsets(t.Context(), kafka.GroupMeta{Group: group, Generation: -1}, offsets); err != nil {
			t.Fatal(err)
		}
	}
	before, err := kafkatools.TopicNames(t.Context(), conn.Client)
	if err != nil {
		t.Fatal(err)
	}

	deleted, err := provision.Reset(t.Context(), conn, w, "order-counter-eos", ".eos")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"group order-counter-eos",
		"analytics.high-value-orders.eos", "analytics.orders-per-store-minute.eos", "analytics.orders-per-store.eos", "analytics.orders-with-status.eos",
		"order-counter-eos-dead-letters", "order-counter-eos-orders-by-store-repartition",
	}
	if diff := cmp.Diff(want, deleted); diff != "" {
		t.Error(diff)
	}
	left, err := kafkatools.TopicNames(t.Context(), conn.Client)
	if err != nil {
		t.Fatal(err)
	}
	kept := slices.DeleteFunc(before, func(name string) bool { return slices.Contains(want, name) })
	if diff := cmp.Diff(kept, left); diff != "" {
		t.Error(diff)
	}
	groups, err := conn.ListGroups(t.Context())
	if err != nil || len(groups) != 2 {
		t.Errorf("groups left: %v, %v", groups, err)
	}
	if again, err := provision.Reset(t.Context(), conn, w, "order-counter-eos", ".eos"); err != nil || len(again) != 0 {
		t.Errorf("the second time: %v, %v", again, err)
	}
}
