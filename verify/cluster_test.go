package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

// testDeadline bounds what a test waits for.
const testDeadline = 60 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	t.Cleanup(cancel)
	return ctx
}

func testClient(t testing.TB, bootstrap string, cfg kafka.Config) *kafka.Client {
	t.Helper()
	cfg.Seeds = strings.Split(bootstrap, ",")
	c, err := kafka.New(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// load writes what is in memory to a cluster, byte for byte and in the same partitions and order.
func load(t testing.TB, c *kafka.Client, m *memory) {
	t.Helper()
	ctx := testContext(t)
	var specs []kafka.TopicSpec
	for _, name := range slices.Sorted(maps.Keys(m.topics)) {
		topic := m.topics[name]
		spec := kafka.TopicSpec{Name: name, Partitions: int32(len(topic.parts)), Replication: -1}
		for _, key := range slices.Sorted(maps.Keys(topic.configs)) {
			spec.Configs = append(spec.Configs, kafka.ConfigEntry{Name: key, Value: topic.configs[key]})
		}
		if topic.configs["retention.ms"] == "" {
			spec.Configs = append(spec.Configs, kafka.ConfigEntry{Name: "retention.ms", Value: "-1"})
		}
		specs = append(specs, spec)
	}
	if _, err := c.CreateTopics(ctx, specs); err != nil {
		t.Fatal(err)
	}
	p := producer(t, c, "")
	for _, spec := range specs {
		for n, part := range m.topics[spec.Name].parts {
			for _, r := range part.records {
				if err := p.Send(ctx, kafka.Message{Topic: spec.Name, Partition: int32(n), Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	committed := map[kafka.TopicPartition]kafka.Offset{}
	for tp, o := range m.committed {
		committed[tp] = kafka.Offset{Offset: o, LeaderEpoch: -1}
	}
	if err := c.CommitOffsets(ctx, kafka.GroupMeta{Group: m.group, Generation: -1}, committed); err != nil {
		t.Fatal(err)
	}
}

func producer(t testing.TB, c *kafka.Client, transactionalID string) *kafka.Producer {
	t.Helper()
	p, err := c.NewProducer(testContext(t), kafka.ProducerConfig{TransactionalID: transactionalID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("closing the producer: %v", err)
		}
	})
	return p
}

func TestGoldenPassesOnABroker(t *testing.T) {
	c := testClient(t, brokertest.Bootstrap(brokertest.Embedded(t)), kafka.Config{})
	load(t, c, golden(t))
	r, err := Run(testContext(t), c, Options{})
	if err != nil || r.Verdict() != Pass {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestOpenTransactionOnABroker(t *testing.T) {
	c := testClient(t, brokertest.Bootstrap(brokertest.Embedded(t)), kafka.Config{})
	load(t, c, golden(t))
	ctx := testContext(t)
	p := producer(t, c, "left-open")
	if err := p.Send(ctx, kafka.Message{Topic: topicHighValue, Timestamp: 1, Key: []byte("k"), Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := Run(ctx, c, Options{Phases: []int{1}})
	if err != nil || r.Verdict() != Fail || !strings.Contains(r.Summary(), "at rest") {
		t.Errorf("open: %v, %s", err, r.Summary())
	}
	if err := p.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	if r, err = Run(ctx, c, Options{Phases: []int{1}}); err != nil || r.Verdict() != Pass {
		t.Errorf("aborted: %v, %s", err, r.Summary())
	}
}

func TestPurgeOnABrokerIsUnknown(t *testing.T) {
	c := testClient(t, brokertest.Bootstrap(brokertest.Embedded(t)), kafka.Config{})
	m := golden(t)
	load(t, c, m)
	ctx := testContext(t)
	if err := c.DeleteRecords(ctx, map[kafka.TopicPartition]int64{{Topic: repartitionTopic, Partition: 0}: 120, {Topic: repartitionTopic, Partition: 1}: 7}); err != nil {
		t.Fatal(err)
	}
	r, err := Run(ctx, c, Options{})
	if err != nil || r.ExitCode() != 2 || !strings.Contains(r.Summary(), "repartition records") {
		t.Errorf("%v, %s", err, r.Summary())
	}
}

func TestNothingOnTheBroker(t *testing.T) {
	c := testClient(t, brokertest.Bootstrap(brokertest.Embedded(t)), kafka.Config{})
	r, err := Run(testContext(t), c, Options{})
	if want := "UNKNOWN: topic orders.placed does not exist"; err != nil || r.Summary() != want || r.ExitCode() != 2 {
		t.Errorf("%v, %s", err, r.Summary())
	}
}

// dyingTopics lose their broker when they are first read from.
type dyingTopics struct {
	topics
	die func()
}

func (d *dyingTopics) Read(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error {
	d.die()
	return d.topics.Read(ctx, parts, fn)
}

func TestBrokerGoneIsUnknown(t *testing.T) {
	fake := brokertest.Embedded(t)
	c := testClient(t, brokertest.Bootstrap(fake), kafka.Config{Timeout: time.Second, RetryTimeout: time.Second})
	load(t, c, golden(t))

	t.Run("while reading", func(t *testing.T) {
		dying := &dyingTopics{topics: &cluster{client: c, stall: 300 * time.Millisecond}, die: fake.Close}
		r, err := run(testContext(t), dying, Options{})
		if err != nil || r.ExitCode() != 2 || !strings.Contains(r.Summary(), errStalled.Error()) {
			t.Errorf("%v, %s", err, r.Summary())
		}
	})
	t.Run("altogether", func(t *testing.T) {
		r, err := run(testContext(t), &cluster{client: c, stall: 300 * time.Millisecond}, Options{Phases: []int{1}})
		if err != nil || r.ExitCode() != 2 || !strings.HasPrefix(r.Summary(), "UNKNOWN phase 1: list topics: ") {
			t.Errorf("%v, %s", err, r.Summary())
		}
	})
}

// The twin in memory has to behave as a cluster does.
func TestTopics(t *testing.T) {
	suffix := "-" + strings.ToLower(rand.Text()[:8])
	full, other := "verify-full"+suffix, "verify-other"+suffix
	m := &memory{topics: map[string]*memoryTopic{}, group: "verify" + suffix}
	m.partition(other, 0)
	m.topic(full).configs["cleanup.policy"] = "compact,delete"
	m.topic(full).configs["retention.ms"] = "3153600090000"
	m.partition(full, 2)
	now := time.Now().UnixMilli()
	for n, count := range []int{5, 0, 3} {
		p := m.partition(full, n)
		for i := range count {
			p.records = append(p.records, kafka.Record{Offset: int64(i), Timestamp: now + int64(i), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d-%d", n, i)})
			p.end++
		}
	}
	m.committed = map[kafka.TopicPartition]int64{{Topic: full, Partition: 0}: 4}

	twins := map[string]func(t *testing.T) topics{
		"memory": func(*testing.T) topics { return m },
		"cluster": func(t *testing.T) topics {
			c := testClient(t, brokertest.Start(t), kafka.Config{})
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
				defer cancel()
				if err := c.DeleteTopics(ctx, full, other); err != nil {
					t.Error(err)
				}
			})
			load(t, c, m)
			return &cluster{client: c, stall: stallTimeout}
		},
	}
	for name, start := range twins {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			tt := start(t)
			found, err := tt.Describe(ctx, func(name string) bool { return name == full || name == "verify-none"+suffix })
			if err != nil || len(found) != 1 || found[full].partitions != 3 || found[full].configs["cleanup.policy"] != "compact,delete" || found[full].configs["retention.ms"] != "3153600090000" {
				t.Errorf("described: %+v, %v", found, err)
			}
			committed, err := tt.Committed(ctx, m.group)
			if err != nil || !maps.Equal(committed, m.committed) {
				t.Errorf("committed: %v, %v", committed, err)
			}
			committed, err = tt.Committed(ctx, m.group+"-none")
			if err != nil || len(committed) != 0 {
				t.Errorf("committed by nobody: %v, %v", committed, err)
			}
			parts := []kafka.TopicPartition{{Topic: full, Partition: 0}, {Topic: full, Partition: 1}, {Topic: full, Partition: 2}}
			limits, err := tt.Bounds(ctx, parts)
			if want := map[kafka.TopicPartition]bounds{parts[0]: {0, 5, 5}, parts[1]: {0, 0, 0}, parts[2]: {0, 3, 3}}; err != nil || !maps.Equal(limits, want) {
				t.Errorf("bounds: %v, %v", limits, err)
			}
			limits[parts[0]] = bounds{1, 4, 4}
			got := map[int32][]string{}
			err = tt.Read(ctx, limits, func(tp kafka.TopicPartition, r *kafka.Record) {
				got[tp.Partition] = append(got[tp.Partition], fmt.Sprintf("%d %d %s %s", r.Offset, r.Timestamp-now, r.Key, r.Value))
			})
			want := map[int32][]string{0: {"1 1 k1 v0-1", "2 2 k2 v0-2", "3 3 k3 v0-3"}, 2: {"0 0 k0 v2-0", "1 1 k1 v2-1", "2 2 k2 v2-2"}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("read: %v\n%s", err, diff)
			}
			gone, cancel := context.WithCancel(ctx)
			cancel()
			if err := tt.Read(gone, limits, func(kafka.TopicPartition, *kafka.Record) {}); !errors.Is(err, context.Canceled) {
				t.Errorf("read without time: %v", err)
			}
		})
	}
}

// Markers and aborted records take offsets and are no results; what is in an open transaction is not known yet.
func TestReadInTransactions(t *testing.T) {
	c := testClient(t, brokertest.Start(t), kafka.Config{})
	ctx := testContext(t)
	suffix := strings.ToLower(rand.Text()[:8])
	tp := kafka.TopicPartition{Topic: "verify-txn-" + suffix}
	if _, err := c.CreateTopics(ctx, []kafka.TopicSpec{{Name: tp.Topic, Partitions: 1, Replication: -1}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
		defer cancel()
		if err := c.DeleteTopics(ctx, tp.Topic); err != nil {
			t.Error(err)
		}
	})
	p := producer(t, c, "verify-"+suffix)
	send := func(value string) {
		t.Helper()
		if err := p.Send(ctx, kafka.Message{Topic: tp.Topic, Timestamp: time.Now().UnixMilli(), Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	read := func() error {
		t.Helper()
		got = nil
		cl := &cluster{client: c, stall: stallTimeout}
		limits, err := cl.Bounds(ctx, []kafka.TopicPartition{tp})
		if err != nil {
			t.Fatal(err)
		}
		return cl.Read(ctx, limits, func(_ kafka.TopicPartition, r *kafka.Record) { got = append(got, string(r.Value)) })
	}
	send("committed")
	if err := p.Commit(ctx, nil, kafka.GroupMeta{}); err != nil {
		t.Fatal(err)
	}
	send("aborted")
	if err := p.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil || !slices.Equal(got, []string{"committed"}) {
		t.Errorf("read %v, %v", got, err)
	}
	send("open")
	cl := &cluster{client: c, stall: stallTimeout}
	limits, err := cl.Bounds(ctx, []kafka.TopicPartition{tp})
	if want := (bounds{0, 5, 4}); err != nil || limits[tp] != want {
		t.Errorf("bounds %v, %v, want %v", limits[tp], err, want)
	}
	var log []string
	err = cl.Log(ctx, limits, func(_ kafka.TopicPartition, r *kafka.Record) {
		switch {
		case r.Control != kafka.ControlNone:
			log = append(log, fmt.Sprint("marker ", r.Control))
		case r.Transactional && r.ProducerID >= 0:
			log = append(log, string(r.Value))
		}
	})
	if want := []string{"committed", "marker 1", "aborted", "marker 2", "open"}; err != nil || !slices.Equal(log, want) {
		t.Errorf("log %v, %v, want %v", log, err, want)
	}
	var open *OpenTransactionError
	if err := read(); !errors.As(err, &open) || open.LastStable != 4 || open.End != 5 || !slices.Equal(got, []string{"committed"}) {
		t.Errorf("read %v, %v", got, err)
	}
	if err := p.Abort(ctx); err != nil {
		t.Fatal(err)
	}
}
