package streams_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
)

// aligned counts words per second without grace, behind a repartition topic: two tasks write it, and a record out of time order is late.
type aligned struct {
	*counting
	cfg streams.Config

	mu      sync.Mutex
	late    []streams.Skipped
	excused chan streams.TaskExcused
}

func newAligned(c *counting) *aligned {
	a := &aligned{counting: c, cfg: c.config(), excused: make(chan streams.TaskExcused, 10)}
	a.cfg.Listener.Skipped = func(s streams.Skipped) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.late = append(a.late, s)
	}
	a.cfg.Listener.Excused = func(e streams.TaskExcused) { a.excused <- e }
	return a
}

func (a *aligned) topology() *streams.Topology {
	a.t.Helper()
	b, text := streams.NewBuilder(), streams.Text()
	words := streams.SelectKey(streams.Consume(b, a.in, text, text), func(_, word string) string { return word })
	g := words.Repartition("words", 1, text, text).GroupByKey().WindowedBy(streams.Tumbling(time.Second))
	counts := streams.CountWindows(g, "seconds").ToStream()
	streams.Map(counts, func(w streams.Windowed[string], n int64) (string, string) {
		return fmt.Sprintf("%s@%d", w.Key, w.Start/1000), fmt.Sprint(n)
	}).To(a.out, text, text)
	top, err := b.Build()
	if err != nil {
		a.t.Fatal(err)
	}
	return top
}

// put writes words to a partition, a second apart from at on.
func (a *aligned) put(p *kafka.Producer, partition int32, at int64, words string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	own := p == nil
	if own {
		var err error
		if p, err = a.client.NewProducer(ctx, kafka.ProducerConfig{}); err != nil {
			a.t.Fatal(err)
		}
	}
	for i, w := range strings.Fields(words) {
		if err := p.Send(ctx, kafka.Message{Topic: a.in, Partition: partition, Timestamp: (at + int64(i)) * 1000, Value: []byte(w)}); err != nil {
			a.t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		a.t.Fatal(err)
	}
	if own {
		if err := p.Close(ctx); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *aligned) lateRecords() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.late)
}

// ends runs until the counts are as wanted, and gives how many records were late by then.
func (a *aligned) ends(r *running, want map[string]string) int {
	a.t.Helper()
	a.awaitCounts(want)
	if err := r.end(); err != nil {
		a.t.Fatal(err)
	}
	return a.lateRecords()
}

// Two partitions that are both behind are read in time order, under both guarantees. One that is empty holds nobody.
func TestAlignmentOfACatchUp(t *testing.T) {
	eachGuarantee(t, func(t *testing.T, c *counting) {
		a := newAligned(c)
		a.put(nil, 0, 100, "a b")
		a.put(nil, 1, 50, "c d")
		if late := a.ends(start(t, a.topology(), a.cfg), map[string]string{"a@100": "1", "b@101": "1", "c@50": "1", "d@51": "1"}); late != 0 {
			t.Errorf("%d records late", late)
		}
	})
}

func TestAlignmentWithAnEmptyPartition(t *testing.T) {
	eachGuarantee(t, func(t *testing.T, c *counting) {
		a := newAligned(c)
		a.cfg.TaskTimeAlignmentMaxWait = time.Hour
		a.put(nil, 1, 50, "c d")
		if late := a.ends(start(t, a.topology(), a.cfg), map[string]string{"c@50": "1", "d@51": "1"}); late != 0 {
			t.Errorf("%d records late", late)
		}
	})
}

// deadLeader makes a partition of the input answer no fetch, and waits until that has been noticed a few times.
func (a *aligned) deadLeader(cluster *brokertest.Cluster, partition int32) (*brokertest.FaultHandle, func()) {
	fault := cluster.Fault(brokertest.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Topic: a.in, Partitions: []int32{partition},
		Err: brokertest.Code(int16(kafka.LeaderNotAvailable)), Count: -1,
	})
	return fault, func() {
		a.t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := fault.Wait(ctx, 5); err != nil {
			a.t.Fatal(err)
		}
	}
}

// A partition without a leader may hold the earliest record. It is waited for: when it answers, all goes on in time order.
func TestAlignmentWaitsForADeadLeader(t *testing.T) {
	cluster := brokertest.Embedded(t)
	a := newAligned(newCountingOn(t, brokertest.Bootstrap(cluster)))
	a.cfg.TaskTimeAlignmentMaxWait = time.Hour
	a.put(nil, 0, 100, "a b")
	a.put(nil, 1, 50, "c d")
	fault, noticed := a.deadLeader(cluster, 1)
	r := start(t, a.topology(), a.cfg)
	noticed()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	repartition := kafka.TopicPartition{Topic: a.app + "-words-repartition"}
	ends, err := a.client.ListOffsets(ctx, []kafka.TopicPartition{repartition}, kafka.LatestOffset, kafka.ReadUncommitted)
	if err != nil || ends[repartition] != 0 {
		t.Errorf("%d records went on before the partition answered (%v)", ends[repartition], err)
	}
	fault.Remove()
	if late := a.ends(r, map[string]string{"a@100": "1", "b@101": "1", "c@50": "1", "d@51": "1"}); late != 0 {
		t.Errorf("%d records late", late)
	}
}

// It is not waited for without an end: the others go on, it is said of which partition that is, and what it brings later is late.
func TestAlignmentExcusesADeadLeader(t *testing.T) {
	cluster := brokertest.Embedded(t)
	a := newAligned(newCountingOn(t, brokertest.Bootstrap(cluster)))
	a.cfg.TaskTimeAlignmentMaxWait = 100 * time.Millisecond
	a.put(nil, 0, 100, "a b")
	a.put(nil, 1, 50, "c d")
	fault, _ := a.deadLeader(cluster, 1)
	r := start(t, a.topology(), a.cfg)
	select {
	case e := <-a.excused:
		want := streams.TaskExcused{
			Task: streams.TaskID{Partition: 1}, Partition: streams.TopicPartition{Topic: a.in, Partition: 1}, Waited: a.cfg.TaskTimeAlignmentMaxWait,
		}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Error(diff)
		}
	case <-time.After(deadline):
		t.Fatal("nobody was excused")
	}
	a.awaitCounts(map[string]string{"a@100": "1", "b@101": "1"})
	fault.Remove()
	a.put(nil, 1, 200, "e")
	if late := a.ends(r, map[string]string{"a@100": "1", "b@101": "1", "e@200": "1"}); late != 2 {
		t.Errorf("%d records late, want those of 50 and 51 s", late)
	}
}

// An upstream application is in the middle of a transaction. Exactly once reads up to the last stable offset: that is the end of the partition
// for now, and holds nobody, neither the tasks beside it nor the sub-topology below, which reads what this one commits. At least once does not
// know transactions and takes the records at once.
func TestAlignmentUnderAnOpenTransaction(t *testing.T) {
	eachGuarantee(t, func(t *testing.T, c *counting) {
		a := newAligned(c)
		a.cfg.TaskTimeAlignmentMaxWait = time.Hour
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		upstream, err := a.client.NewProducer(ctx, kafka.ProducerConfig{TransactionalID: a.app + "-upstream", TransactionTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := upstream.Close(ctx); err != nil {
				t.Error(err)
			}
		}()
		a.put(upstream, 1, 200, "c")
		a.put(nil, 0, 100, "a b")
		want := map[string]string{"a@100": "1", "b@101": "1"}
		if c.guarantee == streams.AtLeastOnce {
			want["c@200"] = "1"
		}
		r := start(t, a.topology(), a.cfg)
		a.awaitCounts(want)
		if err := upstream.Commit(ctx, nil, kafka.GroupMeta{}); err != nil {
			t.Fatal(err)
		}
		want["c@200"] = "1"
		if late := a.ends(r, want); late != 0 {
			t.Errorf("%d records late", late)
		}
	})
}
