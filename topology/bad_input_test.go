package topology_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// badCase is a record of testdata/bad-input.txt and what becomes of it.
type badCase struct {
	line    int
	name    string
	message kafka.Message // Partition resolved; the topic without a prefix
	offset  int64
	fates   []fate
	wait    bool // what came before is to be finished first
}

// fate is a line of a case, without the first word.
type fate struct{ kind, text string }

func (c *badCase) is(kind string) bool {
	return slices.ContainsFunc(c.fates, func(f fate) bool { return f.kind == kind })
}

// recordTime is the timestamp of records whose case says nothing of it.
const recordTime = 1789207200000

var fateKinds = []string{"counted", "late", "high", "joined", "cancelled", "row", "no row", "warning", "misplaced", "dead"}

// readBadCases parses testdata/bad-input.txt, whose head says what its lines are.
func readBadCases(t *testing.T) []*badCase {
	t.Helper()
	b, err := os.ReadFile("testdata/bad-input.txt")
	if err != nil {
		t.Fatal(err)
	}
	var cases []*badCase
	var c *badCase
	wait := false
	number := 0
	for text := range strings.Lines(string(b)) {
		number++
		word, rest, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
		rest = strings.TrimLeft(rest, " ")
		fail := func(err error) { t.Fatalf("line %d: %q: %v", number, text, err) }
		switch word {
		case "", "#":
		case "wait":
			wait = true
		case "case":
			c = &badCase{line: number, name: rest, wait: wait}
			c.message = kafka.Message{Topic: topology.OrdersPlaced, Partition: kafka.AnyPartition, Timestamp: recordTime}
			cases, wait = append(cases, c), false
		case "topic":
			c.message.Topic = rest
		case "key":
			c.message.Key = expand(t, rest)
		case "value":
			c.message.Value = expand(t, rest)
		case "bytes":
			text, err := strconv.Unquote(`"` + rest + `"`)
			if err != nil {
				fail(err)
			}
			c.message.Value = []byte(text)
		case "timestamp":
			if c.message.Timestamp, err = strconv.ParseInt(rest, 10, 64); err != nil {
				fail(err)
			}
		case "partition":
			n, err := strconv.ParseInt(rest, 10, 32)
			if err != nil {
				fail(err)
			}
			if c.message.Partition = int32(n); n < 0 {
				c.message.Partition = (kafka.PartitionFor(c.message.Key, topology.Partitions) + 1) % topology.Partitions
			}
		case "header":
			key, value, _ := strings.Cut(rest, "=")
			c.message.Headers = append(c.message.Headers, kafka.Header{Key: key, Value: []byte(value)})
		case "fate":
			i := slices.IndexFunc(fateKinds, func(kind string) bool { return rest == kind || strings.HasPrefix(rest, kind+" ") })
			if i < 0 {
				fail(errors.New("no such fate"))
			}
			c.fates = append(c.fates, fate{fateKinds[i], strings.TrimPrefix(rest[len(fateKinds[i]):], " ")})
		default:
			fail(errors.New("no such line"))
		}
	}
	for _, c := range cases {
		if c.message.Partition == kafka.AnyPartition {
			if c.message.Key == nil {
				t.Fatalf("line %d: %s: a null key needs a partition", c.line, c.name)
			}
			c.message.Partition = kafka.PartitionFor(c.message.Key, topology.Partitions)
		}
		if len(c.fates) == 0 {
			t.Fatalf("line %d: %s: no fate", c.line, c.name)
		}
	}
	return cases
}

// expand is a key or value as it is meant: nil for null, repeats written out.
func expand(t *testing.T, text string) []byte {
	t.Helper()
	switch text {
	case "null":
		return nil
	case "empty":
		return []byte{}
	}
	for {
		before, rest, found := strings.Cut(text, "«")
		if !found {
			return []byte(text)
		}
		repeat, after, closed := strings.Cut(rest, "»")
		what, times, ok := strings.Cut(repeat, "*")
		n, err := strconv.Atoi(times)
		if !closed || !ok || err != nil {
			t.Fatalf("%q is no repeat", repeat)
		}
		if len(what) == 2 {
			b, err := hex.DecodeString(what)
			if err != nil {
				t.Fatal(err)
			}
			what = string(b)
		}
		text = before + strings.Repeat(what, n) + after
	}
}

// unescape is a word of a fate as the text that it stands for.
func unescape(t *testing.T, text string) string {
	t.Helper()
	if strings.Contains(text, `\`) {
		s, err := strconv.Unquote(`"` + text + `"`)
		if err != nil {
			t.Fatal(err)
		}
		text = s
	}
	return string(expand(t, text))
}

// short keeps the failures of large records readable.
func short(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%s… (%d bytes)", s[:200], len(s))
	}
	return s
}

// badInputLab is the application on a topic set of its own: on the cluster that the environment names, or else on an embedded broker that
// checks timestamps like Apache Kafka, which it does not do by itself.
func badInputLab(t *testing.T) *lab {
	t.Helper()
	bootstrap := os.Getenv(brokertest.Env)
	if bootstrap != "" {
		bootstrap = brokertest.Start(t)
	} else {
		cluster := brokertest.Embedded(t)
		checkTimestamps(cluster)
		bootstrap = brokertest.Bootstrap(cluster)
	}
	unique := fmt.Sprintf("bad-input-%d", time.Now().UnixNano())
	l := newLabOn(t, bootstrap, unique+".", unique)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		topics, err := l.client.Topics(ctx)
		if err != nil {
			t.Error(err)
		}
		ours := slices.DeleteFunc(slices.Collect(maps.Keys(topics)), func(name string) bool { return !strings.HasPrefix(name, unique) })
		if err := errors.Join(l.client.DeleteTopics(ctx, ours...), l.client.DeleteGroups(ctx, unique)); err != nil {
			t.Error(err)
		}
	})
	return l
}

// checkTimestamps makes an embedded broker refuse what Apache Kafka refuses by default: a batch with a timestamp more than an hour ahead of
// the clock. The other partitions of such a request are answered as if their leader had moved, so that they come again.
func checkTimestamps(cluster *brokertest.Cluster) {
	const maxTimestampAt, maxTimestampEnd = 35, 43 // in the batch header
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		limit := time.Now().Add(time.Hour).UnixMilli()
		refused := false
		for _, rt := range req.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				part.Partition, part.ErrorCode = rp.Partition, int16(kafka.NotLeaderOrFollower)
				var latest int64
				for _, b := range rp.Records[maxTimestampAt:maxTimestampEnd] {
					latest = latest<<8 | int64(b)
				}
				if latest > limit {
					part.ErrorCode, refused = int16(kafka.InvalidTimestamp), true
				}
				topic.Partitions = append(topic.Partitions, part)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		if !refused {
			return nil, nil, false
		}
		return resp, nil, true
	})
}

// watch collects what an application tells of odd records.
type watch struct {
	mu        sync.Mutex
	skipped   []streams.Skipped
	dead      []streams.DeadLetter
	misplaced map[streams.TopicPartition]streams.Misplaced // the last of each partition
}

func (w *watch) listener() streams.Listener {
	w.misplaced = map[streams.TopicPartition]streams.Misplaced{}
	return streams.Listener{
		Skipped: func(s streams.Skipped) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.skipped = append(w.skipped, s)
		},
		DeadLetter: func(d streams.DeadLetter) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.dead = append(w.dead, d)
		},
		Misplaced: func(m streams.Misplaced) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.misplaced[streams.TopicPartition{Topic: m.Topic, Partition: m.Partition}] = m
		},
	}
}

// Each form of odd and bad input has its fate, none is lost and none stops the application: orders = counted + cancelled + dead letters.
func TestBadInput(t *testing.T) {
	cases := readBadCases(t)
	if len(cases) < 60 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(guarantee), func(t *testing.T) {
			l := badInputLab(t)
			l.config.ProcessingGuarantee = guarantee
			testBadInput(t, l, cases)
		})
	}
}

func testBadInput(t *testing.T, l *lab, cases []*badCase) {
	t.Helper()
	var w watch
	stop := l.start(topology.Hooks{}, w.listener())
	p, err := l.client.NewProducer(l.ctx, kafka.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	next := map[kafka.TopicPartition]int64{}
	for _, c := range cases {
		if c.wait {
			if err := p.Flush(l.ctx); err != nil {
				t.Fatal(err)
			}
			l.awaitLag()
		}
		tp := kafka.TopicPartition{Topic: c.message.Topic, Partition: c.message.Partition}
		c.offset = next[tp]
		next[tp]++
		m := c.message
		m.Topic = l.prefix + m.Topic
		if err := p.Send(l.ctx, m); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	if err := p.Close(l.ctx); err != nil {
		t.Fatal(err)
	}
	committed := l.awaitLag()
	for tp, end := range next {
		if got := committed[kafka.TopicPartition{Topic: l.prefix + tp.Topic, Partition: tp.Partition}].Offset; got != end {
			t.Errorf("%s: committed %d of %d", tp, got, end)
		}
	}
	stop()
	checkFates(t, l, cases)
	checkWarnings(t, l, cases, &w)
}

// checkFates compares the topics with the cases.
func checkFates(t *testing.T, l *lab, cases []*badCase) {
	t.Helper()
	counts, minutes, table := map[string]int64{}, map[string]int64{}, map[string]string{}
	var repartitioned, high, joined []string
	orders, accounted := 0, 0
	for _, c := range cases {
		for _, f := range c.fates {
			switch f.kind {
			case "counted":
				store := unescape(t, f.text)
				counts[store]++
				if !c.is("late") {
					minutes[store]++
				}
				repartitioned = append(repartitioned, short(store)+" "+short(string(c.message.Value)))
			case "high":
				store, amount, _ := strings.Cut(f.text, " ")
				high = append(high, store+" "+amount)
			case "joined":
				joined = append(joined, string(c.message.Key)+" "+unescape(t, f.text)+"|"+string(c.message.Value))
			case "row":
				key, status, _ := strings.Cut(f.text, " = ")
				table[string(expand(t, key))] = unescape(t, status)
			case "no row":
				delete(table, f.text)
			}
		}
		if c.message.Topic == topology.OrdersPlaced {
			orders++
			for _, kind := range []string{"counted", "cancelled", "dead"} {
				if c.is(kind) {
					accounted++
				}
			}
		}
	}
	if accounted != orders {
		t.Errorf("the fates of %d orders are counted, cancelled or dead for %d", orders, accounted)
	}
	application := l.config.ApplicationID + "-"
	numbers := func(rows []row, key func(string) string) map[string]int64 {
		got := map[string]int64{}
		for k, r := range last(rows) {
			n, err := strconv.ParseInt(r.Value, 10, 64)
			if err != nil {
				t.Error(err)
			}
			got[key(k)] += n
		}
		return got
	}
	same := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, short(diff))
		}
	}
	same("running counts", counts, numbers(l.read(l.prefix+topology.OrdersPerStore), func(k string) string { return k }))
	same("minute counts by store", minutes, numbers(l.read(l.prefix+topology.OrdersPerStoreMinute), func(k string) string {
		return k[:strings.LastIndexByte(k, '|')]
	}))
	lines := func(topic string, line func(row) string) []string {
		var got []string
		for _, r := range l.read(topic) {
			got = append(got, line(r))
		}
		slices.Sort(got)
		return got
	}
	slices.Sort(repartitioned)
	slices.Sort(high)
	slices.Sort(joined)
	same("repartition records", repartitioned, lines(application+topology.Repartition, func(r row) string {
		return short(r.Key) + " " + short(r.Value)
	}))
	same("high-value rows", high, lines(l.prefix+topology.HighValueOrders, func(r row) string { return r.Key + " " + r.Value }))
	same("joined rows", joined, lines(l.prefix+topology.OrdersWithStatus, func(r row) string { return r.Key + " " + r.Value }))

	rows := map[string]string{}
	for _, r := range l.records(application + topology.StatusChangelog) {
		if rows[string(r.Key)] = string(r.Value); r.Value == nil {
			delete(rows, string(r.Key))
		}
	}
	same("status table", table, rows)
	checkDeadLetters(t, l, cases)
}

// checkDeadLetters compares the dead-letter topic with the cases, byte for byte.
func checkDeadLetters(t *testing.T, l *lab, cases []*badCase) {
	t.Helper()
	want := map[string]*badCase{}
	for _, c := range cases {
		if c.is("dead") {
			want[fmt.Sprintf("%s-%d %d", l.prefix+c.message.Topic, c.message.Partition, c.offset)] = c
		}
	}
	seen := map[string]bool{}
	for _, r := range l.records(l.config.ApplicationID + "-dead-letters") {
		h := r.Headers[max(0, len(r.Headers)-6):]
		values := map[string]string{}
		for _, one := range h {
			values[one.Key] = string(one.Value)
		}
		at := fmt.Sprintf("%s-%s %s", values[streams.HeaderErrorTopic], values[streams.HeaderErrorPartition], values[streams.HeaderErrorOffset])
		c := want[at]
		switch {
		case c == nil:
			t.Errorf("a dead letter of %s: %s", at, values[streams.HeaderErrorMessage])
			continue
		case seen[at]:
			t.Errorf("%s: two dead letters", c.name)
		}
		seen[at] = true
		if got := values[streams.HeaderErrorException]; !c.has("dead", got) {
			t.Errorf("%s: the dead letter's kind is %q: %s", c.name, got, values[streams.HeaderErrorMessage])
		}
		if got := values[streams.HeaderErrorTimestamp]; got != strconv.FormatInt(c.message.Timestamp, 10) {
			t.Errorf("%s: timestamp %s in the header", c.name, got)
		}
		if values[streams.HeaderErrorMessage] == "" {
			t.Errorf("%s: no message", c.name)
		}
		if since := time.Since(time.UnixMilli(r.Timestamp)); since < 0 || since > time.Hour {
			t.Errorf("%s: the dead letter's own timestamp is %d", c.name, r.Timestamp)
		}
		if !equalBytes(r.Key, c.message.Key) || !equalBytes(r.Value, c.message.Value) {
			t.Errorf("%s: key or value are not as they came: %q %q", c.name, short(string(r.Key)), short(string(r.Value)))
		}
		own := len(r.Headers) - len(h)
		if diff := cmp.Diff(c.message.Headers, r.Headers[:own:own]); diff != "" && own+len(c.message.Headers) > 0 {
			t.Errorf("%s: headers (-came +went):\n%s", c.name, diff)
		}
	}
	for at, c := range want {
		if !seen[at] {
			t.Errorf("line %d: %s: no dead letter of %s", c.line, c.name, at)
		}
	}
}

func (c *badCase) has(kind, text string) bool { return slices.Contains(c.fates, fate{kind, text}) }

// equalBytes tells null from empty.
func equalBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// checkWarnings compares what the application said with the cases.
func checkWarnings(t *testing.T, l *lab, cases []*badCase, w *watch) {
	t.Helper()
	var want, got []string
	misplaced := map[streams.TopicPartition]int64{}
	dead := 0
	for _, c := range cases {
		for _, f := range c.fates {
			switch f.kind {
			case "warning":
				at := fmt.Sprintf("topic=[%s] partition=[%d] offset=[%d]", l.prefix+c.message.Topic, c.message.Partition, c.offset)
				if c.is("late") {
					at = "" // said of the repartition topic
				}
				want = append(want, strings.TrimSpace(f.text+" "+at))
			case "misplaced":
				misplaced[streams.TopicPartition{Topic: l.prefix + c.message.Topic, Partition: c.message.Partition}]++
			case "dead":
				dead++
			}
		}
	}
	for _, s := range w.skipped {
		text := s.String()
		if s.Kind == streams.ExpiredWindow {
			text, _, _ = strings.Cut(text, " topic=")
		}
		got = append(got, text)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	said := map[streams.TopicPartition]int64{}
	for tp, m := range w.misplaced {
		said[tp] = m.Count
	}
	if diff := cmp.Diff(misplaced, said); diff != "" {
		t.Errorf("misplaced records (-want +got):\n%s", diff)
	}
	if len(w.dead) != dead {
		t.Errorf("the listener heard of %d dead letters, want %d", len(w.dead), dead)
	}
}
