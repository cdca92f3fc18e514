package verify

import (
	"context"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// surprises are what is wrong with the input though every check of it may pass: what comes of it is not what the lab's text says.
func (g *grader) surprises() []string {
	var notes []string
	if n := g.in.misplaced; n > 0 && g.found[topicPlaced].partitions == labPartitions {
		notes = append(notes, fmt.Sprintf("%d of %d keys are not in the partition that Kafka's own clients choose, first %s: the join may miss "+
			"them", n, g.in.keyed, g.in.astray))
	}
	if f := g.in.feed1(); f != nil && f.base != firstBase {
		notes = append(notes, fmt.Sprintf("the feed is from %s and the lab's is from %s: the orders of phases 3 to 5 are made for that one",
			instant(f.base), instant(firstBase)))
	}
	for _, base := range slices.Sorted(maps.Keys(g.in.feeds)) {
		if f := g.in.feeds[base]; f.twice() > 0 {
			notes = append(notes, f.twiceText()+": they are counted as often")
		}
	}
	return notes
}

func (f *feedInput) twiceText() string {
	return fmt.Sprintf("%d of the %d events of the feed from %s are in %s more than once, once more %s",
		f.twice(), f.have(), instant(f.base), topicPlaced, strings.Join(f.again, ", "))
}

// partitioners are those of other clients, by what they are known for.
var partitioners = []struct {
	name  string
	place func(key []byte, partitions int32) int32
}{
	{"CRC32, the default of librdkafka and its clients; there set partitioner=murmur2_random", func(key []byte, n int32) int32 {
		return int32(crc32.ChecksumIEEE(key) % uint32(n))
	}},
	{"FNV-1a, the default of Sarama and kafka-go's Hash; there choose a murmur2 partitioner", func(key []byte, n int32) int32 {
		h := fnv.New32a()
		_, _ = h.Write(key) // a hash never fails to write
		p := int32(h.Sum32()) % n
		return max(p, -p)
	}},
}

// otherPartitioner: a client with another partitioner than Kafka's own wrote to one of the join's inputs.
func otherPartitioner(ctx context.Context, g *grader, _ Report) ([]string, error) {
	var found []string
	for _, topic := range []string{topicPlaced, topicStatus} {
		n := g.found[topic].partitions
		if n == 0 || g.in == nil {
			continue
		}
		var keyed, astray int64
		var first string
		fits := make([]int64, len(partitioners))
		err := g.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
			if r.Key == nil {
				return
			}
			keyed++
			for i, p := range partitioners {
				if p.place(r.Key, int32(n)) == tp.Partition {
					fits[i]++
				}
			}
			if p := partitionOf(r.Key, n); p != tp.Partition {
				if astray++; astray == 1 {
					first = fmt.Sprintf("%s (%s) instead of partition %d", text(r.Key), place{tp, r.Offset}, p)
				}
			}
		})
		if err != nil {
			return nil, err
		}
		if astray == 0 {
			continue
		}
		how := "No other known hash of the key explains all of them, so a client spread them, or chose partitions itself"
		// A hash that all of a handful happen to fit proves nothing.
		for i := range fits {
			if fits[i] == keyed && keyed >= 8 {
				how = "All fit " + partitioners[i].name
			}
		}
		found = append(found, fmt.Sprintf("%d of %d keys of %s are in another partition than Kafka's default partitioner (murmur2) chooses, "+
			"first %s: an order and its status are then read by different tasks, and the join misses. %s", astray, keyed, topic, first, how))
	}
	return found, nil
}

// wrongBase: a feed was published from another time than the lab's.
func wrongBase(_ context.Context, g *grader, _ Report) ([]string, error) {
	if g.in == nil || g.in.feed1() == nil {
		return nil, nil
	}
	var found []string
	if base := g.in.feed1().base; base != firstBase {
		found = append(found, fmt.Sprintf("the first feed is from %s (%d), the lab's is from %s (%d): phases 3 to 5 send orders of fixed "+
			"times, which then are late or open other minutes. Begin again with `lab feed %s`",
			instant(base), base, instant(firstBase), int64(firstBase), instant(firstBase)))
	}
	if sent, _ := g.in.sent(afterTakeoverOrder); sent && g.in.feeds[secondBase] == nil {
		for _, base := range slices.Sorted(maps.Keys(g.in.feeds)) {
			if base != g.in.feed1().base {
				found = append(found, fmt.Sprintf("there is a second feed from %s (%d), that of phase 5 is from %s (%d): publish that one too",
					instant(base), base, instant(secondBase), int64(secondBase)))
			}
		}
	}
	return found, nil
}

// fedTwice: a feed was published again.
func fedTwice(_ context.Context, g *grader, _ Report) ([]string, error) {
	if g.in == nil {
		return nil, nil
	}
	var found []string
	for _, base := range slices.Sorted(maps.Keys(g.in.feeds)) {
		if f := g.in.feeds[base]; f.twice() > 0 {
			found = append(found, f.twiceText()+": the feed was published again, and all that it leads to is there as often. For the lab's numbers "+
				"begin again on new topics (here: `lab clean`)")
		}
	}
	return found, nil
}
