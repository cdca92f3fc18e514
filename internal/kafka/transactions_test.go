package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

// Of two open transactions in a partition, the one that began first holds the last stable offset; it can be named, with its timeout.
func TestOldestTransaction(t *testing.T) {
	ctx, c := testContext(t), testClient(t, brokertest.Start(t))
	tp := TopicPartition{testTopic(t, c, "txn", 1), 0}
	if d, open, err := c.OldestTransaction(ctx, tp); open || err != nil {
		t.Fatalf("without any transaction: %+v, %t, error %v", d, open, err)
	}
	before := time.Now().Add(-time.Minute) // the broker's clock, and it may be another machine's
	var ids []string
	var open []*Producer
	for range 2 {
		ids = append(ids, unique(t, "txn"))
		p := testProducer(t, c, ProducerConfig{TransactionalID: ids[len(ids)-1], TransactionTimeout: 30 * time.Second})
		mustSend(t, p, Message{Topic: tp.Topic, Value: []byte("x")})
		mustFlush(t, p)
		open = append(open, p)
	}
	for i, id := range ids {
		d, found, err := c.OldestTransaction(ctx, tp)
		if err != nil || !found {
			t.Fatalf("transaction %d: found %t, error %v", i, found, err)
		}
		if d.ProducerEpoch < 0 || !slices.Equal(d.Partitions, []TopicPartition{tp}) {
			t.Errorf("epoch %d, partitions %v", d.ProducerEpoch, d.Partitions)
		}
		if d.ID != id || d.State != "Ongoing" || d.Timeout != 30*time.Second || d.Started.Before(before) {
			t.Errorf("oldest transaction %+v, want %s open", d, id)
		}
		list, err := c.ListTransactions(ctx)
		if err != nil || !slices.ContainsFunc(list, func(l TransactionListing) bool {
			return l.ID == id && l.State == "Ongoing" && l.ProducerID == d.ProducerID
		}) {
			t.Errorf("ListTransactions: %+v, error %v", list, err)
		}
		mustAbort(t, open[i])
		eventually(t, "the end of the transaction", func() bool {
			d, found, err := c.OldestTransaction(ctx, tp)
			return err == nil && (!found || d.ID != id)
		})
	}
}
