package streams_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/streams"
)

var updateCases = flag.Bool("update", false, "write what the test driver gives into testdata/cases")

// casePrograms are the topologies of testdata/cases; its README.md says what each does. topic makes a topic's name, so that several cases
// can run on one broker.
var casePrograms = map[string]func(b *streams.Builder, topic func(string) string){
	"minute-counts": func(b *streams.Builder, topic func(string) string) {
		countMinutes(b, topic, streams.Tumbling(time.Minute).Grace(30*time.Second))
	},
	"event-time": func(b *streams.Builder, topic func(string) string) {
		numbers := streams.EventTime(func(r streams.Record[string, string], _ int64) (int64, error) {
			return strconv.ParseInt(r.Value, 10, 64)
		})
		countMinutes(b, topic, streams.Tumbling(time.Minute).Grace(30*time.Second), numbers)
	},
	"hopping-counts": func(b *streams.Builder, topic func(string) string) {
		countMinutes(b, topic, streams.Hopping(time.Minute, 20*time.Second))
	},
	"kept-windows": func(b *streams.Builder, topic func(string) string) {
		w := caseIn(b, topic).GroupByKey().WindowedBy(streams.Tumbling(time.Minute))
		counts := streams.CountWindows(w, "w", streams.WithRetention(10*time.Minute))
		counts.ToStream().To(topic("minutes"), streams.TimeWindowed(streams.Text(), time.Minute), streams.Int64())
	},
	"reduced-minutes": func(b *streams.Builder, topic func(string) string) {
		w := caseIn(b, topic).GroupByKey().WindowedBy(streams.Tumbling(time.Minute).Grace(30 * time.Second))
		reduced := streams.ReduceWindows(w, "rw", func(a, b string) string { return a + b })
		reduced.ToStream().To(topic("reduced"), streams.TimeWindowed(streams.Text(), time.Minute), streams.Text())
	},
	"counts": func(b *streams.Builder, topic func(string) string) {
		streams.Count(caseIn(b, topic).GroupByKey(), "c").ToStream().To(topic("counts"), streams.Text(), streams.Int64())
	},
	"both-counts": func(b *streams.Builder, topic func(string) string) {
		g := caseIn(b, topic).Repartition("r", 1, streams.Text(), streams.Text()).GroupByKey()
		streams.Count(g, "c").ToStream().To(topic("counts"), streams.Text(), streams.Int64())
		minutes := streams.CountWindows(g.WindowedBy(streams.Tumbling(time.Minute).Grace(30*time.Second)), "w")
		minutes.ToStream().To(topic("minutes"), streams.TimeWindowed(streams.Text(), time.Minute), streams.Int64())
	},
	"table": func(b *streams.Builder, topic func(string) string) {
		caseTable(b, topic).ToStream().To(topic("changes"), streams.Text(), streams.Text())
	},
	"join": func(b *streams.Builder, topic func(string) string) { joinCase(b, topic) },
	"left-join": func(b *streams.Builder, topic func(string) string) {
		s, t := caseIn(b, topic), caseTable(b, topic)
		streams.LeftJoin(s, t, func(v, w string, matched bool) string {
			if !matched {
				w = "nothing"
			}
			return v + "/" + w
		}).To(topic("joined"), streams.Text(), streams.Text())
	},
	"join-reuse": func(b *streams.Builder, topic func(string) string) { joinCase(b, topic, streams.ReuseSourceTopic()) },
}

func caseIn(b *streams.Builder, topic func(string) string, opts ...streams.SourceOption) *streams.Stream[string, string] {
	return streams.Consume(b, topic("in"), streams.Text(), streams.Text(), opts...)
}

func caseTable(b *streams.Builder, topic func(string) string, opts ...streams.SourceOption) *streams.Table[string, string] {
	return streams.ReadTable(b, topic("t"), "ts", streams.Text(), streams.Text(), opts...)
}

func countMinutes(b *streams.Builder, topic func(string) string, w streams.Windows, opts ...streams.SourceOption) {
	counts := streams.CountWindows(caseIn(b, topic, opts...).GroupByKey().WindowedBy(w), "w")
	counts.ToStream().To(topic("minutes"), streams.TimeWindowed(streams.Text(), time.Minute), streams.Int64())
}

func joinCase(b *streams.Builder, topic func(string) string, opts ...streams.SourceOption) {
	s, t := caseIn(b, topic), caseTable(b, topic, opts...)
	streams.Join(s, t, func(v, w string) string { return v + "/" + w }).To(topic("joined"), streams.Text(), streams.Text())
}

// caseOptions are what a start line says.
type caseOptions struct {
	uncached, forget bool
}

// caseRunner runs a case somewhere. What it prints is the same everywhere.
type caseRunner interface {
	// names gives the names of topics for the program that is started next.
	names(t *testing.T) func(topic string) string
	start(t *testing.T, topology *streams.Topology, o caseOptions)
	// pipe processes the records and commits: once, or after each of them.
	pipe(t *testing.T, records []caseRecord, once bool)
	restart(t *testing.T, loseState bool)
	// took is what the topics got and what was reported since the last call.
	took(t *testing.T) []string
}

type caseRecord struct {
	topic      string
	timestamp  int64
	key, value *string // nil: null
}

// step is one command of a case file with its expected output.
type step struct {
	comment, command string
	input            []string
	want             []string
}

// parseCase reads steps: comment lines, a command, input lines, "----", output lines, an empty line.
func parseCase(t *testing.T, text string) []step {
	t.Helper()
	var steps []step
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		var s step
		expected := false
		for line := range strings.SplitSeq(block, "\n") {
			switch {
			case line == "----":
				expected = true
			case expected:
				s.want = append(s.want, line)
			case strings.HasPrefix(line, "#"):
				s.comment += line + "\n"
			case s.command == "":
				s.command = line
			default:
				s.input = append(s.input, line)
			}
		}
		if s.command != "" && !expected {
			t.Fatalf("no ---- after %q", s.command)
		}
		steps = append(steps, s)
	}
	return steps
}

func formatCase(steps []step) string {
	var b strings.Builder
	for i, s := range steps {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(s.comment)
		if s.command == "" {
			continue
		}
		lines := append(append([]string{s.command}, s.input...), "----")
		b.WriteString(strings.Join(append(lines, s.want...), "\n") + "\n")
	}
	return b.String()
}

func parseRecords(t *testing.T, lines []string) []caseRecord {
	t.Helper()
	part := func(word string) *string {
		switch word {
		case "null":
			return nil
		case `""`:
			word = ""
		}
		return &word
	}
	var records []caseRecord
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("%q: a record is topic, timestamp, key, value", line)
		}
		ts, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, caseRecord{f[0], ts, part(f[2]), part(f[3])})
	}
	return records
}

// runCase runs the steps and gives them with what came out.
func runCase(t *testing.T, steps []step, runner caseRunner) []step {
	t.Helper()
	got := slices.Clone(steps)
	for i, s := range steps {
		words := strings.Fields(s.command)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "start":
			program := casePrograms[words[1]]
			if program == nil {
				t.Fatalf("no program %q", words[1])
			}
			b := streams.NewBuilder()
			program(b, runner.names(t))
			topology, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			var o caseOptions
			for _, word := range words[2:] {
				switch word {
				case "cache=off":
					o.uncached = true
				case "stream-time-restore=off":
					o.forget = true
				default:
					t.Fatalf("%q: unknown %q", s.command, word)
				}
			}
			runner.start(t, topology, o)
		case "pipe":
			runner.pipe(t, parseRecords(t, s.input), false)
		case "batch":
			runner.pipe(t, parseRecords(t, s.input), true)
		case "restart":
			runner.restart(t, len(words) > 1 && words[1] == "state=lost")
		default:
			t.Fatalf("unknown command %q", s.command)
		}
		got[i].want = runner.took(t)
	}
	return got
}

func caseFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	return files
}

func readCase(t *testing.T, file string) []step {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parseCase(t, string(text))
}

// TestCasesOnTheDriver runs testdata/cases without a broker.
func TestCasesOnTheDriver(t *testing.T) {
	for _, file := range caseFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			steps := readCase(t, file)
			got := runCase(t, steps, &driverRunner{})
			if *updateCases {
				if err := os.WriteFile(file, []byte(formatCase(got)), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := gocmp.Diff(formatCase(steps), formatCase(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestCasesOnABroker runs the same as an application on a broker, and expects the same.
func TestCasesOnABroker(t *testing.T) {
	bootstrap := brokertest.Start(t)
	for i, file := range caseFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			steps := readCase(t, file)
			r := &brokerRunner{bootstrap: bootstrap, unique: fmt.Sprintf("case%d-%d", i, time.Now().UnixNano())}
			got := runCase(t, steps, r)
			if diff := gocmp.Diff(formatCase(steps), formatCase(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if err := r.app.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// shown is how a topic's keys and values are printed.
func shown(topic string, key, value []byte) (string, string) {
	text := func(b []byte) string {
		switch {
		case b == nil:
			return "null"
		case len(b) == 0:
			return `""`
		}
		return string(b)
	}
	k, v := text(key), text(value)
	windowed := func(raw []byte, start int64) string { return text(raw) + "@" + strconv.FormatInt(start, 10) }
	if topic == "app-w-changelog" || topic == "app-rw-changelog" {
		if raw, start, err := store.SplitWindowKey(key); err == nil {
			k = windowed(raw, start)
		}
	}
	if topic == "minutes" || topic == "reduced" {
		n := len(key) - 8
		k = windowed(key[:n], int64(binary.BigEndian.Uint64(key[n:])))
	}
	if slices.Contains([]string{"app-w-changelog", "app-c-changelog", "minutes", "counts"}, topic) && len(value) == 8 {
		v = strconv.FormatUint(binary.BigEndian.Uint64(value), 10)
	}
	return k, v
}

// report prints what the listener, or the driver, was told.
func report(skipped []streams.Skipped, outOfOrder []streams.OutOfOrder, dead []streams.DeadLetter) []string {
	var lines []string
	for _, s := range skipped {
		line := "! " + s.String()
		if s.Kind == streams.ExpiredWindow {
			line += " closed by a restart"
			if m := s.Mover; m.Topic != "" {
				line = fmt.Sprintf("! %s closed by %s-%d@%d", s, m.Topic, m.Partition, m.Offset)
			}
		}
		lines = append(lines, line)
	}
	for _, u := range outOfOrder {
		lines = append(lines, "! "+u.String())
	}
	for _, d := range dead {
		lines = append(lines, fmt.Sprintf("! dead letter %s-%d@%d: %s", d.Topic, d.Partition, d.Offset, d.Kind))
	}
	return lines
}

// driverRunner runs a case on a TestDriver.
type driverRunner struct {
	d                         *streams.TestDriver
	outputs                   map[string]*streams.TestOutput[[]byte, []byte]
	skipped, outOfOrder, dead int
}

func (r *driverRunner) names(*testing.T) func(string) string {
	return func(topic string) string { return topic }
}

func (r *driverRunner) start(t *testing.T, topology *streams.Topology, o caseOptions) {
	d, err := streams.NewTestDriver(topology, streams.DriverConfig{
		ApplicationID: "app", ManualCommit: true, NoCache: o.uncached, ForgetStreamTime: o.forget,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	*r = driverRunner{d: d, outputs: map[string]*streams.TestOutput[[]byte, []byte]{}}
	for _, topic := range []string{
		"minutes", "reduced", "counts", "changes", "joined",
		"app-w-changelog", "app-rw-changelog", "app-c-changelog", "app-ts-changelog", "app-r-repartition",
	} {
		out := streams.Output(d, topic, streams.Bytes(), streams.Bytes())
		if _, err := out.Records(); err == nil { // else it is another program's
			r.outputs[topic] = out
		}
	}
}

func (r *driverRunner) pipe(t *testing.T, records []caseRecord, once bool) {
	for _, c := range records {
		rec := streams.Record[string, string]{Timestamp: c.timestamp, NullKey: c.key == nil, NullValue: c.value == nil}
		if c.key != nil {
			rec.Key = *c.key
		}
		if c.value != nil {
			rec.Value = *c.value
		}
		if err := streams.Input(r.d, c.topic, streams.Text(), streams.Text()).Pipe(rec); err != nil {
			t.Fatal(err)
		}
		if !once {
			r.commit(t)
		}
	}
	r.commit(t)
}

func (r *driverRunner) commit(t *testing.T) {
	if err := r.d.Commit(); err != nil {
		t.Fatal(err)
	}
}

func (r *driverRunner) restart(t *testing.T, loseState bool) {
	var opts []streams.RestartOption
	if loseState {
		opts = append(opts, streams.WithoutState())
	}
	if err := r.d.Restart(opts...); err != nil {
		t.Fatal(err)
	}
}

func (r *driverRunner) took(t *testing.T) []string {
	var lines []string
	for _, topic := range slices.Sorted(maps.Keys(r.outputs)) {
		records, err := r.outputs[topic].Records()
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range records {
			key, value := rec.Key, rec.Value
			if rec.NullKey {
				key = nil
			}
			if rec.NullValue {
				value = nil
			}
			k, v := shown(topic, key, value)
			lines = append(lines, fmt.Sprintf("%s %d %s %s", topic, rec.Timestamp, k, v))
		}
	}
	skipped, outOfOrder, dead := r.d.Skipped(), r.d.OutOfOrder(), r.d.DeadLetters()
	lines = append(lines, report(skipped[r.skipped:], outOfOrder[r.outOfOrder:], dead[r.dead:])...)
	r.skipped, r.outOfOrder, r.dead = len(skipped), len(outOfOrder), len(dead)
	return lines
}

// brokerRunner runs a case as an application. All its topics have one partition.
type brokerRunner struct {
	bootstrap, unique string
	programs          int    // started so far
	prefix            string // of the topics of the one that runs
	client            *kafka.Client
	producer          *kafka.Producer
	topology          *streams.Topology
	cfg               streams.Config
	app               *running
	committed         chan struct{} // holds one token if there was a commit
	read              map[string]int64

	mu         sync.Mutex
	skipped    []streams.Skipped
	outOfOrder []streams.OutOfOrder
	dead       []streams.DeadLetter
}

func (r *brokerRunner) context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func (r *brokerRunner) names(t *testing.T) func(string) string {
	if r.app != nil {
		if err := r.app.end(); err != nil {
			t.Fatal(err)
		}
	}
	r.programs++
	prefix := fmt.Sprintf("%s-%d-", r.unique, r.programs)
	r.prefix = prefix
	return func(topic string) string { return prefix + topic }
}

func (r *brokerRunner) start(t *testing.T, topology *streams.Topology, o caseOptions) {
	ctx := r.context(t)
	var err error
	if r.client, err = kafka.New(ctx, kafka.Config{Seeds: []string{r.bootstrap}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
	var specs []kafka.TopicSpec
	for _, name := range []string{"in", "t", "minutes", "reduced", "counts", "changes", "joined"} {
		specs = append(specs, kafka.TopicSpec{
			Name: r.prefix + name, Partitions: 1, Replication: -1, Configs: []kafka.ConfigEntry{{Name: "retention.ms", Value: "-1"}},
		})
	}
	if _, err := r.client.CreateTopics(ctx, specs); err != nil {
		t.Fatal(err)
	}
	if r.producer, err = r.client.NewProducer(ctx, kafka.ProducerConfig{}); err != nil {
		t.Fatal(err)
	}
	producer := r.producer
	t.Cleanup(func() {
		if err := producer.Close(r.context(t)); err != nil {
			t.Error(err)
		}
	})
	r.topology, r.read, r.committed = topology, map[string]int64{}, make(chan struct{}, 1)
	cfg := streams.DefaultConfig()
	cfg.ApplicationID, cfg.Bootstrap, cfg.StateDir = r.prefix+"app", []string{r.bootstrap}, t.TempDir()
	cfg.SessionTimeout, cfg.HeartbeatInterval = 6*time.Second, 500*time.Millisecond
	cfg.CommitInterval = time.Hour // so that a batch, which is fetched at once, has one commit: the one after it
	cfg.RepartitionPurgeInterval = time.Hour
	cfg.WindowChangelogAdditionalRetention = 100 * 365 * 24 * time.Hour // the records are of 1970
	cfg.WindowStreamTimeRestore = !o.forget
	if o.uncached {
		cfg.CacheMaxBytes = 0
	}
	committed := r.committed
	cfg.Listener = streams.Listener{
		Skipped:    func(s streams.Skipped) { r.tell(func() { r.skipped = append(r.skipped, s) }) },
		OutOfOrder: func(u streams.OutOfOrder) { r.tell(func() { r.outOfOrder = append(r.outOfOrder, u) }) },
		DeadLetter: func(d streams.DeadLetter) { r.tell(func() { r.dead = append(r.dead, d) }) },
		Committed: func(streams.Commit) {
			select {
			case committed <- struct{}{}:
			default:
			}
		},
	}
	r.cfg = cfg
	r.run(t)
}

func (r *brokerRunner) tell(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
}

func (r *brokerRunner) run(t *testing.T) {
	r.app = start(t, r.topology, r.cfg)
	r.app.await(streams.StateRunning)
}

func (r *brokerRunner) restart(t *testing.T, loseState bool) {
	if err := r.app.end(); err != nil {
		t.Fatal(err)
	}
	if loseState {
		if err := os.RemoveAll(r.cfg.StateDir); err != nil {
			t.Fatal(err)
		}
	}
	r.run(t)
}

func (r *brokerRunner) pipe(t *testing.T, records []caseRecord, once bool) {
	ctx := r.context(t)
	for i, c := range records {
		m := kafka.Message{Topic: r.prefix + c.topic, Timestamp: c.timestamp}
		if c.key != nil {
			m.Key = append([]byte{}, *c.key...)
		}
		if c.value != nil {
			m.Value = append([]byte{}, *c.value...)
		}
		if err := r.producer.Send(ctx, m); err != nil {
			t.Fatal(err)
		}
		if once && i < len(records)-1 {
			continue
		}
		if err := r.producer.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		// First the user's topics, then what they were repartitioned to: a commit has sent all of that.
		r.awaitCommitted(ctx, t, "in", "t")
		r.awaitCommitted(ctx, t, "app-r-repartition")
	}
}

// awaitCommitted waits until the application has committed the topics to their ends.
func (r *brokerRunner) awaitCommitted(ctx context.Context, t *testing.T, topics ...string) {
	names := r.topics(t)
	var tps []kafka.TopicPartition
	for _, topic := range topics {
		if slices.Contains(names, r.prefix+topic) {
			tps = append(tps, kafka.TopicPartition{Topic: r.prefix + topic})
		}
	}
	ends, err := r.client.ListOffsets(ctx, tps, kafka.LatestOffset, kafka.ReadUncommitted)
	if err != nil {
		t.Fatal(err)
	}
	for {
		committed, err := r.client.CommittedOffsets(ctx, r.prefix+"app", tps)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(tps, func(tp kafka.TopicPartition) bool { return committed[tp].Offset < ends[tp] }) {
			return
		}
		select {
		case <-r.committed:
		case err := <-r.app.done:
			t.Fatalf("the application ended: %v", err)
		case <-ctx.Done():
			t.Fatalf("not committed within %s: %v of %v", deadline, committed, ends)
		}
	}
}

// topics are the case's topics on the broker.
func (r *brokerRunner) topics(t *testing.T) []string {
	topics, err := r.client.Topics(r.context(t))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(topics)), func(name string) bool { return !strings.HasPrefix(name, r.prefix) })
}

func (r *brokerRunner) took(t *testing.T) []string {
	ctx := r.context(t)
	var lines []string
	for _, name := range r.topics(t) {
		topic := strings.TrimPrefix(name, r.prefix)
		if topic == "in" || topic == "t" || topic == "app-dead-letters" {
			continue
		}
		for _, rec := range r.fetch(ctx, t, name) {
			k, v := shown(topic, rec.Key, rec.Value)
			lines = append(lines, fmt.Sprintf("%s %d %s %s", topic, rec.Timestamp, k, v))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range report(r.skipped, r.outOfOrder, r.dead) {
		lines = append(lines, strings.ReplaceAll(line, r.prefix, ""))
	}
	r.skipped, r.outOfOrder, r.dead = nil, nil, nil
	return lines
}

// fetch reads what a topic got since the last call.
func (r *brokerRunner) fetch(ctx context.Context, t *testing.T, topic string) []kafka.Record {
	tp := kafka.TopicPartition{Topic: topic}
	ends, err := r.client.ListOffsets(ctx, []kafka.TopicPartition{tp}, kafka.LatestOffset, kafka.ReadUncommitted)
	if err != nil {
		t.Fatal(err)
	}
	from := r.read[topic]
	if from >= ends[tp] {
		return nil
	}
	f := r.client.NewFetcher(kafka.FetcherConfig{})
	defer f.Close()
	f.Set(tp, from)
	var records []kafka.Record
	for from < ends[tp] {
		select {
		case <-f.Ready():
		case <-ctx.Done():
			t.Fatalf("%s is not read to its end", topic)
		}
		for _, a := range f.Poll() {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
			records = append(records, a.Records...)
			from = cmp.Or(a.Next, from)
		}
	}
	r.read[topic] = from
	return records
}
