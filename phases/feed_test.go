package phases

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/console"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/topology"
)

// A feed that was interrupted anywhere is completed: each event is there once, and events of another feed do not count for this one.
func TestFeedIsCompleted(t *testing.T) {
	bootstrap := brokertest.Bootstrap(brokertest.Embedded(t, brokertest.Topics(3, topology.OrdersPlaced)))
	client, err := kafka.New(t.Context(), kafka.Config{Seeds: strings.Split(bootstrap, ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i, o := range append(feed.Events(firstBase)[17:100], feed.Events(firstBase.Add(time.Hour))[:20]...) {
		if err := kafkatools.Send(t.Context(), client, o.Message(time.Now())); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	notAnOrder := kafka.Message{Topic: topology.OrdersPlaced, Partition: kafka.AnyPartition, Value: []byte("not an order")}
	if err := kafkatools.Send(t.Context(), client, notAnOrder); err != nil {
		t.Fatal(err)
	}
	r := &run{Config: Config{Console: console.New(console.Config{Out: io.Discard})}, conn: &connect.Conn{Client: client}}
	for range 2 { // the second finds all there
		if err := r.feed(t.Context(), firstBase); err != nil {
			t.Fatal(err)
		}
		times := map[event]int{}
		records := 0
		err = kafkatools.Read(t.Context(), client, kafkatools.ReadConfig{Topic: topology.OrdersPlaced}, func(_ int32, r *kafka.Record) error {
			records++
			if o, err := feed.DecodeOrder(r.Value); err == nil {
				times[event{o.OrderID, o.OccurredAt}]++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range feed.Events(firstBase) {
			if n := times[event{o.OrderID, o.OccurredAt}]; n != 1 {
				t.Errorf("%s is there %d times", o.OrderID, n)
			}
		}
		if want := feed.EventCount + 20 + 1; records != want {
			t.Errorf("%d records, want %d", records, want)
		}
	}
}
