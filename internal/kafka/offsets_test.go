package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

func TestCommitAndFetchOffsets(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t))
	topic, group := testTopic(t, c, "offsets", 3), testGroup(t, c)
	got, err := c.CommittedOffsets(ctx, group, nil)
	if err != nil || len(got) != 0 {
		t.Fatalf("a group that does not exist has offsets %v, error %v", got, err)
	}
	want := map[TopicPartition]Offset{
		{topic, 0}: {Offset: 0, LeaderEpoch: -1},
		{topic, 2}: {Offset: 42, LeaderEpoch: 0, Metadata: "AgAAAZ"},
	}
	tool := GroupMeta{Group: group, Generation: -1}
	if err := c.CommitOffsets(ctx, tool, want); err != nil {
		t.Fatal(err)
	}
	for name, tps := range map[string][]TopicPartition{"all": nil, "named": {{topic, 2}, {topic, 1}, {topic, 0}}} {
		if got, err = c.CommittedOffsets(ctx, group, tps); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s partitions (-want +got):\n%s", name, diff)
		}
	}
	if got, err = c.CommittedOffsets(ctx, group, []TopicPartition{}); err != nil || len(got) != 0 {
		t.Errorf("no partitions asked for: %v, error %v", got, err)
	}
	if err := c.CommitOffsets(ctx, tool, nil); err != nil {
		t.Errorf("nothing to commit: %v", err)
	}
}

// A commit that names a generation of a group without members is a member's that the coordinator has forgotten, also when it has forgotten
// the whole group.
func TestCommitOfAForgottenMemberIsRefused(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t))
	topic, group := testTopic(t, c, "offsets", 1), testGroup(t, c)
	offsets := map[TopicPartition]Offset{{topic, 0}: {Offset: 1, LeaderEpoch: -1}}
	for _, group := range []string{group, unique(t, "unknown-group")} {
		if strings.HasPrefix(group, "group") {
			if err := c.CommitOffsets(ctx, GroupMeta{Group: group, Generation: -1}, offsets); err != nil {
				t.Fatal(err)
			}
		}
		err := c.CommitOffsets(ctx, GroupMeta{Group: group, Generation: 3, MemberID: "lab-3e0a"}, offsets)
		if ActionFor(kmsg.OffsetCommit, err) != ActForgetMember || !strings.Contains(err.Error(), group) {
			t.Errorf("error %v, want a refusal that makes the member forget itself", err)
		}
	}
}

func TestCommitToAnUnknownTopicSaysItsName(t *testing.T) {
	bootstrap := brokertest.Start(t)
	ctx, c, impatient := testContext(t), testClient(t, bootstrap), testClient(t, bootstrap)
	impatient.cfg.RetryTimeout = 200 * time.Millisecond
	missing := TopicPartition{unique(t, "missing"), 0}
	group := testGroup(t, c)
	if _, err := c.CommittedOffsets(ctx, group, nil); err != nil { // the first group of a new cluster waits for its coordinator
		t.Fatal(err)
	}
	err := impatient.CommitOffsets(ctx, GroupMeta{Group: group, Generation: -1}, map[TopicPartition]Offset{missing: {Offset: 1}})
	if !IsUnknownTopic(err) || !strings.Contains(err.Error(), missing.String()) {
		t.Errorf("error %v, want unknown partition %s", err, missing)
	}
}

func TestOffsetCallsRepeatOnCoordinatorCodes(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(cluster))
	tp := TopicPartition{"orders", 0}
	for _, code := range []Code{CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator} {
		for _, key := range []kmsg.Key{kmsg.FindCoordinator, kmsg.OffsetCommit, kmsg.OffsetFetch} {
			c.forgetRoute(GroupCoordinator("g"))
			fault := cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{key}, Group: "g", Err: brokertest.Code(int16(code)), Count: 2})
			want := map[TopicPartition]Offset{tp: {Offset: int64(code), LeaderEpoch: -1}}
			if err := c.CommitOffsets(ctx, GroupMeta{Group: "g", Generation: -1}, want); err != nil {
				t.Fatalf("%s with %v: commit: %v", key.Name(), code, err)
			}
			got, err := c.CommittedOffsets(ctx, "g", []TopicPartition{tp})
			if err != nil {
				t.Fatalf("%s with %v: fetch: %v", key.Name(), code, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s with %v (-want +got):\n%s", key.Name(), code, diff)
			}
			if fault.Hits() != 2 {
				t.Errorf("%s with %v: %d faults hit, want 2", key.Name(), code, fault.Hits())
			}
		}
	}
}

// An offset that an open transaction is about to move is waited for (code 88).
func TestCommittedOffsetsWaitForTransactions(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(cluster))
	tp := TopicPartition{"orders", 0}
	if err := c.CommitOffsets(ctx, GroupMeta{Group: "g", Generation: -1}, map[TopicPartition]Offset{tp: {Offset: 5}}); err != nil {
		t.Fatal(err)
	}
	fault := cluster.Fault(brokertest.Fault{
		Keys: []kmsg.Key{kmsg.OffsetFetch}, Topic: "orders", Err: brokertest.Code(int16(UnstableOffsetCommit)), Count: 3,
		When: func(r kmsg.Request) bool { return r.(*kmsg.OffsetFetchRequest).RequireStable },
	})
	got, err := c.CommittedOffsets(ctx, "g", []TopicPartition{tp})
	if err != nil || got[tp].Offset != 5 || fault.Hits() != 3 {
		t.Errorf("offsets %v, error %v after %d unstable answers, want 5 after 3", got, err, fault.Hits())
	}
}

// Who watches a group sees the offset before an open transaction, while a member has to wait for the other one.
func TestCommittedOffsetsNow(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(cluster))
	tp := TopicPartition{"orders", 0}
	meta := GroupMeta{Group: "g", Generation: -1}
	if err := c.CommitOffsets(ctx, meta, map[TopicPartition]Offset{tp: {Offset: 5}}); err != nil {
		t.Fatal(err)
	}
	// The transaction stays open behind its offsets for as long as its end is refused.
	ends := cluster.Fault(brokertest.Fault{
		Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: "t", Err: brokertest.Code(int16(CoordinatorLoadInProgress)), Count: -1,
	})
	p := testProducer(t, c, ProducerConfig{TransactionalID: "t"})
	done := make(chan error, 1)
	go func() { done <- p.Commit(ctx, map[TopicPartition]Offset{tp: {Offset: 7}}, meta) }()
	if err := ends.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if got, err := c.CommittedOffsetsNow(ctx, "g", []TopicPartition{tp}); err != nil || got[tp].Offset != 5 {
		t.Errorf("inside the transaction: %v, %v, want 5", got, err)
	}
	ends.Remove()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, err := c.CommittedOffsetsNow(ctx, "g", nil); err != nil || got[tp].Offset != 7 {
		t.Errorf("after it: %v, %v, want 7", got, err)
	}
}

func TestListOffsetsAndDeleteRecords(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t, brokertest.Brokers(3)))
	topic := testTopic(t, c, "log", 3)
	written := map[int32]int{0: 4, 2: 7}
	for partition, n := range written {
		produceByHand(t, c, TopicPartition{topic, partition}, n)
	}
	tps := []TopicPartition{{topic, 0}, {topic, 1}, {topic, 2}}
	list := func(at int64) map[TopicPartition]int64 {
		t.Helper()
		got, err := c.ListOffsets(ctx, tps, at, ReadUncommitted)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if diff := cmp.Diff(map[TopicPartition]int64{{topic, 0}: 4, {topic, 1}: 0, {topic, 2}: 7}, list(LatestOffset)); diff != "" {
		t.Errorf("latest (-want +got):\n%s", diff)
	}
	// Record i has the timestamp handTime + i.
	if diff := cmp.Diff(map[TopicPartition]int64{{topic, 0}: -1, {topic, 1}: -1, {topic, 2}: 5}, list(handTime+5)); diff != "" {
		t.Errorf("by time (-want +got):\n%s", diff)
	}
	if err := c.DeleteRecords(ctx, map[TopicPartition]int64{{topic, 0}: -1, {topic, 2}: 3}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[TopicPartition]int64{{topic, 0}: 4, {topic, 1}: 0, {topic, 2}: 3}, list(EarliestOffset)); diff != "" {
		t.Errorf("earliest after deletion (-want +got):\n%s", diff)
	}
	err := c.DeleteRecords(ctx, map[TopicPartition]int64{{topic, 2}: 99})
	if !errors.Is(err, OffsetOutOfRange) || !strings.Contains(err.Error(), topic+"-2") {
		t.Errorf("deleting past the end: %v", err)
	}
}

// Under ReadCommitted the end is the last stable offset: an open transaction holds it.
func TestListOffsetsIsolation(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t))
	tp := TopicPartition{testTopic(t, c, "log", 1), 0}
	produceByHand(t, c, tp, 2)
	abort := openTransactionByHand(t, c, tp)
	for iso, want := range map[Isolation]int64{ReadUncommitted: 3, ReadCommitted: 2} {
		if got, err := c.ListOffsets(ctx, []TopicPartition{tp}, LatestOffset, iso); err != nil || got[tp] != want {
			t.Errorf("isolation %d: end %v, error %v, want %d", iso, got, err, want)
		}
	}
	abort()
	eventually(t, "the marker, which may be written a moment after the answer", func() bool {
		got, err := c.ListOffsets(ctx, []TopicPartition{tp}, LatestOffset, ReadCommitted)
		if err != nil {
			t.Fatal(err)
		}
		return got[tp] == 4
	})
}

func TestListOffsetsRepeatsForPartitionsOnTheMove(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Brokers(3), brokertest.Topics(3, "orders"))
	ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(cluster))
	tps := []TopicPartition{{"orders", 0}, {"orders", 1}, {"orders", 2}}
	for _, tp := range tps {
		produceByHand(t, c, tp, int(tp.Partition)+1)
	}
	want := map[TopicPartition]int64{tps[0]: 1, tps[1]: 2, tps[2]: 3}
	check := func(name string) {
		t.Helper()
		got, err := c.ListOffsets(ctx, tps, LatestOffset, ReadUncommitted)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	check("at first")
	for partition := range int32(3) { // the cached leaders are wrong now
		leader := cluster.LeaderFor("orders", partition)
		if err := cluster.MoveTopicPartition("orders", partition, (leader+1)%3); err != nil {
			t.Fatal(err)
		}
	}
	check("after all leaders moved")
	for _, code := range []Code{LeaderNotAvailable, OffsetNotAvailable, FencedLeaderEpoch, KafkaStorageError} {
		fault := cluster.Fault(brokertest.Fault{
			Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders", Partitions: []int32{1}, Err: brokertest.Code(int16(code)), Count: 2,
		})
		check(code.Error())
		if fault.Hits() != 2 {
			t.Errorf("%v: %d faults hit, want 2", code, fault.Hits())
		}
	}
}

func TestListOffsetsOfAnUnknownTopicSaysItsName(t *testing.T) {
	bootstrap := brokertest.Start(t)
	ctx, c, impatient := testContext(t), testClient(t, bootstrap), testClient(t, bootstrap)
	impatient.cfg.RetryTimeout = 200 * time.Millisecond
	missing := TopicPartition{unique(t, "missing"), 0}
	_, err := impatient.ListOffsets(ctx, []TopicPartition{missing}, LatestOffset, ReadUncommitted)
	if !IsUnknownTopic(err) || !strings.Contains(err.Error(), missing.Topic) {
		t.Errorf("error %v, want unknown topic %s", err, missing.Topic)
	}
	topic := testTopic(t, c, "orders", 2)
	if _, err := c.ListOffsets(ctx, []TopicPartition{{topic, 1}}, LatestOffset, ReadUncommitted); err != nil { // the broker knows it now
		t.Fatal(err)
	}
	_, err = impatient.ListOffsets(ctx, []TopicPartition{{topic, 5}}, LatestOffset, ReadUncommitted)
	if !IsUnknownTopic(err) || !strings.Contains(err.Error(), topic+"-5") || !strings.Contains(err.Error(), "2 partitions") {
		t.Errorf("error %v, want unknown partition 5 of 2", err)
	}
}

// testGroup names a group for a test and deletes it when the test ends.
func testGroup(t testing.TB, c *Client) string {
	t.Helper()
	group := unique(t, "group")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
		defer cancel()
		if err := c.DeleteGroups(ctx, group); err != nil {
			t.Errorf("deleting group %s: %v", group, err)
		}
	})
	return group
}

// handTime is the timestamp of the first record of produceByHand, 2026-09-12T10:00:00Z.
const handTime = 1789207200000

// produceByHand writes n records with one request. The producer has tests of its own; these tests need offsets only.
func produceByHand(t testing.TB, c *Client, tp TopicPartition, n int) {
	t.Helper()
	var b batchBuilder
	b.reset()
	for i := range n {
		b.append(handTime+int64(i), nil, []byte("value"), nil)
	}
	writeByHand(t, c, tp, &b, "", producerID{id: -1, epoch: -1})
}

func writeByHand(t testing.TB, c *Client, tp TopicPartition, b *batchBuilder, transactionalID string, producer producerID) {
	t.Helper()
	sequence := int32(-1)
	if transactionalID != "" {
		sequence = 0
	}
	raw, err := b.finish(Uncompressed, producer, sequence, transactionalID != "")
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.TransactionID = -1, 5000, optional(transactionalID)
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = tp.Partition, raw
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = tp.Topic, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	limit := int16(11) // version 12 means KIP-890 transactions
	_, err = c.Do(testContext(t), Request{Route: Leader(tp), Req: req, Limit: &limit, Check: func(resp kmsg.Response) error {
		return partitionError(req.Key(), resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, tp)
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// openTransactionByHand writes one record in a transaction. The returned function aborts it.
func openTransactionByHand(t testing.TB, c *Client, tp TopicPartition) (abort func()) {
	t.Helper()
	id := unique(t, "txn")
	do := func(req kmsg.Request, check func(kmsg.Response) int16) {
		t.Helper()
		limit := int16(3)
		_, err := c.Do(testContext(t), Request{Route: TxnCoordinator(id), Req: req, Limit: &limit, Check: func(resp kmsg.Response) error {
			return partitionError(req.Key(), check(resp), tp)
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var producer producerID
	initID := kmsg.NewPtrInitProducerIDRequest()
	initID.TransactionalID, initID.TransactionTimeoutMillis = &id, 60000
	do(initID, func(resp kmsg.Response) int16 {
		r := resp.(*kmsg.InitProducerIDResponse)
		producer = producerID{id: r.ProducerID, epoch: r.ProducerEpoch}
		return r.ErrorCode
	})
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = id, producer.id, producer.epoch
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = tp.Topic, []int32{tp.Partition}
	add.Topics = append(add.Topics, topic)
	do(add, func(resp kmsg.Response) int16 {
		return resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
	})
	var b batchBuilder
	b.reset()
	b.append(handTime, nil, []byte("value"), nil)
	writeByHand(t, c, tp, &b, id, producer)
	return func() {
		end := kmsg.NewPtrEndTxnRequest()
		end.TransactionalID, end.ProducerID, end.ProducerEpoch = id, producer.id, producer.epoch
		do(end, func(resp kmsg.Response) int16 { return resp.(*kmsg.EndTxnResponse).ErrorCode })
	}
}
