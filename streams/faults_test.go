package streams_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
)

// Each error that a broker can give to the requests of a transaction strikes an instance at work, once. Whatever it does about it, and
// whether the broker had carried the request out or not, each word is counted exactly once, and the instance goes on by itself.
func TestExactlyOnceOutlastsErrors(t *testing.T) {
	for _, tc := range []struct {
		request kmsg.Key
		codes   []kafka.Code
	}{
		{kmsg.Produce, []kafka.Code{kafka.UnknownTopicOrPartition, kafka.NotLeaderOrFollower, kafka.NotEnoughReplicas, kafka.InvalidProducerEpoch,
			kafka.InvalidTxnState, kafka.ProducerFenced, kafka.ConcurrentTransactions, kafka.OutOfOrderSequence, kafka.UnknownProducerID,
			kafka.TransactionAbortable, kafka.RequestTimedOut}},
		{kmsg.TxnOffsetCommit, []kafka.Code{kafka.CoordinatorLoadInProgress, kafka.CoordinatorNotAvailable, kafka.NotCoordinator,
			kafka.IllegalGeneration, kafka.UnknownMemberID, kafka.RebalanceInProgress, kafka.InvalidProducerEpoch, kafka.ProducerFenced}},
		{kmsg.EndTxn, []kafka.Code{kafka.CoordinatorLoadInProgress, kafka.NotCoordinator, kafka.ConcurrentTransactions, kafka.InvalidProducerEpoch,
			kafka.InvalidTxnState, kafka.InvalidProducerIDMapping, kafka.ProducerFenced}},
		{kmsg.OffsetFetch, []kafka.Code{kafka.UnstableOffsetCommit, kafka.NotCoordinator}},
	} {
		for _, code := range tc.codes {
			t.Run(fmt.Sprintf("%s/%d", tc.request.Name(), int16(code)), func(t *testing.T) {
				t.Parallel()
				cluster := brokertest.Embedded(t)
				c := newCountingOn(t, brokertest.Bootstrap(cluster))
				c.guarantee = streams.ExactlyOnce
				r := start(t, c.topology(), c.config())
				r.await(streams.StateRunning)
				c.send("a", "b", "a")
				c.awaitCounts(map[string]string{"a": "2", "b": "1"})
				f := brokertest.Fault{Keys: []kmsg.Key{tc.request}, Err: brokertest.Code(int16(code))}
				if tc.request == kmsg.Produce { // the application's, not this test's
					f.Topic = c.app + "-words-repartition"
				}
				fault := cluster.Fault(f)
				if tc.request == kmsg.OffsetFetch { // is asked for at a start
					if err := r.end(); err != nil {
						t.Fatal(err)
					}
					r = start(t, c.topology(), c.config())
				}
				c.send("a", "b", "c", "a")
				c.awaitCounts(map[string]string{"a": "4", "b": "2", "c": "1"})
				if fault.Hits() == 0 {
					t.Error("the error never came")
				}
				c.send("c")
				c.awaitCounts(map[string]string{"a": "4", "b": "2", "c": "2"})
				if err := r.end(); err != nil {
					t.Errorf("clean stop: %v", err)
				}
			})
		}
	}
}

// A principal that may not delete records was warned once, and its repartition topics grew until a disk was full.
func TestPurgeThatIsForbidden(t *testing.T) {
	cluster := brokertest.Embedded(t)
	c := newCountingOn(t, brokertest.Bootstrap(cluster))
	cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.DeleteRecords}, Err: brokertest.Code(int16(kafka.TopicAuthorizationFailed)), Count: -1})
	cfg := c.config()
	cfg.CommitInterval, cfg.RepartitionPurgeInterval = 20*time.Millisecond, 20*time.Millisecond
	r := start(t, c.topology(), cfg)
	r.await(streams.StateRunning)
	c.send("a", "b", "a")
	err := r.wait()
	if !kafka.IsUnauthorized(err) || !strings.Contains(err.Error(), "grant this principal Delete on topic "+c.app+"-words-repartition") {
		t.Errorf("ended with %v", err)
	}
}

// An application without internal topics asked the broker for the configs of none by name, which is to ask for all of the cluster's: on a
// shared cluster it failed when somebody else's topic was deleted at that moment.
func TestForeignTopicsAreNotAskedFor(t *testing.T) {
	cluster := brokertest.Embedded(t)
	c := newCountingOn(t, brokertest.Bootstrap(cluster))
	b := streams.NewBuilder()
	text := streams.Text()
	streams.Consume(b, c.in, text, text).Filter(func(_, word string) bool { return word != "" }).To(c.out, text, text)
	top, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: brokertest.Code(int16(kafka.UnknownTopicOrPartition)), Count: -1})
	r := start(t, top, c.config())
	r.await(streams.StateRunning)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}
