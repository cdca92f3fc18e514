package topology_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

const deadline = 60 * time.Second

// retryTimeout is what a test's own client has patience for.
const retryTimeout = 3 * deadline

// row is a record as testdata/dumps has it: what Kafka Streams 4.3.1 read and wrote when it ran the same program over the same input.
type row struct {
	Partition  int32
	Timestamp  int64
	Key, Value string // bytes
}

// readDump parses the lines of a dump: p=0 o=1 CreateTime ts=1789207200200 headers=[] key=<hex> "…" value=<hex> "…". Long values have no hex.
func readDump(t *testing.T, topic string) []row {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "dumps", topic+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []row
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		var r row
		var offset int64
		if _, err := fmt.Sscanf(line, "p=%d o=%d CreateTime ts=%d", &r.Partition, &offset, &r.Timestamp); err != nil {
			t.Fatalf("%s: %q: %v", topic, line, err)
		}
		_, rest, _ := strings.Cut(line, " key=")
		key, rest, _ := strings.Cut(rest, " ")
		_, value, ok := strings.Cut(rest, " value=")
		if !ok {
			t.Fatalf("%s: %q has no value", topic, line)
		}
		value, text, _ := strings.Cut(value, " ")
		r.Key = unhex(t, key)
		if r.Value = unhex(t, value); value == "" {
			r.Value = strings.TrimSuffix(strings.TrimPrefix(text, `"`), `"`)
		}
		rows = append(rows, r)
	}
	return rows
}

func unhex(t *testing.T, s string) string {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// lab is the topology at work on a broker of its own.
type lab struct {
	t      testing.TB
	ctx    context.Context
	client *kafka.Client
	config streams.Config
	prefix string // before the names of user topics
}

func newLab(t testing.TB) *lab {
	t.Helper()
	return newLabOn(t, brokertest.Bootstrap(brokertest.Embedded(t)), "", topology.ApplicationID)
}

// newLabOn is the same on a broker that there is, with names of its own.
func newLabOn(t testing.TB, bootstrap, prefix, application string) *lab {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
	t.Cleanup(cancel)
	client, err := kafka.New(ctx, kafka.Config{Seeds: strings.Split(bootstrap, ","), RetryTimeout: retryTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	var specs []kafka.TopicSpec
	for _, name := range []string{topology.OrdersPlaced, topology.OrdersStatus, topology.HighValueOrders, topology.OrdersPerStore,
		topology.OrdersPerStoreMinute, topology.OrdersWithStatus} {
		specs = append(specs, kafka.TopicSpec{Name: prefix + name, Partitions: topology.Partitions, Replication: -1, Configs: []kafka.ConfigEntry{
			{Name: "retention.ms", Value: "-1"}, // event times lie far back
		}})
	}
	if _, err := client.CreateTopics(ctx, specs); err != nil {
		t.Fatal(err)
	}
	cfg := streams.DefaultConfig()
	cfg.ApplicationID, cfg.Bootstrap, cfg.StateDir = application, strings.Split(bootstrap, ","), t.TempDir()
	cfg.CommitInterval = time.Second
	cfg.SessionTimeout, cfg.HeartbeatInterval = 6*time.Second, 500*time.Millisecond
	cfg.RepartitionPurgeInterval = time.Hour
	return &lab{t: t, ctx: ctx, client: client, config: cfg, prefix: prefix}
}

// start runs an instance; the returned function stops it cleanly.
func (l *lab) start(hooks topology.Hooks, listener streams.Listener) (stop func()) {
	l.t.Helper()
	running := make(chan struct{}, 10)
	listener.StateChanged = func(s streams.StateChange) {
		if s.To == streams.StateRunning {
			running <- struct{}{}
		}
	}
	cancel, done := l.run(hooks, listener)
	select {
	case <-running:
	case err := <-done:
		l.t.Fatalf("ended before it was running: %v", err)
	case <-l.ctx.Done():
		l.t.Fatal("not running in time")
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("clean stop: %v", err)
		}
	}
	l.t.Cleanup(stop)
	return stop
}

// run runs an instance until it is cancelled; done gives its error.
func (l *lab) run(hooks topology.Hooks, listener streams.Listener) (cancel func(), done <-chan error) {
	l.t.Helper()
	top, err := topology.BuildOn(l.prefix)
	if err != nil {
		l.t.Fatal(err)
	}
	cfg := l.config
	cfg.Observers, cfg.Listener = topology.Observers(hooks), listener
	app, err := streams.NewApp(top, cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.ctx)
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx) }()
	return cancel, ended
}

func (l *lab) send(topic string, rows ...row) {
	l.t.Helper()
	p, err := l.client.NewProducer(l.ctx, kafka.ProducerConfig{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range rows {
		if err := p.Send(l.ctx, kafka.Message{Topic: topic, Partition: kafka.AnyPartition, Timestamp: r.Timestamp, Key: []byte(r.Key), Value: []byte(r.Value)}); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := p.Close(l.ctx); err != nil {
		l.t.Fatal(err)
	}
}

// read reads a topic to its end, by partition.
func (l *lab) read(topic string) []row {
	l.t.Helper()
	var rows []row
	for _, r := range l.records(topic) {
		rows = append(rows, row{r.partition, r.Timestamp, string(r.Key), string(r.Value)})
	}
	return rows
}

// record is a record with its partition.
type record struct {
	kafka.Record
	partition int32
}

func (l *lab) records(topic string) []record { return l.recordsAs(topic, kafka.ReadUncommitted) }

func (l *lab) recordsAs(topic string, isolation kafka.Isolation) []record {
	l.t.Helper()
	topics, err := l.client.Topics(l.ctx, topic)
	if err != nil || topics[topic] == nil {
		l.t.Fatalf("topic %s: %v", topic, err)
	}
	f := l.client.NewFetcher(kafka.FetcherConfig{Isolation: func(string) kafka.Isolation { return isolation }})
	defer f.Close()
	open := map[int32]bool{}
	for p := range topics[topic].Partitions {
		open[int32(p)] = true
		f.Set(kafka.TopicPartition{Topic: topic, Partition: int32(p)}, 0)
	}
	var records []record
	for len(open) > 0 {
		select {
		case <-f.Ready():
		case <-l.ctx.Done():
			l.t.Fatalf("reading %s: %v", topic, context.Cause(l.ctx))
		}
		for _, a := range f.Poll() {
			if a.Err != nil {
				l.t.Fatal(a.Err)
			}
			for _, r := range a.Records {
				records = append(records, record{r, a.Partition})
			}
			if a.Next >= a.HighWatermark {
				delete(open, a.Partition)
			}
		}
	}
	return records
}

// awaitLag waits until the group has committed all of the input and of the repartition topic.
func (l *lab) awaitLag() map[kafka.TopicPartition]kafka.Offset {
	l.t.Helper()
	repartition := l.config.ApplicationID + "-" + topology.Repartition
	var tps []kafka.TopicPartition
	for p := range int32(topology.Partitions) {
		tps = append(tps, kafka.TopicPartition{Topic: l.prefix + topology.OrdersPlaced, Partition: p},
			kafka.TopicPartition{Topic: l.prefix + topology.OrdersStatus, Partition: p})
	}
	for p := range int32(topology.RepartitionPartitions) {
		tps = append(tps, kafka.TopicPartition{Topic: repartition, Partition: p})
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		// Committed offsets first. The other way round, records that the first stage writes in between belong to neither reading, and the
		// second stage looks as if it had done.
		committed, err := l.client.CommittedOffsets(l.ctx, l.config.ApplicationID, nil)
		if err != nil {
			l.t.Fatal(err)
		}
		ends, err := l.client.ListOffsets(l.ctx, tps, kafka.LatestOffset, kafka.ReadUncommitted)
		if err != nil {
			l.t.Fatal(err)
		}
		lag := int64(0)
		for tp, end := range ends {
			lag += end - committed[tp].Offset
		}
		if lag == 0 {
			return committed
		}
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			l.t.Fatalf("lag still %d", lag)
		}
	}
}

// last is the last row of each key: the cache may merge updates, so only these are fixed.
func last(rows []row) map[string]row {
	out := map[string]row{}
	for _, r := range rows {
		out[r.Key] = r
	}
	return out
}

// sorted is rows as a multiset: order between partitions is not fixed.
func sorted(rows []row) []row {
	return slices.SortedFunc(slices.Values(rows), func(a, b row) int {
		return strings.Compare(fmt.Sprintf("%d %d %s %s", a.Partition, a.Timestamp, a.Key, a.Value), fmt.Sprintf("%d %d %s %s", b.Partition, b.Timestamp, b.Key, b.Value))
	})
}

// The first four phases of the lab over the input that the Java program had: outputs, changelogs and committed offsets are the same bytes,
// partitions and timestamps; only the order between keys is free.
func TestSameAsJava(t *testing.T) {
	l := newLab(t)
	placed, status := readDump(t, topology.OrdersPlaced), readDump(t, topology.OrdersStatus)
	slices.SortStableFunc(placed, func(a, b row) int { return int(a.Timestamp - b.Timestamp) })
	if len(placed) != 307 || len(status) != 2 {
		t.Fatalf("testdata has %d orders and %d status rows", len(placed), len(status))
	}
	applied, joined := make(chan string, 10), make(chan string, 10)
	var skipped []streams.Skipped
	stop := l.start(topology.Hooks{
		TableApplied: func(id, status string) { applied <- id + "=" + status },
		Joined:       func(id, value string) { joined <- id + "=" + value[:strings.IndexByte(value, '|')] },
	}, streams.Listener{Skipped: func(s streams.Skipped) { skipped = append(skipped, s) }})
	expect := func(c chan string, want string) {
		t.Helper()
		select {
		case got := <-c:
			if got != want {
				t.Fatalf("%s where %s was expected", got, want)
			}
		case <-time.After(deadline):
			t.Fatalf("no %s", want)
		}
	}
	l.send(topology.OrdersPlaced, placed[:300]...)
	l.awaitLag()
	for _, late := range placed[300:304] { // ord-2001 to ord-2004
		l.send(topology.OrdersPlaced, late)
		l.awaitLag()
	}
	l.send(topology.OrdersStatus, status[0])
	expect(applied, "ord-1042=PAID")
	l.send(topology.OrdersPlaced, placed[304])
	expect(joined, "ord-1042=PAID")
	l.send(topology.OrdersStatus, status[1])
	expect(applied, "ord-1042=SHIPPED")
	l.send(topology.OrdersPlaced, placed[305])
	expect(joined, "ord-1042=SHIPPED")
	l.send(topology.OrdersPlaced, placed[306:]...)
	committed := l.awaitLag()
	stop()

	if len(skipped) != 1 || skipped[0].Kind != streams.ExpiredWindow || skipped[0].Timestamp != 1789207245000 || skipped[0].StreamTime != 1789207380000 {
		t.Errorf("skipped %+v, want ord-2004 alone", skipped)
	}
	for _, topic := range []string{topology.HighValueOrders, topology.OrdersWithStatus} {
		if diff := cmp.Diff(sorted(readDump(t, topic)), sorted(l.read(topic))); diff != "" {
			t.Errorf("%s (-Java +ours):\n%s", topic, diff)
		}
	}
	for _, topic := range []string{topology.OrdersPerStore, topology.OrdersPerStoreMinute, topology.ApplicationID + "-" + topology.PerStoreChangelog,
		topology.ApplicationID + "-" + topology.PerStoreMinuteChangelog, topology.ApplicationID + "-" + topology.StatusChangelog} {
		if diff := cmp.Diff(last(readDump(t, topic)), last(l.read(topic))); diff != "" {
			t.Errorf("%s, last per key (-Java +ours):\n%s", topic, diff)
		}
	}
	compareOffsets(t, committed)
	compareTopics(t, l)
}

// compareOffsets checks the group's offsets and their metadata, partition times included. The leader epoch is the broker's.
func compareOffsets(t *testing.T, committed map[kafka.TopicPartition]kafka.Offset) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "committed-offsets.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		want[f[0]] = f[1] + " " + f[3]
	}
	got := map[string]string{}
	for tp, o := range committed {
		got[tp.String()] = fmt.Sprintf("offset=%d metadata=%s", o.Offset, o.Metadata)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("committed offsets (-Java +ours):\n%s", diff)
	}
}

// compareTopics checks names, partition counts and configs of the internal topics, those of the engine's defaults included.
func compareTopics(t *testing.T, l *lab) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "internal-topics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "Topic:") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), "\t")
		name := strings.TrimPrefix(f[0], "Topic: ")
		// min.insync.replicas is printed by the broker, Streams does not set it.
		configs := strings.TrimPrefix(strings.TrimPrefix(f[4], "Configs: "), "min.insync.replicas=1,")
		want[name] = f[2] + " " + sortedConfigs(configs)
	}
	names := slices.Collect(maps.Keys(want))
	topics, err := l.client.Topics(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	configs, err := l.client.TopicConfigs(l.ctx, names...)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, topic := range topics {
		if !strings.HasPrefix(name, topology.ApplicationID+"-") {
			continue
		}
		var set []string
		for _, e := range configs[name] {
			if e.Source == kafka.SourceTopic {
				set = append(set, e.Name+"="+e.Value)
			}
		}
		got[name] = "PartitionCount: " + strconv.Itoa(len(topic.Partitions)) + " " + sortedConfigs(strings.Join(set, ","))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("internal topics (-Java +ours):\n%s", diff)
	}
}

// sortedConfigs sorts a=b,c=d,e; a part without = belongs to the value before it, as in cleanup.policy=compact,delete.
func sortedConfigs(s string) string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if strings.Contains(part, "=") || len(out) == 0 {
			out = append(out, part)
		} else {
			out[len(out)-1] += "," + part
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
