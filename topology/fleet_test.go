package topology_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// longEnv asks for the long forms of the rebalance tests, which take minutes.
const longEnv = "LAB_TEST_LONG"

const windowRetention = 100 * 365 * 24 * time.Hour

// size is the number of rounds of a test: long under longEnv.
func size(short, long int) int {
	if os.Getenv(longEnv) != "" {
		return long
	}
	return short
}

// newLabAnywhere is a lab on the cluster of LAB_TEST_BOOTSTRAP with names of its own, or on an embedded broker, for as long as the test may
// take.
func newLabAnywhere(t testing.TB, within time.Duration, opts ...brokertest.Option) *lab {
	t.Helper()
	bootstrap := brokertest.Start(t, opts...)
	unique := "t" + strings.ToLower(rand.Text()[:8])
	l := newLabOn(t, bootstrap, unique+".", unique)
	// As the lab has it: event times lie far back, and a real broker deletes older records of the window changelog within the half minute.
	l.config.WindowChangelogAdditionalRetention = windowRetention
	ctx, cancel := context.WithTimeout(context.Background(), within)
	l.ctx = ctx
	t.Cleanup(func() { // a shared cluster is left as it was found; all instances have ended by now
		cancel()
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		all, err := l.client.Topics(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		var mine []string
		for name := range all {
			if strings.HasPrefix(name, unique) {
				mine = append(mine, name)
			}
		}
		if err := l.client.DeleteTopics(ctx, mine...); err != nil {
			t.Error(err)
		}
		if err := l.client.DeleteGroups(ctx, unique); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) internal(name string) string { return l.config.ApplicationID + "-" + name }

// member is one of several instances of the application in this process, each with a state folder of its own.
type member struct {
	l       *lab
	config  streams.Config
	mu      sync.Mutex
	log     bytes.Buffer
	cancel  context.CancelFunc
	done    <-chan error
	running chan struct{}
}

func (l *lab) member(name string) *member {
	l.t.Helper()
	m := &member{l: l, config: l.config, running: make(chan struct{}, 1000)}
	m.config.ClientID, m.config.StateDir = name, l.t.TempDir()
	m.config.Logger = slog.New(slog.NewTextHandler(m, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return m
}

func (m *member) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(b)
}

// warnings is what the member has logged.
func (m *member) warnings() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.String()
}

// start starts the member; it waits for nothing.
func (m *member) start() {
	m.l.t.Helper()
	base := m.l.config
	m.l.config = m.config
	defer func() { m.l.config = base }()
	m.cancel, m.done = m.l.run(topology.Hooks{}, streams.Listener{StateChanged: func(s streams.StateChange) {
		if s.To == streams.StateRunning {
			m.running <- struct{}{}
		}
	}})
}

// awaitRunning waits until the member has been RUNNING since the last call.
func (m *member) awaitRunning() {
	m.l.t.Helper()
	select {
	case <-m.running:
	case err := <-m.done:
		m.l.t.Fatalf("%s ended before it was running: %v\n%s", m.config.ClientID, err, m.warnings())
	case <-m.l.ctx.Done():
		m.l.t.Fatalf("%s is not running in time\n%s", m.config.ClientID, m.warnings())
	}
}

// stop stops the member cleanly.
func (m *member) stop() {
	m.l.t.Helper()
	m.cancel()
	select {
	case err := <-m.done:
		if err != nil {
			m.l.t.Fatalf("clean stop of %s: %v\n%s", m.config.ClientID, err, m.warnings())
		}
	case <-m.l.ctx.Done():
		m.l.t.Fatalf("%s does not stop", m.config.ClientID)
	}
	for len(m.running) > 0 { // of this life
		<-m.running
	}
}

// flow is a stream of placed orders, over six stores by default, all of one minute of event time, and what they have to be counted to.
type flow struct {
	l        *lab
	producer *kafka.Producer
	stores   int
	sent     int
	want     map[string]int64 // by store
}

func (l *lab) flow() *flow {
	l.t.Helper()
	p, err := l.client.NewProducer(l.ctx, kafka.ProducerConfig{Linger: -1, DeliveryTimeout: retryTimeout})
	if err != nil {
		l.t.Fatal(err)
	}
	f := &flow{l: l, producer: p, stores: 6, want: map[string]int64{}}
	l.t.Cleanup(func() {
		if err := p.Close(l.ctx); err != nil {
			l.t.Error(err)
		}
	})
	return f
}

const flowBase = 1789207200000

// send sends n orders, batch by batch, one each pace.
func (f *flow) send(n, batch int, pace time.Duration) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range n {
		o := feed.Order{OrderID: fmt.Sprint("ord-", f.sent), StoreID: fmt.Sprint("store-", 17+f.sent%f.stores), Status: feed.Placed, Amount: 5000,
			OccurredAt: flowBase + int64(f.sent%60_000)}
		if err := f.producer.Send(f.l.ctx, kafka.Message{Topic: f.l.prefix + topology.OrdersPlaced, Partition: kafka.AnyPartition,
			Timestamp: time.Now().UnixMilli(), Key: []byte(o.OrderID), Value: feed.AppendOrder(nil, o)}); err != nil {
			return err
		}
		f.sent++
		f.want[o.StoreID]++
		if i%batch == batch-1 || i == n-1 {
			if err := f.producer.Flush(f.l.ctx); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-f.l.ctx.Done():
				return context.Cause(f.l.ctx)
			}
		}
	}
	return nil
}

// counts reads the last count of each store, in all and in the one minute.
func (f *flow) counts() (total, minute map[string]int64) {
	f.l.t.Helper()
	read := func(topic string) map[string]int64 {
		out := map[string]int64{}
		for key, r := range last(f.l.read(f.l.prefix + topic)) {
			n, err := strconv.ParseInt(r.Value, 10, 64)
			if err != nil {
				f.l.t.Fatal(err)
			}
			store, _, _ := strings.Cut(key, "|")
			out[store] += n
		}
		return out
	}
	return read(topology.OrdersPerStore), read(topology.OrdersPerStoreMinute)
}

// checkExact fails unless each order went through the repartition topic once and was counted once.
func (f *flow) checkExact() {
	f.l.t.Helper()
	times := map[string]int{}
	for _, r := range f.l.records(f.l.internal(topology.Repartition)) {
		o, err := feed.DecodeOrder(r.Value)
		if err != nil {
			f.l.t.Fatal(err)
		}
		times[o.OrderID]++
	}
	again, missing := 0, 0
	for i := range f.sent {
		switch n := times[fmt.Sprint("ord-", i)]; {
		case n == 0:
			missing++
		case n > 1:
			again += n - 1
		}
	}
	if again > 0 || missing > 0 {
		f.l.t.Errorf("of %d orders %d were processed again and %d never", f.sent, again, missing)
	}
	total, minute := f.counts()
	for store, want := range f.want {
		if total[store] != want || minute[store] != want {
			f.l.t.Errorf("%s: counted %d, in its minute %d, placed %d", store, total[store], minute[store], want)
		}
	}
}

// checkCounts fails if an order is missing in a count or, exactly once, was counted twice. It returns how many were counted again.
func (f *flow) checkCounts(guarantee streams.Guarantee) (again int64) {
	f.l.t.Helper()
	total, minute := f.counts()
	for store, want := range f.want {
		if total[store] < want || minute[store] < want || guarantee == streams.ExactlyOnce && (total[store] > want || minute[store] > want) {
			f.l.t.Errorf("%s: counted %d, in its minute %d, placed %d", store, total[store], minute[store], want)
		}
		again += total[store] - want
	}
	return again
}

func onRealBroker() bool { return os.Getenv(brokertest.Env) != "" }
