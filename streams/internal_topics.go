package streams

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// plan is what the leader derives from the topology and the source topics: which tasks there are, and which internal topics they need.
type plan struct {
	counts   map[string]int32 // partitions of each source topic, internal ones included, by full name
	internal []kafka.TopicSpec
	reused   []string // user topics that stand in for changelogs
	tasks    []plannedTask
}

// decorate is the full name of an internal topic: <application.id>-<name> (Kafka Streams 4.3.1, InternalTopologyBuilder.decorateTopic).
func (a *App) decorate(raw string) string { return a.cfg.ApplicationID + "-" + raw }

// plan works out partition counts: those of user topics are given; a repartition topic has the count that the topology enforces, or the
// largest of the source topics of the sub-topologies that write it, which may be repartition topics themselves.
func (a *App) plan(topics map[string]*kafka.Topic) (*plan, error) {
	p := &plan{counts: map[string]int32{}}
	for _, name := range a.userSources {
		t := topics[name]
		if t == nil {
			return nil, &MissingTopicError{Topics: []string{name}}
		}
		p.counts[name] = int32(len(t.Partitions))
	}
	if err := a.checkCopartition(p.counts); err != nil {
		return nil, err
	}
	for _, r := range a.topology.repartitions {
		if r.partitions > 0 {
			p.counts[a.decorate(r.name)] = r.partitions
		}
	}
	for changed := true; changed; {
		changed = false
		for _, r := range a.topology.repartitions {
			full := a.decorate(r.name)
			if _, known := p.counts[full]; known {
				continue
			}
			if n := a.derivePartitions(p, r); n > 0 {
				p.counts[full], changed = n, true
			}
		}
	}
	for _, r := range a.topology.repartitions {
		full := a.decorate(r.name)
		if p.counts[full] == 0 {
			return nil, fmt.Errorf("repartition topic %s: no partition count can be derived for it; give Repartition one", full)
		}
		p.internal = append(p.internal, a.topicSpec(full, p.counts[full], repartitionConfigs))
	}
	for _, sub := range a.topology.subs {
		n := int32(0)
		for _, s := range sub.sources {
			for _, topic := range s.topics {
				n = max(n, p.counts[a.fullName(topic)])
			}
		}
		for i := range n {
			p.tasks = append(p.tasks, plannedTask{TaskID{sub.id, i}, len(sub.stores) > 0})
		}
		for _, s := range sub.stores {
			switch {
			case s.sourceTopic != "":
				p.reused = append(p.reused, s.sourceTopic)
			case s.Logged:
				p.internal = append(p.internal, a.topicSpec(a.changelogTopic(s), n, a.changelogConfigs(s)))
			}
		}
	}
	return p, nil
}

// derivePartitions is the count of a repartition topic without an enforced one, 0 while it cannot be known yet. A repartition topic that is
// co-partitioned with a user topic takes that topic's count.
func (a *App) derivePartitions(p *plan, r *repartitionSpec) int32 {
	for _, set := range a.topology.copartitioned {
		if slices.Contains(set, r.name) {
			for _, other := range set {
				if n := p.counts[a.fullName(other)]; n > 0 {
					return n
				}
			}
		}
	}
	n := int32(0)
	for _, sub := range a.topology.subs {
		if !slices.Contains(sub.sinks, r.name) {
			continue
		}
		for _, s := range sub.sources {
			for _, topic := range s.topics {
				c := p.counts[a.fullName(topic)]
				if c == 0 {
					return 0
				}
				n = max(n, c)
			}
		}
	}
	return n
}

// fullName is the name on the broker of a topic as the topology has it: raw for a repartition topic, as it is for a user topic.
func (a *App) fullName(topic string) string {
	if a.isRepartition(topic) {
		return a.decorate(topic)
	}
	return topic
}

func (a *App) isRepartition(raw string) bool {
	return slices.ContainsFunc(a.topology.repartitions, func(r *repartitionSpec) bool { return r.name == raw })
}

// changelogTopic is the full name of the topic that a logged store is restored from.
func (a *App) changelogTopic(s *storeSpec) string {
	if s.sourceTopic != "" {
		return s.sourceTopic
	}
	return a.decorate(changelogOf(s.Name))
}

// changelogOf is the raw name of a store's changelog.
func changelogOf(store string) string { return store + "-changelog" }

// checkCopartition requires equal counts of topics that are joined with each other (Kafka Streams 4.3.1, CopartitionedTopicsEnforcer).
func (a *App) checkCopartition(counts map[string]int32) error {
	for _, set := range a.topology.copartitioned {
		var differing []string
		equal := true
		first := int32(0)
		for _, topic := range slices.Sorted(slices.Values(set)) {
			n, known := counts[topic]
			if !known {
				continue
			}
			differing = append(differing, fmt.Sprintf("%s=%d", topic, n))
			if first == 0 {
				first = n
			}
			equal = equal && n == first
		}
		if !equal {
			return fmt.Errorf("invalid topology: Topics not co-partitioned: [{%s}]: a join needs the same number of partitions on both sides",
				strings.Join(differing, ", "))
		}
	}
	return nil
}

// The configs that Kafka Streams 4.3.1 sends at creation, in its order (RepartitionTopicConfig, UnwindowedUnversionedChangelogTopicConfig,
// WindowedChangelogTopicConfig).
var repartitionConfigs = []kafka.ConfigEntry{
	{Name: "cleanup.policy", Value: "delete"},
	{Name: "segment.bytes", Value: "52428800"},
	{Name: "retention.ms", Value: "-1"},
	{Name: "message.timestamp.type", Value: "CreateTime"},
}

func (a *App) changelogConfigs(s *storeSpec) []kafka.ConfigEntry {
	createTime := kafka.ConfigEntry{Name: "message.timestamp.type", Value: "CreateTime"}
	if s.Kind != store.WindowKind {
		return []kafka.ConfigEntry{{Name: "cleanup.policy", Value: "compact"}, createTime}
	}
	retention := s.Retention.Milliseconds() + a.cfg.WindowChangelogAdditionalRetention.Milliseconds()
	return []kafka.ConfigEntry{
		{Name: "cleanup.policy", Value: "compact,delete"},
		{Name: "retention.ms", Value: strconv.FormatInt(retention, 10)},
		createTime,
	}
}

func (a *App) topicSpec(name string, partitions int32, configs []kafka.ConfigEntry) kafka.TopicSpec {
	return kafka.TopicSpec{Name: name, Partitions: partitions, Replication: a.cfg.ReplicationFactor, Configs: configs}
}

// makeReady creates the internal topics that are missing. Repartition topics come first, as in Java. While members have tasks nothing is
// created: a topic that has vanished under them took results with it, and a new one in its place would hide that.
func (a *App) makeReady(ctx context.Context, p *plan, working bool) error {
	missing, err := a.missingInternal(ctx, p)
	if err != nil || len(missing) == 0 {
		return err
	}
	if !working {
		if _, err := a.client.CreateTopics(ctx, missing); err != nil {
			return fmt.Errorf("create internal topics: %w", err)
		}
		return nil
	}
	// A broker may not have heard yet of what another leader has made.
	deadline := time.Now().Add(a.cfg.SourceTopicTimeout)
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for len(missing) > 0 {
		if time.Now().After(deadline) {
			e := &MissingTopicError{Internal: true}
			for _, spec := range missing {
				e.Topics = append(e.Topics, spec.Name)
			}
			return e
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if missing, err = a.missingInternal(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// missingInternal is the internal topics that do not exist. Those that exist with another partition count or cleanup policy are refused: they
// belong to another application of the same id. Java checks the partition count only; but a changelog that is not compacted, or a repartition
// topic that is, loses what this application needs.
func (a *App) missingInternal(ctx context.Context, p *plan) ([]kafka.TopicSpec, error) {
	names := make([]string, len(p.internal))
	for i, spec := range p.internal {
		names[i] = spec.Name
	}
	if len(names) == 0 { // to ask for no topic by name is to ask for all of the cluster's
		return nil, nil
	}
	existing, err := a.client.Topics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("internal topics: %w", err)
	}
	configs, err := a.client.TopicConfigs(ctx, slices.Collect(maps.Keys(existing))...)
	if err != nil {
		return nil, fmt.Errorf("configs of the internal topics: %w", err)
	}
	var missing []kafka.TopicSpec
	for _, spec := range p.internal {
		t := existing[spec.Name]
		if t == nil {
			missing = append(missing, spec)
			continue
		}
		if n := int32(len(t.Partitions)); n != spec.Partitions {
			return nil, fmt.Errorf("existing internal topic %s has invalid partitions: expected: %d; actual: %d. "+
				"Delete the topic (and the application's other internal topics, offsets and state) to start afresh", spec.Name, spec.Partitions, n)
		}
		if has, needs := cleanupPolicy(configs[spec.Name]), cleanupPolicy(spec.Configs); has != needs {
			return nil, fmt.Errorf("existing internal topic %s has cleanup.policy=%s, this application needs %s: the topic belongs to another application. "+
				"Use another application.id, or delete that application's topics, offsets and state", spec.Name, has, needs)
		}
	}
	return missing, nil
}

// cleanupPolicy is the policy in force, in a fixed order; a topic without one deletes.
func cleanupPolicy(entries []kafka.ConfigEntry) string {
	for _, e := range entries {
		if e.Name == "cleanup.policy" {
			return strings.Join(slices.Sorted(strings.SplitSeq(e.Value, ",")), ",")
		}
	}
	return "delete"
}

// MissingTopicError says that topics that the application reads or writes do not exist. Those of users are never created by the engine, and
// its internal ones not while members of the group have tasks.
type MissingTopicError struct {
	Topics   []string
	Internal bool // they were there, and vanished while the application ran
}

func (e *MissingTopicError) Error() string {
	if e.Internal {
		return fmt.Sprintf("internal topics vanished while the application ran: %s. What they held is gone; stop all instances before you start one again, "+
			"which makes them anew", strings.Join(e.Topics, ", "))
	}
	return fmt.Sprintf("missing topics: %s (create them first: the engine creates only its internal topics)", strings.Join(e.Topics, ", "))
}

// defaultDeleteRetention is how long a compacted topic keeps tombstones unless delete.retention.ms says otherwise.
const defaultDeleteRetention = 24 * time.Hour

// readRetention finds out for how long each changelog keeps its tombstones.
func (a *App) readRetention(ctx context.Context, p *plan) (map[string]time.Duration, error) {
	names := slices.Clone(p.reused)
	for _, spec := range p.internal {
		names = append(names, spec.Name)
	}
	configs, err := a.client.TopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("configs of the internal topics: %w", err)
	}
	out := map[string]time.Duration{}
	for topic, entries := range configs {
		compacted, keep := false, defaultDeleteRetention
		for _, e := range entries {
			switch e.Name {
			case "cleanup.policy":
				compacted = strings.Contains(e.Value, "compact")
			case "delete.retention.ms":
				if ms, err := strconv.ParseInt(e.Value, 10, 64); err == nil {
					keep = time.Duration(min(ms, maxMillis)) * time.Millisecond
				}
			}
		}
		if compacted {
			out[topic] = keep
		}
	}
	return out, nil
}
