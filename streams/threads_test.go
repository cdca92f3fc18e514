package streams_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/streams"
)

// assignments hears which tasks an application has.
type assignments chan []streams.Task

func (a assignments) listen(cfg *streams.Config) {
	cfg.Listener.TasksAssigned = func(tasks []streams.Task) { a <- tasks }
}

// await waits for an assignment of n tasks and returns how many each thread has.
func (a assignments) await(t *testing.T, n int) map[int]int {
	t.Helper()
	for limit := time.After(deadline); ; {
		select {
		case tasks := <-a:
			if len(tasks) != n {
				continue
			}
			threads := map[int]int{}
			for _, task := range tasks {
				threads[task.Thread]++
			}
			return threads
		case <-limit:
			t.Fatalf("no assignment of %d tasks within %s", n, deadline)
		}
	}
}

// The threads of an instance are members of their own, share its tasks evenly, and count as one would.
func TestThreadsShareTheTasks(t *testing.T) {
	for _, threads := range []int{2, 4} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			eachGuarantee(t, func(t *testing.T, c *counting) { threadsShareTheTasks(t, c, threads) })
		})
	}
}

func threadsShareTheTasks(t *testing.T, c *counting, threads int) {
	given := make(assignments, 100)
	cfg := c.config()
	cfg.Threads = threads
	given.listen(&cfg)
	r := start(t, c.topology(), cfg)
	got := given.await(t, 4)
	for thread := 1; thread <= threads; thread++ {
		if got[thread] != 4/threads {
			t.Errorf("thread %d of %d has %d tasks of 4", thread, threads, got[thread])
		}
	}
	c.send(words...)
	c.awaitCounts(each(1))
	c.must(func(ctx context.Context) error {
		g, err := c.client.DescribeGroup(ctx, c.app)
		clients := map[string]bool{}
		for _, m := range g.Members {
			clients[m.ClientID] = true
		}
		for thread := 1; thread <= threads; thread++ {
			if id := fmt.Sprintf("%s-StreamThread-%d-consumer", c.app, thread); !clients[id] || len(clients) != threads {
				t.Errorf("the group has members %v, want %s", clients, id)
			}
		}
		return err
	})
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	r = start(t, c.topology(), cfg)
	given.await(t, 4)
	c.send(words...)
	c.awaitCounts(each(2))
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// A thread fails. The others stop with it, but cleanly: what they have counted is committed. The error says which thread it was.
func TestThreadsStopWithTheFirstThatFails(t *testing.T) {
	c := newCounting(t)
	both := make(chan struct{})
	observed := streams.Before("KSTREAM-KEY-SELECT-0000000001", func(_ *streams.Context, r streams.Record[string, string]) {
		if r.Value == "good" {
			close(both)
			return
		}
		<-both
		panic("a bad word")
	})
	given := make(assignments, 100)
	cfg := c.config()
	cfg.Threads, cfg.Observers = 2, []*streams.Observer{observed}
	cfg.CommitInterval, cfg.CommitIdle = time.Hour, -1
	given.listen(&cfg)
	r := start(t, c.topology(), cfg)
	given.await(t, 4)
	c.send("bad", "good") // on a partition each
	err := r.wait()
	var failed *streams.ProcessingError
	if !errors.As(err, &failed) || failed.Partition != 0 || !strings.HasPrefix(err.Error(), "stream thread ") {
		t.Errorf("ended with %v, want the failure at partition 0 in one of the threads", err)
	}
	close(r.states)
	var states []streams.State
	for s := range r.states {
		states = append(states, s.To)
	}
	if n := len(states); n < 2 || !slices.Equal(states[n-2:], []streams.State{streams.StatePendingError, streams.StateError}) {
		t.Errorf("went through %v", states)
	}
	c.must(func(ctx context.Context) error {
		offsets, err := c.client.CommittedOffsets(ctx, c.app, nil)
		if got := offsets[kafka.TopicPartition{Topic: c.in, Partition: 1}].Offset; got != 1 {
			t.Errorf("the good word's thread has committed offset %d, want 1", got)
		}
		if o, ok := offsets[kafka.TopicPartition{Topic: c.in, Partition: 0}]; ok {
			t.Errorf("the bad word is committed: %+v", o)
		}
		return err
	})
}

// A second instance comes and goes while words flow. Tasks move between the threads of the first as well, whose files are opened by one
// thread when another has closed them, and each word is counted exactly once.
func TestTasksMoveBetweenThreads(t *testing.T) { eachGuarantee(t, tasksMoveBetweenThreads) }

func tasksMoveBetweenThreads(t *testing.T, c *counting) {
	const rounds = 6
	steady, guest := make(assignments, 1000), make(assignments, 1000)
	cfg := c.config()
	cfg.Threads = 2
	cfg.CommitInterval = 20 * time.Millisecond
	steady.listen(&cfg)
	first := start(t, c.topology(), cfg)
	steady.await(t, 4)
	cfg.Threads, cfg.StateDir = 1, t.TempDir()
	guest.listen(&cfg)
	sent := 0
	count := func() {
		c.send(words...)
		sent++
	}
	for range rounds {
		second := start(t, c.topology(), cfg)
		count()
		if n := guest.await(t, 1)[1]; n != 1 {
			t.Errorf("one thread of three has %d of 4 tasks", n)
		}
		count()
		steady.await(t, 3)
		count()
		if err := second.end(); err != nil {
			t.Fatal(err)
		}
		count()
		if got := steady.await(t, 4); got[1] != 2 || got[2] != 2 {
			t.Errorf("with the second instance gone the threads have %v", got)
		}
	}
	c.awaitCounts(each(sent))
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
}

// A thread is stuck in a user's function. The group takes its tasks away and gives them to the other thread of the process, which waits for
// their files, with heartbeats, until the stuck one lets go of them. What that one had begun counts for nothing.
func TestThreadWaitsForTheFilesOfAnother(t *testing.T) {
	c := newCounting(t)
	c.guarantee = streams.ExactlyOnce
	stuck, free := make(chan struct{}, 1), make(chan struct{})
	observed := streams.Before("KSTREAM-KEY-SELECT-0000000001", func(ctx *streams.Context, r streams.Record[string, string]) {
		if r.Value == "stuck" {
			select { // the word comes again when its thread has lost the task
			case stuck <- struct{}{}:
			default:
			}
			<-free
		}
	})
	waits := make(chan string, 1000)
	given, other := make(assignments, 100), make(assignments, 100)
	cfg := c.config()
	cfg.RebalanceTimeout = 2 * time.Second
	cfg.Threads = 2
	given.listen(&cfg)
	cfg.Observers = []*streams.Observer{observed}
	cfg.Listener.Waiting = func(reason string) { waits <- reason }
	r := start(t, c.topology(), cfg)
	given.await(t, 4)
	guest := c.config()
	guest.StateDir = t.TempDir()
	other.listen(&guest)
	second := start(t, c.topology(), guest)
	other.await(t, 1)
	given.await(t, 3)

	// Both partitions, of which the first instance has one at least.
	c.send("stuck", "stuck")
	select {
	case <-stuck:
	case <-time.After(deadline):
		t.Fatal("the word did not come")
	}
	if err := second.end(); err != nil { // a rebalance
		t.Fatal(err)
	}
	for limit := time.After(deadline); ; {
		select {
		case reason := <-waits:
			if !strings.Contains(reason, "is not given back yet by another thread of this process") {
				continue
			}
		case <-limit:
			t.Fatal("nobody waited for the stuck thread's files")
		}
		break
	}
	close(free)
	given.await(t, 4)
	c.awaitCounts(map[string]string{"stuck": "2"})
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// An instance was killed with an open transaction in its third thread, and comes back with one thread, or at least once. The transaction
// would hold back what it has touched for ten minutes: no thread of today has its transactional id.
func TestFormerThreadsTransactionIsEnded(t *testing.T) {
	eachGuarantee(t, func(t *testing.T, c *counting) {
		now := c.guarantee
		c.guarantee = streams.ExactlyOnce
		given := make(assignments, 100)
		cfg := c.config()
		cfg.Threads = 3
		given.listen(&cfg)
		r := start(t, c.topology(), cfg)
		given.await(t, 4)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		c.must(func(ctx context.Context) error {
			p, err := c.client.NewProducer(ctx, kafka.ProducerConfig{
				TransactionalID:    fmt.Sprintf("%s-%s-3", c.app, store.ProcessIDIn(filepath.Join(c.dir, c.app))),
				TransactionTimeout: 10 * time.Minute,
			})
			if err != nil {
				return err
			}
			t.Cleanup(func() {
				gone, cancel := context.WithCancel(context.Background())
				cancel()
				_ = p.Close(gone) // fenced
			})
			if err := p.Send(ctx, kafka.Message{Topic: c.out, Key: []byte("a"), Value: []byte("never")}); err != nil {
				return err
			}
			return p.Flush(ctx)
		})
		c.guarantee = now
		r = start(t, c.topology(), c.config())
		c.send(words...)
		c.awaitCounts(each(1)) // reads committed
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Configurations of threads and static members that make no sense are refused by the name of the property.
func TestThreadsConfig(t *testing.T) {
	c := newCounting(t)
	for key, change := range map[string]func(*streams.Config){
		"num.stream.threads": func(cfg *streams.Config) { cfg.Threads = 0 },
		"group.instance.id":  func(cfg *streams.Config) { cfg.GroupInstanceID = "a b" },
	} {
		cfg := c.config()
		change(&cfg)
		var bad *streams.PropertyError
		if _, err := streams.NewApp(c.topology(), cfg); !errors.As(err, &bad) || bad.Key != key {
			t.Errorf("%s: %v", key, err)
		}
	}
	cfg, err := streams.ParseProperties(c.config(), []string{"num.stream.threads=3", "group.instance.id=a.1"})
	if err != nil || cfg.Threads != 3 || cfg.GroupInstanceID != "a.1" {
		t.Errorf("%d threads, group instance id %q, %v", cfg.Threads, cfg.GroupInstanceID, err)
	}
}
