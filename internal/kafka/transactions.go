package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TransactionListing is one transactional id as its coordinator lists it (KIP-664).
type TransactionListing struct {
	ID          string
	Coordinator int32
	ProducerID  int64
	State       string // "Ongoing", "PrepareAbort", "CompleteCommit", "Empty", …
}

// TransactionDescription is what a coordinator knows of a transactional id.
type TransactionDescription struct {
	ID            string
	State         string
	ProducerID    int64
	ProducerEpoch int16
	Timeout       time.Duration    // after which the coordinator aborts an open transaction
	Started       time.Time        // zero if none is open, unless the broker still tells of the last one
	Partitions    []TopicPartition // with records in it, sorted
}

// ListTransactions asks every broker for the transactional ids that it coordinates, those of the given producer ids only if there are any,
// and returns them by id. Ids for which the permission Describe is missing are left out by the broker.
func (c *Client) ListTransactions(ctx context.Context, producers ...int64) ([]TransactionListing, error) {
	brokers, _, _, err := c.Brokers(ctx)
	if err != nil {
		return nil, err
	}
	var list []TransactionListing
	for _, b := range brokers {
		req := kmsg.NewPtrListTransactionsRequest()
		req.ProducerIDFilters = producers
		resp, err := c.Do(ctx, Request{Route: Node(b.ID), Req: req, Check: func(resp kmsg.Response) error {
			if code := resp.(*kmsg.ListTransactionsResponse).ErrorCode; code != 0 {
				return &Error{API: req.Key(), Code: Code(code), Resource: Node(b.ID).String()}
			}
			return nil
		}})
		if err != nil {
			return nil, err
		}
		for _, t := range resp.(*kmsg.ListTransactionsResponse).TransactionStates {
			list = append(list, TransactionListing{ID: t.TransactionalID, Coordinator: b.ID, ProducerID: t.ProducerID, State: t.TransactionState})
		}
	}
	byID := func(a, b TransactionListing) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(list, byID)
	// An id whose coordinator moves between two of the requests is told twice.
	return slices.CompactFunc(list, func(a, b TransactionListing) bool { return a.ID == b.ID }), nil
}

// DescribeTransaction asks the coordinator of a transactional id for its state.
func (c *Client) DescribeTransaction(ctx context.Context, id string) (TransactionDescription, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := c.Do(ctx, Request{Route: TxnCoordinator(id), Req: req, Check: func(resp kmsg.Response) error {
		states := resp.(*kmsg.DescribeTransactionsResponse).TransactionStates
		if len(states) != 1 {
			return fmt.Errorf("DescribeTransactions %s: the answer is about %d ids", id, len(states))
		}
		if code := states[0].ErrorCode; code != 0 {
			return &Error{API: req.Key(), Code: Code(code), Resource: "transactional id " + id}
		}
		return nil
	}})
	if err != nil {
		return TransactionDescription{}, err
	}
	s := resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
	d := TransactionDescription{
		ID: id, State: s.State, ProducerID: s.ProducerID, ProducerEpoch: s.ProducerEpoch,
		Timeout: time.Duration(s.TimeoutMillis) * time.Millisecond,
	}
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			d.Partitions = append(d.Partitions, TopicPartition{t.Topic, p})
		}
	}
	slices.SortFunc(d.Partitions, TopicPartition.Compare)
	if s.StartTimestamp > 0 {
		d.Started = time.UnixMilli(s.StartTimestamp)
	}
	return d, nil
}

// OldestTransaction finds the open transaction that holds the last stable offset of a partition back: of those with records in it, the one
// whose first record lies lowest. The result is false if none is open there.
func (c *Client) OldestTransaction(ctx context.Context, tp TopicPartition) (TransactionDescription, bool, error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = tp.Topic, []int32{tp.Partition}
	req.Topics = append(req.Topics, t)
	resp, err := c.Do(ctx, Request{Route: Leader(tp), Req: req, Check: func(resp kmsg.Response) error {
		for _, t := range resp.(*kmsg.DescribeProducersResponse).Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return partitionError(req.Key(), p.ErrorCode, TopicPartition{t.Topic, p.Partition})
				}
			}
		}
		return nil
	}})
	if err != nil {
		return TransactionDescription{}, false, err
	}
	producer, first := int64(-1), int64(-1)
	for _, t := range resp.(*kmsg.DescribeProducersResponse).Topics {
		for _, p := range t.Partitions {
			for _, a := range p.ActiveProducers {
				if at := a.CurrentTxnStartOffset; at >= 0 && (first < 0 || at < first) {
					producer, first = a.ProducerID, at
				}
			}
		}
	}
	if first < 0 {
		return TransactionDescription{}, false, nil
	}
	owners, err := c.ListTransactions(ctx, producer)
	if err != nil {
		return TransactionDescription{}, false, err
	}
	if len(owners) == 0 {
		return TransactionDescription{}, false, fmt.Errorf(
			"partition %s: producer id %d has an open transaction, of no transactional id that may be seen", tp, producer)
	}
	d, err := c.DescribeTransaction(ctx, owners[0].ID)
	return d, err == nil, err
}
