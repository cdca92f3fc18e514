package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// A transaction whose end has been decided stays open until its coordinator has written the markers, which takes a few milliseconds. restTimeout
// is how long that is waited for, restInterval how often it is looked.
const (
	restTimeout  = 3 * time.Second
	restInterval = 50 * time.Millisecond
)

// rest is what an application has left open: its members, and the transactions in the topics that it writes.
type rest struct {
	members []string // their client ids
	open    []openTransaction
}

// openTransaction begins at a place, where a record of its producer stands. Without one the producer is -1.
type openTransaction struct {
	place
	end      int64 // of the partition
	producer int64
	epoch    int16
}

func (o openTransaction) String() string {
	of := ""
	if o.producer >= 0 {
		of = fmt.Sprintf(" of producer %d epoch %d", o.producer, o.epoch)
	}
	return fmt.Sprintf("%s: a transaction%s is open and hides what comes after it, up to %d", o.place, of, o.end)
}

// checkAtRest looks for a transaction that nobody is there to end. Members are at work, exactly once in transactions, so where there are any,
// an open one is no fault; nor is it where work is left to do, as that of an instance that was just killed is, until it times out. Where stopped,
// the lab has ended all instances, and there must be no member. One that has stopped may be a member until its session ends: a Java program does
// not leave by itself, nor does one that was killed.
func (g *grader) checkAtRest(ctx context.Context, stopped bool) Check {
	id := g.opt.ApplicationID
	name, want := "at rest", "no transaction left open"
	if stopped {
		want += ", no member of " + id
	}
	left, err := g.rest.get(func() (rest, error) { return g.findRest(ctx) })
	if err != nil {
		return unread(name, want, err)
	}
	var f findings
	for _, o := range left.open {
		if len(left.members) > 0 {
			f.notef("%s; its member can still end it", o)
		} else {
			f.shortf("%s, and %s has no member that could end it: `lab transactions` tells whose it is", o, id)
		}
	}
	if stopped && len(left.members) > 0 {
		f.unknownf("%s still has members: %s. Stop them, or verify again when the sessions of stopped ones have ended", id, someOf(left.members))
	}
	got := fmt.Sprintf("transactions open: %d, members: none", len(left.open))
	if len(left.members) > 0 {
		got = fmt.Sprintf("transactions open: %d, members: %s", len(left.open), strings.Join(left.members, ", "))
	}
	return g.check(name, topicPlaced, want, got, f)
}

// findRest waits for transactions that have no member to end them, up to restTimeout.
func (g *grader) findRest(ctx context.Context) (rest, error) {
	var parts []kafka.TopicPartition
	for _, topic := range g.written() {
		parts = append(parts, g.partitions(topic)...)
	}
	_, still := g.topics.(*recorded) // nothing comes of waiting
	late := time.NewTimer(restTimeout)
	defer late.Stop()
	tick := time.NewTicker(restInterval)
	defer tick.Stop()
	first := map[kafka.TopicPartition]int64{} // where a transaction was open at the first look
	for look := 0; ; look++ {
		// Asked for later, a member that ends its transaction and leaves does not pass for one that left it open.
		found, err := g.topics.Bounds(ctx, parts)
		if err != nil {
			return rest{}, err
		}
		members, err := g.topics.Members(ctx, g.opt.ApplicationID)
		if err != nil {
			return rest{}, err
		}
		slices.Sort(members)
		open := map[kafka.TopicPartition]bounds{}
		for tp, b := range found {
			if look == 0 {
				first[tp] = b.stable
			}
			// One that moved on has somebody at work, though members of another group protocol than the classic one are not to be seen.
			if b.stable < b.end && b.stable == first[tp] {
				open[tp] = bounds{b.stable, b.end, b.stable}
			}
		}
		if still || len(open) == 0 || len(members) > 0 {
			return g.describeRest(ctx, members, open)
		}
		select {
		case <-ctx.Done():
			return rest{}, context.Cause(ctx)
		case <-late.C:
			return g.describeRest(ctx, members, open)
		case <-tick.C:
		}
	}
}

// written are the topics that the application writes, as far as they are there.
func (g *grader) written() []string {
	topics := []string{
		g.output(topicHighValue), g.output(topicCounts), g.output(topicMinutes), g.output(topicJoined), g.internal(suffixDeadLetters),
	}
	for _, t := range internalTopics {
		topics = append(topics, g.internal(t.suffix))
	}
	return slices.DeleteFunc(topics, func(topic string) bool {
		_, there := g.found[topic]
		return !there
	})
}

// describeRest finds out who wrote the first record of each open transaction.
func (g *grader) describeRest(ctx context.Context, members []string, open map[kafka.TopicPartition]bounds) (rest, error) {
	left := rest{members: members}
	begun := map[kafka.TopicPartition]openTransaction{}
	firsts := map[kafka.TopicPartition]bounds{}
	for tp, b := range open {
		begun[tp] = openTransaction{place{tp, b.start}, b.end, -1, -1}
		firsts[tp] = bounds{b.start, b.start + 1, b.stable}
	}
	err := g.topics.Log(ctx, firsts, func(tp kafka.TopicPartition, r *kafka.Record) {
		begun[tp] = openTransaction{place{tp, r.Offset}, open[tp].end, r.ProducerID, r.ProducerEpoch}
	})
	left.open = slices.Collect(maps.Values(begun))
	slices.SortFunc(left.open, func(a, b openTransaction) int { return strings.Compare(a.place.String(), b.place.String()) })
	return left, err
}
