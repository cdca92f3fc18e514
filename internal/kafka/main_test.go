package kafka

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testDeadline bounds the wait for anything that a test waits for.
const testDeadline = 30 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	t.Cleanup(cancel)
	return ctx
}

// testClient returns a client of the broker with that bootstrap list, closed when the test ends.
func testClient(t testing.TB, bootstrap string) *Client {
	t.Helper()
	c, err := New(testContext(t), Config{Seeds: strings.Split(bootstrap, ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// eventually asks until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(testDeadline)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s for %s", testDeadline, what)
		}
	}
}

// unique makes a name that no other test on a shared broker has.
func unique(t testing.TB, name string) string {
	t.Helper()
	return name + "-" + strings.ToLower(rand.Text()[:8])
}

// onRealBroker tells that the tests run on the cluster named by brokertest.Env.
func onRealBroker() bool { return os.Getenv(brokertest.Env) != "" }

// testTopic creates a topic of its own for a test and deletes it when the test ends.
func testTopic(t testing.TB, c *Client, name string, partitions int32, configs ...ConfigEntry) string {
	t.Helper()
	topic := unique(t, name)
	spec := TopicSpec{Name: topic, Partitions: partitions, Replication: -1, Configs: configs}
	if _, err := c.CreateTopics(testContext(t), []TopicSpec{spec}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
		defer cancel()
		if err := c.DeleteTopics(ctx, topic); err != nil {
			t.Errorf("deleting %s: %v", topic, err)
		}
	})
	return topic
}
