package kafkatools

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// The layouts are byte for byte those of Kafka's tools; the files were printed by Apache Kafka 4.3.1.
func TestTopicLayout(t *testing.T) {
	one := kafka.Partition{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}
	two := []kafka.Partition{one, one}
	minISR, created := kafka.ConfigEntry{Name: "min.insync.replicas", Value: "1"}, kafka.ConfigEntry{Name: "message.timestamp.type", Value: "CreateTime"}
	tests := []struct {
		topic   kafka.Topic
		configs []kafka.ConfigEntry
	}{
		{
			kafka.Topic{Name: "order-counter-orders-by-store-repartition", Partitions: two},
			[]kafka.ConfigEntry{
				minISR, {Name: "cleanup.policy", Value: "delete"}, {Name: "segment.bytes", Value: "52428800"}, {Name: "retention.ms", Value: "-1"}, created,
			},
		},
		{
			kafka.Topic{Name: "order-counter-order-status-changelog", Partitions: []kafka.Partition{one, one, one}},
			[]kafka.ConfigEntry{minISR, {Name: "cleanup.policy", Value: "compact"}, created},
		},
	}
	var got strings.Builder
	for i := range tests {
		if i > 0 {
			got.WriteByte('\n')
		}
		describeTopic(&got, &tests[i].topic, tests[i].configs)
	}
	want, err := os.ReadFile("testdata/topics.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.ReplaceAll(got.String(), TopicID(&kafka.Topic{}), "<id>")); diff != "" {
		t.Error(diff)
	}
}

func TestGroupLayout(t *testing.T) {
	member := "order-counter-f31d0f2b-2499-4576-8352-c13d71262458"
	row := func(topic string, partition int32, current, end int64) GroupRow {
		return GroupRow{
			TopicPartition: kafka.TopicPartition{Topic: topic, Partition: partition}, Current: current, End: end,
			MemberID: member, Host: "/127.0.0.1", ClientID: "order-counter",
		}
	}
	g := Group{ID: "order-counter", State: "Stable", Rows: []GroupRow{
		row("order-counter-orders-by-store-repartition", 0, 120, 120),
		row("orders.placed", 0, 89, 90),
		row("orders.status", 0, -1, 0),
	}}
	var got strings.Builder
	if err := g.Write(&got); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/group.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestGroupStateLayout(t *testing.T) {
	var got strings.Builder
	one := make([]kafka.GroupMember, 1)
	for _, d := range []kafka.GroupDescription{
		{ID: "tbg", State: "Stable", Protocol: "range", Members: one},
		{ID: "order-counter-tb", State: "Stable", Protocol: "range", Members: one},
		{ID: "testfailpoint-1796057637992021109", State: "Empty"},
	} {
		if err := (groupState{d, kafka.Broker{ID: 1, Host: "127.0.0.1", Port: 19092}}).write(&got); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/group-state.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTransactionLayout(t *testing.T) {
	const id = "txn-wioybddy"
	var got strings.Builder
	err := writeListings(&got, []kafka.TransactionListing{{ID: id, Coordinator: 1, ProducerID: 128, State: "CompleteCommit"}})
	if err != nil {
		t.Fatal(err)
	}
	started := time.UnixMilli(1796047500435)
	err = writeDescription(&got, kafka.TransactionDescription{
		ID: id, State: "CompleteCommit", ProducerID: 128, ProducerEpoch: 3, Timeout: 10 * time.Second, Started: started,
	}, 1, started.Add(2784782*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/transactions.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}

// What Kafka's tool does not know comes below its table, and only if there is some.
func TestGroupStandbyLayout(t *testing.T) {
	g := Group{ID: "order-counter", State: "Stable", Standbys: []GroupStandby{
		{Task: "1_0", MemberID: "order-counter-StreamThread-1-consumer-0b", Host: "/127.0.0.1", ClientID: "order-counter-StreamThread-1-consumer"},
	}}
	var got strings.Builder
	if err := g.Write(&got); err != nil {
		t.Fatal(err)
	}
	_, standbys, _ := strings.Cut(got.String(), "CLIENT-ID\n")
	const want = `
GROUP           STANDBY-TASK    CONSUMER-ID                              HOST            CLIENT-ID
order-counter   1_0             order-counter-StreamThread-1-consumer-0b /127.0.0.1      order-counter-StreamThread-1-consumer
`
	if diff := cmp.Diff(want, standbys); diff != "" {
		t.Error(diff)
	}
}

// In a rebalance no partition has an owner, and a table of dashes does not say why.
func TestGroupRemarks(t *testing.T) {
	for state, want := range map[string]string{
		"Stable":              "",
		"Empty":               "\nConsumer group 'g' has no active members.\n",
		"PreparingRebalance":  "\nWarning: Consumer group 'g' is rebalancing.\n",
		"CompletingRebalance": "\nWarning: Consumer group 'g' is rebalancing.\n",
	} {
		if got := (Group{ID: "g", State: state}).remark(); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}
