package streams_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/streams"
)

// words are spread over both partitions of the repartition topic.
var words = []string{"a", "b", "c", "d", "e", "f"}

func (c *counting) changelog() string { return c.app + "-words-changelog" }

// count lets an instance count each word n times more, and stops it cleanly.
func (c *counting) count(n, total int) {
	c.t.Helper()
	r := start(c.t, c.topology(), c.config())
	r.await(streams.StateRunning)
	for i := range n {
		c.send(words...)
		c.awaitCounts(each(total - n + i + 1))
	}
	if err := r.end(); err != nil {
		c.t.Fatal(err)
	}
}

func each(n int) map[string]string {
	want := map[string]string{}
	for _, w := range words {
		want[w] = strconv.Itoa(n)
	}
	return want
}

// partitions of the changelog.
func (c *counting) partitions() []kafka.TopicPartition {
	return []kafka.TopicPartition{{Topic: c.changelog()}, {Topic: c.changelog(), Partition: 1}}
}

func (c *counting) offsets(at int64) map[kafka.TopicPartition]int64 {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	offsets, err := c.client.ListOffsets(ctx, c.partitions(), at, kafka.ReadUncommitted)
	if err != nil {
		c.t.Fatal(err)
	}
	return offsets
}

func (c *counting) taskDir(partition int) string {
	return filepath.Join(c.dir, c.app, fmt.Sprint("1_", partition))
}

// rewrite changes the positions in the state files.
func (c *counting) rewrite(change func(p *store.Position) (at time.Time)) {
	c.t.Helper()
	for p := range 2 {
		db, err := store.Open(c.taskDir(p), []store.Spec{{Name: "words", Kind: store.KeyValueKind, Logged: true}}, store.Options{})
		if err != nil {
			c.t.Fatal(err)
		}
		pos, ok := db.Position("words")
		if !ok {
			c.t.Fatalf("%s has no position", c.taskDir(p))
		}
		at := change(&pos)
		if err := db.Commit(store.Commit{Positions: map[string]store.Position{"words": pos}, At: at}); err != nil {
			c.t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *counting) must(do func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := do(ctx); err != nil {
		c.t.Fatal(err)
	}
}

// truncate deletes all records of the changelog. Kafka does so only in topics that are not just compacted, so it is not, for a moment.
func (c *counting) truncate() {
	c.t.Helper()
	before := c.offsets(kafka.LatestOffset)
	c.setCleanupPolicy("compact,delete")
	const policyViolation = kafka.Code(44)
	c.must(func(ctx context.Context) error {
		for {
			err := c.client.DeleteRecords(ctx, before)
			if !errors.Is(err, policyViolation) || ctx.Err() != nil { // until the partition's log has heard of its new policy
				return err
			}
		}
	})
	c.setCleanupPolicy("compact")
}

func (c *counting) setCleanupPolicy(policy string) {
	c.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, c.changelog()
	e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	e.Name, e.Value = "cleanup.policy", &policy
	r.Configs = append(r.Configs, e)
	req.Resources = append(req.Resources, r)
	c.must(func(ctx context.Context) error {
		_, err := c.client.Do(ctx, kafka.Request{Route: kafka.AnyBroker(), Req: req, Check: func(resp kmsg.Response) error {
			if e := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; e.ErrorCode != 0 {
				return fmt.Errorf("configs of %s: %w", c.changelog(), kafka.Code(e.ErrorCode))
			}
			return nil
		}})
		return err
	})
	c.must(func(ctx context.Context) error { // a broker other than the one that was told hears of it a little later
		for {
			configs, err := c.client.TopicConfigs(ctx, c.changelog())
			if err != nil || slices.ContainsFunc(configs[c.changelog()], func(e kafka.ConfigEntry) bool {
				return e.Name == "cleanup.policy" && e.Value == policy
			}) {
				return err
			}
		}
	})
}

// copyState moves the state folder aside and returns a function that puts it back.
func (c *counting) copyState() (back func()) {
	c.t.Helper()
	aside := c.t.TempDir()
	if err := os.CopyFS(filepath.Join(aside, "state"), os.DirFS(c.dir)); err != nil {
		c.t.Fatal(err)
	}
	return func() {
		c.t.Helper()
		if err := errors.Join(os.RemoveAll(c.dir), os.CopyFS(c.dir, os.DirFS(filepath.Join(aside, "state")))); err != nil {
			c.t.Fatal(err)
		}
	}
}

// What becomes of local state that may not fit the changelog any more. Each word was counted twice before; what happens meanwhile is the
// case. Then an instance starts, and each word comes once more.
func TestLocalStateIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(t *testing.T, c *counting)
		fromOld   bool   // from the end that the changelog had before
		from      int64  // kafka.EarliestOffset: the start of the changelog; kafka.LatestOffset: its end
		reason    string // part of RestoreStart.Reason
		counts    int    // of each word at the end
	}{
		"nothing happens": {
			meanwhile: func(*testing.T, *counting) {},
			from:      kafka.LatestOffset, counts: 3,
		},
		"the changelog is deleted": { // the counts are gone, and the state file must not pretend otherwise
			meanwhile: func(_ *testing.T, c *counting) {
				c.must(func(ctx context.Context) error { return c.client.DeleteTopics(ctx, c.changelog()) })
			},
			from: kafka.EarliestOffset, reason: "deleted and created again", counts: 1,
		},
		"the changelog is replaced by a copy": { // all offsets fit: only the topic id tells
			meanwhile: func(_ *testing.T, c *counting) { c.replaceChangelog() },
			from:      kafka.EarliestOffset, reason: "deleted and created again", counts: 3,
		},
		"the changelog is truncated up to the local offset": {
			meanwhile: func(_ *testing.T, c *counting) {
				c.truncate()
			},
			from: kafka.LatestOffset, counts: 3,
		},
		"the changelog is truncated beyond the local offset": { // the counts of the second round are gone with it
			meanwhile: func(_ *testing.T, c *counting) {
				back := c.copyState()
				c.count(1, 3)
				c.truncate()
				back()
			},
			from: kafka.EarliestOffset, reason: "the changelog starts at", counts: 1,
		},
		"an old state folder is copied back": { // it is good up to its offset
			meanwhile: func(_ *testing.T, c *counting) {
				back := c.copyState()
				c.count(2, 4)
				back()
			},
			fromOld: true, counts: 5,
		},
		"the local offset is beyond the end": {
			meanwhile: func(_ *testing.T, c *counting) {
				c.rewrite(func(p *store.Position) time.Time { p.Next += 1000; return time.Now() })
			},
			from: kafka.EarliestOffset, reason: "beyond the changelog's end", counts: 3,
		},
		"tombstones may have been compacted away": { // delete.retention.ms is a day
			meanwhile: func(_ *testing.T, c *counting) {
				c.rewrite(func(*store.Position) time.Time { return time.Now().Add(-23*time.Hour - time.Minute) })
			},
			from: kafka.EarliestOffset, reason: "tombstones since then may be gone", counts: 3,
		},
		"the instance was away for less than that": {
			meanwhile: func(_ *testing.T, c *counting) {
				c.rewrite(func(*store.Position) time.Time { return time.Now().Add(-22*time.Hour - 59*time.Minute) })
			},
			from: kafka.LatestOffset, counts: 3,
		},
		"the state file cannot be trusted": {
			meanwhile: func(t *testing.T, c *counting) {
				for p := range 2 {
					if err := os.Remove(filepath.Join(c.taskDir(p), "state.mark")); err != nil {
						t.Fatal(err)
					}
				}
			},
			from: kafka.EarliestOffset, reason: "state.mark is missing", counts: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCounting(t)
			c.count(2, 2)
			before := c.offsets(kafka.LatestOffset)
			tc.meanwhile(t, c)
			r := start(t, c.topology(), c.config())
			r.await(streams.StateRunning)
			want := before
			if !tc.fromOld {
				want = c.offsets(tc.from)
			}
			for range 2 {
				s := <-r.starts
				if s.From != want[kafka.TopicPartition(s.Changelog)] || (s.Reason != "") != (tc.reason != "") || !strings.Contains(s.Reason, tc.reason) {
					t.Errorf("restore of %s from %d to %d because %q; want from %d because %q",
						s.Changelog, s.From, s.To, s.Reason, want[kafka.TopicPartition(s.Changelog)], tc.reason)
				}
			}
			c.send(words...)
			c.awaitCounts(each(tc.counts))
			if err := r.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// replaceChangelog deletes the changelog and makes it again with the same records at the same offsets.
func (c *counting) replaceChangelog() {
	c.t.Helper()
	var messages []kafka.Message
	f := c.client.NewFetcher(kafka.FetcherConfig{})
	defer f.Close()
	open := c.offsets(kafka.LatestOffset)
	for tp := range open {
		f.Set(tp, 0)
	}
	for limit := time.After(deadline); len(open) > 0; {
		select {
		case <-f.Ready():
		case <-limit:
			c.t.Fatal("the changelog cannot be read")
		}
		for _, a := range f.Poll() {
			for _, r := range a.Records {
				messages = append(messages, kafka.Message{Topic: a.Topic, Partition: a.Partition, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value})
			}
			if a.Next >= a.HighWatermark {
				delete(open, a.TopicPartition)
			}
		}
	}
	c.must(func(ctx context.Context) error {
		if err := c.client.DeleteTopics(ctx, c.changelog()); err != nil {
			return err
		}
		_, err := c.client.CreateTopics(ctx, []kafka.TopicSpec{{Name: c.changelog(), Partitions: 2, Replication: -1,
			Configs: []kafka.ConfigEntry{{Name: "cleanup.policy", Value: "compact"}}}})
		return err
	})
	c.must(func(ctx context.Context) error {
		p, err := c.client.NewProducer(ctx, kafka.ProducerConfig{})
		if err != nil {
			return err
		}
		for _, m := range messages {
			if err := p.Send(ctx, m); err != nil {
				return err
			}
		}
		return p.Close(ctx)
	})
}

// Offsets that were wiped together with the state folder: the changelog brings the counts back, and the input is counted on top of them. That
// is said, since it is hardly what somebody wanted.
func TestOffsetsAndStateWiped(t *testing.T) {
	c := newCounting(t)
	c.count(2, 2)
	c.must(func(ctx context.Context) error { return c.client.DeleteGroups(ctx, c.app) })
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	lines := make(logLines, 1000)
	cfg := c.config()
	cfg.Logger = lines.logger()
	r := start(t, c.topology(), cfg)
	r.await(streams.StateRunning)
	lines.await(t, "the group has no committed offset", c.changelog(), c.app)
	c.send(words...)
	// Two from the changelog, two that still lie in the repartition topic, two from the input once more, one new.
	c.awaitCounts(each(7))
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// dangling opens a transaction in both partitions of the changelog, as an owner that died leaves one behind.
func (c *counting) dangling(timeout time.Duration) (id string, p *kafka.Producer) {
	c.t.Helper()
	id = c.app + "-dead"
	c.must(func(ctx context.Context) (err error) {
		if p, err = c.client.NewProducer(ctx, kafka.ProducerConfig{TransactionalID: id, TransactionTimeout: timeout}); err != nil {
			return err
		}
		for _, tp := range c.partitions() {
			if err := p.Send(ctx, kafka.Message{Topic: tp.Topic, Partition: tp.Partition, Key: []byte("never"), Value: make([]byte, 8)}); err != nil {
				return err
			}
		}
		return p.Flush(ctx)
	})
	c.t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Close(now) // its transaction is not ended, that is the point
	})
	return id, p
}

func onRealBroker() bool { return os.Getenv(brokertest.Env) != "" }

// shortSession lets a group forget a silent member after a second, on brokers that allow it.
func shortSession(t *testing.T) brokertest.Option {
	t.Helper()
	return brokertest.Configs(map[string]string{"group.min.session.timeout.ms": "100"})
}

// An open transaction of a dead owner holds a restore up. The restore waits for its coordinator to end it, says for whom, and goes on. The
// instance stays a member meanwhile, for longer than its session.
func TestRestoreWaitsForTransaction(t *testing.T) {
	c := newCounting(t, shortSession(t))
	c.count(2, 2)
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	id, _ := c.dangling(5 * time.Second)
	cfg := c.config()
	if !onRealBroker() {
		cfg.SessionTimeout, cfg.HeartbeatInterval = time.Second, 100*time.Millisecond
	}
	waiting := make(chan string, 100)
	cfg.Listener.Waiting = func(reason string) { waiting <- reason }
	r := start(t, c.topology(), cfg)
	select {
	case reason := <-waiting:
		if !strings.Contains(reason, c.changelog()) || !strings.Contains(reason, id) || !strings.Contains(reason, "5s") {
			t.Errorf("waits: %s; want the partition, transactional id %s and its timeout", reason, id)
		}
	case err := <-r.done:
		t.Fatalf("ended: %v", err)
	case <-time.After(deadline):
		t.Fatal("nothing was said of the transaction")
	}
	r.await(streams.StateRunning)
	if n := len(r.starts); n != 2 {
		t.Errorf("%d restores began, want 2: the member was evicted in between", n)
	}
	c.send(words...)
	c.awaitCounts(each(3))
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// A rebalance comes while stores are restored. The restore whose task stays goes on, with its store open; the other is suspended, and its new
// owner begins it.
func TestRestoreOverRebalance(t *testing.T) {
	c := newCounting(t)
	c.count(2, 2)
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	_, dead := c.dangling(time.Minute)
	cfg := c.config()
	suspended := make(chan streams.RestoreProgress, 10)
	cfg.Listener.RestoreSuspended = func(p streams.RestoreProgress) { suspended <- p }
	first := start(t, c.topology(), cfg)
	began := map[streams.TopicPartition]bool{(<-first.starts).Changelog: true, (<-first.starts).Changelog: true}
	if len(began) != 2 {
		t.Fatalf("restores of %v", began)
	}

	cfg = c.config()
	cfg.StateDir = t.TempDir()
	second := start(t, c.topology(), cfg)
	var moved streams.RestoreStart
	select {
	case moved = <-second.starts:
	case <-time.After(deadline):
		t.Fatal("the second instance got no task with a store")
	}
	if p := <-suspended; p.Changelog != moved.Changelog || p.Position >= p.To {
		t.Errorf("suspended %+v, begun by its new owner %+v", p, moved)
	}
	c.must(dead.Abort)
	first.await(streams.StateRunning)
	second.await(streams.StateRunning)
	if e := <-first.ends; e.Changelog == moved.Changelog || e.Restored == 0 {
		t.Errorf("the first instance ended %+v", e)
	}
	if len(first.starts) != 0 || len(suspended) != 0 {
		t.Errorf("the kept restore was begun anew: %d starts, %d suspended", len(first.starts), len(suspended))
	}
	c.send(words...)
	c.awaitCounts(each(3))
	if err := errors.Join(first.end(), second.end()); err != nil {
		t.Fatal(err)
	}
}

// The start of the log moves past a restore under way, by retention or DeleteRecords: it begins again at the new start and says why.
func TestRestoreIsOvertakenByTruncation(t *testing.T) {
	c := newCounting(t)
	c.count(2, 2)
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	_, dead := c.dangling(time.Minute)
	r := start(t, c.topology(), c.config())
	<-r.starts
	<-r.starts
	c.truncate()
	c.must(dead.Abort)
	r.await(streams.StateRunning)
	for range 2 {
		if s := <-r.starts; !strings.Contains(s.Reason, "the changelog starts at") {
			t.Errorf("begun again: %+v", s)
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// The same before the restore has brought anything: its new start once gave no reason, as if nothing had happened.
func TestRestoreIsOvertakenBeforeItsFirstRecord(t *testing.T) {
	cluster := brokertest.Embedded(t)
	c := newCountingOn(t, brokertest.Bootstrap(cluster))
	c.count(2, 2)
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	unreadable := cluster.Fault(brokertest.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Topic: c.changelog(), Err: brokertest.Code(int16(kafka.LeaderNotAvailable)), Count: -1,
	})
	r := start(t, c.topology(), c.config())
	<-r.starts
	<-r.starts
	c.truncate()
	unreadable.Remove()
	for range 2 {
		select {
		case s := <-r.starts:
			if !strings.Contains(s.Reason, "the local state is at offset 0, the changelog starts at") {
				t.Errorf("begun again: %+v", s)
			}
		case <-time.After(deadline):
			t.Fatal("the restore did not begin again")
		}
	}
	r.await(streams.StateRunning)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// A changelog that cannot be read, for no reason that could pass: the instance ends and names the partition.
func TestRestoreThatStandsStill(t *testing.T) {
	cluster := brokertest.Embedded(t)
	c := newCountingOn(t, brokertest.Bootstrap(cluster))
	c.count(1, 1)
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	fault := cluster.Fault(brokertest.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Topic: c.changelog(), Partitions: []int32{1}, Err: brokertest.Code(int16(kafka.LeaderNotAvailable)), Count: -1,
	})
	defer fault.Remove()
	cfg := c.config()
	cfg.RetryTimeout = 4 * time.Second
	err := start(t, c.topology(), cfg).wait()
	var stalled *streams.StalledRestoreError
	if !errors.As(err, &stalled) || stalled.Changelog != (streams.TopicPartition{Topic: c.changelog(), Partition: 1}) ||
		stalled.For < cfg.RetryTimeout || !errors.Is(err, kafka.LeaderNotAvailable) {
		t.Errorf("error %v", err)
	}
}

// A long restore tells how it gets on, and running tasks go on beside it.
func TestRestoreProgress(t *testing.T) {
	c := newCounting(t)
	c.count(1, 1)
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	_, dead := c.dangling(time.Minute)
	cfg := c.config()
	progress := make(chan streams.RestoreProgress, 100)
	cfg.Listener.RestoreProgress = func(p streams.RestoreProgress) { progress <- p }
	r := start(t, c.topology(), cfg)
	begin := <-r.starts
	limit := time.After(deadline)
	for {
		select {
		case p := <-progress:
			if p.Changelog != begin.Changelog {
				continue
			}
			if p.From != begin.From || p.To != begin.To || p.Position <= p.From || p.Position >= p.To || p.Rate <= 0 || p.ETA <= 0 {
				t.Errorf("progress %+v of %+v", p, begin)
			}
		case <-limit:
			t.Fatal("no progress was told")
		}
		break
	}
	c.must(dead.Abort)
	r.await(streams.StateRunning)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// Two instances must not share a state folder; the message names the process that has it.
func TestStateFolderInUse(t *testing.T) {
	c := newCounting(t)
	r := start(t, c.topology(), c.config())
	r.await(streams.StateRunning)
	err := start(t, c.topology(), c.config()).wait()
	var locked *store.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("error %v, want the pid %d of the holder", err, os.Getpid())
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// logLines is what an instance logs, line by line.
type logLines chan string

func (l logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l logLines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default: // nobody reads so many
	}
	return len(b), nil
}

// await waits for a line with all the words in it.
func (l logLines) await(t *testing.T, parts ...string) {
	t.Helper()
	limit := time.After(deadline)
	for {
		select {
		case line := <-l:
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				return
			}
		case <-limit:
			t.Fatalf("no log line with %q within %s", parts, deadline)
		}
	}
}
