package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// One order of the year 2100 closed the minutes of all that came after it, since the embedded broker took what Kafka refuses.
func TestFutureTimestamps(t *testing.T) {
	cfg := workspace(t)
	r := up(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	tr := &kafka.Transport{}
	defer tr.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(r.Bootstrap), Transport: tr}
	if _, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: "t", NumPartitions: 2, ReplicationFactor: 1}},
	}); err != nil {
		t.Fatal(err)
	}
	year2100 := time.UnixMilli(4102444800000)
	for _, tt := range []struct {
		name      string
		partition int
		times     []time.Time
		refused   bool
	}{
		{"an hour ahead", 0, []time.Time{time.Now().Add(time.Hour - time.Minute)}, false},
		{"more than that", 0, []time.Time{time.Now().Add(time.Hour + time.Minute)}, true},
		{"one of three", 1, []time.Time{time.Now(), year2100, time.Now()}, true},
		{"long ago", 0, []time.Time{time.UnixMilli(1000)}, false},
		{"after all that", 1, []time.Time{time.Now()}, false},
	} {
		var records []kafka.Record
		for _, at := range tt.times {
			records = append(records, kafka.Record{Time: at, Value: kafka.NewBytes([]byte("v"))})
		}
		got, err := client.Produce(ctx, &kafka.ProduceRequest{
			Topic: "t", Partition: tt.partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
		})
		if err == nil {
			err = got.Error
		}
		if refused := errors.Is(err, kafka.InvalidTimestamp); refused != tt.refused || err != nil && !refused {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	ends, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{"t": {kafka.LastOffsetOf(0), kafka.LastOffsetOf(1)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ends.Topics["t"] {
		if want := map[int]int64{0: 2, 1: 1}[p.Partition]; p.LastOffset != want {
			t.Errorf("partition %d ends at %d, want %d", p.Partition, p.LastOffset, want)
		}
	}
}
