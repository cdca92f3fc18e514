package kafkatools_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a client of a broker with a topic of the test's own.
func client(t *testing.T, partitions int32) (*kafka.Client, string) {
	t.Helper()
	c, err := kafka.New(t.Context(), kafka.Config{Seeds: strings.Split(brokertest.Start(t), ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	topic := "kafkatools-" + strings.ToLower(t.Name()) + "-" + time.Now().Format("150405.000000")
	if _, err := c.CreateTopics(t.Context(), []kafka.TopicSpec{{Name: topic, Partitions: partitions, Replication: -1}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.DeleteTopics(context.Background(), topic); err != nil {
			t.Error(err)
		}
	})
	return c, topic
}

func send(t *testing.T, c *kafka.Client, messages ...kafka.Message) {
	t.Helper()
	for _, m := range messages {
		if err := kafkatools.Send(t.Context(), c, m); err != nil {
			t.Fatal(err)
		}
	}
}

func dump(t *testing.T, c *kafka.Client, cfg kafkatools.DumpConfig) string {
	t.Helper()
	var out strings.Builder
	if err := kafkatools.Dump(t.Context(), c, cfg, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestDumpForms(t *testing.T) {
	c, topic := client(t, 1)
	send(t, c,
		kafka.Message{Topic: topic, Timestamp: 1, Key: []byte("b"), Value: []byte("1")},
		kafka.Message{Topic: topic, Timestamp: 2, Key: []byte("a"), Value: nil},
		kafka.Message{Topic: topic, Timestamp: 3, Key: nil, Value: []byte{}},
		kafka.Message{Topic: topic, Timestamp: 4, Key: []byte("b"), Value: []byte{0xff}, Headers: []kafka.Header{{Key: "h", Value: []byte("x")}, {Key: "n"}}},
	)
	read := kafkatools.ReadConfig{Topic: topic}
	tests := map[string]struct {
		cfg  kafkatools.DumpConfig
		want string
	}{
		"values": {kafkatools.DumpConfig{ReadConfig: read}, "1\nnull\n\n\xff\n"},
		"keys":   {kafkatools.DumpConfig{ReadConfig: read, PrintKey: true}, "b\t1\na\tnull\nnull\t\nb\t\xff\n"},
		"last":   {kafkatools.DumpConfig{ReadConfig: read, Last: true}, "a\tnull\nb\t\xff\nnull\t\n"},
		"json": {
			kafkatools.DumpConfig{ReadConfig: read, JSON: true},
			`{"partition":0,"offset":0,"timestamp":1,"key":"b","value":"1"}` + "\n" +
				`{"partition":0,"offset":1,"timestamp":2,"key":"a","value":null}` + "\n" +
				`{"partition":0,"offset":2,"timestamp":3,"key":null,"value":""}` + "\n" +
				`{"partition":0,"offset":3,"timestamp":4,"key":"b","value":null,"value_hex":"ff",` +
				`"headers":[{"key":"h","value":"x"},{"key":"n","value":null}]}` + "\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, dump(t, c, tt.cfg)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What an aborted transaction wrote is there for a reader of uncommitted records only, and the markers for one who decodes.
func TestDumpOfTransactions(t *testing.T) {
	c, topic := client(t, 1)
	p, err := c.NewProducer(t.Context(), kafka.ProducerConfig{TransactionalID: topic})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for _, step := range []struct {
		value string
		end   func() error
	}{
		{"kept", func() error { return p.Commit(t.Context(), nil, kafka.GroupMeta{}) }},
		{"dropped", func() error { return p.Abort(t.Context()) }},
		{"kept too", func() error { return p.Commit(t.Context(), nil, kafka.GroupMeta{}) }},
		{"not decided", func() error { return nil }},
	} {
		if err := p.Send(t.Context(), kafka.Message{Topic: topic, Key: []byte("k"), Value: []byte(step.value)}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Flush(t.Context()), step.end()); err != nil {
			t.Fatal(err)
		}
	}
	committed := kafkatools.ReadConfig{Topic: topic, Isolation: kafka.ReadCommitted}
	if got, want := dump(t, c, kafkatools.DumpConfig{ReadConfig: committed}), "kept\nkept too\n"; got != want {
		t.Errorf("committed: got %q, want %q", got, want)
	}
	all := kafkatools.ReadConfig{Topic: topic}
	if got, want := dump(t, c, kafkatools.DumpConfig{ReadConfig: all}), "kept\ndropped\nkept too\nnot decided\n"; got != want {
		t.Errorf("uncommitted: got %q, want %q", got, want)
	}
	want := "kept\n# COMMIT marker partition=0 offset=1\n# ABORTED partition=0 offset=2: dropped\n# ABORT marker partition=0 offset=3\n" +
		"kept too\n# COMMIT marker partition=0 offset=5\n# OPEN partition=0 offset=6: not decided\n"
	if got := dump(t, c, kafkatools.DumpConfig{ReadConfig: all, Decode: true}); got != want {
		t.Errorf("decoded: got %q, want %q", got, want)
	}
	object := dump(t, c, kafkatools.DumpConfig{ReadConfig: all, Decode: true, JSON: true})
	if !strings.Contains(object, `"value":"dropped","hidden":"ABORTED"}`) || strings.Count(object, "hidden") != 2 {
		t.Errorf("as JSON: %s", object)
	}

	parts, err := kafkatools.History(t.Context(), c, topic)
	if err != nil || len(parts) != 4 {
		t.Fatalf("history %+v, %v", parts, err)
	}
	for i, w := range []kafkatools.Part{
		{Outcome: "COMMIT", First: 0, Last: 0, Records: 1, Marker: 1},
		{Outcome: "ABORT", First: 2, Last: 2, Records: 1, Marker: 3},
		{Outcome: "COMMIT", First: 4, Last: 4, Records: 1, Marker: 5},
		{Outcome: "OPEN", First: 6, Last: 6, Records: 1, Marker: -1},
	} {
		got := parts[i]
		if got.ProducerID < 0 || got.Epoch < 0 || got.Ended.IsZero() != (w.Marker < 0) {
			t.Errorf("part %d: %+v", i, got)
		}
		w.TopicPartition, w.ProducerID, w.Epoch, w.Ended = kafka.TopicPartition{Topic: topic}, got.ProducerID, got.Epoch, got.Ended
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("part %d: %s", i, diff)
		}
	}
	var list, description strings.Builder
	if err := kafkatools.WriteTransactions(t.Context(), c, &list); err != nil || !strings.Contains(list.String(), topic) {
		t.Errorf("list %q, %v", list.String(), err)
	}
	if err := kafkatools.WriteTransaction(t.Context(), c, topic, &description); err != nil || !strings.Contains(description.String(), topic+"-0") {
		t.Errorf("description %q, %v", description.String(), err)
	}
	if err := p.Abort(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDecodeByTheTopicsName(t *testing.T) {
	c, _ := client(t, 1)
	names := []string{"kt-orders-per-store-changelog", "kt-orders-per-store-minute-changelog"}
	for _, name := range names {
		if _, err := c.CreateTopics(t.Context(), []kafka.TopicSpec{{Name: name, Partitions: 1, Replication: -1}}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := c.DeleteTopics(context.Background(), names...); err != nil {
			t.Error(err)
		}
	})
	fifty := binary.BigEndian.AppendUint64(nil, 50)
	send(t, c,
		kafka.Message{Topic: names[0], Key: []byte("store-17"), Value: fifty},
		kafka.Message{Topic: names[1], Key: store.WindowKey(nil, []byte("store-17"), 1789207200000), Value: fifty},
	)
	for i, want := range []string{"store-17\t50\n", "store-17|2026-09-12T10:00:00Z\t50\n"} {
		cfg := kafkatools.DumpConfig{ReadConfig: kafkatools.ReadConfig{Topic: names[i]}, PrintKey: true, Decode: true}
		if got := dump(t, c, cfg); got != want {
			t.Errorf("%s: got %q, want %q", names[i], got, want)
		}
	}
}

func TestTailStartsAtTheEnd(t *testing.T) {
	c, topic := client(t, 2)
	send(t, c, kafka.Message{Topic: topic, Partition: 1, Value: []byte("old")})
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	ready := make(chan struct{})
	var got []string
	done := make(chan error)
	go func() {
		cfg := kafkatools.ReadConfig{Topic: topic, Tail: true, Follow: true, Ready: func() { close(ready) }}
		done <- kafkatools.Read(ctx, c, cfg, func(_ int32, r *kafka.Record) error {
			got = append(got, string(r.Value))
			stop()
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	send(t, c, kafka.Message{Topic: topic, Partition: 1, Value: []byte("new")})
	if err := <-done; err != nil { // being stopped is no error
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"new"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownTopicNamesTheNearest(t *testing.T) {
	c, topic := client(t, 1)
	err := kafkatools.Read(t.Context(), c, kafkatools.ReadConfig{Topic: topic + "x"}, nil)
	var unknown *kafkatools.UnknownTopicError
	if !errors.As(err, &unknown) || unknown.Nearest != topic {
		t.Errorf("got %v, want %s as the nearest", err, topic)
	}
}

func TestLagCountsWhatWasNeverCommitted(t *testing.T) {
	c, topic := client(t, 2)
	group := topic
	want := func(want int64) {
		t.Helper()
		got, err := kafkatools.Lag(t.Context(), c, group, topic)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("lag %d, want %d", got, want)
		}
	}
	want(0)
	record := kafka.Message{Topic: topic, Value: []byte("x")}
	send(t, c, record, record, record)
	want(3)
	tp := kafka.TopicPartition{Topic: topic}
	offsets := map[kafka.TopicPartition]kafka.Offset{tp: {Offset: 2, LeaderEpoch: -1}}
	if err := c.CommitOffsets(t.Context(), kafka.GroupMeta{Group: group, Generation: -1}, offsets); err != nil {
		t.Fatal(err)
	}
	want(1)
}

// A group's coordinator is one of the brokers, with the address that clients get. A group that does not exist has no state to show.
func TestGroupStateNamesTheCoordinator(t *testing.T) {
	c, topic := client(t, 1)
	offsets := map[kafka.TopicPartition]kafka.Offset{{Topic: topic}: {Offset: 0, LeaderEpoch: -1}}
	if err := c.CommitOffsets(t.Context(), kafka.GroupMeta{Group: topic, Generation: -1}, offsets); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.DeleteGroups(context.Background(), topic); err != nil {
			t.Error(err)
		}
	})
	node, err := c.Coordinator(t.Context(), kafka.GroupCoordinator(topic))
	if err != nil {
		t.Fatal(err)
	}
	brokers, _, _, err := c.Brokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(brokers, func(b kafka.Broker) bool { return b.ID == node })
	if i < 0 {
		t.Fatalf("the coordinator is broker %d, and there are %v", node, brokers)
	}
	var out strings.Builder
	if err := kafkatools.WriteGroupState(t.Context(), c, topic, &out); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s:%d (%d) - Empty 0", brokers[i].Host, brokers[i].Port, node)
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.HasSuffix(got, topic+" "+want) {
		t.Errorf("got %q, want it to end with %q", got, want)
	}
	if err := kafkatools.WriteGroupState(t.Context(), c, topic+"-none", &out); err == nil {
		t.Error("a group that does not exist is described")
	}
}
