package verify

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// memory implements topics without a broker.
type memory struct {
	topics    map[string]*memoryTopic
	committed map[kafka.TopicPartition]int64
	group     string
	others    map[string]map[kafka.TopicPartition]int64 // committed, by other groups
	members   map[string][]string                       // of a group
	fail      map[string]error                          // by topic: Read fails
}

type memoryTopic struct {
	id      [16]byte
	parts   []memoryPartition
	configs map[string]string
}

type memoryPartition struct {
	bounds
	records []kafka.Record
}

func (m *memory) Describe(_ context.Context, pick func(string) bool) (map[string]description, error) {
	found := map[string]description{}
	for name, t := range m.topics {
		if pick(name) {
			found[name] = description{id: t.id, partitions: len(t.parts), configs: maps.Clone(t.configs)}
		}
	}
	return found, nil
}

func (m *memory) Committed(_ context.Context, group string) (map[kafka.TopicPartition]int64, error) {
	if group != m.group {
		return m.others[group], nil
	}
	return m.committed, nil
}

func (m *memory) Bounds(_ context.Context, parts []kafka.TopicPartition) (map[kafka.TopicPartition]bounds, error) {
	found := map[kafka.TopicPartition]bounds{}
	for _, tp := range parts {
		b := m.topics[tp.Topic].parts[tp.Partition].bounds
		if b.stable == 0 { // a test has opened no transaction
			b.stable = b.end
		}
		found[tp] = b
	}
	return found, nil
}

func (m *memory) Members(_ context.Context, group string) ([]string, error) {
	return m.members[group], nil
}

// Read leaves out the markers and what a marker says was aborted. A record is of the transaction of its producer.
func (m *memory) Read(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error {
	type producer struct {
		kafka.TopicPartition
		id int64
	}
	open := map[producer][]int64{}
	aborted := map[place]bool{}
	err := m.Log(ctx, parts, func(tp kafka.TopicPartition, r *kafka.Record) {
		p := producer{tp, r.ProducerID}
		if r.Control == kafka.ControlNone {
			if r.Transactional {
				open[p] = append(open[p], r.Offset)
			}
			return
		}
		if r.Control == kafka.ControlAbort {
			for _, o := range open[p] {
				aborted[place{tp, o}] = true
			}
		}
		delete(open, p)
	})
	if err != nil {
		return err
	}
	return m.Log(ctx, parts, func(tp kafka.TopicPartition, r *kafka.Record) {
		if r.Control == kafka.ControlNone && !aborted[place{tp, r.Offset}] {
			fn(tp, r)
		}
	})
}

func (m *memory) Log(ctx context.Context, parts map[kafka.TopicPartition]bounds, fn func(kafka.TopicPartition, *kafka.Record)) error {
	for tp, b := range parts {
		if err := m.fail[tp.Topic]; err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, r := range m.topics[tp.Topic].parts[tp.Partition].records {
			if r.Offset >= b.start && r.Offset < b.end {
				fn(tp, &r)
			}
		}
	}
	return nil
}

// records are those of one partition, for a test to change.
func (m *memory) records(topic string, partition int) *[]kafka.Record {
	return &m.topics[topic].parts[partition].records
}

// commitAll commits the end of what the application reads.
func (m *memory) commitAll() {
	m.committed = map[kafka.TopicPartition]int64{}
	for _, topic := range []string{topicPlaced, topicStatus, "order-counter-orders-by-store-repartition"} {
		for p := range m.topics[topic].parts {
			if end := m.topics[topic].parts[p].end; end > 0 {
				m.committed[kafka.TopicPartition{Topic: topic, Partition: int32(p)}] = end
			}
		}
	}
}

var (
	dumpHeader   = regexp.MustCompile(`^# (.+)-(\d+) start=(\d+) end=(\d+)$`)
	dumpRecord   = regexp.MustCompile(`^p=(\d+) o=(\d+) CreateTime ts=(-?\d+) headers=\[\] key=([0-9a-f]+) .*?value=([0-9a-f]*) (.*)$`)
	segmentTopic = regexp.MustCompile(`^## (.+)-(\d+)$`)
	segmentLine  = regexp.MustCompile(`^\| offset: (\d+) CreateTime: (\d+) .* key: (\S+) payload: (.*)$`)
	described    = regexp.MustCompile(`^Topic: (\S+)\t.*PartitionCount: (\d+)\t.*Configs: (\S+)$`)
	configSplit  = regexp.MustCompile(`,([a-z.]+=)`) // compact,delete is one value
)

// golden is the state after phase 4 of the run in testdata/golden, for the test to change.
func golden(t testing.TB) *memory {
	t.Helper()
	m := loadGolden(t)
	c := &memory{topics: map[string]*memoryTopic{}, committed: maps.Clone(m.committed), group: m.group}
	for name, topic := range m.topics {
		parts := make([]memoryPartition, len(topic.parts))
		for i, p := range topic.parts {
			parts[i] = memoryPartition{p.bounds, slices.Clone(p.records)}
		}
		c.topics[name] = &memoryTopic{parts: parts, configs: maps.Clone(topic.configs)}
	}
	return c
}

var (
	goldenOnce   sync.Once
	goldenMemory *memory
)

func loadGolden(t testing.TB) *memory {
	t.Helper()
	goldenOnce.Do(func() { goldenMemory = parseGolden(t) })
	if goldenMemory == nil {
		t.Fatal("no golden files")
	}
	return goldenMemory
}

func parseGolden(t testing.TB) *memory {
	t.Helper()
	m := &memory{topics: map[string]*memoryTopic{}, group: defaultApplicationID}
	files, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		readLines(t, file, (&dump{memory: m}).addLine)
	}
	for _, name := range labTopics {
		m.topics[name].configs["min.insync.replicas"] = "1"
	}
	m.topics[topicStatus].configs["cleanup.policy"] = "compact"
	// The run had the default of one day here. The lab's own value is checked for, see internalTopics.
	m.topics["order-counter-orders-per-store-minute-changelog"].configs["retention.ms"] = "3153600090000"
	m.commitAll()
	return m
}

func readLines(t testing.TB, file string, fn func(line string) error) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if err := fn(lines.Text()); err != nil {
			t.Fatalf("%s:%d: %v", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

func (m *memory) topic(name string) *memoryTopic {
	t := m.topics[name]
	if t == nil {
		t = &memoryTopic{configs: map[string]string{}}
		m.topics[name] = t
	}
	return t
}

// partition is a partition of a topic, made with the topic and those before it where they are not there yet.
func (m *memory) partition(topic string, n int) *memoryPartition {
	t := m.topic(topic)
	for len(t.parts) <= n {
		t.parts = append(t.parts, memoryPartition{})
	}
	return &t.parts[n]
}

// dump reads one golden file into memory.
type dump struct {
	*memory
	open *memoryPartition // the one that the next records are of
}

func (m *dump) addLine(line string) error {
	switch {
	case dumpHeader.MatchString(line):
		g := dumpHeader.FindStringSubmatch(line)
		m.open = m.partition(g[1], atoi(g[2]))
		end := int64(atoi(g[4]))
		m.open.bounds = bounds{start: int64(atoi(g[3])), end: end}
	case segmentTopic.MatchString(line):
		g := segmentTopic.FindStringSubmatch(line)
		m.open = m.partition(g[1], atoi(g[2]))
	case dumpRecord.MatchString(line):
		g := dumpRecord.FindStringSubmatch(line)
		key, err := hex.DecodeString(g[4])
		if err != nil {
			return err
		}
		value, err := hex.DecodeString(g[5])
		if err != nil {
			return err
		}
		if len(value) == 0 { // of orders.placed there is only the text
			value = []byte(g[6][1 : len(g[6])-1])
		}
		m.open.records = append(m.open.records, kafka.Record{Offset: int64(atoi(g[2])), Timestamp: int64(atoi(g[3])), Key: key, Value: value})
	case segmentLine.MatchString(line):
		g := segmentLine.FindStringSubmatch(line)
		m.open.records = append(m.open.records, kafka.Record{Offset: int64(atoi(g[1])), Timestamp: int64(atoi(g[2])), Key: []byte(g[3]), Value: []byte(g[4])})
		m.open.end = int64(atoi(g[1])) + 1
	case described.MatchString(line):
		g := described.FindStringSubmatch(line)
		t := m.topic(g[1])
		m.partition(g[1], atoi(g[2])-1)
		for pair := range strings.SplitSeq(configSplit.ReplaceAllString(g[3], "\n$1"), "\n") {
			name, value, _ := strings.Cut(pair, "=")
			t.configs[name] = value
		}
	case strings.HasPrefix(line, "p="), strings.HasPrefix(line, "| offset"), strings.HasPrefix(line, "Topic: "):
		return fmt.Errorf("not understood: %s", line)
	}
	return nil
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}
