package provision_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
)

func dial(t *testing.T, bootstrap string) *connect.Conn {
	t.Helper()
	client, err := kafka.New(t.Context(), kafka.Config{Seeds: strings.Split(bootstrap, ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &connect.Conn{Client: client, Broker: broker.Record{Kind: broker.Existing, Bootstrap: bootstrap}}
}

func newWorkspace(t *testing.T) *workspace.Workspace {
	t.Helper()
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var labTopics = []string{
	topology.HighValueOrders, topology.OrdersPerStore, topology.OrdersPerStoreMinute, topology.OrdersWithStatus,
	topology.OrdersPlaced, topology.OrdersStatus,
}

func TestCreateThenKnown(t *testing.T) {
	conn := dial(t, brokertest.Bootstrap(brokertest.Embedded(t)))
	w := newWorkspace(t)
	fresh, err := provision.Check(t.Context(), conn, w)
	if err != nil || fresh.Known {
		t.Fatalf("empty broker: %+v, %v", fresh, err)
	}
	created, err := provision.Create(t.Context(), conn, w, "")
	if err != nil || len(created) != len(labTopics) {
		t.Fatalf("created %v, %v", created, err)
	}
	configs, err := conn.TopicConfigs(t.Context(), topology.OrdersStatus, topology.OrdersPerStoreMinute)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]kafka.ConfigEntry{
		topology.OrdersStatus:         {{Name: "cleanup.policy", Value: "compact", Source: kafka.SourceTopic}},
		topology.OrdersPerStoreMinute: {{Name: "retention.ms", Value: "-1", Source: kafka.SourceTopic}},
	}
	if diff := cmp.Diff(want, configs); diff != "" {
		t.Error(diff)
	}
	known, err := provision.Check(t.Context(), conn, w)
	if err != nil || !known.Known {
		t.Errorf("after creation: %+v, %v", known, err)
	}
	if again, err := provision.Create(t.Context(), conn, w, ""); err != nil || len(again) != 0 {
		t.Errorf("second creation: %v, %v", again, err)
	}
	// A suffix makes outputs of its own; inputs are shared.
	suffixed, err := provision.Create(t.Context(), conn, w, ".eos")
	if err != nil || len(suffixed) != 4 {
		t.Errorf("with a suffix: %v, %v", suffixed, err)
	}
}

// Creation noted and interrupted: what is there is this workspace's.
func TestInterruptedCreationIsKnown(t *testing.T) {
	conn := dial(t, brokertest.Bootstrap(brokertest.Embedded(t, brokertest.Topics(3, topology.OrdersStatus))))
	w := newWorkspace(t)
	_, _, cluster, err := conn.Brokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.SaveProgress(workspace.Progress{ClusterID: cluster}); err != nil {
		t.Fatal(err)
	}
	if r, err := provision.Check(t.Context(), conn, w); err != nil || !r.Known {
		t.Errorf("%+v, %v", r, err)
	}
	if created, err := provision.Create(t.Context(), conn, w, ""); err != nil || len(created) != 5 {
		t.Errorf("created %v, %v", created, err)
	}
	if r, err := provision.Check(t.Context(), conn, w); err != nil || r.OrdersID == "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestForeignTracesAreListed(t *testing.T) {
	conn := dial(t, brokertest.Bootstrap(brokertest.Embedded(t)))
	owner, other := newWorkspace(t), newWorkspace(t)
	if _, err := provision.Create(t.Context(), conn, owner, ""); err != nil {
		t.Fatal(err)
	}
	tp := kafka.TopicPartition{Topic: topology.OrdersPlaced}
	offsets := map[kafka.TopicPartition]kafka.Offset{tp: {Offset: 0, LeaderEpoch: -1}}
	if err := conn.CommitOffsets(t.Context(), kafka.GroupMeta{Group: topology.ApplicationID, Generation: -1}, offsets); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(other.InstanceState("a"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := provision.Check(t.Context(), conn, other)
	var foreign *provision.ForeignError
	if !errors.As(err, &foreign) {
		t.Fatalf("got %v", err)
	}
	want := provision.ForeignError{Topics: labTopics, Groups: []string{topology.ApplicationID}, State: other.State()}
	if diff := cmp.Diff(want, *foreign); diff != "" {
		t.Error(diff)
	}
	// What is not known is not deleted either; the owner's is, and nothing else.
	if deleted, err := provision.Delete(t.Context(), conn, other); err != nil || len(deleted) != 0 {
		t.Errorf("the other deleted %v, %v", deleted, err)
	}
	keep := kafka.TopicSpec{Name: "orders.placed-by-hand", Partitions: 1, Replication: -1}
	if _, err := conn.CreateTopics(t.Context(), []kafka.TopicSpec{keep}); err != nil {
		t.Fatal(err)
	}
	if deleted, err := provision.Delete(t.Context(), conn, owner); err != nil || len(deleted) != len(labTopics)+1 {
		t.Errorf("the owner deleted %v, %v", deleted, err)
	}
	left, err := kafkatools.TopicNames(t.Context(), conn.Client)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{keep.Name}, left); diff != "" {
		t.Error(diff)
	}
	if groups, err := conn.ListGroups(t.Context()); err != nil || len(groups) != 0 {
		t.Errorf("groups left: %v, %v", groups, err)
	}
}

// A broker that was wiped has topics of the same names again: another run.
func TestTopicsMadeAnewAreForeign(t *testing.T) {
	conn := dial(t, brokertest.Bootstrap(brokertest.Embedded(t)))
	w := newWorkspace(t)
	if _, err := provision.Create(t.Context(), conn, w, ""); err != nil {
		t.Fatal(err)
	}
	if err := conn.DeleteTopics(t.Context(), topology.OrdersPlaced); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.CreateTopics(t.Context(), provision.Topics("")); err != nil {
		t.Fatal(err)
	}
	_, err := provision.Check(t.Context(), conn, w)
	var foreign *provision.ForeignError
	if !errors.As(err, &foreign) {
		t.Errorf("got %v", err)
	}
}
