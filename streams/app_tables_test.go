package streams_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
)

// table is the topic of a table beside the input of a counting.
func (c *counting) table(partitions int32) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	topic := c.app + "-rows"
	if _, err := c.client.CreateTopics(ctx, []kafka.TopicSpec{{
		Name: topic, Partitions: partitions, Replication: -1, Configs: []kafka.ConfigEntry{{Name: "cleanup.policy", Value: "compact"}},
	}}); err != nil {
		c.t.Fatal(err)
	}
	return topic
}

// joining joins the input with a table, keyed as they are.
func (c *counting) joining(table string, opts ...streams.SourceOption) *streams.Topology {
	c.t.Helper()
	b, text := streams.NewBuilder(), streams.Text()
	lines := streams.Consume(b, c.in, text, text)
	rows := streams.ReadTable(b, table, "rows", text, text, opts...)
	streams.Join(lines, rows, func(v, w string) string { return v + "/" + w }).To(c.out, text, text)
	top, err := b.Build()
	if err != nil {
		c.t.Fatal(err)
	}
	return top
}

// sendTo writes key=value pairs, dated from at on: a join takes the topics' records in the order of their timestamps.
func (c *counting) sendTo(topic string, at int64, pairs ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	p, err := c.client.NewProducer(ctx, kafka.ProducerConfig{})
	if err != nil {
		c.t.Fatal(err)
	}
	for i, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		partition := kafka.PartitionFor([]byte(key), 2)
		m := kafka.Message{Topic: topic, Partition: partition, Timestamp: at + int64(i), Key: []byte(key), Value: []byte(value)}
		if err := p.Send(ctx, m); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		c.t.Fatal(err)
	}
}

// A table that is restored from its own topic: no changelog topic is made. What the group had committed is restored; what came while the
// application was down is processed.
func TestAppReusesTheSourceTopic(t *testing.T) {
	eachGuarantee(t, func(t *testing.T, c *counting) {
		table := c.table(2)
		top := c.joining(table, streams.ReuseSourceTopic())
		c.sendTo(table, 1000, "a=one", "b=one", "c=one", "a=two")
		r := start(t, top, c.config())
		r.await(streams.StateRunning)
		c.sendTo(c.in, 2000, "a=x", "b=x", "c=x")
		c.awaitCounts(map[string]string{"a": "x/two", "b": "x/one", "c": "x/one"})
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		topics, err := c.client.Topics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if name := c.app + "-rows-changelog"; topics[name] != nil {
			t.Errorf("topic %s was made", name)
		}

		if err := os.RemoveAll(c.dir); err != nil {
			t.Fatal(err)
		}
		c.sendTo(table, 3000, "b=two", "d=one")
		r = start(t, top, c.config())
		r.await(streams.StateRunning)
		restored := int64(0)
		for range 2 {
			s, e := <-r.starts, <-r.ends
			if s.Changelog.Topic != table || s.From != 0 || s.Reason != "" {
				t.Errorf("restore %+v", s)
			}
			restored += e.Restored
		}
		if restored != 4 {
			t.Errorf("%d records restored, want the 4 that were committed", restored)
		}
		c.sendTo(c.in, 4000, "a=y", "b=y", "c=y", "d=y")
		c.awaitCounts(map[string]string{"a": "y/two", "b": "y/two", "c": "y/one", "d": "y/one"})
		if err := r.end(); err != nil {
			t.Fatal(err)
		}

		// With its state there is nothing to restore.
		r = start(t, top, c.config())
		r.await(streams.StateRunning)
		for range 2 {
			if s := <-r.starts; s.From != s.To {
				t.Errorf("restore after a clean stop: %+v", s)
			}
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A join needs its topics to have as many partitions as each other.
func TestAppRefusesTopicsThatAreNotCopartitioned(t *testing.T) {
	c := newCounting(t)
	table := c.table(3)
	err := start(t, c.joining(table), c.config()).wait()
	want := fmt.Sprintf("Topics not co-partitioned: [{%s=2, %s=3}]", c.in, table)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// Three instances share five tasks, and count windows as one does: a grace that nothing exceeds takes out the order in which they work.
func TestInstancesCountWindowsAsOne(t *testing.T) {
	eachGuarantee(t, func(t *testing.T, c *counting) {
		b, text := streams.NewBuilder(), streams.Text()
		words := streams.SelectKey(streams.Consume(b, c.in, text, text), func(_, word string) string { return word })
		g := words.Repartition("words", 3, text, text).GroupByKey().WindowedBy(streams.Hopping(40*time.Millisecond, 15*time.Millisecond).Grace(time.Hour))
		counts := streams.CountWindows(g, "windows").ToStream()
		streams.Map(counts, func(w streams.Windowed[string], n int64) (string, string) {
			return fmt.Sprintf("%s@%d", w.Key, w.Start), fmt.Sprint(n)
		}).To(c.out, text, text)
		top, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		var instances []*running
		for i := range 3 {
			cfg := c.config()
			cfg.StateDir = t.TempDir()
			instances = append(instances, start(t, top, cfg))
			instances[i].await(streams.StateRunning)
		}
		random := rand.New(rand.NewPCG(1, 2))
		var sent []string
		var clicks []click
		for i := range 300 {
			word := string(rune('a' + random.IntN(8)))
			sent = append(sent, word)
			clicks = append(clicks, click{word, 1_700_000_000_000 + int64(i)}) // send gives the i-th that time
		}
		c.send(sent...)
		want := map[string]string{}
		for w, n := range newModel(drawnWindows{size: 40, advance: 15, grace: 3_600_000}, clicks, 1).counts {
			want[fmt.Sprintf("%s@%d", w.key, w.start)] = fmt.Sprint(n)
		}
		c.awaitCounts(want)
		for _, r := range instances {
			if err := r.end(); err != nil {
				t.Error(err)
			}
		}
	})
}
