package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

func TestCreateTopicsWaitsForLeaders(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t, brokertest.Brokers(3)))
	one, two := unique(t, "orders"), unique(t, "status")
	t.Cleanup(func() {
		if err := c.DeleteTopics(context.Background(), one, two); err != nil {
			t.Error(err)
		}
	})
	if existing, err := c.CreateTopics(ctx, []TopicSpec{{Name: one, Partitions: 3, Replication: 1}}); err != nil || len(existing) != 0 {
		t.Fatalf("first create: existing %v, error %v", existing, err)
	}
	// The second request names one that is there and one that is not.
	existing, err := c.CreateTopics(ctx, []TopicSpec{{Name: one, Partitions: 7, Replication: 1}, {Name: two, Partitions: 2, Replication: -1}})
	if err != nil || !slices.Equal(existing, []string{one}) {
		t.Fatalf("second create: existing %v, error %v, want %s to be there", existing, err, one)
	}
	c.mu.Lock()
	cached := []*Topic{c.topics[one], c.topics[two]}
	c.mu.Unlock()
	for i, want := range []int{3, 2} {
		if cached[i] == nil || len(cached[i].Partitions) != want || !cached[i].ready() {
			t.Errorf("CreateTopics returned with metadata %+v, want %d partitions with leaders", cached[i], want)
		}
	}
}

func TestTopicsAndDelete(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t))
	topic, missing := unique(t, "orders"), unique(t, "missing")
	if _, err := c.CreateTopics(ctx, []TopicSpec{{Name: topic, Partitions: 2, Replication: 1}}); err != nil {
		t.Fatal(err)
	}
	found, err := c.Topics(ctx, topic, missing)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[topic] == nil || len(found[topic].Partitions) != 2 || found[topic].ID == [16]byte{} {
		t.Fatalf("Topics(%s, %s) = %+v", topic, missing, found)
	}
	all, err := c.Topics(ctx)
	if err != nil || all[topic] == nil {
		t.Fatalf("Topics() lacks %s: %v, error %v", topic, all, err)
	}
	if err := c.DeleteTopics(ctx, topic, missing); err != nil {
		t.Fatal(err)
	}
	// Metadata no longer shows the topic, and neither does the cache.
	if found, err = c.Topics(ctx, topic); err != nil || len(found) != 0 {
		t.Fatalf("after deletion Topics(%s) = %v, error %v", topic, found, err)
	}
	if _, err := c.topic(ctx, topic); !IsUnknownTopic(err) || !strings.Contains(err.Error(), topic) {
		t.Errorf("topic(%s) = %v, want unknown, by name", topic, err)
	}
}

func TestCreateTopicsRefusals(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t))
	type refusal struct {
		name string
		spec TopicSpec
		want Code
		says []string
	}
	cases := []refusal{
		{"replication", TopicSpec{Partitions: 1, Replication: 9}, InvalidReplicationFactor, []string{"9"}},
		{"partitions", TopicSpec{Partitions: 0, Replication: 1}, InvalidPartitions, []string{"0 partitions"}},
	}
	if onRealBroker() { // the embedded one accepts any name and config
		compost := []ConfigEntry{{Name: "cleanup.policy", Value: "compost"}}
		cases = append(cases,
			refusal{"name", TopicSpec{Name: "orders placed", Partitions: 1, Replication: 1}, InvalidTopic, nil},
			refusal{"config", TopicSpec{Partitions: 1, Replication: 1, Configs: compost}, InvalidConfig, []string{"cleanup.policy", "compost"}})
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if tc.spec.Name == "" {
				tc.spec.Name = unique(t, "refused")
			}
			_, err := c.CreateTopics(ctx, []TopicSpec{tc.spec})
			if !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			for _, word := range append(tc.says, tc.spec.Name) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q does not say %q", err, word)
				}
			}
		})
	}
}

func TestCreateTopicsFollowsTheController(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Brokers(3))
	ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(cluster))
	_, controller, _, err := c.Brokers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.controller = (controller + 1) % 3 // as if it had moved
	c.mu.Unlock()
	if _, err := c.CreateTopics(ctx, []TopicSpec{{Name: "orders", Partitions: 1, Replication: 3}}); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.controller = (controller + 1) % 3
	c.mu.Unlock()
	if err := c.DeleteTopics(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
}

func TestTopicConfigs(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t, brokertest.Configs(map[string]string{"min.insync.replicas": "1"})))
	set := []ConfigEntry{
		{Name: "cleanup.policy", Value: "delete"},
		{Name: "segment.bytes", Value: "52428800"},
		{Name: "retention.ms", Value: "-1"},
		{Name: "message.timestamp.type", Value: "CreateTime"},
	}
	topic := testTopic(t, c, "configs", 1, set...)
	all, err := c.TopicConfigs(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	var own, inherited []ConfigEntry
	for _, e := range all[topic] {
		if e.Source == SourceTopic {
			own = append(own, ConfigEntry{Name: e.Name, Value: e.Value})
		} else {
			inherited = append(inherited, e)
		}
	}
	// The order is that of kafka-topics --describe, as the reference run recorded it for the repartition topic.
	if diff := cmp.Diff(set, own); diff != "" {
		t.Errorf("configs set on the topic (-want +got):\n%s", diff)
	}
	// What the broker sets for all its topics is in there, its own configs and Kafka's defaults are not.
	want := []ConfigEntry{{Name: "min.insync.replicas", Value: "1", Source: SourceBrokerDefault}}
	if !onRealBroker() {
		want[0].Source = SourceBroker
	}
	if diff := cmp.Diff(want, inherited); diff != "" {
		t.Errorf("configs from the broker (-want +got):\n%s", diff)
	}

	missing := unique(t, "missing")
	if _, err := c.TopicConfigs(ctx, missing); !IsUnknownTopic(err) || !strings.Contains(err.Error(), missing) {
		t.Errorf("configs of an unknown topic: %v", err)
	}
}

func TestBrokers(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t))
	brokers, controller, id, err := c.Brokers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if id == "" || !slices.ContainsFunc(brokers, func(b Broker) bool { return b.ID == controller && b.Host != "" && b.Port > 0 }) {
		t.Errorf("brokers %+v, controller %d, cluster id %q", brokers, controller, id)
	}
}

// Requests to a client that was closed fail at once instead of dialling and retrying.
func TestClosedClient(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(brokertest.Embedded(t)))
	c.Close()
	if _, err := c.Topics(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

// Close ends a request that a broker holds back, and the goroutine that waits for it (goleak sees the latter).
func TestCloseEndsRequestsUnderWay(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.SleepOutOfOrder())
	ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(cluster))
	held := make(chan struct{})
	release := make(chan struct{})
	cluster.ControlKey(int16(kmsg.ListGroups), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(held)
		cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	defer close(release)
	failed := make(chan error)
	go func() {
		_, err := c.ListGroups(ctx)
		failed <- err
	}()
	<-held
	c.Close()
	select {
	case err := <-failed:
		if !errors.Is(err, ErrClosed) {
			t.Errorf("error %v, want ErrClosed", err)
		}
	case <-ctx.Done():
		t.Fatal("the request outlived its client")
	}
}
