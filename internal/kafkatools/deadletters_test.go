package kafkatools_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/streams"
)

func deadLetter(topic string, offset, kind, message string, key, value []byte, own ...kafka.Header) kafka.Message {
	return kafka.Message{Topic: topic, Timestamp: 5, Key: key, Value: value, Headers: append(own,
		kafka.Header{Key: streams.HeaderErrorException, Value: []byte(kind)},
		kafka.Header{Key: streams.HeaderErrorMessage, Value: []byte(message)},
		kafka.Header{Key: streams.HeaderErrorTopic, Value: []byte("orders.placed")},
		kafka.Header{Key: streams.HeaderErrorPartition, Value: []byte("2")},
		kafka.Header{Key: streams.HeaderErrorOffset, Value: []byte(offset)},
		kafka.Header{Key: streams.HeaderErrorTimestamp, Value: []byte("1789207200000")},
	)}
}

func TestDeadLetters(t *testing.T) {
	c, application := client(t, 1) // the topic of the application's name is of no use here
	topic := kafkatools.DeadLetters(application)
	if counts, err := kafkatools.CountDeadLetters(t.Context(), c, application); err != nil || len(counts) != 0 {
		t.Fatalf("without a topic: %v, %v", counts, err)
	}
	if _, err := c.CreateTopics(t.Context(), []kafka.TopicSpec{{Name: topic, Partitions: 1, Replication: -1}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.DeleteTopics(context.Background(), topic); err != nil {
			t.Error(err)
		}
	})
	send(t, c,
		deadLetter(topic, "13", "value cannot be decoded: unknown status", "field status", []byte("k"), []byte(`{"a":"ž"}`)),
		deadLetter(topic, "14", "value cannot be decoded: truncated", "at\tbyte 3", nil, []byte("\x1b[31m\xff\n")),
		deadLetter(topic, "13", "value cannot be decoded: unknown status", "field status", []byte("k"), []byte(`{"a":"ž"}`)), // after a crash
		deadLetter(topic, "15", "value cannot be decoded: truncated", "", []byte{}, nil,
			kafka.Header{Key: streams.HeaderErrorOffset, Value: []byte("7")}), // the record brought that
		kafka.Message{Topic: topic, Timestamp: 9, Key: []byte("k"), Value: []byte("by hand")},
	)
	plain := dump(t, c, kafkatools.DumpConfig{ReadConfig: kafkatools.ReadConfig{Topic: topic}, Decode: true, PrintKey: true})
	at := " timestamp 1789207200000 (2026-09-12T10:00:00Z)\t"
	want := strings.Join([]string{
		"orders.placed-2 offset 13" + at + "value cannot be decoded: unknown status\tfield status\tkey \"k\"\tvalue " + `"{\"a\":\"ž\"}"`,
		"orders.placed-2 offset 14" + at + "value cannot be decoded: truncated\t" + `at\tbyte 3` + "\tkey null\tvalue " + `"\x1b[31m\xff\n"`,
		"orders.placed-2 offset 13" + at + "value cannot be decoded: unknown status\tfield status\tkey \"k\"\tvalue " + `"{\"a\":\"ž\"}"`,
		"orders.placed-2 offset 15" + at + "value cannot be decoded: truncated\t\tkey \"\"\tvalue null",
		"k\tby hand", "",
	}, "\n")
	if diff := cmp.Diff(want, plain); diff != "" {
		t.Errorf("plain (-want +got):\n%s", diff)
	}
	first, _, _ := strings.Cut(dump(t, c, kafkatools.DumpConfig{ReadConfig: kafkatools.ReadConfig{Topic: topic}, Decode: true, JSON: true}), "\n")
	var row struct {
		DeadLetter kafkatools.DeadLetter `json:"dead_letter"`
	}
	if err := json.Unmarshal([]byte(first), &row); err != nil {
		t.Fatal(err)
	}
	wantRow := kafkatools.DeadLetter{
		Topic: "orders.placed", Partition: 2, Offset: 13, Timestamp: 1789207200000,
		Kind: "value cannot be decoded: unknown status", Message: "field status",
	}
	if diff := cmp.Diff(wantRow, row.DeadLetter); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	counts, err := kafkatools.CountDeadLetters(t.Context(), c, application)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts := []kafkatools.KindCount{
		{Kind: "value cannot be decoded: truncated", Records: 2}, {Kind: "not a dead letter", Records: 1},
		{Kind: "value cannot be decoded: unknown status", Records: 1},
	}
	if diff := cmp.Diff(wantCounts, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
