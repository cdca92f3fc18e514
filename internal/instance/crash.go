package instance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// Crash is a crash in the middle of a commit.
type Crash struct {
	At     streams.Stage // "": none
	Commit int64         // which of the commits of counts, from 1; 0 is the first too
}

// check returns usage errors.
func (c Crash) check(g streams.Guarantee) error {
	all := topology.CrashPoints(string(streams.ExactlyOnce)) // it has those of the other too
	switch {
	case c.At == "" && c.Commit > 0:
		return args.Errorf("property %s: it needs %s, one of %v", crashCommitProperty, crashPointProperty, all)
	case c.At == "":
		return nil
	case !slices.Contains(all, string(c.At)):
		return args.Unknown("crash point", string(c.At), all)
	case !slices.Contains(topology.CrashPoints(string(g)), string(c.At)):
		return args.Errorf("property %s: %s is a point of %s only", crashPointProperty, c.At, streams.ExactlyOnce)
	}
	return nil
}

// failpoint crashes the instance where its configuration says, after it has written down what that will lead to.
func (r *reporter) failpoint(client *kafka.Client, cfg Config) *streams.Failpoint {
	if cfg.Crash.At == "" {
		return nil
	}
	var commits atomic.Int64 // of all threads
	return &streams.Failpoint{At: cfg.Crash.At, Reached: func(ctx context.Context, inFlight []streams.InFlight) {
		if !cfg.counts(inFlight) {
			return
		}
		p := &journal.CrashPoint{At: string(cfg.Crash.At), Commit: commits.Add(1)}
		if p.Commit != max(1, cfg.Crash.Commit) {
			return
		}
		for _, in := range inFlight {
			p.InFlight = append(p.InFlight, journal.InFlight{
				Partition: in.String(), Store: in.Store, Committed: in.Committed, Position: in.Position,
			})
		}
		var err error
		if p.Stores, err = predict(ctx, client, cfg, inFlight); err != nil {
			p.Error = err.Error()
		}
		r.write(p)
		r.print(fmt.Sprintf("cannot halt: %v", process.Halt())) // it returns only if it failed
	}}
}

// counts tells commits in which orders were counted from those of the stage before it alone: for a crash with a part of the counts in the
// transaction, by two tasks. Where a thread has no such task, it takes any commit.
func (c Config) counts(inFlight []streams.InFlight) bool {
	tasks, busy := 0, 0
	for _, in := range inFlight {
		if in.Topic == c.Streams.ApplicationID+"-"+topology.Repartition {
			tasks++
			if in.Processed > 0 {
				busy++
			}
		}
	}
	if c.Crash.At == streams.StageInTransaction {
		return busy >= min(tasks, 2)
	}
	return busy >= min(tasks, 1)
}

// predict says what a crash leads to, from the topics alone: it reads what was in flight, and looks whether the next stage has got it.
//
// An order is processed again if its offset was not committed, and then comes to be counted once more if its record in the repartition topic
// is there to stay. A record of that topic is counted once more if the count that includes it is in the changelog, from which the restart
// takes the store. Exactly once, neither can be: what is not committed with the offsets is no more than an open transaction, which readers
// of committed records do not see.
//
// It knows of the partitions in flight, so it is complete for an instance that has all tasks in one thread.
func predict(ctx context.Context, client *kafka.Client, cfg Config, inFlight []streams.InFlight) ([]journal.Excess, error) {
	var orders, records, sent, changes []kafkatools.Range
	for _, in := range inFlight {
		r := kafkatools.Range{TopicPartition: kafka.TopicPartition(in.TopicPartition), From: in.Committed, To: in.Position}
		switch in.Topic {
		case cfg.Topics.Prefix + topology.OrdersPlaced:
			orders = append(orders, r)
		case cfg.Streams.ApplicationID + "-" + topology.Repartition:
			records = append(records, r)
			// What orders in flight have led to is behind what was committed of it: both offsets are those of the same commit.
			sent = append(sent, kafkatools.Range{TopicPartition: r.TopicPartition, From: r.From, To: math.MaxInt64})
		case cfg.Streams.ApplicationID + "-" + topology.PerStoreChangelog:
			changes = append(changes, r)
		}
	}
	arrived := map[string]int{} // by the order's bytes, which the repartition topic has unchanged
	err := kafkatools.ReadRanges(ctx, client, kafka.ReadCommitted, sent, func(_ int32, r *kafka.Record) error {
		arrived[string(r.Value)]++
		return nil
	})
	if err != nil {
		return nil, err
	}
	changed := map[string]bool{} // a flush covers all that was processed of a key
	err = kafkatools.ReadRanges(ctx, client, kafka.ReadCommitted, changes, func(_ int32, r *kafka.Record) error {
		changed[string(r.Key)] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	stores := map[string]*journal.Excess{}
	at := func(store string) *journal.Excess {
		if stores[store] == nil {
			stores[store] = &journal.Excess{Store: store}
		}
		return stores[store]
	}
	isolation := kafka.ReadUncommitted // as the engine reads the topics of users
	if cfg.Streams.ProcessingGuarantee == streams.ExactlyOnce {
		isolation = kafka.ReadCommitted
	}
	err = kafkatools.ReadRanges(ctx, client, isolation, orders, func(_ int32, r *kafka.Record) error {
		o, err := feed.DecodeOrder(r.Value)
		if err != nil || o.Status != feed.Placed {
			return nil //nolint:nilerr // what is no order is counted nowhere
		}
		x := at(o.StoreID)
		x.Orders++
		if arrived[string(r.Value)] > 0 {
			arrived[string(r.Value)]--
			x.OrdersAgain++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = kafkatools.ReadRanges(ctx, client, kafka.ReadCommitted, records, func(_ int32, r *kafka.Record) error {
		x := at(string(r.Key))
		x.Records++
		if changed[string(r.Key)] {
			x.RecordsAgain++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	list := make([]journal.Excess, 0, len(stores))
	for _, x := range slices.SortedFunc(maps.Values(stores), func(a, b *journal.Excess) int { return cmp.Compare(a.Store, b.Store) }) {
		list = append(list, *x)
	}
	return list, nil
}
