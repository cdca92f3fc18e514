package phases

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/topology"
)

// described are the internal topics that phase 2 describes, in the lab's order.
var described = []string{
	repartitionTopic,
	topology.ApplicationID + "-" + topology.PerStoreChangelog,
	topology.ApplicationID + "-" + topology.PerStoreMinuteChangelog,
}

func phase2() phase {
	return phase{number: 2, title: "the running count and the internal topics", steps: func(r *run) []step {
		var counts []byte
		return []step{
			{
				"see that nothing is left to count",
				"Counts are final for what was published once the group has no lag. A counter starts only if there is some.",
				r.settled,
			},
			{
				"read the running counts and keep the last of each store",
				"A cache may merge updates between two commits, so the number of lines says nothing: a key's last value is its count.",
				func(ctx context.Context) error {
					var err error
					counts, err = r.countSections(ctx)
					return err
				},
			},
			{
				"list the topics and describe the internal ones",
				"Each record of a repartition topic must be counted, so it is never compacted; a changelog's replace each other, so it is.",
				func(ctx context.Context) error { return r.savePhase2(ctx, counts) },
			},
		}
	}}
}

// settled starts a counter if there is something left to count, and waits until there is not.
func (r *run) settled(ctx context.Context) error {
	lag, err := r.lag(ctx)
	if err != nil {
		return err
	}
	if lag > 0 {
		return r.counted(ctx)
	}
	r.Console.Printf("  no lag: everything published is counted and committed")
	return nil
}

func (r *run) countSections(ctx context.Context) ([]byte, error) {
	all, err := r.rows(ctx, topology.OrdersPerStore, false)
	if err != nil {
		return nil, err
	}
	last, err := r.showCounts(ctx)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{
		section(topology.OrdersPerStore+" from the beginning (key TAB value)", all),
		section("last value per key", last),
	}, []byte{'\n'}), nil
}

func (r *run) savePhase2(ctx context.Context, counts []byte) error {
	names, err := kafkatools.TopicNames(ctx, r.conn.Client)
	if err != nil {
		return err
	}
	title, names := listed(names)
	var descriptions bytes.Buffer
	if err := kafkatools.DescribeTopics(ctx, r.conn.Client, described, &descriptions); err != nil {
		return err
	}
	recorded, err := r.recorded(ctx)
	if err != nil {
		return err
	}
	return r.write("phase-2.txt", bytes.Join([][]byte{
		counts,
		section(title, lines(names)),
		descriptions.Bytes(),
		section("recorded for Q1 and Q3", recorded),
	}, []byte{'\n'}))
}

// listed are the lab's own topics of a list, under a title that says how many others there are: a shared cluster may hold hundreds.
func listed(names []string) (title string, ours []string) {
	title = "kafka-topics --list"
	ours = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !provision.IsOurs(name) })
	if others := len(names) - len(ours); others > 0 {
		title += fmt.Sprintf(" (the lab's own; others on the cluster: %d)", others)
	}
	return title, ours
}

// recorded is what the lab's questions Q1 and Q3 ask for: partition counts and configs, one topic a line.
func (r *run) recorded(ctx context.Context) ([]byte, error) {
	topics, err := r.conn.Topics(ctx, described...)
	if err != nil {
		return nil, err
	}
	configs, err := r.conn.TopicConfigs(ctx, described...)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, name := range described {
		config := func(key string) string {
			i := slices.IndexFunc(configs[name], func(c kafka.ConfigEntry) bool { return c.Name == key })
			if i < 0 {
				return "(not set)"
			}
			return cmp.Or(configs[name][i].Value, "(empty)")
		}
		fmt.Fprintf(&b, "%s\tpartitions=%d\tcleanup.policy=%s\tretention.ms=%s\n",
			name, len(topics[name].Partitions), config("cleanup.policy"), config("retention.ms"))
	}
	return b.Bytes(), nil
}
