package topology_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// goodOrder is an order that is counted under s.
func goodOrder(n int) string {
	return fmt.Sprintf(`{"orderId":"o","storeId":"s","status":"PLACED","amount":5000,"occurredAt":%d}`, recordTime+n)
}

// With deserialization.exception.handler=fail a bad record ends the application with an error that says which one it is and why. What came
// before it is committed, it is not: so each start meets it again, until another handler is chosen, and nothing is counted twice.
func TestFailAtBadInput(t *testing.T) {
	const (
		future  = `{"orderId":"o","storeId":"s","status":"PLACED","amount":5000,"occurredAt":4102444800000}`
		noStore = `{"orderId":"o","status":"PLACED","amount":5000,"occurredAt":1789207200000}`
	)
	tests := map[string]struct {
		topic, key, value string
		timestamp         int64
		says              []string
		decoded           bool // so that what follows it may have been processed too
	}{
		"no order":     {topology.OrdersPlaced, "k", noStore, recordTime, []string{"value cannot be decoded", "storeId: missing field"}, false},
		"null value":   {topology.OrdersPlaced, "k", null, recordTime, []string{"timestamp cannot be extracted", "empty value"}, false},
		"no timestamp": {topology.OrdersStatus, "k", "PAID", -1, []string{"negative timestamp", "timestamp -1"}, false},
		"key too large": {
			topology.OrdersStatus, strings.Repeat("k", 40_000), "PAID", recordTime, []string{"key too large for a store", "40000 bytes"}, false,
		},
		"refused by a broker": {topology.OrdersPlaced, "q", future, recordTime, []string{"output refused by the broker", "-repartition", "made of"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := badInputLab(t)
			l.config.ErrorHandler = streams.FailOnError
			bad := kafka.TopicPartition{Topic: l.prefix + tt.topic, Partition: 1}
			message := func(topic, key, value string, ts int64) kafka.Message {
				m := kafka.Message{Topic: l.prefix + topic, Partition: 1, Timestamp: ts, Key: []byte(key), Value: []byte(value)}
				if value == null {
					m.Value = nil
				}
				return m
			}
			l.produce(
				message(topology.OrdersPlaced, "k", goodOrder(1), recordTime), message(topology.OrdersPlaced, "k", goodOrder(2), recordTime),
				message(topology.OrdersStatus, "j", "PAID", recordTime-1), message(topology.OrdersStatus, "k", "PAID", recordTime-1),
				message(tt.topic, tt.key, tt.value, tt.timestamp),
				message(topology.OrdersPlaced, "k", goodOrder(3), recordTime),
			)
			for run := range 2 {
				_, done := l.run(topology.Hooks{}, streams.Listener{})
				var err error
				select {
				case err = <-done:
				case <-l.ctx.Done():
					t.Fatal("still running")
				}
				if err == nil {
					t.Fatal("no error")
				}
				for _, want := range append(tt.says, "topic "+bad.Topic, "partition 1", "offset 2") {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("run %d: the error lacks %q: %s", run, want, short(err.Error()))
					}
				}
				var record *streams.RecordError
				var refused *streams.OutputRefusedError
				if !errors.As(err, &record) && !errors.As(err, &refused) {
					t.Errorf("run %d: error of type %T", run, err)
				}
				committed, err := l.client.CommittedOffsets(l.ctx, l.config.ApplicationID, []kafka.TopicPartition{bad})
				if err != nil {
					t.Fatal(err)
				}
				if got := committed[bad].Offset; got != 2 {
					t.Errorf("run %d: committed up to %d, want up to the bad record, 2", run, got)
				}
			}
			l.config.ErrorHandler = streams.DeadLetters
			stop := l.start(topology.Hooks{}, streams.Listener{})
			l.awaitLag()
			stop()
			count := last(l.read(l.prefix + topology.OrdersPerStore))["s"].Value
			if count != "3" && !tt.decoded {
				t.Errorf("counted %s, want 3: each good order once", count)
			}
			if n, err := strconv.Atoi(count); err != nil || n < 3 {
				t.Errorf("counted %s of 3", count)
			}
			dead := l.records(l.config.ApplicationID + "-dead-letters")
			if len(dead) != 1 || string(dead[0].Key) != tt.key {
				t.Errorf("%d dead letters, want that one", len(dead))
			}
		})
	}
}

// null is a value that there is none of.
const null = "\x00null"

func (l *lab) produce(messages ...kafka.Message) {
	l.t.Helper()
	p, err := l.client.NewProducer(l.ctx, kafka.ProducerConfig{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, m := range messages {
		if err := p.Send(l.ctx, m); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := p.Close(l.ctx); err != nil {
		l.t.Fatal(err)
	}
}

// An instance is killed with SIGKILL again and again in the middle of good and bad records. Each good one is counted and each bad one is a
// dead letter, at least once; none is both.
func TestKilledInstanceLosesNoBadRecord(t *testing.T) {
	const rounds, perRound = 8, 4000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	// Each offset commit succeeds at the second try only, so that many kills fall between a dead letter and the commit behind it.
	cluster := brokertest.Embedded(t)
	tries := 0
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if tries++; tries%2 == 0 {
			return nil, nil, false
		}
		resp := kreq.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, rt := range kreq.(*kmsg.OffsetCommitRequest).Topics {
			topic := kmsg.NewOffsetCommitResponseTopic()
			topic.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				part := kmsg.NewOffsetCommitResponseTopicPartition()
				part.Partition, part.ErrorCode = rp.Partition, int16(kafka.CoordinatorLoadInProgress)
				topic.Partitions = append(topic.Partitions, part)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	l := newLabOn(t, brokertest.Bootstrap(cluster), "", topology.ApplicationID)
	want, bad := map[string]int64{}, map[string]bool{}
	next := map[int32]int64{}
	for round := range rounds {
		i := startInstance(t, l.config.Bootstrap[0], l.config.StateDir)
		messages := make([]kafka.Message, perRound)
		for n := range messages {
			o := feed.Order{OrderID: fmt.Sprintf("ord-%d-%d", round, n), StoreID: fmt.Sprint("store-", 17+rng.IntN(6)), Status: feed.Placed,
				Amount: 5000, OccurredAt: recordTime + int64(round*perRound+n)}
			m := o.Message(time.Now())
			m.Partition = kafka.PartitionFor(m.Key, topology.Partitions)
			if rng.IntN(5) == 0 {
				m.Value = m.Value[:len(m.Value)-1]
				bad[fmt.Sprintf("%d %d", m.Partition, next[m.Partition])] = true
			} else {
				want[o.StoreID]++
			}
			next[m.Partition]++
			messages[n] = m
		}
		i.await("state RUNNING", 1)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for len(messages) > 0 {
				l.produce(messages[:100]...)
				messages = messages[100:]
			}
		}()
		i.await("commit", 1+rng.IntN(4))
		<-time.After(time.Duration(rng.IntN(60_000)) * time.Microsecond) // any moment will do
		if err := i.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		i.drain()
		_ = i.cmd.Wait() // it was killed
		<-sent
		l.removeMembers()
	}
	i := startInstance(t, l.config.Bootstrap[0], l.config.StateDir)
	i.await("state RUNNING", 1)
	l.awaitLag()
	if err := i.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	i.drain()
	if err := i.cmd.Wait(); err != nil {
		t.Errorf("clean stop: %v", err)
	}

	dead, letters := map[string]bool{}, l.records(topology.ApplicationID+"-dead-letters")
	for _, r := range letters {
		values := map[string]string{}
		for _, h := range r.Headers {
			values[h.Key] = string(h.Value)
		}
		if values[streams.HeaderErrorTopic] != topology.OrdersPlaced {
			t.Errorf("a dead letter of topic %s", values[streams.HeaderErrorTopic])
		}
		dead[values[streams.HeaderErrorPartition]+" "+values[streams.HeaderErrorOffset]] = true
	}
	if diff := cmp.Diff(bad, dead); diff != "" {
		t.Errorf("records among the dead letters (-bad +dead):\n%s", diff)
	}
	replayed := l.countedAgain(want)
	t.Logf("%d records, %d bad, %d kills; %d counted again, %d dead letters written again",
		rounds*perRound, len(bad), rounds, replayed, len(letters)-len(bad))
}
