package streams_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds each wait of these tests. It is long because machines are slow at times, not because anything takes that long.
const deadline = 60 * time.Second

// counting is a word count: lines come in on one topic, counts per word go out on another.
type counting struct {
	t         *testing.T
	bootstrap string
	client    *kafka.Client
	app       string // application id
	in, out   string
	dir       string
	guarantee streams.Guarantee
}

// eachGuarantee runs a test once for each processing guarantee.
func eachGuarantee(t *testing.T, test func(t *testing.T, c *counting)) {
	for _, g := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(g), func(t *testing.T) {
			c := newCounting(t)
			c.guarantee = g
			test(t, c)
		})
	}
}

func newCounting(t *testing.T, opts ...brokertest.Option) *counting {
	t.Helper()
	return newCountingOn(t, brokertest.Start(t, opts...))
}

func newCountingOn(t *testing.T, bootstrap string) *counting {
	t.Helper()
	c := &counting{t: t, bootstrap: bootstrap, dir: t.TempDir(), guarantee: streams.AtLeastOnce}
	unique := fmt.Sprintf("%s-%d", strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), time.Now().UnixNano())
	c.app, c.in, c.out = unique, unique+"-lines", unique+"-counts"
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	client, err := kafka.New(ctx, kafka.Config{Seeds: []string{c.bootstrap}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c.client = client
	if _, err := client.CreateTopics(ctx, []kafka.TopicSpec{{Name: c.in, Partitions: 2, Replication: -1}, {Name: c.out, Partitions: 1, Replication: -1}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *counting) topology() *streams.Topology {
	c.t.Helper()
	b := streams.NewBuilder()
	text := streams.Text()
	words := streams.SelectKey(streams.Consume(b, c.in, text, text), func(_, word string) string { return word }).WithSerdes(text, text)
	counts := streams.Count(words.GroupByKey(), "words")
	streams.MapValues(counts.ToStream(), func(n int64) string { return fmt.Sprint(n) }).To(c.out, text, text)
	top, err := b.Build()
	if err != nil {
		c.t.Fatal(err)
	}
	return top
}

func (c *counting) config() streams.Config {
	cfg := streams.DefaultConfig()
	cfg.ApplicationID, cfg.Bootstrap, cfg.StateDir = c.app, []string{c.bootstrap}, c.dir
	cfg.ProcessingGuarantee = c.guarantee
	cfg.CommitInterval = 200 * time.Millisecond
	cfg.SessionTimeout = 6 * time.Second
	cfg.HeartbeatInterval = 300 * time.Millisecond
	if testing.Verbose() && os.Getenv("LAB_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return cfg
}

// running is an application at work, with what it told its listener.
type running struct {
	t      *testing.T
	stop   context.CancelFunc
	done   chan error
	states chan streams.StateChange
	starts chan streams.RestoreStart
	ends   chan streams.RestoreEnd
}

func start(t *testing.T, top *streams.Topology, cfg streams.Config) *running {
	t.Helper()
	r := &running{t: t, done: make(chan error, 1), states: make(chan streams.StateChange, 1000),
		starts: make(chan streams.RestoreStart, 1000), ends: make(chan streams.RestoreEnd, 1000)}
	cfg.Listener.StateChanged = func(s streams.StateChange) { r.states <- s }
	cfg.Listener.RestoreStart = func(s streams.RestoreStart) { r.starts <- s }
	cfg.Listener.RestoreEnd = func(s streams.RestoreEnd) { r.ends <- s }
	app, err := streams.NewApp(top, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.done <- app.Run(ctx) }()
	t.Cleanup(cancel)
	return r
}

func (r *running) await(state streams.State) {
	r.t.Helper()
	limit := time.After(deadline)
	for {
		select {
		case s := <-r.states:
			if s.To == state {
				return
			}
		case err := <-r.done:
			r.t.Fatalf("ended before %s: %v", state, err)
		case <-limit:
			r.t.Fatalf("not %s within %s", state, deadline)
		}
	}
}

func (r *running) end() error {
	r.t.Helper()
	r.stop()
	return r.wait()
}

func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(deadline):
		r.t.Fatalf("not ended within %s", deadline)
		return nil
	}
}

func (c *counting) send(words ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	p, err := c.client.NewProducer(ctx, kafka.ProducerConfig{})
	if err != nil {
		c.t.Fatal(err)
	}
	for i, w := range words {
		if err := p.Send(ctx, kafka.Message{Topic: c.in, Partition: int32(i % 2), Timestamp: 1_700_000_000_000 + int64(i), Value: []byte(w)}); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		c.t.Fatal(err)
	}
}

// awaitCounts reads the output until the last value of each word is as wanted.
func (c *counting) awaitCounts(want map[string]string) {
	c.t.Helper()
	f := c.client.NewFetcher(kafka.FetcherConfig{Isolation: func(string) kafka.Isolation { return kafka.ReadCommitted }})
	defer f.Close()
	f.Set(kafka.TopicPartition{Topic: c.out}, 0)
	got := map[string]string{}
	limit := time.After(deadline)
	for !cmp.Equal(want, got) {
		select {
		case <-f.Ready():
			for _, a := range f.Poll() {
				if a.Err != nil {
					c.t.Fatal(a.Err)
				}
				for _, r := range a.Records {
					got[string(r.Key)] = string(r.Value)
				}
			}
		case <-limit:
			c.t.Fatalf("counts after %s (-want +got):\n%s", deadline, cmp.Diff(want, got))
		}
	}
}

// One instance counts, stops, and goes on where it was: nothing is counted twice, and nothing is restored after a clean stop.
func TestAppCountsAndContinues(t *testing.T) { eachGuarantee(t, testAppCountsAndContinues) }

func testAppCountsAndContinues(t *testing.T, c *counting) {
	c.send("a", "b", "a", "c", "a")
	r := start(t, c.topology(), c.config())
	r.await(streams.StateRunning)
	c.awaitCounts(map[string]string{"a": "3", "b": "1", "c": "1"})
	if err := r.end(); err != nil {
		t.Fatalf("clean stop: %v", err)
	}

	c.send("b", "d")
	r = start(t, c.topology(), c.config())
	r.await(streams.StateRunning)
	c.awaitCounts(map[string]string{"a": "3", "b": "2", "c": "1", "d": "1"})
	for range 2 {
		// The high watermark counts the marker of the last transaction, which brings no record.
		s, e := <-r.starts, <-r.ends
		if markers := s.To - s.From; markers > 1 || markers == 1 && c.guarantee == streams.AtLeastOnce || e.Restored != 0 || s.Reason != "" {
			t.Errorf("restore after a clean stop: %+v, %+v", s, e)
		}
	}
	if err := r.end(); err != nil {
		t.Fatalf("second clean stop: %v", err)
	}
}

// Without its state folder an instance restores the stores from the changelogs before it counts on.
func TestAppRestores(t *testing.T) { eachGuarantee(t, testAppRestores) }

func testAppRestores(t *testing.T, c *counting) {
	c.send("a", "b", "a", "c", "a")
	r := start(t, c.topology(), c.config())
	r.await(streams.StateRunning)
	c.awaitCounts(map[string]string{"a": "3", "b": "1", "c": "1"})
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	r = start(t, c.topology(), c.config())
	r.await(streams.StateRunning)
	restored := int64(0)
	for range 2 {
		if s := <-r.starts; s.From != 0 {
			t.Errorf("%+v: restore must begin at the log start", s)
		}
		restored += (<-r.ends).Restored
	}
	if restored < 3 {
		t.Errorf("%d records restored for three words", restored)
	}
	c.send("a", "c")
	c.awaitCounts(map[string]string{"a": "4", "b": "1", "c": "2"})
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// Two instances share the tasks; when one leaves, the other counts on with the whole state.
func TestAppTwoInstances(t *testing.T) { eachGuarantee(t, testAppTwoInstances) }

func testAppTwoInstances(t *testing.T, c *counting) {
	c.send("a", "b", "a", "c", "a", "d", "e", "f")
	first := start(t, c.topology(), c.config())
	first.await(streams.StateRunning)
	c.awaitCounts(map[string]string{"a": "3", "b": "1", "c": "1", "d": "1", "e": "1", "f": "1"})

	cfg := c.config()
	cfg.StateDir = t.TempDir()
	second := start(t, c.topology(), cfg)
	second.await(streams.StateRunning)
	first.await(streams.StateRunning)
	c.send("a", "b", "c", "d", "e", "f")
	c.awaitCounts(map[string]string{"a": "4", "b": "2", "c": "2", "d": "2", "e": "2", "f": "2"})

	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	second.await(streams.StateRunning)
	c.send("a", "b", "c", "d", "e", "f")
	c.awaitCounts(map[string]string{"a": "5", "b": "3", "c": "3", "d": "3", "e": "3", "f": "3"})
	if err := second.end(); err != nil {
		t.Fatal(err)
	}
}

func TestAppNamesMissingTopics(t *testing.T) {
	c := newCounting(t)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := c.client.DeleteTopics(ctx, c.out); err != nil {
		t.Fatal(err)
	}
	cfg := c.config()
	cfg.SourceTopicTimeout = 500 * time.Millisecond
	err := start(t, c.topology(), cfg).wait()
	var missing *streams.MissingTopicError
	if !errors.As(err, &missing) || !cmp.Equal(missing.Topics, []string{c.out}) {
		t.Errorf("error %v, want the missing topic %s", err, c.out)
	}
}

// An internal topic left behind with another partition count cannot be used, and the message says what to do.
func TestAppRefusesWrongPartitionCount(t *testing.T) {
	c := newCounting(t)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	topic := c.app + "-words-changelog"
	if _, err := c.client.CreateTopics(ctx, []kafka.TopicSpec{{Name: topic, Partitions: 5, Replication: -1}}); err != nil {
		t.Fatal(err)
	}
	err := start(t, c.topology(), c.config()).wait()
	if err == nil || !strings.Contains(err.Error(), topic+" has invalid partitions: expected: 2; actual: 5") {
		t.Errorf("error %v", err)
	}
}

// An instance was killed after it had flushed its first counts and before it had committed their offsets. The next one restored them, and
// committed the offsets of another task; with that, its state file said that the counts were committed, which the group did not know: the
// start after that refused to work.
func TestAppStartsAfterAKillBeforeTheFirstCommit(t *testing.T) {
	c := newCounting(t)
	b := streams.NewBuilder()
	text := streams.Text()
	words := streams.SelectKey(streams.Consume(b, c.in, text, text).Filter(func(_, word string) bool { return word != "skip" }),
		func(_, word string) string { return word }).WithSerdes(text, text)
	streams.MapValues(streams.Count(words.GroupByKey(), "words").ToStream(), func(n int64) string { return fmt.Sprint(n) }).To(c.out, text, text)
	top, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c.send("a", "b", "a")
	r := start(t, top, c.config())
	r.await(streams.StateRunning)
	c.awaitCounts(map[string]string{"a": "2", "b": "1"})
	if err := r.end(); err != nil {
		t.Fatal(err)
	}

	// What such a kill leaves: counts in the changelog, offsets of the first stage only, no state.
	offsets, err := c.client.CommittedOffsets(ctx, c.app, nil)
	if err != nil {
		t.Fatal(err)
	}
	purge := map[kafka.TopicPartition]int64{}
	for tp, o := range offsets {
		if tp.Topic != c.in {
			purge[tp] = o.Offset
			delete(offsets, tp)
		}
	}
	if err := c.client.DeleteRecords(ctx, purge); err != nil {
		t.Fatal(err)
	}
	if err := c.client.DeleteGroups(ctx, c.app); err != nil {
		t.Fatal(err)
	}
	if err := c.client.CommitOffsets(ctx, kafka.GroupMeta{Group: c.app, Generation: -1}, offsets); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}

	committed := make(chan struct{}, 100)
	cfg := c.config()
	cfg.Listener.Committed = func(streams.Commit) { committed <- struct{}{} }
	r = start(t, top, cfg)
	r.await(streams.StateRunning)
	c.send("skip")
	select {
	case <-committed:
	case <-ctx.Done():
		t.Fatal("no commit")
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	r = start(t, top, c.config())
	r.await(streams.StateRunning)
	c.send("a")
	c.awaitCounts(map[string]string{"a": "3", "b": "1"})
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// A topic of that name but made for something else would lose this application's state to its retention.
func TestAppRefusesTopicsOfAnother(t *testing.T) {
	c := newCounting(t)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	topic := c.app + "-words-changelog"
	if _, err := c.client.CreateTopics(ctx, []kafka.TopicSpec{{Name: topic, Partitions: 2, Replication: -1,
		Configs: []kafka.ConfigEntry{{Name: "cleanup.policy", Value: "delete"}}}}); err != nil {
		t.Fatal(err)
	}
	err := start(t, c.topology(), c.config()).wait()
	if err == nil || !strings.Contains(err.Error(), topic+" has cleanup.policy=delete, this application needs compact") {
		t.Errorf("error %v", err)
	}
}

// A state file that is damaged under a running instance, here cut to nothing as by a full disk's repair, cost the whole process its life. It
// is this task's loss alone: the file is rebuilt from the changelog, and counting goes on.
func TestAppRebuildsLostState(t *testing.T) { eachGuarantee(t, appRebuildsLostState) }

func appRebuildsLostState(t *testing.T, c *counting) {
	c.send("a", "b", "a", "c", "a")
	cfg := c.config()
	cfg.CacheMaxBytes = 1 // reads go to the file
	r := start(t, c.topology(), cfg)
	r.await(streams.StateRunning)
	c.awaitCounts(map[string]string{"a": "3", "b": "1", "c": "1"})
	files, err := filepath.Glob(filepath.Join(c.dir, c.app, "*", "state.db"))
	if err != nil || len(files) == 0 {
		t.Fatalf("state files %v: %v", files, err)
	}
	for _, f := range files {
		if err := os.Truncate(f, 0); err != nil {
			t.Fatal(err)
		}
	}
	c.send("a", "b", "c", "d")
	c.awaitCounts(map[string]string{"a": "4", "b": "2", "c": "2", "d": "1"})
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// State without committed offsets would be counted a second time.
func TestAppRefusesStateWithoutOffsets(t *testing.T) {
	c := newCounting(t)
	c.send("a", "b")
	r := start(t, c.topology(), c.config())
	r.await(streams.StateRunning)
	c.awaitCounts(map[string]string{"a": "1", "b": "1"})
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := c.client.DeleteGroups(ctx, c.app); err != nil {
		t.Fatal(err)
	}
	err := start(t, c.topology(), c.config()).wait()
	var state *streams.LocalStateError
	if !errors.As(err, &state) {
		t.Fatalf("error %v, want a LocalStateError", err)
	}
}

// A panic of a user function ends the application; the error names the node and the record.
func TestAppReportsPanics(t *testing.T) {
	c := newCounting(t)
	b := streams.NewBuilder()
	text := streams.Text()
	streams.MapValues(streams.Consume(b, c.in, text, text), func(v string) string {
		if v == "boom" {
			panic("this word is not for counting")
		}
		return v
	}).To(c.out, text, text)
	top, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	c.send("fine", "boom")
	err = start(t, top, c.config()).wait()
	var processing *streams.ProcessingError
	if !errors.As(err, &processing) || processing.Node != "KSTREAM-MAPVALUES-0000000001" || processing.Topic != c.in || processing.Offset != 0 {
		t.Errorf("error %v", err)
	}
}
