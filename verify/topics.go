package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// topics is what a verdict is made from: a cluster, a recording of one, or in tests a twin in memory.
type topics interface {
	// Describe returns the topics that pick chooses among all, with their configs.
	Describe(ctx context.Context, pick func(name string) bool) (map[string]description, error)
	// Committed returns the committed offsets of a group; partitions without one are missing.
	Committed(ctx context.Context, group string) (map[kafka.TopicPartition]int64, error)
	// Bounds returns where the log of each partition begins and ends now.
	Bounds(ctx context.Context, parts []kafka.TopicPartition) (map[kafka.TopicPartition]bounds, error)
	// Read hands fn each committed data record within the bounds: those of one partition in the order of their offsets, the partitions
	// mixed in any way. The record is only valid during the call.
	Read(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error
	// Log hands fn each record within the bounds, those of aborted and open transactions and the markers too, with who wrote it.
	Log(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error
	// Members returns the client ids of a group's members; none for a group that does not exist.
	Members(ctx context.Context, group string) ([]string, error)
}

// description is a topic as the brokers describe it.
type description struct {
	id         [16]byte // zero: not known
	partitions int
	configs    map[string]string
}

// bounds are the first offset that is still there, the one that will be written next, and the first of an open transaction: end if none is.
type bounds struct{ start, end, stable int64 }

// stallTimeout is how long reading waits for a broker that gives no answer.
const stallTimeout = 20 * time.Second

// cluster implements topics over the wire client.
type cluster struct {
	client *kafka.Client
	stall  time.Duration
}

func (c *cluster) Describe(ctx context.Context, pick func(string) bool) (map[string]description, error) {
	all, err := c.client.Topics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	found := map[string]description{}
	var names []string
	for name, t := range all {
		if pick(name) {
			found[name] = description{id: t.ID, partitions: len(t.Partitions), configs: map[string]string{}}
			names = append(names, name)
		}
	}
	configs, err := c.client.TopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	for name, entries := range configs {
		for _, e := range entries {
			found[name].configs[e.Name] = e.Value
		}
	}
	return found, nil
}

func (c *cluster) Committed(ctx context.Context, group string) (map[kafka.TopicPartition]int64, error) {
	committed, err := c.client.CommittedOffsets(ctx, group, nil)
	if err != nil {
		return nil, fmt.Errorf("committed offsets of %s: %w", group, err)
	}
	offsets := make(map[kafka.TopicPartition]int64, len(committed))
	for tp, o := range committed {
		offsets[tp] = o.Offset
	}
	return offsets, nil
}

func (c *cluster) Bounds(ctx context.Context, parts []kafka.TopicPartition) (map[kafka.TopicPartition]bounds, error) {
	starts, err := c.client.ListOffsets(ctx, parts, kafka.EarliestOffset, kafka.ReadUncommitted)
	if err != nil {
		return nil, err
	}
	ends, err := c.client.ListOffsets(ctx, parts, kafka.LatestOffset, kafka.ReadUncommitted)
	if err != nil {
		return nil, err
	}
	// What is stable only grows, so one that is asked for later is not below one that belongs to ends by accident.
	stable, err := c.client.ListOffsets(ctx, parts, kafka.LatestOffset, kafka.ReadCommitted)
	if err != nil {
		return nil, err
	}
	found := make(map[kafka.TopicPartition]bounds, len(parts))
	for _, tp := range parts {
		found[tp] = bounds{starts[tp], ends[tp], min(stable[tp], ends[tp])}
	}
	return found, nil
}

// OpenTransactionError says that a topic cannot be read to its end, because a transaction that nobody ended holds the readers back.
type OpenTransactionError struct {
	kafka.TopicPartition
	LastStable, End int64
}

func (e *OpenTransactionError) Error() string {
	return fmt.Sprintf("%s: an open transaction at offset %d hides what comes after it, up to %d", e.TopicPartition, e.LastStable, e.End)
}

// Reading takes committed records only, whatever the guarantee: what an aborted transaction left behind is no result.
func (c *cluster) Read(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error {
	return c.fetch(ctx, kafka.FetcherConfig{Isolation: func(string) kafka.Isolation { return kafka.ReadCommitted }}, parts, fn)
}

func (c *cluster) Log(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error {
	return c.fetch(ctx, kafka.FetcherConfig{Control: true}, parts, fn)
}

func (c *cluster) Members(ctx context.Context, group string) ([]string, error) {
	d, err := c.client.DescribeGroup(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("members of %s: %w", group, err)
	}
	members := make([]string, len(d.Members))
	for i, m := range d.Members {
		members[i] = m.ClientID
	}
	return members, nil
}

func (c *cluster) fetch(
	ctx context.Context, cfg kafka.FetcherConfig, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record),
) error {
	f := c.client.NewFetcher(cfg)
	defer f.Close()
	open := map[kafka.TopicPartition]int64{}
	for tp, b := range parts {
		if b.start < b.end {
			open[tp] = b.end
			f.Set(tp, b.start)
		}
	}
	stall := time.NewTimer(c.stall)
	defer stall.Stop()
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stall.C:
			return stalled(f, open, c.stall)
		case <-f.Ready():
		}
		for _, got := range f.Poll() {
			stall.Reset(c.stall)
			end, ok := open[got.TopicPartition]
			if !ok {
				continue
			}
			for i := range got.Records {
				if got.Records[i].Offset < end {
					fn(got.TopicPartition, &got.Records[i])
				}
			}
			switch {
			case got.Err != nil:
				return fmt.Errorf("read %s: %w", got.TopicPartition, got.Err)
			case got.Next >= end:
				delete(open, got.TopicPartition)
				f.Remove(got.TopicPartition)
			case !cfg.Control && len(got.Records) == 0 && got.LastStable >= 0 && got.Next >= got.LastStable:
				return &OpenTransactionError{got.TopicPartition, got.LastStable, end}
			}
		}
	}
	return nil
}

var errStalled = errors.New("no answer from the broker")

func stalled(f *kafka.Fetcher, open map[kafka.TopicPartition]int64, after time.Duration) error {
	for _, t := range f.Troubles() {
		return fmt.Errorf("read %s: %w for %s: %w", t.TopicPartition, errStalled, after, t.Err)
	}
	return fmt.Errorf("%w for %s, %d partitions not read to their end", errStalled, after, len(open))
}
