package kafkatools

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

// outOfReach is how long a partition may fail to be fetched before a reader gives up.
const outOfReach = 20 * time.Second

// UnknownTopicError says that there is no such topic.
type UnknownTopicError struct {
	Topic   string
	Nearest string // an existing topic of a similar name, or ""
}

func (e *UnknownTopicError) Error() string {
	if e.Nearest != "" {
		return fmt.Sprintf("there is no topic %s; did you mean %s?", e.Topic, e.Nearest)
	}
	return fmt.Sprintf("there is no topic %s", e.Topic)
}

// ReadConfig says what to read of a topic.
type ReadConfig struct {
	Topic     string
	Isolation kafka.Isolation
	Control   bool // transaction markers too, as records with Control set
	// Tail starts at the end; without it, what is there when Read begins comes first, one partition after another.
	Tail bool
	// Follow goes on until the context ends, which then is no error.
	Follow bool
	// Ready is called once the reader stands at the end and waits for what comes.
	Ready func()
}

// Read hands the records of a topic to fn, in order within a partition. An error of fn ends it.
func Read(ctx context.Context, client *kafka.Client, cfg ReadConfig, fn func(partition int32, r *kafka.Record) error) error {
	tps, err := partitionsOf(ctx, client, cfg.Topic)
	if err != nil {
		return err
	}
	ends, err := endsOf(ctx, client, tps, cfg.Isolation)
	if err != nil {
		return err
	}
	reader := topicReader{cfg: cfg, fn: fn, fetcher: client.NewFetcher(kafka.FetcherConfig{
		Isolation: func(string) kafka.Isolation { return cfg.Isolation },
		Control:   cfg.Control,
	})}
	defer reader.fetcher.Close()
	if !cfg.Tail {
		starts, err := client.ListOffsets(ctx, tps, kafka.EarliestOffset, cfg.Isolation)
		if err != nil {
			return err
		}
		for _, tp := range tps {
			if err := reader.upTo(ctx, tp, starts[tp], ends[tp]); err != nil {
				return err
			}
		}
	}
	if !cfg.Follow {
		return nil
	}
	for _, tp := range tps {
		reader.fetcher.Set(tp, ends[tp])
	}
	if cfg.Ready != nil {
		cfg.Ready()
	}
	return reader.follow(ctx)
}

// Range is a part of a partition: the records from an offset to before another.
type Range struct {
	kafka.TopicPartition
	From, To int64
}

// ReadRanges hands to fn what readers of an isolation level see of some ranges by now, one range after another.
func ReadRanges(
	ctx context.Context, client *kafka.Client, isolation kafka.Isolation, ranges []Range, fn func(partition int32, r *kafka.Record) error,
) error {
	tps := make([]kafka.TopicPartition, len(ranges))
	for i, r := range ranges {
		tps[i] = r.TopicPartition
	}
	ends, err := endsOf(ctx, client, tps, isolation)
	if err != nil {
		return err
	}
	reader := topicReader{fn: fn, fetcher: client.NewFetcher(kafka.FetcherConfig{
		Isolation: func(string) kafka.Isolation { return isolation },
	})}
	defer reader.fetcher.Close()
	for _, r := range ranges {
		if err := reader.upTo(ctx, r.TopicPartition, r.From, min(r.To, ends[r.TopicPartition])); err != nil {
			return fmt.Errorf("read %s from offset %d to %d: %w", r.TopicPartition, r.From, r.To, err)
		}
	}
	return nil
}

// markersWithin is how long a reader of committed records waits for the markers of transactions that have ended.
const markersWithin = time.Second

// endsOf is where the partitions end for readers of that isolation level. A coordinator answers the end of a transaction before its markers
// are in all partitions, so the last stable offset is given a moment to reach the high watermark: who reads right after a commit must see
// it. A transaction that is open holds it back for longer, and is not waited for.
func endsOf(ctx context.Context, client *kafka.Client, tps []kafka.TopicPartition, iso kafka.Isolation) (map[kafka.TopicPartition]int64, error) {
	high, err := client.ListOffsets(ctx, tps, kafka.LatestOffset, kafka.ReadUncommitted)
	if err != nil || iso == kafka.ReadUncommitted {
		return high, err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(markersWithin); ; {
		stable, err := client.ListOffsets(ctx, tps, kafka.LatestOffset, iso)
		if err != nil {
			return nil, err
		}
		held := slices.ContainsFunc(tps, func(tp kafka.TopicPartition) bool { return stable[tp] < high[tp] })
		if !held {
			return stable, nil
		}
		select {
		case <-tick.C:
		case <-limit:
			return stable, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func partitionsOf(ctx context.Context, client *kafka.Client, topic string) ([]kafka.TopicPartition, error) {
	found, err := client.Topics(ctx, topic)
	if err != nil {
		return nil, err
	}
	if found[topic] == nil {
		all, err := client.Topics(ctx)
		if err != nil {
			return nil, err
		}
		names := make([]string, 0, len(all))
		for name := range all {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, &UnknownTopicError{Topic: topic, Nearest: args.Nearest(topic, names)}
	}
	tps := make([]kafka.TopicPartition, len(found[topic].Partitions))
	for p := range tps {
		tps[p] = kafka.TopicPartition{Topic: topic, Partition: int32(p)}
	}
	return tps, nil
}

// topicReader is one Read at work.
type topicReader struct {
	cfg     ReadConfig
	fetcher *kafka.Fetcher
	fn      func(int32, *kafka.Record) error
}

// upTo reads one partition from an offset to before another.
func (r *topicReader) upTo(ctx context.Context, tp kafka.TopicPartition, from, to int64) error {
	if from >= to {
		return nil
	}
	r.fetcher.Set(tp, from)
	defer r.fetcher.Remove(tp)
	for next := from; next < to; {
		answers, err := r.poll(ctx)
		if err != nil {
			return err
		}
		for _, a := range answers {
			for i := range a.Records {
				if a.Records[i].Offset >= to {
					return nil
				}
				if err := r.fn(a.Partition, &a.Records[i]); err != nil {
					return err
				}
			}
			next = a.Next
		}
	}
	return nil
}

func (r *topicReader) follow(ctx context.Context) error {
	for {
		answers, err := r.poll(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ending it is how a follower is stopped
		}
		if err != nil {
			return err
		}
		for _, a := range answers {
			for i := range a.Records {
				if err := r.fn(a.Partition, &a.Records[i]); err != nil {
					return err
				}
			}
		}
	}
}

// poll waits for answers. It fails if one of them is an error, and if a partition has been out of reach for long.
func (r *topicReader) poll(ctx context.Context) ([]kafka.Fetched, error) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-r.fetcher.Ready():
			answers := r.fetcher.Poll()
			for _, a := range answers {
				if a.Err != nil {
					return nil, a.Err
				}
			}
			if len(answers) > 0 {
				return answers, nil
			}
		case <-ticker.C:
			for _, t := range r.fetcher.Troubles() {
				if spent := time.Since(t.Since); spent > outOfReach {
					return nil, fmt.Errorf("partition %s is out of reach for %s: %w", t.TopicPartition, spent.Round(time.Second), t.Err)
				}
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
