package streams_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/streams"
)

// refuseBad makes an embedded broker refuse, as too large, batches for one topic that hold the bytes "bad". The other partitions of such a
// request are answered as if their leader had moved, so that they come again.
func refuseBad(cluster *brokertest.Cluster, refused string) {
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		bad := false
		for _, rt := range req.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				part.Partition, part.ErrorCode = rp.Partition, int16(kafka.NotLeaderOrFollower)
				if strings.HasSuffix(rt.Topic, refused) && bytes.Contains(rp.Records, []byte("bad")) {
					part.ErrorCode, bad = int16(kafka.MessageTooLarge), true
				}
				topic.Partitions = append(topic.Partitions, part)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, bad
	})
}

// onEmbedded is newCounting on an embedded broker that refuses bad output for a topic.
func onEmbedded(t *testing.T, guarantee streams.Guarantee, refused string) *counting {
	t.Helper()
	cluster := brokertest.Embedded(t)
	if refused != "" {
		refuseBad(cluster, refused)
	}
	c := newCountingOn(t, brokertest.Bootstrap(cluster))
	c.guarantee = guarantee
	return c
}

// deadLetters reads the dead letters: "origin kind key value" each.
func (c *counting) deadLetters() []string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	tp := kafka.TopicPartition{Topic: c.app + "-dead-letters"}
	ends, err := c.client.ListOffsets(ctx, []kafka.TopicPartition{tp}, kafka.LatestOffset, kafka.ReadCommitted)
	if err != nil {
		c.t.Fatal(err)
	}
	f := c.client.NewFetcher(kafka.FetcherConfig{Isolation: func(string) kafka.Isolation { return kafka.ReadCommitted }})
	defer f.Close()
	f.Set(tp, 0)
	var lines []string
	for next := int64(0); next < ends[tp]; {
		select {
		case <-f.Ready():
		case <-ctx.Done():
			c.t.Fatal(context.Cause(ctx))
		}
		for _, a := range f.Poll() {
			if a.Err != nil {
				c.t.Fatal(a.Err)
			}
			for _, r := range a.Records {
				h := map[string]string{}
				for _, one := range r.Headers {
					h[one.Key] = string(one.Value)
				}
				key := string(r.Key)
				if len(key) > 20 {
					key = fmt.Sprintf("%s… (%d)", key[:1], len(key))
				}
				origin := strings.TrimPrefix(h[streams.HeaderErrorTopic], c.app+"-")
				lines = append(lines, fmt.Sprintf("%s-%s@%s %s: %q %q", origin, h[streams.HeaderErrorPartition], h[streams.HeaderErrorOffset],
					h[streams.HeaderErrorException], key, r.Value))
			}
			next = a.Next
		}
	}
	return lines
}

// copying sends lines on as they are, and tells of each.
func (c *counting) copying(processed chan<- string) (*streams.Topology, *streams.Observer) {
	c.t.Helper()
	b := streams.NewBuilder()
	text := streams.Text()
	streams.Consume(b, c.in, text, text).Filter(func(string, string) bool { return true }).To(c.out, text, text)
	top, err := b.Build()
	if err != nil {
		c.t.Fatal(err)
	}
	return top, streams.After("KSTREAM-FILTER-0000000001", func(_ *streams.Context, r streams.Record[string, string]) { processed <- r.Value })
}

func both(t *testing.T, test func(t *testing.T, g streams.Guarantee)) {
	for _, g := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(g), func(t *testing.T) { test(t, g) })
	}
}

// Output that a broker refuses is known only when it is acknowledged, long after its input was processed. The input is read again for the
// dead letter; where retention or compaction was faster, the output itself stands for it. Either way nothing else waits.
func TestRefusedOutputWhoseInputIsGone(t *testing.T) {
	both(t, func(t *testing.T, g streams.Guarantee) {
		c := onEmbedded(t, g, "-counts")
		processed := make(chan string, 100)
		top, observer := c.copying(processed)
		cfg := c.config()
		cfg.CommitInterval, cfg.CommitIdle, cfg.Observers = time.Second, -1, []*streams.Observer{observer}
		cfg.TransactionTimeout = max(cfg.TransactionTimeout, 10*time.Second)
		c.send("bad0", "bad1", "bad2", "good3", "bad4", "bad5") // the even ones go to partition 0, the odd ones to partition 1
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := c.client.DeleteRecords(ctx, map[kafka.TopicPartition]int64{{Topic: c.in, Partition: 0}: 1}); err != nil {
			t.Fatal(err)
		}
		r := start(t, top, cfg)
		for range 5 { // bad0 was gone before anyone read it
			select {
			case <-processed:
			case <-time.After(deadline):
				t.Fatal("not processed")
			}
		}
		if err := c.client.DeleteRecords(ctx, map[kafka.TopicPartition]int64{{Topic: c.in, Partition: 0}: 2}); err != nil {
			t.Fatal(err)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		want := []string{
			`lines-0@1 output refused by the broker: "" "bad2"`,
			`lines-0@2 output refused by the broker: "" "bad4"`,
			`lines-1@0 output refused by the broker: "" "bad1"`,
			`lines-1@2 output refused by the broker: "" "bad5"`,
		}
		if diff := cmp.Diff(want, c.deadLetters()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
}

// An aggregate's output is made by a commit, out of many records: there is no one record to blame, so it is a dead letter itself.
func TestRefusedOutputOfACommit(t *testing.T) {
	both(t, func(t *testing.T, g streams.Guarantee) {
		c := onEmbedded(t, g, "-counts")
		r := start(t, c.topology(), c.config())
		r.await(streams.StateRunning)
		c.send("bad", "good", "good")
		c.awaitCounts(map[string]string{"good": "2"})
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		want := []string{`counts-0@-1 output refused by the broker: "bad" "1"`}
		if diff := cmp.Diff(want, c.deadLetters()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
}

// Without its changelog record a store could not be restored: that is no matter for dead letters.
func TestRefusedChangelogStops(t *testing.T) {
	both(t, func(t *testing.T, g streams.Guarantee) {
		c := onEmbedded(t, g, "-changelog")
		r := start(t, c.topology(), c.config())
		r.await(streams.StateRunning)
		c.send("bad")
		err := r.wait()
		var refused *streams.OutputRefusedError
		if !errors.As(err, &refused) || !strings.HasSuffix(refused.Topic, "-words-changelog") || refused.Advice == "" {
			t.Fatalf("%v", err)
		}
		if !strings.Contains(err.Error(), refused.Topic) || !strings.Contains(err.Error(), refused.Advice) {
			t.Errorf("%v", err)
		}
	})
}

// A key that no store can hold would fail again after each restart. The record is set aside where it was met, which may be behind a
// repartition topic.
func TestKeyTooLargeForAStore(t *testing.T) {
	both(t, func(t *testing.T, g streams.Guarantee) {
		c := onEmbedded(t, g, "")
		r := start(t, c.topology(), c.config())
		r.await(streams.StateRunning)
		fits, tooLong := strings.Repeat("f", store.MaxKeyBytes), strings.Repeat("l", store.MaxKeyBytes+1)
		c.send("a", fits, tooLong, "a")
		c.awaitCounts(map[string]string{"a": "2", fits: "1"})
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		letters := c.deadLetters()
		what := `key too large for a store: "l… (32757)"`
		if len(letters) != 1 || !strings.Contains(letters[0], "-repartition-") || !strings.Contains(letters[0], what) {
			t.Errorf("dead letters %.200q", letters)
		}
	})
}

// misfit is an error that names its kind.
type misfit struct{ kind string }

func (m misfit) Error() string { return "misfit of kind " + m.kind }
func (m misfit) Kind() string  { return m.kind }

// A serde that panics or fails has met a bad record, and may say of what kind it is. Records after it are processed.
func TestKindsOfDeadLetters(t *testing.T) {
	c := onEmbedded(t, streams.AtLeastOnce, "")
	b := streams.NewBuilder()
	text, strict := streams.Text(), streams.Text()
	strict.Decode = func(b []byte) (string, error) {
		switch string(b) {
		case "panic":
			panic("no")
		case "plain":
			return "", errors.New("plain")
		case "kind":
			return "", fmt.Errorf("wrapped: %w", misfit{"odd"})
		}
		return string(b), nil
	}
	streams.Consume(b, c.in, text, strict, streams.EventTime(func(r streams.Record[string, string], _ int64) (int64, error) {
		switch r.Value {
		case "untimely":
			return 0, misfit{"untimely"}
		case "early":
			return -1, nil
		case "never":
			return 1<<63 - 1, nil
		}
		return r.Timestamp, nil
	})).To(c.out, text, text)
	top, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.config()
	told := make(chan streams.DeadLetter, 100)
	cfg.Listener.DeadLetter = func(d streams.DeadLetter) { told <- d }
	r := start(t, top, cfg)
	r.await(streams.StateRunning)
	c.send("panic", "", "plain", "", "kind", "", "untimely", "", "early", "", "never", "last")
	for n := range 6 {
		select {
		case d := <-told:
			if d.Offset != int64(n) || d.Topic != c.in || d.Err == nil {
				t.Errorf("told of %+v", d)
			}
		case <-time.After(deadline):
			t.Fatal("no dead letter")
		}
	}
	c.awaitCounts(map[string]string{"": "last"})
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`lines-0@0 value cannot be decoded: "" "panic"`,
		`lines-0@1 value cannot be decoded: "" "plain"`,
		`lines-0@2 value cannot be decoded: odd: "" "kind"`,
		`lines-0@3 timestamp cannot be extracted: untimely: "" "untimely"`,
		`lines-0@4 negative timestamp: "" "early"`,
		`lines-0@5 timestamp too large: "" "never"`,
	}
	if diff := cmp.Diff(want, c.deadLetters()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}
