package feed

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The topic's name is the lab's, so this runs on a broker of its own and never on a shared one.
func TestPublish(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fake := brokertest.Embedded(t, brokertest.Topics(3, OrdersPlaced))
	client, err := kafka.New(ctx, kafka.Config{Seeds: fake.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	before := time.Now().UnixMilli()
	sent := 0
	if err := Publish(ctx, client, base, func(n int) { sent = n }); err != nil {
		t.Fatal(err)
	}
	if sent != EventCount {
		t.Errorf("progress came to %d", sent)
	}

	// As the Java program's producer does, each event goes to the partition of its key, in the order of the feed.
	want := map[int32][]published{}
	for _, p := range readPublished(t) {
		want[p.partition] = append(want[p.partition], p)
	}
	got := map[int32][]published{}
	fetcher := client.NewFetcher(kafka.FetcherConfig{})
	defer fetcher.Close()
	for p := range int32(3) {
		fetcher.Set(kafka.TopicPartition{Topic: OrdersPlaced, Partition: p}, 0)
	}
	for n := 0; n < EventCount; {
		select {
		case <-ctx.Done():
			t.Fatalf("read %d events: %v", n, ctx.Err())
		case <-fetcher.Ready():
		}
		for _, f := range fetcher.Poll() {
			if f.Err != nil {
				t.Fatal(f.Err)
			}
			for _, r := range f.Records {
				n++
				got[f.Partition] = append(got[f.Partition], published{f.Partition, string(r.Key), string(r.Value)})
				if r.Timestamp < before || r.Timestamp > time.Now().UnixMilli() {
					t.Errorf("%s has timestamp %d, want the time of sending", r.Key, r.Timestamp)
				}
			}
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(published{})); diff != "" {
		t.Error(diff)
	}
}

func TestPublishRefusesABaseOffTheMinute(t *testing.T) {
	err := Publish(context.Background(), nil, base.Add(time.Second), nil)
	var e *BaseError
	if !errors.As(err, &e) || !errors.Is(err, ErrOffBoundary) || !e.Nearest.Equal(base) {
		t.Errorf("%v", err)
	}
}

func TestPublishToATopicThatIsNotThere(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := kafka.New(ctx, kafka.Config{Seeds: brokertest.Embedded(t).ListenAddrs(), RetryTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := Publish(ctx, client, base, nil); !errors.Is(err, kafka.UnknownTopicOrPartition) {
		t.Errorf("%v", err)
	}
}
