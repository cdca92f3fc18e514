package topology_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// restores collects what an App says of its restores.
type restores struct {
	mu     sync.Mutex
	starts map[streams.TopicPartition]streams.RestoreStart
	ends   map[streams.TopicPartition]streams.RestoreEnd
}

func (r *restores) listener() streams.Listener {
	r.starts, r.ends = map[streams.TopicPartition]streams.RestoreStart{}, map[streams.TopicPartition]streams.RestoreEnd{}
	return streams.Listener{
		RestoreStart: func(s streams.RestoreStart) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.starts[s.Changelog] = s
		},
		RestoreEnd: func(e streams.RestoreEnd) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ends[e.Changelog] = e
		},
	}
}

// countChangelogs are the partitions of the changelogs of both counts.
func (l *lab) countChangelogs() []kafka.TopicPartition {
	var tps []kafka.TopicPartition
	for p := range int32(topology.RepartitionPartitions) {
		tps = append(tps, kafka.TopicPartition{Topic: l.internal(topology.PerStoreChangelog), Partition: p},
			kafka.TopicPartition{Topic: l.internal(topology.PerStoreMinuteChangelog), Partition: p})
	}
	return tps
}

// positions reads from the state files of a dead instance how far they follow the changelogs of the counts.
func (l *lab) positions(dir string) map[kafka.TopicPartition]int64 {
	l.t.Helper()
	stores := map[string]string{l.internal(topology.PerStoreChangelog): "orders-per-store", l.internal(topology.PerStoreMinuteChangelog): "orders-per-store-minute"}
	out := map[kafka.TopicPartition]int64{}
	for _, tp := range l.countChangelogs() {
		task := streams.TaskID{Subtopology: 1, Partition: tp.Partition}
		dead := l.t.TempDir() // opening it leaves its mark
		if err := os.CopyFS(dead, os.DirFS(filepath.Join(dir, l.config.ApplicationID, task.String()))); err != nil {
			l.t.Fatal(err)
		}
		db, err := store.Open(dead, []store.Spec{
			{Name: "orders-per-store", Kind: store.KeyValueKind, Logged: true},
			{Name: "orders-per-store-minute", Kind: store.WindowKind, Retention: topology.WindowSize + topology.WindowGrace, Logged: true},
		}, store.Options{})
		if err != nil {
			l.t.Fatal(err)
		}
		if reason := db.Recovered(); reason != "" {
			l.t.Fatalf("%s: a killed process leaves its file good, but: %s", task, reason)
		}
		at, ok := db.Position(stores[tp.Topic])
		if !ok {
			l.t.Fatalf("%s: the state file knows no position in %s", task, tp)
		}
		out[tp] = at.Next
		if err := db.Close(); err != nil {
			l.t.Fatal(err)
		}
	}
	return out
}

// An instance with many keys, 100,000 in the long form, is killed with SIGKILL while a commit writes its changelog records. Kafka Streams
// 4.3.1 wipes the state of such a task exactly once, and replays the whole changelog; here the file is never ahead of what is committed, so
// under both guarantees the next start replays from the position in the file, and no more than the commit that did not end has written.
func TestKilledInstanceRestoresOneCommit(t *testing.T) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(guarantee), func(t *testing.T) { killedInstanceRestoresOneCommit(t, guarantee) })
	}
}

func killedInstanceRestoresOneCommit(t *testing.T, guarantee streams.Guarantee) {
	const kills = 3
	keys, perKill := size(10_000, 100_000), size(2_000, 10_000)
	l := newLabAnywhere(t, 5*time.Minute, shortSessions())
	l.config.ProcessingGuarantee, l.config.StateDir = guarantee, t.TempDir()
	f := l.flow()
	f.stores = keys
	// The orders of one round are one commit.
	properties := []string{"processing.guarantee=" + string(guarantee), "commit.interval.ms=30000", "transaction.timeout.ms=60000", "commit.idle.ms=200",
		"statestore.cache.max.bytes=1000000000"}
	i := l.process(t, "victim", l.config.StateDir, properties...)
	i.await("state RUNNING", 1)
	if err := f.send(keys, keys, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	l.awaitLag()
	i.end()

	replayed := int64(0)
	for range kills {
		i := l.process(t, "victim", l.config.StateDir, properties...)
		i.await("state RUNNING", 1)
		before := l.ends()
		if err := f.send(perKill, perKill, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		l.awaitGrowth(before)
		i.kill()
		l.awaitMembers(0) // and with it for what it had under way
		local := l.positions(l.config.StateDir)

		var r restores
		stop := l.start(topology.Hooks{}, r.listener())
		for _, tp := range l.countChangelogs() {
			start, end := r.starts[streams.TopicPartition(tp)], r.ends[streams.TopicPartition(tp)]
			if start.From != local[tp] || start.Reason != "" {
				t.Errorf("%s: restored from %d because of %q, the local state is at %d", tp, start.From, start.Reason, local[tp])
			}
			// One record for each order at most, and exactly once the marker of the transaction.
			if start.To-start.From > int64(perKill)+1 || end.Restored > start.To-start.From {
				t.Errorf("%s: restored %d records of offsets %d to %d, one commit has %d orders", tp, end.Restored, start.From, start.To, perKill)
			}
			replayed += start.To - start.From
			t.Logf("%s: restored %d records, from=%d to=%d", tp, end.Restored, start.From, start.To)
		}
		l.awaitLag()
		stop()
	}
	if replayed == 0 {
		t.Error("no kill has hit a commit")
	}
	t.Logf("%d keys, %d kills, %d counted again", keys, kills, f.checkCounts(guarantee))
}

func (l *lab) ends() map[kafka.TopicPartition]int64 {
	l.t.Helper()
	ends, err := l.client.ListOffsets(l.ctx, l.countChangelogs(), kafka.LatestOffset, kafka.ReadUncommitted)
	if err != nil {
		l.t.Fatal(err)
	}
	return ends
}

// awaitGrowth waits until a changelog of the counts is longer than it was.
func (l *lab) awaitGrowth(was map[kafka.TopicPartition]int64) {
	l.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		for tp, end := range l.ends() {
			if end > was[tp] {
				return
			}
		}
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			l.t.Fatal("no changelog grows")
		}
	}
}
