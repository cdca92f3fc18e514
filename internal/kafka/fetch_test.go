package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

func testFetcher(t testing.TB, c *Client, cfg FetcherConfig) *Fetcher {
	t.Helper()
	f := c.NewFetcher(cfg)
	t.Cleanup(f.Close)
	return f
}

// collector keeps the answers of a fetcher by partition, so that waiting for one partition loses nothing of the others.
type collector struct {
	t   testing.TB
	f   *Fetcher
	got map[TopicPartition][]Fetched
}

func collect(t testing.TB, f *Fetcher) *collector {
	return &collector{t: t, f: f, got: map[TopicPartition][]Fetched{}}
}

// until polls until enough holds for the answers of a partition since the last call for it, and returns these.
func (c *collector) until(tp TopicPartition, enough func([]Fetched) bool) []Fetched {
	c.t.Helper()
	for ctx := testContext(c.t); !enough(c.got[tp]); {
		for _, r := range pollOne(ctx, c.t, c.f) {
			c.got[r.TopicPartition] = append(c.got[r.TopicPartition], r)
		}
	}
	all := c.got[tp]
	delete(c.got, tp)
	return all
}

// pollUntil is for tests in which only one partition matters.
func pollUntil(t testing.TB, f *Fetcher, tp TopicPartition, enough func([]Fetched) bool) []Fetched {
	t.Helper()
	return collect(t, f).until(tp, enough)
}

// until n records are there.
func records(n int) func([]Fetched) bool {
	return func(all []Fetched) bool {
		for _, r := range all {
			n -= len(r.Records)
		}
		return n <= 0
	}
}

// until the last answer is of a partition read to its end.
func drained(all []Fetched) bool {
	return len(all) > 0 && all[len(all)-1].Err == nil && all[len(all)-1].Next >= all[len(all)-1].End(ReadUncommitted)
}

func failed(all []Fetched) bool { return len(all) > 0 && all[len(all)-1].Err != nil }

func TestFetchTellsWhereItStands(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	topic := testTopic(t, c, "stands", 2)
	tp, empty := TopicPartition{topic, 0}, TopicPartition{topic, 1}
	produceByHand(t, c, tp, 5)
	if err := c.DeleteRecords(testContext(t), map[TopicPartition]int64{tp: 2}); err != nil {
		t.Fatal(err)
	}
	f := testFetcher(t, c, FetcherConfig{})
	all := collect(t, f)
	f.Set(tp, 3)
	f.Set(empty, 0)
	r := all.until(tp, records(1))
	got := r[len(r)-1]
	if len(got.Records) != 2 || got.Records[0].Offset != 3 || got.Records[1].Timestamp != handTime+4 || got.Next != 5 ||
		got.HighWatermark != 5 || got.LogStart != 2 || got.Err != nil {
		t.Errorf("fetched %+v", got)
	}
	// Without a new record, answers go on coming, and show that the partitions are drained.
	for _, tp := range []TopicPartition{tp, empty} {
		r := all.until(tp, drained)
		if last := r[len(r)-1]; len(last.Records) != 0 {
			t.Errorf("partition %s: %+v", tp, last)
		}
	}
}

// One answer is read ahead, not more, whatever there is to read.
func TestFetchReadsOneAnswerAhead(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	tp := TopicPartition{"orders", 0}
	for range 3 {
		produceByHand(t, c, tp, 10)
	}
	seen := cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders", Observe: true, Count: -1})
	f := testFetcher(t, c, FetcherConfig{PartitionMaxBytes: 1})
	f.Set(tp, 0)
	for want := int64(1); want <= 3; want++ {
		<-f.Ready()
		if hits := seen.Hits(); hits != int(want) {
			t.Errorf("%d fetches before poll %d", hits, want)
		}
		if r := f.Poll(); len(r) != 1 || len(r[0].Records) != 10 || r[0].Next != want*10 {
			t.Fatalf("poll %d: %+v", want, r)
		}
	}
}

func TestFetchSetStartsOver(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	tp := TopicPartition{testTopic(t, c, "starts-over", 1), 0}
	produceByHand(t, c, tp, 10)
	f := testFetcher(t, c, FetcherConfig{})
	f.Set(tp, 0)
	<-f.Ready() // an answer waits that begins at 0
	f.Set(tp, 7)
	if r := pollUntil(t, f, tp, records(1)); r[0].Records[0].Offset != 7 {
		t.Errorf("after Set(7) the first record is at %d", r[0].Records[0].Offset)
	}
	f.Set(tp, 2)
	if r := pollUntil(t, f, tp, records(1)); r[0].Records[0].Offset != 2 {
		t.Errorf("after Set(2) the first record is at %d", r[0].Records[0].Offset)
	}
	f.Remove(tp)
	produceByHand(t, c, tp, 1)
	other := TopicPartition{testTopic(t, c, "starts-over", 1), 0}
	f.Set(other, 0)
	for ctx, polls := testContext(t), 0; polls < 2; polls++ {
		for _, r := range pollOne(ctx, t, f) {
			if r.TopicPartition == tp {
				t.Errorf("an answer for the removed partition: %+v", r)
			}
		}
	}
}

func TestFetchPause(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	topic := testTopic(t, c, "pause", 2)
	paused, other := TopicPartition{topic, 0}, TopicPartition{topic, 1}
	f := testFetcher(t, c, FetcherConfig{MaxWait: 20 * time.Millisecond})
	f.Set(paused, 0)
	f.Set(other, 0)
	f.Pause(paused)
	produceByHand(t, c, paused, 1)
	produceByHand(t, c, other, 1)
	ctx := testContext(t)
	for answers := 0; answers < 5; { // while the other one goes round
		for _, r := range pollOne(ctx, t, f) {
			if r.TopicPartition == paused && len(r.Records) > 0 {
				t.Fatal("a paused partition was fetched")
			}
			answers++
		}
	}
	f.Resume(paused)
	pollUntil(t, f, paused, records(1))
}

// With a wait of minutes, nothing that is to be read may wait behind a partition that has nothing.
func TestFetchNeverWaitsBehindAnIdlePartition(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	topic := testTopic(t, c, "behind", 4)
	tp := func(i int32) TopicPartition { return TopicPartition{topic, i} }
	// Real brokers end a fetch at the connection's idle time; a test's deadline is far below that.
	f := testFetcher(t, c, FetcherConfig{MaxWait: time.Minute})
	got := collect(t, f)
	f.Set(tp(0), 0)
	f.Set(tp(1), 0)
	for _, i := range []int32{0, 1} {
		got.until(tp(i), drained)
	}
	// Both are now in a request that is held back. A third one begins behind, comes to its end and gets more.
	produceByHand(t, c, tp(2), 3)
	f.Set(tp(2), 0)
	got.until(tp(2), records(3))
	for range 5 {
		produceByHand(t, c, tp(2), 1)
		got.until(tp(2), records(1))
	}
	// And those in the held back request get theirs, each again after it was polled.
	for range 5 {
		for _, i := range []int32{0, 1, 2} {
			produceByHand(t, c, tp(i), 1)
			got.until(tp(i), records(1))
		}
	}
	// One that begins at its end.
	f.Set(tp(3), 0)
	got.until(tp(3), drained)
	produceByHand(t, c, tp(3), 1)
	got.until(tp(3), records(1))
}

// An answer without records does not keep its partition from being fetched: the owner may be slow to poll.
func TestFetchGoesOnWhileEmptyAnswersWait(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	tp := TopicPartition{testTopic(t, c, "empty", 1), 0}
	f := testFetcher(t, c, FetcherConfig{})
	f.Set(tp, 0)
	<-f.Ready()
	produceByHand(t, c, tp, 1)
	for ctx := testContext(t); ; {
		f.mu.Lock()
		have := len(f.results) == 1 && len(f.results[0].Records) == 1
		f.mu.Unlock()
		if have {
			break
		}
		select {
		case <-f.Ready():
		case <-ctx.Done():
			t.Fatal("the record was not fetched before the empty answer was polled")
		}
	}
	if r := f.Poll(); len(r) != 1 || len(r[0].Records) != 1 {
		t.Errorf("polled %+v", r)
	}
}

// An idle fetcher asks once in MaxWait, not more often.
func TestFetchIdlesQuietly(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(5, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	f := testFetcher(t, c, FetcherConfig{MaxWait: 100 * time.Millisecond})
	for i := range int32(5) {
		f.Set(TopicPartition{"orders", i}, 0)
	}
	got := collect(t, f)
	for i := range int32(5) {
		got.until(TopicPartition{"orders", i}, drained)
	}
	seen := cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders", Observe: true, Count: -1})
	start, answers := time.Now(), 0
	for ctx := testContext(t); answers < 5*5; {
		answers += len(pollOne(ctx, t, f))
	}
	most := int(time.Since(start)/(100*time.Millisecond)) + 3
	if hits := seen.Hits(); hits > most {
		t.Errorf("%d fetches in %s of idling, want %d at most", hits, time.Since(start), most)
	}
}

func TestFetchIsFair(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	const partitions, batches = 6, 8
	topic := testTopic(t, c, "fair", partitions)
	for i := range int32(partitions) {
		for range batches {
			produceByHand(t, c, TopicPartition{topic, i}, 20)
		}
	}
	// An answer holds one batch, or two.
	f := testFetcher(t, c, FetcherConfig{PartitionMaxBytes: 300, MaxBytes: 600})
	for i := range int32(partitions) {
		f.Set(TopicPartition{topic, i}, 0)
	}
	var read [partitions]int
	for ctx, total := testContext(t), 0; total < partitions*batches*20; {
		for _, r := range pollOne(ctx, t, f) {
			read[r.Partition] += len(r.Records)
			total += len(r.Records)
		}
		for i, n := range read {
			for j, m := range read {
				if n-m > 80 {
					t.Fatalf("partition %d is at %d while %d is at %d", i, n, j, m)
				}
			}
		}
	}
}

func TestFetchOutOfRange(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	tp := TopicPartition{testTopic(t, c, "range", 1), 0}
	produceByHand(t, c, tp, 5)
	if err := c.DeleteRecords(testContext(t), map[TopicPartition]int64{tp: 2}); err != nil {
		t.Fatal(err)
	}
	f := testFetcher(t, c, FetcherConfig{})
	for _, offset := range []int64{0, 99} {
		f.Set(tp, offset)
		r := pollUntil(t, f, tp, failed)
		err := r[len(r)-1].Err
		want := fmt.Sprintf("offset %d was asked for, the log holds 2 to 5", offset)
		if !errors.Is(err, OffsetOutOfRange) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), tp.String()) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	f.Set(tp, 2)
	pollUntil(t, f, tp, records(3))
}

func TestFetchRepeatsAfterCodes(t *testing.T) {
	for _, code := range []Code{UnknownTopicOrPartition, LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut, ReplicaNotAvailable,
		KafkaStorageError, FencedLeaderEpoch, UnknownLeaderEpoch, OffsetNotAvailable} {
		t.Run(fmt.Sprint(int(code)), func(t *testing.T) {
			cluster := brokertest.Embedded(t, brokertest.Topics(2, "orders"))
			c := testClient(t, brokertest.Bootstrap(cluster))
			bad, good := TopicPartition{"orders", 0}, TopicPartition{"orders", 1}
			produceByHand(t, c, bad, 1)
			produceByHand(t, c, good, 1)
			fault := cluster.Fault(brokertest.Fault{
				Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders", Partitions: []int32{0}, Err: brokertest.Code(int16(code)), Count: -1,
			})
			f := testFetcher(t, c, FetcherConfig{})
			f.Set(bad, 0)
			f.Set(good, 0)
			pollUntil(t, f, good, records(1))
			if err := fault.Wait(testContext(t), 3); err != nil {
				t.Fatal(err)
			}
			troubles := f.Troubles()
			if len(troubles) != 1 || troubles[0].TopicPartition != bad || !errors.Is(troubles[0].Err, code) || troubles[0].Since.IsZero() {
				t.Errorf("troubles %+v, want one of %s with %v", troubles, bad, code)
			}
			fault.Remove()
			r := pollUntil(t, f, bad, records(1))
			if failed(r) {
				t.Errorf("reported: %v", r[len(r)-1].Err)
			}
			if troubles := f.Troubles(); len(troubles) != 0 {
				t.Errorf("troubles after all went well: %+v", troubles)
			}
		})
	}
}

func TestFetchReportsLastingErrors(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	tp := TopicPartition{"orders", 0}
	produceByHand(t, c, tp, 1)
	f := testFetcher(t, c, FetcherConfig{})
	cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "orders", Err: brokertest.Code(int16(TopicAuthorizationFailed))})
	f.Set(tp, 0)
	r := pollUntil(t, f, tp, failed)
	if err := r[0].Err; !errors.Is(err, TopicAuthorizationFailed) || !strings.Contains(err.Error(), "Read on topic orders") {
		t.Errorf("error %v", err)
	}
	f.Set(tp, 0)
	pollUntil(t, f, tp, records(1))
}

// What comes before a damaged batch is delivered with the error.
func TestFetchReportsDamage(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	good := buildBatch(t, 0, Uncompressed, producerID{-1, -1}, false, []Record{{Value: []byte("good")}})
	bad := buildBatch(t, 1, Uncompressed, producerID{-1, -1}, false, []Record{{Value: []byte("bad")}})
	bad[len(bad)-2] ^= 0xff
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		part := kmsg.NewFetchResponseTopicPartition()
		part.HighWatermark, part.RecordBatches = 2, append(good, bad...)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.Partitions = "orders", append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	f := testFetcher(t, c, FetcherConfig{})
	f.Set(TopicPartition{"orders", 0}, 0)
	r := pollUntil(t, f, TopicPartition{"orders", 0}, failed)
	var corrupt *CorruptBatchError
	if !errors.As(r[0].Err, &corrupt) || corrupt.Offset != 1 || len(r[0].Records) != 1 || r[0].Next != 1 {
		t.Errorf("fetched %+v", r[0])
	}
}

func TestFetchRepeatsAfterNetworkErrors(t *testing.T) {
	for _, after := range []bool{false, true} {
		c := testClient(t, brokertest.Start(t))
		tp := TopicPartition{testTopic(t, c, "network", 1), 0}
		produceByHand(t, c, tp, 10)
		cut := &cutter{api: int16(kmsg.Fetch), after: after}
		cut.left.Store(3)
		cut.install(c)
		f := testFetcher(t, c, FetcherConfig{})
		f.Set(tp, 0)
		r := pollUntil(t, f, tp, records(10))
		if got := cut.losses.Load(); got != 3 || len(r[len(r)-1].Records) != 10 {
			t.Errorf("%d answers lost, last %+v", got, r[len(r)-1])
		}
	}
}

func TestFetchFollowsTheLeader(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Brokers(3), brokertest.Topics(3, "orders"))
	c := testClient(t, brokertest.Bootstrap(cluster))
	f := testFetcher(t, c, FetcherConfig{})
	got := collect(t, f)
	for i := range int32(3) {
		f.Set(TopicPartition{"orders", i}, 0)
	}
	for round := range 6 {
		for i := range int32(3) {
			produceByHand(t, c, TopicPartition{"orders", i}, 5)
		}
		for i := range int32(3) {
			got.until(TopicPartition{"orders", i}, func(all []Fetched) bool {
				return len(all) > 0 && all[len(all)-1].Next == int64(5*(round+1))
			})
			if err := cluster.MoveTopicPartition("orders", i, int32(round+int(i))%3); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Close does not wait for a fetch that the broker holds back.
func TestFetchCloseIsPrompt(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	tp := TopicPartition{testTopic(t, c, "prompt", 1), 0}
	f := c.NewFetcher(FetcherConfig{MaxWait: time.Hour})
	f.Set(tp, 0)
	pollUntil(t, f, tp, drained)
	closed := make(chan struct{})
	go func() { f.Close(); close(closed) }()
	select {
	case <-closed:
	case <-testContext(t).Done():
		t.Fatal("Close waits for the fetch")
	}
}

func TestFetchCommitted(t *testing.T) {
	c := testClient(t, brokertest.Start(t))
	tp := TopicPartition{testTopic(t, c, "committed", 1), 0}
	produceByHand(t, c, tp, 1)
	abort := openTransactionByHand(t, c, tp)
	produceByHand(t, c, tp, 1)
	f := testFetcher(t, c, FetcherConfig{Isolation: func(string) Isolation { return ReadCommitted }})
	f.Set(tp, 0)
	r := pollUntil(t, f, tp, func(all []Fetched) bool { return len(all) > 0 && all[len(all)-1].Next == 1 })
	if last := r[len(r)-1]; last.LastStable != 1 || last.HighWatermark != 3 || last.End(ReadCommitted) != 1 {
		t.Errorf("before the abort: %+v", last)
	}
	abort()
	r = pollUntil(t, f, tp, func(all []Fetched) bool { return len(all) > 0 && all[len(all)-1].Next == 4 })
	var offsets []int64
	for _, answer := range r {
		for _, rec := range answer.Records {
			offsets = append(offsets, rec.Offset)
		}
	}
	if fmt.Sprint(offsets) != "[2]" {
		t.Errorf("records at %v after the abort, want that at 2: 1 is aborted, 3 is the marker", offsets)
	}
}

func TestFetchOfAClosedClientEnds(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "orders"))
	c, err := New(context.Background(), Config{Seeds: cluster.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	f := testFetcher(t, c, FetcherConfig{})
	c.Close()
	f.Set(TopicPartition{"orders", 0}, 0)
	if r := pollUntil(t, f, TopicPartition{"orders", 0}, failed); !errors.Is(r[0].Err, ErrClosed) {
		t.Errorf("error %v, want %v", r[0].Err, ErrClosed)
	}
}
