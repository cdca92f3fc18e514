package kafka

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConfigEntry is one config of a topic.
type ConfigEntry struct {
	Name, Value string
	Source      ConfigSource
}

// ConfigSource says where the value of a config comes from.
type ConfigSource int8

// The sources of a topic's configs that are not Kafka's own defaults, with the numbers of DescribeConfigs (KIP-226).
const (
	SourceTopic         ConfigSource = 1 // set on the topic itself
	SourceBroker        ConfigSource = 2 // set on one broker at run time
	SourceBrokerDefault ConfigSource = 3 // set on all brokers at run time
	SourceBrokerStatic  ConfigSource = 4 // from a broker's properties file
)

// describeOrder is the order of topic configs in a DescribeConfigs answer of Apache Kafka 4.3.1, which kafka-topics keeps. It is that of a
// hash map in the broker, so there is nothing to derive it from; the embedded broker answers in an order that changes with each request.
var describeOrder = [...]string{
	"compression.type", "remote.log.delete.on.disable", "leader.replication.throttled.replicas", "remote.storage.enable",
	"min.insync.replicas", "segment.jitter.ms", "remote.log.copy.disable", "local.retention.ms", "cleanup.policy", "flush.ms",
	"follower.replication.throttled.replicas", "compression.lz4.level", "segment.bytes", "retention.ms", "compression.gzip.level",
	"flush.messages", "compression.zstd.level", "max.compaction.lag.ms", "file.delete.delay.ms", "max.message.bytes",
	"min.compaction.lag.ms", "message.timestamp.type", "local.retention.bytes", "preallocate", "index.interval.bytes",
	"min.cleanable.dirty.ratio", "unclean.leader.election.enable", "retention.bytes", "delete.retention.ms",
	"message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "segment.ms", "segment.index.bytes",
}

// describeRank puts configs that the list does not know behind the others.
func describeRank(name string) int {
	if i := slices.Index(describeOrder[:], name); i >= 0 {
		return i
	}
	return len(describeOrder)
}

// brokerPrefix begins names of broker configs that the embedded broker adds to a topic's. No topic config has it.
const brokerPrefix = "log."

// TopicConfigs returns the configs of topics that are not Kafka's own defaults: those set on the topic and those it gets from its brokers'
// settings, which is what `kafka-topics --describe` prints, in the order in which it prints them.
func (c *Client) TopicConfigs(ctx context.Context, names ...string) (map[string][]ConfigEntry, error) {
	if len(names) == 0 {
		return map[string][]ConfigEntry{}, nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, name
		req.Resources = append(req.Resources, r)
	}
	resp, err := c.Do(ctx, Request{Route: AnyBroker(), Req: req, Check: func(resp kmsg.Response) error {
		for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			if r.ErrorCode != 0 {
				return &Error{API: req.Key(), Code: Code(r.ErrorCode), Resource: "topic " + r.ResourceName, Message: deref(r.ErrorMessage)}
			}
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	configs := make(map[string][]ConfigEntry, len(names))
	for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
		entries := []ConfigEntry{}
		for _, e := range r.Configs {
			if e.Source != kmsg.ConfigSourceDefaultConfig && !strings.HasPrefix(e.Name, brokerPrefix) {
				entries = append(entries, ConfigEntry{Name: e.Name, Value: deref(e.Value), Source: ConfigSource(e.Source)})
			}
		}
		slices.SortStableFunc(entries, func(a, b ConfigEntry) int { return cmp.Compare(describeRank(a.Name), describeRank(b.Name)) })
		configs[r.ResourceName] = entries
	}
	return configs, nil
}
