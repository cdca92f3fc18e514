package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Times for ListOffsets that are not a timestamp.
const (
	LatestOffset   int64 = -1 // high watermark, or last stable offset under ReadCommitted
	EarliestOffset int64 = -2 // log start
)

// ListOffsets returns for each partition the offset at a time: LatestOffset, EarliestOffset, or the first record whose timestamp is at
// least that many milliseconds since the epoch (-1 if there is none). It asks each leader once and repeats for partitions on the move.
func (c *Client) ListOffsets(ctx context.Context, tps []TopicPartition, at int64, iso Isolation) (map[TopicPartition]int64, error) {
	offsets := make(map[TopicPartition]int64, len(tps))
	err := c.perLeader(ctx, kmsg.ListOffsets, tps, func(node int32, tps []TopicPartition) (map[TopicPartition]error, error) {
		req := kmsg.NewPtrListOffsetsRequest()
		req.IsolationLevel = int8(iso)
		for topic, partitions := range byTopic(tps) {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = topic
			for _, partition := range partitions {
				p := kmsg.NewListOffsetsRequestTopicPartition()
				p.Partition, p.Timestamp = partition, at
				t.Partitions = append(t.Partitions, p)
			}
			req.Topics = append(req.Topics, t)
		}
		resp, err := c.Do(ctx, Request{Route: Node(node), Req: req, Once: true})
		if err != nil {
			return nil, err
		}
		results := map[TopicPartition]error{}
		for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				tp := TopicPartition{t.Topic, p.Partition}
				results[tp] = partitionError(req.Key(), p.ErrorCode, tp)
				if p.ErrorCode == 0 {
					offsets[tp] = p.Offset
				}
			}
		}
		return results, nil
	})
	if err != nil {
		return nil, err
	}
	return offsets, nil
}

// DeleteRecords moves the log start of partitions up to the given offsets, -1 meaning the high watermark.
func (c *Client) DeleteRecords(ctx context.Context, before map[TopicPartition]int64) error {
	tps := slices.SortedFunc(maps.Keys(before), TopicPartition.Compare)
	return c.perLeader(ctx, kmsg.DeleteRecords, tps, func(node int32, tps []TopicPartition) (map[TopicPartition]error, error) {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = millis(adminTimeout)
		for topic, partitions := range byTopic(tps) {
			t := kmsg.NewDeleteRecordsRequestTopic()
			t.Topic = topic
			for _, partition := range partitions {
				p := kmsg.NewDeleteRecordsRequestTopicPartition()
				p.Partition, p.Offset = partition, before[TopicPartition{topic, partition}]
				t.Partitions = append(t.Partitions, p)
			}
			req.Topics = append(req.Topics, t)
		}
		resp, err := c.Do(ctx, Request{Route: Node(node), Req: req, Once: true})
		if err != nil {
			return nil, err
		}
		results := map[TopicPartition]error{}
		for _, t := range resp.(*kmsg.DeleteRecordsResponse).Topics {
			for _, p := range t.Partitions {
				tp := TopicPartition{t.Topic, p.Partition}
				results[tp] = partitionError(req.Key(), p.ErrorCode, tp)
			}
		}
		return results, nil
	})
}

// perLeader groups partitions by their leaders, sends each leader one request, and repeats for those partitions whose error says so. send
// returns the outcome of each partition; one that it does not mention is taken as not done and asked for again.
func (c *Client) perLeader(
	ctx context.Context, api kmsg.Key, tps []TopicPartition,
	send func(node int32, tps []TopicPartition) (map[TopicPartition]error, error),
) error {
	pending := slices.Clone(tps)
	return c.retry(ctx, api, "partition leaders", func() error {
		byNode, err := c.leaders(ctx, pending)
		if err != nil {
			return err
		}
		pending = pending[:0]
		var again error
		for _, node := range slices.Sorted(maps.Keys(byNode)) {
			results, err := send(node, byNode[node])
			if err != nil && !retriable(actionFor(int16(api), err)) {
				return err
			}
			for _, tp := range byNode[node] {
				result, answered := results[tp]
				switch {
				case err != nil:
					result = err
				case !answered:
					result = partitionError(int16(api), int16(UnknownTopicOrPartition), tp)
				}
				if result == nil {
					continue
				}
				if !retriable(actionFor(int16(api), result)) {
					return result
				}
				c.forgetRoute(Leader(tp))
				pending, again = append(pending, tp), result
			}
		}
		return again
	})
}

// CommittedOffsets returns a group's committed offsets, of all partitions if tps is nil. Partitions without one are missing in the result.
//
// Offsets inside an open transaction are waited for (KIP-447): to go on from an older offset would process again what that transaction is
// about to commit. A dead owner's transaction holds this up to its timeout.
func (c *Client) CommittedOffsets(ctx context.Context, group string, tps []TopicPartition) (map[TopicPartition]Offset, error) {
	return c.fetchOffsets(ctx, group, tps, true)
}

// CommittedOffsetsNow returns the same without waiting: of a partition whose offset is inside an open transaction, the offset before that
// transaction. It is for whoever watches a group, and never tells a member where to go on.
func (c *Client) CommittedOffsetsNow(ctx context.Context, group string, tps []TopicPartition) (map[TopicPartition]Offset, error) {
	return c.fetchOffsets(ctx, group, tps, false)
}

func (c *Client) fetchOffsets(ctx context.Context, group string, tps []TopicPartition, stable bool) (map[TopicPartition]Offset, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = stable
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	if tps != nil {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for topic, partitions := range byTopic(tps) {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = topic, partitions
		g.Topics = append(g.Topics, t)
	}
	req.Groups = append(req.Groups, g)

	offsets := map[TopicPartition]Offset{}
	_, err := c.Do(ctx, Request{Route: GroupCoordinator(group), Req: req, Check: func(resp kmsg.Response) error {
		clear(offsets)
		groups := resp.(*kmsg.OffsetFetchResponse).Groups
		if len(groups) != 1 {
			return fmt.Errorf("OffsetFetch group %s: the answer is about %d groups", group, len(groups))
		}
		if code := Code(groups[0].ErrorCode); code == GroupIDNotFound {
			return nil // some brokers say this of a group that has not committed yet
		} else if code != 0 {
			return &Error{API: req.Key(), Code: code, Resource: "group " + group}
		}
		for _, t := range groups[0].Topics {
			for _, p := range t.Partitions {
				tp := TopicPartition{t.Topic, p.Partition}
				if err := groupPartitionError(req.Key(), p.ErrorCode, group, tp); err != nil {
					return err
				}
				if p.Offset >= 0 {
					offsets[tp] = Offset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata)}
				}
			}
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return offsets, nil
}

// CommitOffsets commits offsets for a member. The coordinator refuses a member of an older generation with IllegalGeneration or
// UnknownMemberID. GroupMeta{Group: g, Generation: -1} commits for no member, which is allowed while the group has none.
func (c *Client) CommitOffsets(ctx context.Context, meta GroupMeta, offsets map[TopicPartition]Offset) error {
	if len(offsets) == 0 {
		return nil
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = meta.Group, meta.Generation, meta.MemberID, optional(meta.InstanceID)
	for topic, partitions := range byTopic(slices.SortedFunc(maps.Keys(offsets), TopicPartition.Compare)) {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = topic
		for _, partition := range partitions {
			o := offsets[TopicPartition{topic, partition}]
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, o.Offset, o.LeaderEpoch, kmsg.StringPtr(o.Metadata)
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	_, err := c.Do(ctx, Request{Route: GroupCoordinator(meta.Group), Req: req, Check: func(resp kmsg.Response) error {
		var again error
		for _, t := range resp.(*kmsg.OffsetCommitResponse).Topics {
			for _, p := range t.Partitions {
				err := groupPartitionError(req.Key(), p.ErrorCode, meta.Group, TopicPartition{t.Topic, p.Partition})
				if err != nil && !retriable(actionFor(req.Key(), err)) {
					return err // says more than one that will be tried again
				}
				again = errors.Join(again, err)
			}
		}
		return again
	}})
	return err
}

func partitionError(api, code int16, tp TopicPartition) error {
	if code == 0 {
		return nil
	}
	return &Error{API: api, Code: Code(code), Resource: "partition " + tp.String()}
}

func groupPartitionError(api, code int16, group string, tp TopicPartition) error {
	if code == 0 {
		return nil
	}
	return &Error{API: api, Code: Code(code), Resource: "group " + group + " partition " + tp.String()}
}

// byTopic goes through partitions grouped by topic, in an order that depends on nothing but them.
func byTopic(tps []TopicPartition) func(yield func(string, []int32) bool) {
	return func(yield func(string, []int32) bool) {
		sorted := slices.SortedFunc(slices.Values(tps), TopicPartition.Compare)
		for len(sorted) > 0 {
			topic, n := sorted[0].Topic, 0
			for n < len(sorted) && sorted[n].Topic == topic {
				n++
			}
			partitions := make([]int32, n)
			for i := range n {
				partitions[i] = sorted[i].Partition
			}
			if !yield(topic, partitions) {
				return
			}
			sorted = sorted[n:]
		}
	}
}

// optional turns the empty string into Kafka's null.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
