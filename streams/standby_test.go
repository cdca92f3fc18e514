package streams_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/streams"
)

// keeper is an instance that keeps standbys for others, as far as it tells.
type keeper struct {
	*running
	name string
	dir  string

	mu        sync.Mutex
	changed   chan struct{} // closed and made anew with each change
	active    []string      // tasks
	standby   []streams.Task
	positions map[streams.TopicPartition]int64
	log       strings.Builder
}

// keep starts an instance with one standby for each task.
func (c *counting) keep(name string, top *streams.Topology) *keeper {
	c.t.Helper()
	k := &keeper{name: name, dir: filepath.Join(c.dir, name), changed: make(chan struct{}), positions: map[streams.TopicPartition]int64{}}
	cfg := c.config()
	cfg.StateDir, cfg.ClientID, cfg.StandbyReplicas = k.dir, name, 1
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(k, nil))
	}
	cfg.Listener.TasksAssigned = func(tasks []streams.Task) {
		k.change(func() {
			k.active = nil
			for _, t := range tasks {
				k.active = append(k.active, t.ID.String())
			}
		})
	}
	cfg.Listener.StandbysAssigned = func(tasks []streams.Task) { k.change(func() { k.standby = tasks }) }
	cfg.Listener.StandbyUpdated = func(u streams.StandbyUpdate) {
		k.change(func() { k.positions[u.Changelog] = u.Position })
	}
	k.running = start(c.t, top, cfg)
	return k
}

// keepTwo starts two instances that have counted each word once, and each of which keeps a copy of the other's one task.
func (c *counting) keepTwo() (first, second *keeper) {
	c.t.Helper()
	first = c.keep("first", c.topology())
	first.await(streams.StateRunning)
	c.send(words...)
	c.awaitCounts(each(1))
	second = c.keep("second", c.topology())
	second.await(streams.StateRunning)
	second.awaitThat("standby of one task", func() bool { return len(second.standby) == 1 })
	c.awaitLag()
	c.awaitCaughtUp(second)
	return first, second
}

func (k *keeper) change(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *keeper) Write(b []byte) (int, error) {
	k.change(func() { k.log.Write(b) })
	return len(b), nil
}

// awaitThat waits until ok, which is called with the keeper's facts held still.
func (k *keeper) awaitThat(what string, ok func() bool) {
	k.t.Helper()
	limit := time.After(deadline)
	for {
		k.mu.Lock()
		done, changed := ok(), k.changed
		k.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case err := <-k.done:
			k.t.Fatalf("%s ended before %s: %v", k.name, what, err)
		case <-limit:
			k.mu.Lock()
			defer k.mu.Unlock()
			k.t.Fatalf("%s: not %s within %s: active %v, standby %v at %v\n%s", k.name, what, deadline, k.active, k.standby, k.positions, k.log.String())
		}
	}
}

// awaitCaughtUp waits until the standbys have all committed records of their changelogs as they are now.
func (c *counting) awaitCaughtUp(k *keeper) {
	c.t.Helper()
	k.mu.Lock()
	var tps []kafka.TopicPartition
	for _, t := range k.standby {
		for _, tp := range t.Partitions {
			tps = append(tps, kafka.TopicPartition(tp))
		}
	}
	k.mu.Unlock()
	var ends map[kafka.TopicPartition]int64
	c.must(func(ctx context.Context) (err error) {
		ends, err = c.client.ListOffsets(ctx, tps, kafka.LatestOffset, kafka.ReadCommitted)
		return err
	})
	k.awaitThat(fmt.Sprint("caught up with ", ends), func() bool {
		for tp, end := range ends {
			if k.positions[streams.TopicPartition(tp)] < end {
				return false
			}
		}
		return true
	})
}

// rowsIn is the content of a task's stores, byte for byte.
func (c *counting) rowsIn(k *keeper, task string) map[string]string {
	c.t.Helper()
	rows := map[string]string{}
	err := store.Inspect(filepath.Join(k.dir, c.app, task, "state.db"), func(store string, key, value []byte, ts int64) {
		rows[fmt.Sprintf("%s %q", store, key)] = fmt.Sprintf("%q@%d", value, ts)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return rows
}

// copied is a topology with a store of each kind: counts, counts by minute, and a table whose rows can be deleted.
func (c *counting) copied(table string) *streams.Topology {
	c.t.Helper()
	b, text := streams.NewBuilder(), streams.Text()
	words := streams.SelectKey(streams.Consume(b, c.in, text, text), func(_, word string) string { return word }).WithSerdes(text, text).GroupByKey()
	counts := streams.Count(words, "words")
	streams.MapValues(counts.ToStream(), func(n int64) string { return fmt.Sprint(n) }).To(c.out, text, text)
	streams.CountWindows(words.WindowedBy(streams.Tumbling(time.Minute)), "minutes")
	streams.ReadTable(b, table, "rows", text, text)
	top, err := b.Build()
	if err != nil {
		c.t.Fatal(err)
	}
	return top
}

// put writes a record with a key to a topic. No value is a tombstone.
func (c *counting) put(topic string, partition int32, at int64, key string, value []byte) {
	c.t.Helper()
	c.must(func(ctx context.Context) error {
		p, err := c.client.NewProducer(ctx, kafka.ProducerConfig{})
		if err != nil {
			return err
		}
		if err := p.Send(ctx, kafka.Message{Topic: topic, Partition: partition, Timestamp: at, Key: []byte(key), Value: value}); err != nil {
			return err
		}
		return p.Close(ctx)
	})
}

// A standby holds what the active task's store holds, byte for byte: replaced and deleted rows and expired windows too. It is on the other
// instance, which takes the task over without anything to replay but the marker of a last transaction.
func TestStandbyIsAWarmCopy(t *testing.T) { eachGuarantee(t, testStandbyIsAWarmCopy) }

func testStandbyIsAWarmCopy(t *testing.T, c *counting) {
	table := c.table(2)
	top := c.copied(table)
	first := c.keep("first", top)
	first.await(streams.StateRunning)
	first.awaitThat("active in all tasks", func() bool { return len(first.active) == 8 })
	c.send(words...)
	c.awaitCounts(each(1))

	second := c.keep("second", top)
	second.await(streams.StateRunning)
	tasks := []string{"1_0", "1_1", "2_0", "2_1", "3_0", "3_1"} // those with stores
	for _, k := range []*keeper{first, second} {
		k.awaitThat("standby of what the other works on", func() bool {
			all := slices.DeleteFunc(slices.Clone(k.active), func(id string) bool { return strings.HasPrefix(id, "0_") })
			for _, s := range k.standby {
				if !s.Standby {
					t.Errorf("%s: %+v is told as a standby", k.name, s)
				}
				all = append(all, s.ID.String())
			}
			slices.Sort(all)
			return slices.Equal(all, tasks) && len(k.standby) == 3 // half of them; none before the rebalance
		})
	}
	for n := range 3 {
		for p := range int32(2) {
			c.put(table, p, int64(1_700_000_000_000+n), "kept", fmt.Append(nil, n))
			c.put(table, p, int64(1_700_000_000_000+n), "deleted", [][]byte{[]byte("x"), []byte("y"), nil}[n])
		}
		for i, w := range words { // an hour on, so that the minutes of the rounds before expire
			c.put(c.in, int32(i%2), 1_700_000_000_000+int64(n)*3_600_000, "", []byte(w))
		}
		c.awaitCounts(each(2 + n))
	}
	c.awaitLag()
	c.awaitCaughtUp(first)
	c.awaitCaughtUp(second)
	for len(second.starts) > 0 { // of its first tasks
		<-second.starts
	}
	taken := len(second.standby)
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	second.await(streams.StateRunning)
	for range taken { // a standby's stores are taken over as they are
		s := <-second.starts
		if markers := s.To - s.From; markers > 1 || markers == 1 && c.guarantee == streams.AtLeastOnce || s.Reason != "" || s.From == 0 {
			t.Errorf("restore of a standby that was caught up: %+v", s)
		}
	}
	if err := second.end(); err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		want, got := c.rowsIn(first, task), c.rowsIn(second, task)
		if len(want) == 0 {
			t.Errorf("task %s has no rows", task)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("task %s (-first +second):\n%s", task, diff)
		}
	}
}

// awaitLag waits until the application has committed all of its input.
func (c *counting) awaitLag() {
	c.t.Helper()
	c.must(func(ctx context.Context) error {
		for {
			committed, err := c.client.CommittedOffsets(ctx, c.app, nil)
			if err != nil {
				return err
			}
			tps := slices.Collect(maps.Keys(committed))
			ends, err := c.client.ListOffsets(ctx, tps, kafka.LatestOffset, kafka.ReadCommitted)
			if err != nil {
				return err
			}
			lag := int64(0)
			for tp, o := range committed {
				lag += ends[tp] - o.Offset
			}
			if lag == 0 && len(committed) > 0 {
				return nil
			}
		}
	})
}

// What was written into a changelog in a transaction that is then aborted never reaches a standby, under neither guarantee, and while the
// transaction is open the standby does not read past its start.
func TestStandbyNeverHoldsAborted(t *testing.T) { eachGuarantee(t, testStandbyNeverHoldsAborted) }

func testStandbyNeverHoldsAborted(t *testing.T, c *counting) {
	first, second := c.keepTwo()
	log := kafka.TopicPartition(second.standby[0].Partitions[0])

	var p *kafka.Producer
	c.must(func(ctx context.Context) (err error) {
		p, err = c.client.NewProducer(ctx, kafka.ProducerConfig{TransactionalID: c.app + "-test", TransactionTimeout: time.Minute})
		if err != nil {
			return err
		}
		if err := p.Send(ctx, kafka.Message{Topic: log.Topic, Partition: log.Partition, Timestamp: 1, Key: []byte("aborted"), Value: make([]byte, 8)}); err != nil {
			return err
		}
		return p.Flush(ctx)
	})
	open := c.offsets(kafka.LatestOffset)[log]
	// Committed or not, records behind it wait for the end of the open transaction.
	c.put(log.Topic, log.Partition, 1, "behind", make([]byte, 8))
	second.mu.Lock()
	at := second.positions[streams.TopicPartition(log)]
	second.mu.Unlock()
	if at >= open {
		t.Errorf("the standby is at offset %d, with a transaction open before %d", at, open)
	}
	c.must(func(ctx context.Context) error { return p.Abort(ctx) })
	c.must(func(ctx context.Context) error { return p.Close(ctx) })
	second.awaitThat("past the aborted transaction", func() bool { return second.positions[streams.TopicPartition(log)] > open+1 })
	task := second.standby[0].ID.String()
	if err := second.end(); err != nil {
		t.Fatal(err)
	}
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	rows := c.rowsIn(second, task)
	if _, there := rows[`words "aborted"`]; there {
		t.Errorf("the standby holds a record of an aborted transaction: %v", rows)
	}
	if _, there := rows[`words "behind"`]; !there {
		t.Errorf("the standby lacks the record behind the aborted transaction: %v", rows)
	}
}

// A changelog was cut back while a standby's instance was down: what the standby holds may lack what is gone. It says so and begins again.
// The same goes for a changelog that was made anew.
func TestStandbyRebuilds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *counting)
		reason string
	}{
		{"truncated", (*counting).truncate, "the changelog starts at"},
		{"another topic", func(c *counting) {
			c.rewriteIn("second", func(p *store.Position) { p.TopicID[0]++ })
		}, "was deleted and created again"},
		{"beyond the end", func(c *counting) {
			c.rewriteIn("second", func(p *store.Position) { p.Next += 1000 })
		}, "beyond the changelog's end"},
		{"too old", func(c *counting) {
			c.rewriteIn("second", func(p *store.Position) { p.CommittedAt = p.CommittedAt.Add(-25 * time.Hour) })
		}, "tombstones since then may be gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCounting(t)
			first, second := c.keepTwo()
			if err := second.end(); err != nil {
				t.Fatal(err)
			}
			first.await(streams.StateRunning)
			c.send(words...) // what the standby does not see
			c.awaitCounts(each(2))
			c.awaitLag()
			tc.change(c)
			c.send(words...) // so that the changelog is complete again
			c.awaitCounts(each(3))

			second = c.keep("second", c.topology())
			second.await(streams.StateRunning)
			second.awaitThat("rebuilt", func() bool {
				log := second.log.String()
				return strings.Contains(log, "rebuilding a standby's store") && strings.Contains(log, tc.reason)
			})
			second.awaitThat("standby of one task", func() bool { return len(second.standby) == 1 })
			c.awaitLag()
			c.awaitCaughtUp(second)
			if err := first.end(); err != nil {
				t.Fatal(err)
			}
			c.send(words...)
			c.awaitCounts(each(4))
			if err := second.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// rewriteIn changes the positions in a named instance's state files, which nobody may have open.
func (c *counting) rewriteIn(name string, change func(p *store.Position)) {
	c.t.Helper()
	for p := range 2 {
		dir := filepath.Join(c.dir, name, c.app, fmt.Sprint("1_", p))
		db, err := store.Open(dir, []store.Spec{{Name: "words", Kind: store.KeyValueKind, Logged: true}}, store.Options{})
		if err != nil {
			c.t.Fatal(err)
		}
		pos, ok := db.Position("words")
		if !ok {
			c.t.Fatalf("%s has no position", dir)
		}
		change(&pos)
		if err := db.Commit(store.Commit{Positions: map[string]store.Position{"words": pos}, At: pos.CommittedAt}); err != nil {
			c.t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Tasks come and go between two instances that keep standbys for each other: each time the one that loses a task keeps it as a standby, and
// the other goes on with the copy that it has. Nothing is restored from the start, and no word is lost or, exactly once, counted twice.
func TestTasksGoBackAndForthBetweenStandbys(t *testing.T) { eachGuarantee(t, testTasksGoBackAndForth) }

func testTasksGoBackAndForth(t *testing.T, c *counting) {
	top := c.topology()
	first := c.keep("first", top)
	first.await(streams.StateRunning)
	n := 0
	count := func() {
		t.Helper()
		n++
		c.send(words...)
		c.awaitCounts(each(n))
		c.awaitLag()
	}
	count()
	for len(first.starts) > 0 { // there was nothing to restore yet
		<-first.starts
	}
	second := c.keep("second", top)
	for range 4 {
		second.await(streams.StateRunning)
		for _, k := range []*keeper{first, second} {
			k.awaitThat("half of the tasks and a standby", func() bool { return len(k.active) == 2 && len(k.standby) == 1 })
		}
		count()
		c.awaitCaughtUp(first)
		for len(first.starts) > 0 {
			if s := <-first.starts; s.From == 0 || s.Reason != "" {
				t.Errorf("restore %+v after %d rounds", s, n)
			}
		}
		if err := second.end(); err != nil {
			t.Fatal(err)
		}
		first.awaitThat("active in all tasks", func() bool { return len(first.active) == 4 && len(first.standby) == 0 })
		count()
		second = c.keep("second", top)
	}
	if err := second.end(); err != nil {
		t.Fatal(err)
	}
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
}
