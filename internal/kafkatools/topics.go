package kafkatools

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// TopicNames lists the topics by name, as kafka-topics --list.
func TopicNames(ctx context.Context, client *kafka.Client) ([]string, error) {
	all, err := client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// DescribeTopics prints topics in the layout of kafka-topics --describe, in the order given and with an empty line between two.
func DescribeTopics(ctx context.Context, client *kafka.Client, names []string, w io.Writer) error {
	found, err := client.Topics(ctx, names...)
	if err != nil {
		return err
	}
	for _, name := range names {
		if found[name] == nil {
			_, err := partitionsOf(ctx, client, name) // names a similar one
			return err
		}
	}
	configs, err := client.TopicConfigs(ctx, names...)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	for i, name := range names {
		if i > 0 {
			fmt.Fprintln(out)
		}
		describeTopic(out, found[name], configs[name])
	}
	return out.Flush()
}

// describeTopic writes org.apache.kafka.tools.TopicCommand's lines for one topic. Errors stay in the buffered writer.
func describeTopic(out io.Writer, t *kafka.Topic, configs []kafka.ConfigEntry) {
	replicas := 0
	if len(t.Partitions) > 0 {
		replicas = len(t.Partitions[0].Replicas)
	}
	set := make([]string, len(configs))
	for i, c := range configs {
		set[i] = c.Name + "=" + c.Value
	}
	fmt.Fprintf(out, "Topic: %s\tTopicId: %s\tPartitionCount: %d\tReplicationFactor: %d\tConfigs: %s\n",
		t.Name, TopicID(t), len(t.Partitions), replicas, strings.Join(set, ","))
	for i, p := range t.Partitions {
		leader := "none"
		if p.Leader >= 0 {
			leader = strconv.Itoa(int(p.Leader))
		}
		// Eligible leader replicas (KIP-966) are not in the metadata of these versions; on a healthy topic both lists are empty.
		fmt.Fprintf(out, "\tTopic: %s\tPartition: %d\tLeader: %s\tReplicas: %s\tIsr: %s\tElr: \tLastKnownElr: \n",
			t.Name, i, leader, joinIDs(p.Replicas), joinIDs(p.ISR))
	}
}

// TopicID is a topic's id as Kafka prints it.
func TopicID(t *kafka.Topic) string { return base64.RawURLEncoding.EncodeToString(t.ID[:]) }

func joinIDs(ids []int32) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(int(id))
	}
	return strings.Join(text, ",")
}
