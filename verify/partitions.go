package verify

import (
	"context"
	"fmt"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// misplaced says that a record of a topic does not stand on the partition that Kafka's default partitioner chooses for its key; "" if it does.
func (g *grader) misplaced(tp kafka.TopicPartition, r *kafka.Record) string {
	home := partitionOf(r.Key, g.found[tp.Topic].partitions)
	if r.Key == nil || tp.Partition == home {
		return ""
	}
	return fmt.Sprintf("%s: %s belongs to partition %d, by the hash of its key", place{tp, r.Offset}, text(r.Key), home)
}

// checkPartitions tells whether the application wrote each record of some outputs to the partition of its key.
func (g *grader) checkPartitions(ctx context.Context, outputs ...string) Check {
	const name, want = "partitions by key", "each record where the hash of its key has it"
	var f findings
	var all, right int64
	for _, output := range outputs {
		topic := g.output(output)
		before := all
		err := g.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
			all++
			if text := g.misplaced(tp, r); text == "" {
				right++
			} else if len(f.wrong) <= maxDetails {
				f.wrong = append(f.wrong, text)
			}
		})
		if err != nil {
			return unread(name, want, err)
		}
		if gone := g.deleted(topic); gone != "" {
			f.unknown = append(f.unknown, gone)
		} else if all == before {
			f.shortf("%s holds no record", topic)
		}
	}
	return g.check(name, topicPlaced, want, fmt.Sprintf("%d of %d records", right, all), f)
}

// storeOf is the store of a minute key: what stands before the minute.
func storeOf(key string) []byte { return []byte(key[:max(strings.LastIndexByte(key, '|'), 0)]) }
