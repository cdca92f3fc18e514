package provision_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	if deleted, err := deleteTraces(t.Context(), conn, other, nobody); err != nil || len(deleted) != 0 {
		t.Errorf("the other deleted %v, %v", deleted, err)
	}
	if deleted, err := deleteTraces(t.Context(), conn, owner, nobody); err != nil || len(deleted) != len(labTopics)+1 {
		t.Errorf("the owner deleted %v, %v", deleted, err)
	}
	wantLeft(t, conn, nil, nil)
}

// wantLeft compares what is on the brokers.
func wantLeft(t *testing.T, conn *connect.Conn, topics, groups []string) {
	t.Helper()
	left, err := kafkatools.TopicNames(t.Context(), conn.Client)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(topics)
	if diff := cmp.Diff(topics, left, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("topics: %s", diff)
	}
	list, err := conn.ListGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, g := range list {
		ids = append(ids, g.ID)
	}
	if diff := cmp.Diff(groups, ids, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("groups: %s", diff)
	}
}

func commit(t *testing.T, conn *connect.Conn, group, topic string) {
	t.Helper()
	offsets := map[kafka.TopicPartition]kafka.Offset{{Topic: topic}: {Offset: 0, LeaderEpoch: -1}}
	if err := conn.CommitOffsets(t.Context(), kafka.GroupMeta{Group: group, Generation: -1}, offsets); err != nil {
		t.Fatal(err)
	}
}

// On a shared cluster clean deleted each topic and group whose name began like one of the lab's, whosever it was.
func TestLikeNamesAreSomebodyElses(t *testing.T) {
	conn := dial(t, brokertest.Bootstrap(brokertest.Embedded(t)))
	theirs := []string{
		"orders.placed-by-hand", "orders.placed.backup", "analytics.orders-per-store.daily", "order-counter-dashboard",
		"order-counter-v2-orders-per-store-changelog", "order-counter-eos-audit",
	}
	groups := []string{"order-counter-dashboard", "order-counter-v2", "order-counters"}
	var specs []kafka.TopicSpec
	for _, name := range theirs {
		specs = append(specs, kafka.TopicSpec{Name: name, Partitions: 1, Replication: -1})
	}
	if _, err := conn.CreateTopics(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	for _, id := range groups {
		commit(t, conn, id, theirs[0])
	}
	w := newWorkspace(t)
	for _, suffix := range []string{"", ".eos", ".alos"} {
		if _, err := provision.Create(t.Context(), conn, w, suffix); err != nil {
			t.Fatal(err)
		}
	}
	// What the applications make for themselves.
	var internal []kafka.TopicSpec
	for _, application := range []string{"order-counter", "order-counter-eos", "order-counter-alos"} {
		commit(t, conn, application, topology.OrdersPlaced)
		for _, name := range []string{
			"orders-by-store-repartition", "orders-per-store-changelog", "orders-per-store-minute-changelog", "order-status-changelog", "dead-letters",
		} {
			internal = append(internal, kafka.TopicSpec{Name: application + "-" + name, Partitions: 1, Replication: -1})
		}
	}
	if _, err := conn.CreateTopics(t.Context(), internal); err != nil {
		t.Fatal(err)
	}
	if r, err := provision.Check(t.Context(), conn, w); err != nil || !r.Known {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := deleteTraces(t.Context(), conn, w, nobody); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, conn, theirs, groups)
}

// A topic of one of the lab's names that was not made here, and came after the run began, is not this workspace's.
func TestWhatAnotherMadeStays(t *testing.T) {
	conn := dial(t, brokertest.Bootstrap(brokertest.Embedded(t)))
	w := newWorkspace(t)
	if _, err := provision.Create(t.Context(), conn, w, ""); err != nil {
		t.Fatal(err)
	}
	other := topology.OrdersPerStore + ".eos"
	if _, err := conn.CreateTopics(t.Context(), []kafka.TopicSpec{{Name: other, Partitions: 1, Replication: -1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := deleteTraces(t.Context(), conn, w, nobody); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, conn, []string{other}, nil)
}

// member makes a member of the lab's group that says which process it belongs to, and goes on until the test ends or stop is called, which is
// how a kill -9 looks to the group.
func member(t *testing.T, conn *connect.Conn, process string) (m *kafka.Member, stop func()) {
	t.Helper()
	m = conn.NewMember(kafka.MemberConfig{
		Group: topology.ApplicationID, Protocol: "lab-streams", Topics: []string{topology.OrdersPlaced},
		UserData: func() []byte { return fmt.Appendf(nil, `{"v":1,"process":%q}`, process) },
		Assign: func(context.Context, []kafka.Subscription) (map[string]kafka.MemberAssignment, error) {
			return nil, nil
		},
	})
	if _, err := m.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, m.Close
}

// deleteTraces finds what is the workspace's and deletes it, as clean does.
func deleteTraces(
	ctx context.Context, conn *connect.Conn, w *workspace.Workspace, waiting func(*provision.MemberError),
) ([]string, error) {
	traces, err := provision.Find(ctx, conn, w)
	if err != nil {
		return nil, err
	}
	return provision.Delete(ctx, conn, w, traces, waiting)
}

func nobody(*provision.MemberError) {}

const process = "01234567-89ab-4cde-8f01-23456789abcd"

// A counter was killed a moment ago, and the group keeps its place for 45 seconds. Clean deleted the topics, failed at the group, and the next
// clean knew nothing of it any more.
func TestGroupOfAKilledInstance(t *testing.T) {
	conn := dial(t, brokertest.Bootstrap(brokertest.Embedded(t)))
	w := newWorkspace(t)
	if _, err := provision.Create(t.Context(), conn, w, ""); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(w.InstanceState("a"), topology.ApplicationID)
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "process-id"), []byte(process+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	_, kill := member(t, conn, process)
	kill()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // less than the session
	defer cancel()
	if deleted, err := deleteTraces(ctx, conn, w, nobody); err != nil || len(deleted) != len(labTopics)+1 {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	wantLeft(t, conn, nil, nil)
}

// An instance that is not this workspace's is left at work, and then nothing is deleted, so that it can be tried again.
func TestGroupWithALiveMember(t *testing.T) {
	conn := dial(t, brokertest.Bootstrap(brokertest.Embedded(t)))
	w := newWorkspace(t)
	if _, err := provision.Create(t.Context(), conn, w, ""); err != nil {
		t.Fatal(err)
	}
	m, _ := member(t, conn, process)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	told := 0
	deleted, err := deleteTraces(ctx, conn, w, func(e *provision.MemberError) { told += len(e.Members) })
	if told != 1 {
		t.Errorf("waiting was told of %d members", told)
	}
	var members *provision.MemberError
	if !errors.As(err, &members) || len(members.Members) != 1 || len(deleted) != 0 {
		t.Fatalf("deleted %v, %v", deleted, err)
	}
	wantLeft(t, conn, slices.Clone(labTopics), []string{topology.ApplicationID})
	if err := m.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if deleted, err := deleteTraces(t.Context(), conn, w, nobody); err != nil || len(deleted) != len(labTopics)+1 {
		t.Errorf("the second time: deleted %v, %v", deleted, err)
	}
	wantLeft(t, conn, nil, nil)
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
