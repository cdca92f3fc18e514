package topology_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/topology"
)

// shortSessions lets an embedded broker take sessions of less than the 6 s that is Kafka's minimum.
func shortSessions() brokertest.Option {
	return brokertest.Configs(map[string]string{"group.min.session.timeout.ms": "100"})
}

// process starts a named instance as a process of its own, with the shortest session that the broker takes.
func (l *lab) process(t testing.TB, name, dir string, properties ...string) *instance {
	t.Helper()
	session := "1000"
	if onRealBroker() {
		session = "6000"
	}
	base := []string{
		"test.prefix=" + l.prefix, "application.id=" + l.config.ApplicationID, "client.id=" + name,
		"session.timeout.ms=" + session, "heartbeat.interval.ms=200", "commit.interval.ms=200", "repartition.purge.interval.ms=3600000",
		fmt.Sprint("windowstore.changelog.additional.retention.ms=", windowRetention.Milliseconds()),
		"max.poll.interval.ms=15000", // one that is killed while it joins is waited for that long
	}
	return startInstance(t, strings.Join(l.config.Bootstrap, ","), dir, append(base, properties...)...)
}

// awaitMembers waits until the group has that many members.
func (l *lab) awaitMembers(n int) {
	l.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		g, err := l.client.DescribeGroup(l.ctx, l.config.ApplicationID)
		if err != nil {
			l.t.Fatal(err)
		}
		if len(g.Members) == n {
			return
		}
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			l.t.Fatalf("the group has %d members, %d are expected", len(g.Members), n)
		}
	}
}

// kill ends the process with SIGKILL.
func (i *instance) kill() {
	i.t.Helper()
	if err := i.cmd.Process.Kill(); err != nil {
		i.t.Fatal(err)
	}
	i.drain()
	_ = i.cmd.Wait() // it was killed
}

// end stops the process cleanly.
func (i *instance) end() {
	i.t.Helper()
	if err := i.stdin.Close(); err != nil {
		i.t.Fatal(err)
	}
	i.drain()
	if err := i.cmd.Wait(); err != nil {
		i.t.Errorf("clean stop: %v", err)
	}
}

// stream sends orders until the returned function is called.
func (f *flow) stream(batch int, pace time.Duration) (stop func()) {
	done := make(chan struct{})
	var sender sync.WaitGroup
	var failed error
	sender.Go(func() {
		for failed == nil {
			select {
			case <-done:
				return
			default:
				failed = f.send(batch, batch, pace)
			}
		}
	})
	return func() {
		f.l.t.Helper()
		close(done)
		sender.Wait()
		if failed != nil {
			f.l.t.Fatal(failed)
		}
	}
}

// progress is where an application stands, as its topics tell. At least once there are no transaction markers: offsets count records.
type progress struct {
	committed, ends map[kafka.TopicPartition]int64 // of the input and of the repartition topic
	counted         map[int32]int64                // sum of the last counts in each changelog partition
}

func (l *lab) progress() progress {
	l.t.Helper()
	var tps []kafka.TopicPartition
	for p := range int32(topology.Partitions) {
		tps = append(tps, kafka.TopicPartition{Topic: l.prefix + topology.OrdersPlaced, Partition: p})
	}
	for p := range int32(topology.RepartitionPartitions) {
		tps = append(tps, kafka.TopicPartition{Topic: l.internal(topology.Repartition), Partition: p})
	}
	p := progress{committed: map[kafka.TopicPartition]int64{}, counted: map[int32]int64{}}
	committed, err := l.client.CommittedOffsets(l.ctx, l.config.ApplicationID, tps)
	if err != nil {
		l.t.Fatal(err)
	}
	for tp, o := range committed {
		p.committed[tp] = o.Offset
	}
	if p.ends, err = l.client.ListOffsets(l.ctx, tps, kafka.LatestOffset, kafka.ReadUncommitted); err != nil {
		l.t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, r := range l.records(l.internal(topology.PerStoreChangelog)) {
		n := int64(binary.BigEndian.Uint64(r.Value))
		p.counted[r.partition] += n - counts[string(r.Key)]
		counts[string(r.Key)] = n
	}
	return p
}

// Instances are killed at random while orders flow, and started again at once; the group finds out by itself. Nothing is lost. What is
// counted twice is what was processed and not committed when an instance died: in the end all three are killed, and what the topics say then
// predicts to the record what will be counted. 50 kills in the long form.
func TestKilledInstancesOfThree(t *testing.T) {
	kills := size(5, 50)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	l := newLabAnywhere(t, 30*time.Minute, shortSessions())
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	instances := make([]*instance, len(dirs))
	startOne := func(i int) {
		instances[i] = l.process(t, fmt.Sprint("process-", i), dirs[i])
		instances[i].await("state RUNNING", 1)
	}
	for i := range instances {
		startOne(i)
	}
	f := l.flow()
	stop := f.stream(10, 10*time.Millisecond)
	for range kills {
		i := rng.IntN(len(instances))
		instances[i].await("commit", 1+rng.IntN(3))
		<-time.After(time.Duration(rng.IntN(50)) * time.Millisecond) // any moment between two commits will do
		instances[i].kill()
		startOne(i)
	}
	var all sync.WaitGroup
	for _, i := range instances {
		all.Go(i.kill)
	}
	all.Wait()
	l.awaitMembers(0) // what they had under way has been written by then
	crashed := l.progress()
	for i := range instances {
		startOne(i)
	}
	stop() // the input has outlasted the last kill
	l.awaitLag()
	for _, i := range instances {
		i.end()
	}
	final := l.progress()

	repartitioned, waiting := int64(0), int64(0)
	for tp, end := range final.ends {
		if tp.Topic == l.prefix+topology.OrdersPlaced {
			repartitioned += end - crashed.committed[tp]
			waiting += crashed.ends[tp] - crashed.committed[tp]
			continue
		}
		repartitioned -= end - crashed.ends[tp]
		if want := crashed.counted[tp.Partition] + end - crashed.committed[tp]; final.counted[tp.Partition] != want {
			t.Errorf("partition %d: counted %d; the %d of the changelog at the crash and a replay from offset %d to %d make %d", tp.Partition,
				final.counted[tp.Partition], crashed.counted[tp.Partition], crashed.committed[tp], end, want)
		}
	}
	if repartitioned != 0 {
		t.Errorf("%d orders more were to be repartitioned after the crash than were", repartitioned)
	}
	total, minute := f.counts()
	excess := int64(0)
	for store, want := range f.want {
		if total[store] < want || minute[store] < want {
			t.Errorf("%s: counted %d, in its minute %d, placed %d: some are lost", store, total[store], minute[store], want)
		}
		excess += total[store] - want
	}
	duplicates := -int64(f.sent)
	for p := range int32(topology.RepartitionPartitions) {
		duplicates += final.ends[kafka.TopicPartition{Topic: l.internal(topology.Repartition), Partition: p}]
	}
	t.Logf("%d orders, %d kills: %d repartitioned again, %d counted again out of the repartition topic; "+
		"after the last crash %d waited, processed or not",
		f.sent, kills+3, duplicates, excess-duplicates, waiting)
	if excess < duplicates {
		t.Errorf("%d counts too many, but %d orders came twice to be counted", excess, duplicates)
	}
}

// An owner is killed while orders flow. Once the group has found out, the other one takes over in less than a second: rebalance, restore of
// the whole store, first output. The median of ten in the long form.
func TestTakeover(t *testing.T) {
	rounds := size(1, 10)
	l := newLabAnywhere(t, 10*time.Minute, shortSessions())
	survivor := l.process(t, "survivor", t.TempDir())
	survivor.await("state RUNNING", 1)
	f := l.flow()
	stop := f.stream(6, 10*time.Millisecond)
	out := l.client.NewFetcher(kafka.FetcherConfig{})
	defer out.Close()
	var took []time.Duration
	for range rounds {
		victim := l.process(t, "victim", t.TempDir())
		victim.await("state RUNNING", 1)
		stores := l.storesOf(t, "victim")
		victim.await("commit", 2)
		victim.kill()
		ends, err := l.client.ListOffsets(l.ctx, l.outputs(), kafka.LatestOffset, kafka.ReadUncommitted)
		if err != nil {
			t.Fatal(err)
		}
		for tp, end := range ends {
			out.Set(tp, end)
		}
		l.awaitMembers(1)
		detected := time.Now()
		l.awaitOutput(out, stores)
		took = append(took, time.Since(detected))
	}
	stop()
	survivor.end()
	slices.Sort(took)
	t.Logf("from the end of the victim's session to the survivor's first output for its stores: %s", took)
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("the median is %s", median)
	}
}

func (l *lab) outputs() []kafka.TopicPartition {
	var tps []kafka.TopicPartition
	for p := range int32(topology.Partitions) {
		tps = append(tps, kafka.TopicPartition{Topic: l.prefix + topology.OrdersPerStore, Partition: p})
	}
	return tps
}

// storesOf are the stores whose orders a member counts.
func (l *lab) storesOf(t *testing.T, clientID string) map[string]bool {
	t.Helper()
	g, err := l.client.DescribeGroup(l.ctx, l.config.ApplicationID)
	if err != nil {
		t.Fatal(err)
	}
	stores := map[string]bool{}
	for _, m := range g.Members {
		for _, tp := range m.Assigned {
			for store := 17; strings.HasPrefix(m.ClientID, clientID+"-") && tp.Topic == l.internal(topology.Repartition) && store <= 22; store++ {
				key := fmt.Sprint("store-", store)
				if kafka.PartitionFor([]byte(key), topology.RepartitionPartitions) == tp.Partition {
					stores[key] = true
				}
			}
		}
	}
	if len(stores) == 0 {
		t.Fatalf("%s counts no store: %+v", clientID, g.Members)
	}
	return stores
}

// awaitOutput waits for a count of one of the stores.
func (l *lab) awaitOutput(out *kafka.Fetcher, stores map[string]bool) {
	l.t.Helper()
	for {
		select {
		case <-out.Ready():
			for _, a := range out.Poll() {
				if a.Err != nil {
					l.t.Fatal(a.Err)
				}
				for _, r := range a.Records {
					if stores[string(r.Key)] {
						return
					}
				}
			}
		case <-l.ctx.Done():
			l.t.Fatal("no output")
		}
	}
}

// A restart with current local state restores nothing and is RUNNING in less than two seconds.
func TestRestartWithLocalState(t *testing.T) {
	l := newLabAnywhere(t, 2*time.Minute)
	m := l.member("alone")
	m.start()
	m.awaitRunning()
	f := l.flow()
	if err := f.send(1000, 100, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	l.awaitLag()
	m.stop()
	begin := time.Now()
	m.start()
	m.awaitRunning()
	took := time.Since(begin)
	t.Logf("RUNNING after %s", took.Round(time.Millisecond))
	if took > 2*time.Second {
		t.Errorf("RUNNING after %s", took)
	}
	m.stop()
	f.checkExact()
}
