package streams_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
)

// A commit comes too late: the group has moved on. The instance says so, drops its tasks, joins again and goes on from the last commit, so
// that no word is lost.
func TestCommitTooLate(t *testing.T) {
	for _, code := range []kafka.Code{kafka.IllegalGeneration, kafka.UnknownMemberID, kafka.RebalanceInProgress} {
		t.Run(strconv.Itoa(int(code)), func(t *testing.T) {
			t.Parallel()
			cluster := brokertest.Embedded(t)
			c := newCountingOn(t, brokertest.Bootstrap(cluster))
			lines := make(logLines, 1000)
			cfg := c.config()
			cfg.Logger = lines.logger()
			r := start(t, c.topology(), cfg)
			r.await(streams.StateRunning)
			fault := cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: c.app, Err: brokertest.Code(int16(code))})
			c.send(words...)
			lines.await(t, "has lost its tasks", "moved on without this member", c.app, code.Error())
			r.await(streams.StateRunning)
			if n := fault.Hits(); n != 1 {
				t.Errorf("%d commits were refused, want 1", n)
			}
			c.send(words...)
			c.awaitAtLeast(2)
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// awaitAtLeast reads the output until each word was counted n times or more.
func (c *counting) awaitAtLeast(n int) {
	c.t.Helper()
	f := c.client.NewFetcher(kafka.FetcherConfig{})
	defer f.Close()
	f.Set(kafka.TopicPartition{Topic: c.out}, 0)
	enough := map[string]bool{}
	for limit := time.After(deadline); len(enough) < len(words); {
		select {
		case <-f.Ready():
			for _, a := range f.Poll() {
				if a.Err != nil {
					c.t.Fatal(a.Err)
				}
				for _, r := range a.Records {
					if count, err := strconv.Atoi(string(r.Value)); err == nil && count >= n {
						enough[string(r.Key)] = true
					}
				}
			}
		case <-limit:
			c.t.Fatalf("only %v were counted %d times", enough, n)
		}
	}
}

// A member of Kafka Streams itself holds the group: it is named while it is waited for, and its end is noticed.
func TestWaitsForJavaMember(t *testing.T) {
	c := newCounting(t)
	java := c.client.NewMember(kafka.MemberConfig{
		Group: c.app, Protocol: "stream", ClientID: "java-StreamThread-1", Topics: []string{c.in}, HeartbeatInterval: 300 * time.Millisecond,
		SessionTimeout: 6 * time.Second,
		Assign: func(context.Context, []kafka.Subscription) (map[string]kafka.MemberAssignment, error) {
			return nil, nil
		},
	})
	defer java.Close()
	c.must(func(ctx context.Context) error { _, err := java.Join(ctx); return err })
	waiting := make(chan string, 100)
	cfg := c.config()
	cfg.Listener.Waiting = func(reason string) { waiting <- reason }
	r := start(t, c.topology(), cfg)
	select {
	case reason := <-waiting:
		for _, word := range []string{c.app, "java-StreamThread-1", `"stream"`} {
			if !strings.Contains(reason, word) {
				t.Errorf("waits because %q, which does not say %s", reason, word)
			}
		}
	case <-time.After(deadline):
		t.Fatal("nothing was said of the Java member")
	}
	c.must(java.Leave)
	r.await(streams.StateRunning)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// The changelog of a store that is in use is deleted. Nobody makes it again while members have tasks, which would hide that counts are gone:
// the next rebalance ends the application, and names it.
func TestChangelogVanishes(t *testing.T) {
	c := newCounting(t)
	cfg := c.config()
	cfg.SourceTopicTimeout = 500 * time.Millisecond
	r := start(t, c.topology(), cfg)
	r.await(streams.StateRunning)
	c.send(words...)
	c.awaitCounts(each(1))
	c.must(func(ctx context.Context) error { return c.client.DeleteTopics(ctx, c.changelog()) })
	cfg.StateDir = t.TempDir()
	second := start(t, c.topology(), cfg)
	err := r.wait()
	var missing *streams.MissingTopicError
	if !errors.As(err, &missing) || !missing.Internal || !slices.Equal(missing.Topics, []string{c.changelog()}) {
		t.Errorf("error %v, want the vanished topic %s", err, c.changelog())
	}
	second.stop()
	_ = second.wait() // an instance that comes when nobody has tasks may make the topic anew
}
