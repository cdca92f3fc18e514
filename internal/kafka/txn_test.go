package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

// bothFlows runs a test with KIP-890 transactions and with those before.
func bothFlows(t *testing.T, f func(t *testing.T, version int16)) {
	for version := int16(1); version <= 2; version++ {
		t.Run(fmt.Sprintf("transaction.version=%d", version), func(t *testing.T) { f(t, version) })
	}
}

// flowClient returns a client that takes the broker's transaction.version to be the given one.
func flowClient(t testing.TB, bootstrap string, version int16) *Client {
	t.Helper()
	c := testClient(t, bootstrap)
	is, err := c.TransactionVersion(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if is < version {
		t.Fatalf("the broker has transaction.version=%d, this test needs %d", is, version)
	}
	c.mu.Lock()
	c.versions[anyNode].transactionVersion = version
	c.mu.Unlock()
	return c
}

func number(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

func mustCommit(t testing.TB, p *Producer, offsets map[TopicPartition]Offset, meta GroupMeta) {
	t.Helper()
	if err := p.Commit(testContext(t), offsets, meta); err != nil {
		t.Fatal(err)
	}
}

func mustAbort(t testing.TB, p *Producer) {
	t.Helper()
	if err := p.Abort(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func TestTxnCommitAndAbort(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		c := flowClient(t, brokertest.Start(t), version)
		topic, group := testTopic(t, c, "txn", 2), testGroup(t, c)
		input := TopicPartition{topic, 1} // stands in for an input partition
		meta := GroupMeta{Group: group, Generation: -1}
		p := testProducer(t, c, ProducerConfig{TransactionalID: unique(t, "txn")})
		committed := 0
		for round := range 12 {
			if p.InTransaction() {
				t.Fatalf("round %d begins inside a transaction", round)
			}
			mustSend(t, p, Message{Topic: topic, Value: number(committed)})
			if !p.InTransaction() {
				t.Error("not in a transaction after Send")
			}
			switch round % 4 {
			case 3: // records on their way
				mustFlush(t, p)
				mustAbort(t, p)
			case 2: // records not sent yet
				mustAbort(t, p)
			default:
				committed++
				mustCommit(t, p, map[TopicPartition]Offset{input: {Offset: int64(round), LeaderEpoch: -1, Metadata: "meta"}}, meta)
			}
		}
		checkNumbered(t, c, topic, 1, committed)
		offsets, err := c.CommittedOffsets(testContext(t), group, nil)
		if err != nil || offsets[input].Offset != 9 || offsets[input].Metadata != "meta" {
			t.Errorf("committed offsets %+v, error %v, want 9", offsets, err)
		}
		if n := len(readTopic(t, c, topic, ReadUncommitted)[0]); n < committed+3 {
			t.Errorf("%d records in the log, want those of the aborted transactions too", n)
		}
	})
}

func TestTxnWithoutAnythingIsNotEnded(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
		c := flowClient(t, brokertest.Bootstrap(cluster), version)
		p := testProducer(t, c, ProducerConfig{TransactionalID: "t", Linger: -1})
		seen := cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: "t", Observe: true, Count: -1})
		mustCommit(t, p, nil, GroupMeta{})
		mustAbort(t, p)
		mustSend(t, p, Message{Topic: "orders", Value: number(0)}) // dropped before it is sent
		mustAbort(t, p)
		if hits := seen.Hits(); hits != 0 {
			t.Errorf("%d EndTxn requests for empty transactions", hits)
		}
		mustSend(t, p, Message{Topic: "orders", Value: number(0)})
		mustCommit(t, p, nil, GroupMeta{})
		checkNumbered(t, c, "orders", 1, 1)
	})
}

func TestTxnOffsetsAlone(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		c := flowClient(t, brokertest.Start(t), version)
		topic, group := testTopic(t, c, "offsets-alone", 1), testGroup(t, c)
		p := testProducer(t, c, ProducerConfig{TransactionalID: unique(t, "txn")})
		tp := TopicPartition{topic, 0}
		for i := range int64(3) {
			mustCommit(t, p, map[TopicPartition]Offset{tp: {Offset: i, LeaderEpoch: -1}}, GroupMeta{Group: group, Generation: -1})
		}
		offsets, err := c.CommittedOffsets(testContext(t), group, nil)
		if err != nil || offsets[tp].Offset != 2 {
			t.Errorf("committed offsets %+v, error %v, want 2", offsets, err)
		}
	})
}

func TestTxnFencing(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		c := flowClient(t, brokertest.Start(t), version)
		topic, id := testTopic(t, c, "fencing", 1), unique(t, "txn")
		old := testProducer(t, c, ProducerConfig{TransactionalID: id})
		mustSend(t, old, Message{Topic: topic, Value: number(99)})
		mustFlush(t, old)
		successor := testProducer(t, c, ProducerConfig{TransactionalID: id})
		mustSend(t, successor, Message{Topic: topic, Value: number(0)})
		mustCommit(t, successor, nil, GroupMeta{})

		err := old.Commit(testContext(t), nil, GroupMeta{})
		if !errors.Is(err, ErrFenced) || errors.Is(err, ErrAbortable) || !strings.Contains(err.Error(), id) {
			t.Errorf("Commit of the fenced producer = %v, want ErrFenced with its id", err)
		}
		if err := old.Send(testContext(t), Message{Topic: topic, Value: number(99)}); !errors.Is(err, ErrFenced) {
			t.Errorf("Send of the fenced producer = %v", err)
		}
		if err := old.Abort(testContext(t)); !errors.Is(err, ErrFenced) {
			t.Errorf("Abort of the fenced producer = %v", err)
		}
		if err := old.Init(testContext(t)); err != nil {
			t.Fatal(err)
		}
		mustSend(t, old, Message{Topic: topic, Value: number(1)})
		mustCommit(t, old, nil, GroupMeta{})
		// A produce request is fenced as well.
		mustSend(t, successor, Message{Topic: topic, Value: number(99)})
		if err := successor.Flush(testContext(t)); !errors.Is(err, ErrFenced) {
			t.Errorf("Flush of the fenced producer = %v", err)
		}
		checkNumbered(t, c, topic, 1, 2)
	})
}

// A commit for a member that the group does not know (any more) must not count, and the producer must not be lost with it.
func TestTxnOfAForgottenMemberIsAborted(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		c := flowClient(t, brokertest.Start(t), version)
		topic, group := testTopic(t, c, "forgotten", 1), testGroup(t, c)
		tp := TopicPartition{topic, 0}
		p := testProducer(t, c, ProducerConfig{TransactionalID: unique(t, "txn")})
		mustSend(t, p, Message{Topic: topic, Value: number(99)})
		err := p.Commit(testContext(t), map[TopicPartition]Offset{tp: {Offset: 5, LeaderEpoch: -1}},
			GroupMeta{Group: group, Generation: 3, MemberID: "somebody"})
		if !errors.Is(err, ErrAbortable) || !errors.Is(err, UnknownMemberID) && !errors.Is(err, IllegalGeneration) ||
			!strings.Contains(err.Error(), group) {
			t.Fatalf("Commit = %v, want ErrAbortable with the group", err)
		}
		if err := p.Send(testContext(t), Message{Topic: topic}); !errors.Is(err, ErrAbortable) {
			t.Errorf("Send before Abort = %v", err)
		}
		mustAbort(t, p)
		mustSend(t, p, Message{Topic: topic, Value: number(0)})
		mustCommit(t, p, map[TopicPartition]Offset{tp: {Offset: 1, LeaderEpoch: -1}}, GroupMeta{Group: group, Generation: -1})
		checkNumbered(t, c, topic, 1, 1)
		if offsets, err := c.CommittedOffsets(testContext(t), group, nil); err != nil || offsets[tp].Offset != 1 {
			t.Errorf("committed offsets %+v, error %v, want 1", offsets, err)
		}
	})
}

func TestTxnRepeatsAfterCodes(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		for _, tc := range []struct {
			key  kmsg.Key
			code Code
			v1   bool // flow 1 only
		}{
			{kmsg.InitProducerID, ConcurrentTransactions, false},
			{kmsg.InitProducerID, NotCoordinator, false},
			{kmsg.AddPartitionsToTxn, ConcurrentTransactions, true},
			{kmsg.AddPartitionsToTxn, CoordinatorLoadInProgress, true},
			{kmsg.AddOffsetsToTxn, ConcurrentTransactions, true},
			{kmsg.AddOffsetsToTxn, NotCoordinator, true},
			{kmsg.Produce, ConcurrentTransactions, false},
			{kmsg.Produce, NotLeaderOrFollower, false},
			{kmsg.TxnOffsetCommit, CoordinatorLoadInProgress, false},
			{kmsg.TxnOffsetCommit, NotCoordinator, false},
			{kmsg.EndTxn, ConcurrentTransactions, false},
			{kmsg.EndTxn, CoordinatorNotAvailable, false},
			{kmsg.EndTxn, NotCoordinator, false},
		} {
			if tc.v1 && version > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s %d", tc.key.Name(), tc.code), func(t *testing.T) {
				cluster := brokertest.Embedded(t, brokertest.Topics(2, "orders"))
				c := flowClient(t, brokertest.Bootstrap(cluster), version)
				fault := cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{tc.key}, Err: brokertest.Code(int16(tc.code)), Count: 3})
				p := testProducer(t, c, ProducerConfig{TransactionalID: "t"})
				for i := range 3 {
					mustSend(t, p, Message{Topic: "orders", Value: number(i)})
					mustCommit(t, p, map[TopicPartition]Offset{{"orders", 1}: {Offset: int64(i), LeaderEpoch: -1}}, GroupMeta{Group: "g", Generation: -1})
				}
				if hits := fault.Hits(); hits != 3 {
					t.Errorf("the fault hit %d times, want 3", hits)
				}
				checkNumbered(t, c, "orders", 1, 3)
			})
		}
	})
}

// A batch that fails inside a transaction takes the transaction with it, not the producer.
func TestTxnBatchFailureIsAbortable(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		for _, code := range []Code{OutOfOrderSequence, UnknownProducerID, InvalidTimestamp, TransactionAbortable} {
			t.Run(fmt.Sprint(int(code)), func(t *testing.T) {
				cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
				c := flowClient(t, brokertest.Bootstrap(cluster), version)
				p := testProducer(t, c, ProducerConfig{TransactionalID: "t"})
				mustSend(t, p, Message{Topic: "orders", Value: number(0)})
				mustCommit(t, p, nil, GroupMeta{})
				cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: brokertest.Code(int16(code))})
				mustSend(t, p, Message{Topic: "orders", Value: number(99)})
				err := p.Commit(testContext(t), nil, GroupMeta{})
				var failed *ProduceError
				if !errors.Is(err, ErrAbortable) || !errors.Is(err, code) || !errors.As(err, &failed) {
					t.Fatalf("Commit = %v, want ErrAbortable", err)
				}
				mustAbort(t, p)
				for i := 1; i < 4; i++ {
					mustSend(t, p, Message{Topic: "orders", Value: number(i)})
					mustCommit(t, p, nil, GroupMeta{})
				}
				checkNumbered(t, c, "orders", 1, 4)
			})
		}
	})
}

// One partition's batch is given up while others are about to be sent: none of these may be left behind as under way for ever.
func TestTxnGoesOnAfterABatchWasGivenUp(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		cluster := brokertest.Embedded(t, brokertest.Topics(4, "orders"))
		c := flowClient(t, brokertest.Bootstrap(cluster), version)
		p := testProducer(t, c, ProducerConfig{TransactionalID: "t", DeliveryTimeout: 50 * time.Millisecond, Linger: time.Microsecond})
		committed := 0
		for range 10 {
			fault := cluster.Fault(brokertest.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{2}, Err: brokertest.Code(int16(NotEnoughReplicas)), Count: -1,
			})
			var err error
			for ctx := testContext(t); err == nil; {
				for partition := range int32(4) {
					if err = p.Send(ctx, Message{Topic: "orders", Partition: partition, Value: number(99)}); err != nil {
						break
					}
				}
			}
			fault.Remove()
			// On a busy machine the short timeout also hits batches that nothing holds up: those transactions are aborted and come again.
			for ; err != nil; err = sendAndCommit(t, p, committed) {
				if !errors.Is(err, ErrAbortable) {
					t.Fatalf("got %v, want ErrAbortable", err)
				}
				mustAbort(t, p)
			}
			committed++
		}
		checkNumbered(t, c, "orders", 4, committed)
	})
}

// sendAndCommit sends a number to each of four partitions in a transaction.
func sendAndCommit(t *testing.T, p *Producer, n int) error {
	t.Helper()
	for partition := range int32(4) {
		if err := p.Send(testContext(t), Message{Topic: "orders", Partition: partition, Value: number(n)}); err != nil {
			return err
		}
	}
	return p.Commit(testContext(t), nil, GroupMeta{})
}

// The answer to EndTxn is lost once: the repetition finds the transaction ended, and takes the new epoch from the answer.
func TestTxnEndIsRepeated(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		for _, after := range []bool{false, true} {
			for _, key := range []kmsg.Key{kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.EndTxn} {
				c := flowClient(t, brokertest.Start(t), version)
				topic, group := testTopic(t, c, "repeated", 1), testGroup(t, c)
				cut := &cutter{api: int16(key), after: after}
				cut.install(c)
				p := testProducer(t, c, ProducerConfig{TransactionalID: unique(t, "txn")})
				for i := range 6 {
					cut.left.Store(int32(i % 2))
					mustSend(t, p, Message{Topic: topic, Value: number(i)})
					mustCommit(t, p, map[TopicPartition]Offset{{topic, 0}: {Offset: int64(i), LeaderEpoch: -1}}, GroupMeta{Group: group, Generation: -1})
				}
				if n := cut.losses.Load(); n != 3 {
					t.Errorf("%d answers to %s lost, want 3", n, key.Name())
				}
				checkNumbered(t, c, topic, 1, 6)
			}
		}
	})
}

// No answer to EndTxn comes at all: nothing may be inferred. Init settles it, and the offsets tell which way.
func TestTxnUnknownOutcome(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		for _, after := range []bool{false, true} {
			c := flowClient(t, brokertest.Start(t), version)
			topic, group := testTopic(t, c, "unknown", 1), testGroup(t, c)
			tp, meta := TopicPartition{topic, 0}, GroupMeta{Group: group, Generation: -1}
			cut := &cutter{api: int16(kmsg.EndTxn), after: after}
			cut.install(c)
			p := testProducer(t, c, ProducerConfig{TransactionalID: unique(t, "txn")})
			mustSend(t, p, Message{Topic: topic, Value: number(0)})
			mustCommit(t, p, map[TopicPartition]Offset{tp: {Offset: 1, LeaderEpoch: -1}}, meta)
			mustSend(t, p, Message{Topic: topic, Value: number(1)})
			mustFlush(t, p)
			// Only EndTxn has little time: a busy broker needs more than that until it knows a new topic.
			c.cfg.RetryTimeout = 300 * time.Millisecond
			cut.left.Store(1 << 20)
			err := p.Commit(testContext(t), map[TopicPartition]Offset{tp: {Offset: 2, LeaderEpoch: -1}}, meta)
			if !errors.Is(err, ErrUnknownOutcome) {
				t.Fatalf("Commit = %v, want ErrUnknownOutcome", err)
			}
			if err := p.Send(testContext(t), Message{Topic: topic}); !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("Send = %v", err)
			}
			if err := p.Abort(testContext(t)); !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("Abort = %v", err)
			}
			cut.left.Store(0)
			c.cfg.RetryTimeout = testDeadline
			if err := p.Init(testContext(t)); err != nil {
				t.Fatal(err)
			}
			offsets, err := c.CommittedOffsets(testContext(t), group, []TopicPartition{tp})
			if err != nil {
				t.Fatal(err)
			}
			next := int(offsets[tp].Offset)
			if next == 2 && !after {
				t.Error("committed, though no EndTxn was sent")
			}
			mustSend(t, p, Message{Topic: topic, Value: number(next)})
			mustCommit(t, p, nil, GroupMeta{})
			checkNumbered(t, c, topic, 1, next+1)
		}
	})
}

func TestTxnCloseAborts(t *testing.T) {
	bothFlows(t, func(t *testing.T, version int16) {
		c := flowClient(t, brokertest.Start(t), version)
		topic := testTopic(t, c, "close", 1)
		p := testProducer(t, c, ProducerConfig{TransactionalID: unique(t, "txn"), TransactionTimeout: time.Minute})
		mustSend(t, p, Message{Topic: topic, Value: number(99)})
		mustFlush(t, p)
		if err := p.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		tp := TopicPartition{topic, 0}
		f := testFetcher(t, c, FetcherConfig{Isolation: func(string) Isolation { return ReadCommitted }})
		f.Set(tp, 0)
		r := pollUntil(t, f, tp, func(all []Fetched) bool { return len(all) > 0 && all[len(all)-1].Next == 2 })
		for _, answer := range r {
			if len(answer.Records) > 0 {
				t.Errorf("the transaction was committed: %+v", answer)
			}
		}
	})
}

func TestTxnNeedsAnID(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	p := testProducer(t, c, ProducerConfig{})
	if err := p.Commit(context.Background(), nil, GroupMeta{}); !errors.Is(err, errNotTransactional) {
		t.Errorf("Commit = %v", err)
	}
	if err := p.Abort(context.Background()); !errors.Is(err, errNotTransactional) {
		t.Errorf("Abort = %v", err)
	}
}

// A counter whose broker was killed made a new producer while nothing answered. It asked for the cluster's features once, without a retry,
// and ended with "connection refused" although the broker was back a moment later.
func TestNewProducerOutlastsAnOutage(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	lost := loseAnswer(c, kmsg.ApiVersions)
	c.mu.Lock()
	clear(c.versions) // as after a network error: the broker may come back as another version
	c.mu.Unlock()
	testProducer(t, c, ProducerConfig{})
	select {
	case <-lost:
	default:
		t.Error("no answer was lost")
	}
}
