package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

func testProducer(t testing.TB, c *Client, cfg ProducerConfig) *Producer {
	t.Helper()
	p, err := c.NewProducer(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a test that wants its records flushed says so
		_ = p.Close(ctx)
	})
	return p
}

func mustSend(t testing.TB, p *Producer, m Message) {
	t.Helper()
	if err := p.Send(testContext(t), m); err != nil {
		t.Fatal(err)
	}
}

func mustFlush(t testing.TB, p *Producer) {
	t.Helper()
	if err := p.Flush(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// readTopic reads all partitions of a topic to the end they have now.
func readTopic(t testing.TB, c *Client, topic string, iso Isolation) map[int32][]Record {
	t.Helper()
	ctx := testContext(t)
	topics, err := c.Topics(ctx, topic)
	if err != nil || topics[topic] == nil {
		t.Fatalf("topic %s: %v, error %v", topic, topics[topic], err)
	}
	var tps []TopicPartition
	for i := range topics[topic].Partitions {
		tps = append(tps, TopicPartition{topic, int32(i)})
	}
	ends, err := c.ListOffsets(ctx, tps, LatestOffset, iso)
	if err != nil {
		t.Fatal(err)
	}
	f := c.NewFetcher(FetcherConfig{Isolation: func(string) Isolation { return iso }})
	defer f.Close()
	for _, tp := range tps {
		f.Set(tp, 0)
	}
	records := map[int32][]Record{}
	for len(ends) > 0 {
		for _, r := range pollOne(ctx, t, f) {
			if r.Err != nil {
				t.Fatalf("partition %s: %v", r.TopicPartition, r.Err)
			}
			records[r.Partition] = append(records[r.Partition], r.Records...)
			if r.Next >= ends[r.TopicPartition] {
				delete(ends, r.TopicPartition)
			}
		}
	}
	return records
}

// pollOne waits for answers.
func pollOne(ctx context.Context, t testing.TB, f *Fetcher) []Fetched {
	t.Helper()
	for {
		if results := f.Poll(); len(results) > 0 {
			return results
		}
		select {
		case <-f.Ready():
		case <-ctx.Done():
			t.Fatalf("no answer of the fetcher; troubles %v", f.Troubles())
		}
	}
}

func TestProduceWritesRecordsAsGiven(t *testing.T) {
	for codec := Uncompressed; codec <= Zstd; codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			c := testClient(t, brokertest.Start(t))
			topic := testTopic(t, c, "as-given", 2)
			p := testProducer(t, c, ProducerConfig{Compression: codec})
			var want []Record
			for i, r := range sampleRecords() {
				if r.Timestamp < -1 || r.Timestamp > 1789207200000 {
					r.Timestamp = int64(i) // a broker refuses times beyond now
				}
				r.LeaderEpoch = 0
				want = append(want, r)
				mustSend(t, p, Message{Topic: topic, Partition: 1, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value, Headers: r.Headers})
			}
			mustFlush(t, p)
			got := readTopic(t, c, topic, ReadCommitted)
			if diff := cmp.Diff(want, got[1]); diff != "" {
				t.Errorf("records (-sent +read):\n%s", diff)
			}
			if len(got[0]) > 0 {
				t.Errorf("%d records in the other partition", len(got[0]))
			}
		})
	}
}

func TestProducePartitions(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	topic := testTopic(t, c, "partitions", 3)
	p := testProducer(t, c, ProducerConfig{BatchBytes: 200, Linger: -1})
	for i := range 60 {
		mustSend(t, p, Message{Topic: topic, Partition: AnyPartition, Key: fmt.Append(nil, "ord-", i), Value: []byte("keyed")})
		mustSend(t, p, Message{Topic: topic, Partition: AnyPartition, Value: []byte("without a key")})
	}
	mustFlush(t, p)
	var keyless [3]int
	total := 0
	for partition, records := range readTopic(t, c, topic, ReadUncommitted) {
		total += len(records)
		for _, r := range records {
			if r.Key == nil {
				keyless[partition]++
			} else if want := PartitionFor(r.Key, 3); want != partition {
				t.Errorf("key %s is in partition %d, want %d", r.Key, partition, want)
			}
		}
	}
	if total != 120 {
		t.Errorf("%d records, want 120", total)
	}
	if slices.Min(keyless[:]) == 0 {
		t.Errorf("records without keys per partition: %v, want them in all", keyless)
	}
	err := p.Send(testContext(t), Message{Topic: topic, Partition: 3})
	if !IsUnknownTopic(err) || !strings.Contains(err.Error(), topic+"-3") || !strings.Contains(err.Error(), "3 partitions") {
		t.Errorf("Send to a partition that is not there: %v", err)
	}
}

// sendNumbered sends numbered records to n partitions and returns when all are acknowledged.
func sendNumbered(t testing.TB, p *Producer, topic string, partitions int32, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		for partition := range partitions {
			mustSend(t, p, Message{Topic: topic, Partition: partition, Value: binary.BigEndian.AppendUint32(nil, uint32(i))})
		}
	}
	mustFlush(t, p)
}

// awaitMarkers waits until no transaction is open on the topic. A coordinator answers EndTxn once it has written the decision down, and only
// then writes the markers: a reader of committed records who comes at once still stops before the last transaction.
func awaitMarkers(t testing.TB, c *Client, topic string, partitions int32) {
	t.Helper()
	ctx := testContext(t)
	var tps []TopicPartition
	for i := range partitions {
		tps = append(tps, TopicPartition{topic, i})
	}
	eventually(t, "the markers of "+topic, func() bool {
		stable, err := c.ListOffsets(ctx, tps, LatestOffset, ReadCommitted)
		if err != nil {
			t.Fatal(err)
		}
		high, err := c.ListOffsets(ctx, tps, LatestOffset, ReadUncommitted)
		if err != nil {
			t.Fatal(err)
		}
		return maps.Equal(stable, high)
	})
}

// checkNumbered tells what is lost, doubled or out of order among the records of sendNumbered.
func checkNumbered(t testing.TB, c *Client, topic string, partitions int32, n int) {
	t.Helper()
	awaitMarkers(t, c, topic, partitions)
	got := readTopic(t, c, topic, ReadCommitted)
	for partition := range partitions {
		if len(got[partition]) != n {
			t.Errorf("partition %d has %d records, want %d", partition, len(got[partition]), n)
		}
		for i, r := range got[partition] {
			if number := binary.BigEndian.Uint32(r.Value); int(number) != i {
				t.Errorf("partition %d, place %d holds record %d", partition, i, number)
				break
			}
		}
	}
}

func TestProduceRepeatsAfterCodes(t *testing.T) {
	for _, code := range []Code{CorruptMessage, UnknownTopicOrPartition, LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut,
		ReplicaNotAvailable, CoordinatorLoadInProgress, NotEnoughReplicas, NotEnoughReplicasAppended, KafkaStorageError,
		OutOfOrderSequence, UnknownProducerID, InvalidProducerEpoch} {
		t.Run(fmt.Sprint(int(code)), func(t *testing.T) {
			cluster := brokertest.Embedded(t, brokertest.Topics(2, "orders"))
			c := testClient(t, brokertest.Bootstrap(cluster))
			p := testProducer(t, c, ProducerConfig{BatchBytes: 300})
			sendNumbered(t, p, "orders", 2, 0, 10)
			fault := cluster.Fault(brokertest.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{0}, Err: brokertest.Code(int16(code)), Count: 3,
			})
			sendNumbered(t, p, "orders", 2, 10, 200)
			if hits := fault.Hits(); hits != 3 {
				t.Errorf("the fault hit %d times, want 3", hits)
			}
			checkNumbered(t, c, "orders", 2, 200)
		})
	}
}

// DUPLICATE_SEQUENCE_NUMBER means that an earlier try has arrived: here both tries are answered with an error, the first one after it was
// written.
func TestProduceTakesDuplicateAsWritten(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	p := testProducer(t, c, ProducerConfig{})
	cluster.Fault(
		brokertest.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: brokertest.Code(int16(RequestTimedOut))},
		brokertest.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: brokertest.Code(int16(DuplicateSequence))},
	)
	sendNumbered(t, p, "orders", 1, 0, 5)
	sendNumbered(t, p, "orders", 1, 5, 10)
	checkNumbered(t, c, "orders", 1, 10)
}

// cutter is a Dial hook that loses answers: the broker has them sent, the connection breaks instead.
type cutter struct {
	api    int16
	left   atomic.Int32 // answers to lose
	after  bool         // lose the answer; else the request is not sent either
	losses atomic.Int32
}

func (k *cutter) install(c *Client) {
	dial := c.transport.Dial
	c.transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: conn, cutter: k}, nil
	}
	c.transport.CloseIdleConnections()
}

type cutConn struct {
	net.Conn
	cutter *cutter
	cut    bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if len(b) >= 6 && int16(binary.BigEndian.Uint16(b[4:])) == c.cutter.api && c.cutter.left.Add(-1) >= 0 {
		c.cutter.losses.Add(1)
		if !c.cutter.after {
			return 0, io.ErrClosedPipe
		}
		c.cut = true
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.cut {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func TestProduceRepeatsAfterNetworkErrors(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("answer lost %t", after), func(t *testing.T) {
			c := testClient(t, brokertest.Start(t))
			topic := testTopic(t, c, "network", 3)
			p := testProducer(t, c, ProducerConfig{BatchBytes: 300})
			cut := &cutter{api: int16(kmsg.Produce), after: after}
			cut.install(c)
			sendNumbered(t, p, topic, 3, 0, 10)
			cut.left.Store(3)
			sendNumbered(t, p, topic, 3, 10, 200)
			if got := cut.losses.Load(); got != 3 {
				t.Errorf("%d answers lost, want 3", got)
			}
			checkNumbered(t, c, topic, 3, 200)
		})
	}
}

// The leader moves again and again while batches are under way and waiting: they follow it, in order.
func TestProduceFollowsTheLeader(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Brokers(3), brokertest.Topics(2, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	p := testProducer(t, c, ProducerConfig{BatchBytes: 300})
	for round := range 10 {
		for i := range 50 {
			for partition := range int32(2) {
				mustSend(t, p, Message{Topic: "orders", Partition: partition, Value: binary.BigEndian.AppendUint32(nil, uint32(round*50+i))})
			}
		}
		if err := cluster.MoveTopicPartition("orders", int32(round%2), int32(round%3)); err != nil {
			t.Fatal(err)
		}
	}
	mustFlush(t, p)
	checkNumbered(t, c, "orders", 2, 500)
}

func TestProduceFailureIsLasting(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(2, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	for _, tc := range []struct {
		code Code
		want string
	}{
		{InvalidTimestamp, "timestamp 77"},
		{MessageTooLarge, "orders-1"},
		{TopicAuthorizationFailed, "Write on topic orders"},
	} {
		t.Run(fmt.Sprint(int(tc.code)), func(t *testing.T) {
			p := testProducer(t, c, ProducerConfig{})
			cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: brokertest.Code(int16(tc.code))})
			mustSend(t, p, Message{Topic: "orders", Partition: 1, Timestamp: 77, Key: []byte("k"), Value: []byte("v")})
			err := p.Flush(testContext(t))
			var failed *ProduceError
			if !errors.As(err, &failed) || !errors.Is(err, tc.code) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Flush = %v, want a ProduceError with %q", err, tc.want)
			}
			if failed.Code != tc.code || failed.TopicPartition != (TopicPartition{"orders", 1}) || len(failed.Records) != 1 ||
				string(failed.Records[0].Key) != "k" {
				t.Errorf("ProduceError %+v", failed)
			}
			if err := p.Send(testContext(t), Message{Topic: "orders"}); !errors.As(err, &failed) {
				t.Errorf("Send after the failure: %v", err)
			}
		})
	}
}

// A broker names the records it refuses. The embedded one does not check them.
func TestProduceNamesTheRefusedRecord(t *testing.T) {
	if !onRealBroker() {
		t.Skip("needs a broker that checks timestamps")
	}
	c := testClient(t, brokertest.Start(t))
	topic := testTopic(t, c, "refused", 1)
	p := testProducer(t, c, ProducerConfig{})
	future := time.Now().Add(3 * time.Hour).UnixMilli()
	for i, timestamp := range []int64{1, 2, future, 4} {
		mustSend(t, p, Message{Topic: topic, Timestamp: timestamp, Value: fmt.Append(nil, i)})
	}
	err := p.Flush(testContext(t))
	var failed *ProduceError
	if !errors.As(err, &failed) || failed.Code != InvalidTimestamp || len(failed.Records) != 4 {
		t.Fatalf("Flush = %v, want a ProduceError for 4 records", err)
	}
	var refused []RefusedRecord
	p = testProducer(t, c, ProducerConfig{Refused: func(r RefusedRecord) { refused = append(refused, r) }})
	for i, timestamp := range []int64{1, future, 3, 4} {
		mustSend(t, p, Message{Topic: topic, Timestamp: timestamp, Value: binary.BigEndian.AppendUint32(nil, uint32(max(0, i-1)))})
	}
	mustFlush(t, p)
	if len(refused) != 1 || refused[0].Record.Timestamp != future {
		t.Errorf("refused %+v", refused)
	}
	checkNumbered(t, c, topic, 1, 3)
	if len(failed.RecordErrors) != 1 || failed.RecordErrors[0].Index != 2 || !strings.Contains(err.Error(), fmt.Sprint(future)) {
		t.Errorf("record errors %+v in %v", failed.RecordErrors, err)
	}
}

// refusing makes an embedded broker refuse batches that hold a record with the value "bad", naming the records or not.
func refusing(t testing.TB, cluster *brokertest.Cluster, code Code, name bool) {
	t.Helper()
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		topic := req.(*kmsg.ProduceRequest).Topics[0]
		records, _, err := batchWalk{}.walk(nil, topic.Partitions[0].Records)
		if err != nil {
			t.Error(err)
		}
		answer := kmsg.NewProduceResponseTopicPartition()
		answer.Partition, answer.ErrorCode = topic.Partitions[0].Partition, int16(code)
		bad := false
		for _, r := range records {
			if string(r.Value) == "bad" {
				bad = true
				if name {
					answer.ErrorRecords = append(answer.ErrorRecords,
						kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: int32(r.Offset), ErrorMessage: kmsg.StringPtr("it is bad")})
				}
			}
		}
		if !bad {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		respTopic := kmsg.NewProduceResponseTopic()
		respTopic.Topic, respTopic.Partitions = topic.Topic, append(respTopic.Partitions, answer)
		resp.Topics = append(resp.Topics, respTopic)
		return resp, nil, true
	})
}

// Refused records are left out, whether the broker names them or they have to be searched for; all others are written once and in order.
func TestProduceLeavesRefusedRecordsOut(t *testing.T) {
	for _, id := range []string{"", "txn"} {
		for _, code := range []Code{InvalidTimestamp, MessageTooLarge, InvalidRecord} {
			for _, name := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %d named %t", id, code, name), func(t *testing.T) {
					cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
					refusing(t, cluster, code, name)
					c := testClient(t, brokertest.Bootstrap(cluster))
					var refused []RefusedRecord
					p := testProducer(t, c, ProducerConfig{
						TransactionalID: id, BatchBytes: 600, Linger: -1,
						Refused: func(r RefusedRecord) { refused = append(refused, r) },
					})
					for i := range 200 {
						if i%37 == 0 || i == 38 {
							mustSend(t, p, Message{Topic: "orders", Timestamp: int64(i), Key: []byte("k"), Value: []byte("bad"), Headers: []Header{{Key: "h"}}})
						}
						mustSend(t, p, Message{Topic: "orders", Timestamp: int64(i), Value: binary.BigEndian.AppendUint32(nil, uint32(i))})
					}
					mustFlush(t, p)
					if id != "" {
						mustCommit(t, p, nil, GroupMeta{})
					}
					var times []int64
					for _, r := range refused {
						times = append(times, r.Record.Timestamp)
						if !errors.Is(r.Err, code) || string(r.Record.Key) != "k" || len(r.Record.Headers) != 1 || r.String() != "orders-0" {
							t.Errorf("refused %+v", r)
						}
						if name && !strings.Contains(r.Err.Error(), "it is bad") {
							t.Errorf("error %v lacks the broker's words", r.Err)
						}
					}
					if diff := cmp.Diff([]int64{0, 37, 38, 74, 111, 148, 185}, times); diff != "" {
						t.Errorf("refused records (-want +got):\n%s", diff)
					}
					checkNumbered(t, c, "orders", 1, 200)
					p.mu.Lock()
					defer p.mu.Unlock()
					if p.buffered != 0 {
						t.Errorf("%d bytes are accounted for with nothing buffered", p.buffered)
					}
				})
			}
		}
	}
}

func TestProduceGivesUp(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	p := testProducer(t, c, ProducerConfig{DeliveryTimeout: 200 * time.Millisecond})
	cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: brokertest.Code(int16(NotEnoughReplicas)), Count: -1})
	mustSend(t, p, Message{Topic: "orders", Value: []byte("v")})
	err := p.Flush(testContext(t))
	if !errors.Is(err, NotEnoughReplicas) || !strings.Contains(err.Error(), "200ms") || !strings.Contains(err.Error(), "orders-0") {
		t.Errorf("Flush = %v, want the last error and the timeout", err)
	}
}

func TestProduceLingers(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	topic := testTopic(t, c, "linger", 1)
	for _, tc := range []struct {
		linger time.Duration
		want   int
	}{{time.Millisecond, 1}, {-1, 0}} {
		p := testProducer(t, c, ProducerConfig{Linger: tc.linger})
		mustSend(t, p, Message{Topic: topic, Value: []byte("v")})
		if tc.want == 0 {
			if n := len(readTopic(t, c, topic, ReadUncommitted)[0]); n != 1 {
				t.Errorf("%d records, want that of the first producer only", n)
			}
			continue
		}
		f := c.NewFetcher(FetcherConfig{})
		f.Set(TopicPartition{topic, 0}, 0)
		for ctx := testContext(t); ; {
			if r := pollOne(ctx, t, f); len(r[0].Records) == tc.want {
				break
			}
		}
		f.Close()
	}
}

func TestProduceCloseFlushes(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	topic := testTopic(t, c, "close", 1)
	p := testProducer(t, c, ProducerConfig{Linger: -1})
	mustSend(t, p, Message{Topic: topic, Value: []byte{0, 0, 0, 0}})
	if err := p.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	checkNumbered(t, c, topic, 1, 1)
	if err := p.Send(testContext(t), Message{Topic: topic}); !errors.Is(err, ErrProducerClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

// Send waits while the buffer is full, and goes on when the broker answers again.
func TestProduceBufferIsBounded(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	p := testProducer(t, c, ProducerConfig{BufferBytes: 1000, BatchBytes: 500, Linger: -1})
	fault := cluster.Fault(brokertest.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: brokertest.Code(int16(NotEnoughReplicas)), Count: -1,
	})
	full := errors.New("full")
	ctx, cancel := context.WithTimeoutCause(testContext(t), 300*time.Millisecond, full)
	defer cancel()
	sent := 0
	for ; sent < 100; sent++ {
		err := p.Send(ctx, Message{Topic: "orders", Value: append(binary.BigEndian.AppendUint32(nil, uint32(sent)), make([]byte, 100)...)})
		if errors.Is(err, full) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if sent < 8 || sent > 10 {
		t.Errorf("%d records of about 110 bytes went into a buffer of 1000", sent)
	}
	fault.Remove()
	for ; sent < 100; sent++ {
		mustSend(t, p, Message{Topic: "orders", Value: append(binary.BigEndian.AppendUint32(nil, uint32(sent)), make([]byte, 100)...)})
	}
	mustFlush(t, p)
	checkNumbered(t, c, "orders", 1, 100)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.buffered != 0 {
		t.Errorf("%d bytes are accounted for with nothing buffered", p.buffered)
	}
}

func TestProduceAsksForLeave(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	lost := errors.New("the membership may be lost")
	p := testProducer(t, c, ProducerConfig{MaySend: func() error { return lost }})
	mustSend(t, p, Message{Topic: "orders", Value: []byte("v")})
	if err := p.Flush(testContext(t)); !errors.Is(err, lost) {
		t.Errorf("Flush = %v, want %v", err, lost)
	}
	if hw := cluster.PartitionInfo("orders", 0).HighWatermark; hw != 0 {
		t.Errorf("%d records were written", hw)
	}
}

// A record above BatchBytes goes alone, and the broker decides.
func TestProduceLargeRecord(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	topic := testTopic(t, c, "large", 1)
	p := testProducer(t, c, ProducerConfig{BatchBytes: 1000})
	large := bytes.Repeat([]byte{1}, 1_000_000)
	mustSend(t, p, Message{Topic: topic, Value: []byte("small")})
	mustSend(t, p, Message{Topic: topic, Value: large})
	mustSend(t, p, Message{Topic: topic, Value: []byte("small")})
	mustFlush(t, p)
	got := readTopic(t, c, topic, ReadUncommitted)[0]
	if len(got) != 3 || !bytes.Equal(got[1].Value, large) {
		t.Fatalf("read %d records", len(got))
	}
	mustSend(t, p, Message{Topic: topic, Value: bytes.Repeat([]byte{1}, 1_100_000)})
	if err := p.Flush(testContext(t)); !errors.Is(err, MessageTooLarge) {
		t.Errorf("Flush of 1,100,000 bytes = %v, want %v", err, MessageTooLarge)
	}
}
