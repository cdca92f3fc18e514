package streams

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// quietStandbys are standbys without their goroutine: a test carries out by itself what that does.
func quietStandbys() *standbys {
	a := &App{cfg: DefaultConfig(), log: slog.New(slog.DiscardHandler)}
	a.cfg.ApplicationID = "app"
	return &standbys{
		app: a, log: a.log, calls: make(chan func()),
		wanted: map[int][]standbySpec{}, tasks: map[TaskID]*standby{}, logs: map[kafka.TopicPartition]*standbyLog{},
	}
}

func wordsIn(t *testing.T, dir string) *store.DB {
	t.Helper()
	db, err := store.Open(dir, []store.Spec{{Name: "words", Kind: store.KeyValueKind, Logged: true}}, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// Thread 2 was told to keep a standby of a task that thread 1 still has, and so the standby waits for the lock. Before it is given back, the
// next generation gives the standby to thread 1, which hands its file over with the lock: there is nothing to wait for any more.
func TestStandbyThatWaitsIsHandedOver(t *testing.T) {
	id := TaskID{1, 0}
	s := quietStandbys()
	s.app.locks.lock(id)
	db := wordsIn(t, t.TempDir())
	spec := []standbySpec{{id: id}}
	if err := s.assigned(2, spec, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	s.begin(ctx, &background, time.Now())
	if st := s.tasks[id]; !st.asking || st.db != nil {
		t.Fatalf("the standby does not wait for the task: %+v", st)
	}
	if err := s.assigned(1, spec, map[TaskID]*store.DB{id: db}); err != nil {
		t.Fatal(err)
	}
	st := s.tasks[id]
	if st.db != db || st.asking {
		t.Errorf("the standby has file %p, want %p, and waits: %t", st.db, db, st.asking)
	}
	if err := s.close(st); err != nil {
		t.Error(err)
	}
}

// The disk is full when a standby is given up. That is logged, and is no setback for the thread whose assignment it was.
func TestStandbyThatCannotBeClosed(t *testing.T) {
	id := TaskID{1, 0}
	s := quietStandbys()
	s.app.locks.lock(id)
	dir := t.TempDir()
	db := wordsIn(t, dir)
	if err := os.MkdirAll(filepath.Join(dir, "state.mark", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Restore("words", nil, store.Position{Next: 1}); err == nil {
		t.Fatal("the file can be written")
	}
	s.tasks[id] = &standby{standbySpec: standbySpec{id: id}, db: db}
	if err := s.assigned(1, nil, nil); err != nil {
		t.Errorf("the thread hears of it: %v", err)
	}
	if len(s.tasks) > 0 || s.app.locks.lock(id) != nil {
		t.Error("the task is not given back")
	}
}

// A state file says that it was committed, and the group has lost its offsets. A standby that follows on does not wipe that out: whoever is
// given the task has to refuse to count its input twice.
func TestStandbyKeepsThatItWasCommitted(t *testing.T) {
	committed := time.UnixMilli(1_700_000_000_000)
	for _, tc := range []struct {
		name       string
		written    time.Time
		hadOffsets bool
		want       time.Time
	}{
		{"was committed, offsets lost", committed, false, committed},
		{"never committed", time.Time{}, false, time.Time{}},
		{"committed since", time.Time{}, true, committed.Add(time.Hour)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := quietStandbys()
			db := wordsIn(t, t.TempDir())
			l := &standbyLog{
				standby:   &standby{db: db, hadOffsets: tc.hadOffsets},
				changelog: changelog{store: "words", next: 7},
				written:   store.Position{CommittedAt: tc.written},
				asOf:      committed.Add(time.Hour),
			}
			if err := l.put(s.app); err != nil {
				t.Fatal(err)
			}
			if pos, _ := db.Position("words"); pos.Next != 7 || !pos.CommittedAt.Equal(tc.want) {
				t.Errorf("the file says %+v, want offset 7 committed at %s", pos, tc.want)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An owner's transaction is open behind its offsets, for as long as a dead one's may be. A standby needs to know only whether the group has
// offsets, and does not wait for its end.
func TestStandbyDoesNotWaitForTransactions(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Topics(1, "lines", "log"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client, err := kafka.New(ctx, kafka.Config{Seeds: []string{brokertest.Bootstrap(cluster)}, RetryTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	in, log := kafka.TopicPartition{Topic: "lines"}, kafka.TopicPartition{Topic: "log"}
	meta := kafka.GroupMeta{Group: "app", Generation: -1}
	if err := client.CommitOffsets(ctx, meta, map[kafka.TopicPartition]kafka.Offset{in: {Offset: 5}}); err != nil {
		t.Fatal(err)
	}
	p, err := client.NewProducer(ctx, kafka.ProducerConfig{TransactionalID: "t", TransactionTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SendOffsets(ctx, map[kafka.TopicPartition]kafka.Offset{in: {Offset: 7}}, meta); err != nil {
		t.Fatal(err)
	}
	s := quietStandbys()
	s.app.client = client
	spec := standbySpec{inputs: []kafka.TopicPartition{in}, changelogs: []standbyChangelog{{tp: log}}}
	if b := s.lookUp(ctx, []*standby{{standbySpec: spec}}); b.err != nil || b.committed[in].Offset != 5 {
		t.Errorf("inside the transaction: %+v, want offset 5", b)
	}
	if err := p.Commit(ctx, nil, kafka.GroupMeta{}); err != nil {
		t.Error(err)
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}
