package streams

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDescribeGenerated builds random programs call for call as the Java DSL did and compares the descriptions. The
// files of testdata/describe/generated say in their first lines how they were made and what the scripts mean.
//
// A single program differs in what its author thought of; these differ in everything else: the order of calls, names
// beside generated ones, diamonds, a repartition used again after other calls.
func TestDescribeGenerated(t *testing.T) {
	described := 0
	for _, c := range readScripts(t) {
		t.Run(c.name, func(t *testing.T) {
			b := NewBuilder()
			if err := runScript(b, c.script); err != nil {
				t.Fatal(err)
			}
			topology, err := b.Build()
			switch {
			case c.refused && err == nil:
				t.Fatalf("built, but Kafka Streams says: %s\n%s", c.want, c.script)
			case c.refused:
				t.Logf("Kafka Streams: %s\nours: %v", c.want, err)
				return
			case err != nil:
				t.Fatalf("Kafka Streams builds it, but not we: %v\n%s", err, c.script)
			}
			if diff := cmp.Diff(c.want, topology.Describe()); diff != "" {
				t.Errorf("-java +ours:\n%s\nscript:\n%s", diff, c.script)
			}
		})
		if !c.refused {
			described++
		}
	}
	if described < 250 {
		t.Errorf("%d topologies, want at least 250", described)
	}
}

// scriptCase is a script and what Kafka Streams makes of it: a description, or a message if it refuses.
type scriptCase struct {
	name, script, want string
	refused            bool
}

// readScripts reads the cases of all files. A description lies between double fences since it has empty lines.
func readScripts(t *testing.T) []scriptCase {
	t.Helper()
	files, err := filepath.Glob("testdata/describe/generated/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var cases []scriptCase
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "\n\n") // the header
		for rest != "" {
			var c scriptCase
			var heading, fence, after string
			heading, rest, _ = strings.Cut(rest, "\n")
			c.script, rest, _ = strings.Cut(rest, "----\n")
			kind, name, _ := strings.Cut(heading, " ")
			switch c.name = name; kind {
			case "describe":
				fence, after, _ = strings.Cut(rest, "----\n")
				c.want, rest, _ = strings.Cut(after, "----\n----\n\n")
			case "refused":
				c.refused = true
				c.want, rest, _ = strings.Cut(rest, "\n\n")
			default:
				t.Fatalf("%s: heading %q", file, heading)
			}
			if fence != "" || c.want == "" {
				t.Fatalf("%s: %s is not fenced as it should be", file, name)
			}
			cases = append(cases, c)
		}
	}
	return cases
}

// runScript makes a script's calls on b; an error is one of the script. Keys are texts or windowed texts and values texts
// or counts, so a result is of one of the few types below.
func runScript(b *Builder, script string) error {
	results, stores := map[string]any{}, storesByName{}
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		c, err := parseCall(line)
		if err != nil {
			return err
		}
		c.stores = stores
		made, err := c.apply(b, results)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if c.result != "" {
			results[c.result] = made
		}
	}
	return nil
}

// call is one line: [result =] operator input... [option value]...
type call struct {
	result, operator     string
	inputs               []string
	name, store, topic   string
	uses                 []string
	partitions           int
	size, advance, grace time.Duration
	retention            time.Duration
	tumbling             bool
	stores               storesByName
}

func parseCall(line string) (*call, error) {
	c := &call{}
	if result, rest, ok := strings.Cut(line, " = "); ok {
		c.result, line = result, rest
	}
	words := strings.Fields(line)
	c.operator = words[0]
	for i := 1; i < len(words); i++ {
		word := words[i]
		switch word {
		case "as", "store", "topic", "uses", "partitions", "tumbling", "hopping", "every", "grace", "retention":
		case "serdes": // what WithSerdes and the arguments of the Go calls say anyway
			continue
		default:
			c.inputs = append(c.inputs, word)
			continue
		}
		i++
		if i == len(words) {
			return nil, fmt.Errorf("%s: no value for %s", line, word)
		}
		var err error
		switch value := words[i]; word {
		case "as":
			c.name = value
		case "store":
			c.store = value
		case "topic":
			c.topic = value
		case "uses":
			c.uses = strings.Split(value, ",")
		case "partitions":
			c.partitions, err = strconv.Atoi(value)
		case "tumbling":
			c.tumbling = true
			c.size, err = time.ParseDuration(value)
		case "hopping":
			c.size, err = time.ParseDuration(value)
		case "every":
			c.advance, err = time.ParseDuration(value)
		case "grace":
			c.grace, err = time.ParseDuration(value)
		case "retention":
			c.retention, err = time.ParseDuration(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
	}
	return c, nil
}

// opts is the call's name as options.
func (c *call) opts() []NodeOption {
	if c.name == "" {
		return nil
	}
	return []NodeOption{WithName(c.name)}
}

func (c *call) sourceOpts() []SourceOption {
	if c.name == "" {
		return nil
	}
	return []SourceOption{WithName(c.name)}
}

func (c *call) windowOpts() (opts []WindowOption) {
	if c.name != "" {
		opts = append(opts, WithName(c.name))
	}
	if c.retention > 0 {
		opts = append(opts, WithRetention(c.retention))
	}
	return opts
}

func (c *call) windows() Windows {
	if c.tumbling {
		return Tumbling(c.size).Grace(c.grace)
	}
	return Hopping(c.size, c.advance).Grace(c.grace)
}

// scripted is a result that further calls can be made on.
type scripted interface {
	call(c *call, others []any) (any, error)
}

func (c *call) apply(b *Builder, results map[string]any) (any, error) {
	switch c.operator {
	case "stream":
		return streamOf[string, string]{Consume(b, c.topic, Text(), Text(), c.sourceOpts()...)}, nil
	case "table":
		return tableOf[string, string]{ReadTable(b, c.topic, c.store, Text(), Text(), c.sourceOpts()...)}, nil
	}
	var inputs []any
	for _, name := range c.inputs {
		in, ok := results[name]
		if !ok {
			return nil, fmt.Errorf("no result %s", name)
		}
		inputs = append(inputs, in)
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("no input")
	}
	on, ok := inputs[0].(scripted)
	if !ok {
		return nil, fmt.Errorf("%T has no operators", inputs[0])
	}
	return on.call(c, inputs[1:])
}

func (c *call) unknown(on any) error { return fmt.Errorf("%T has no such operator", on) }

// serdeOf is the serde of a key or value type; windowed keys have none.
func serdeOf[T any]() Serde[T] {
	for _, s := range []any{Text(), Int64()} {
		if s, ok := s.(Serde[T]); ok {
			return s
		}
	}
	return Serde[T]{}
}

type streamOf[K, V any] struct{ s *Stream[K, V] }

// withSerdes makes a stream's serdes known, as they are to the Java DSL.
func withSerdes[K, V any](s *Stream[K, V]) streamOf[K, V] {
	return streamOf[K, V]{s.WithSerdes(serdeOf[K](), serdeOf[V]())}
}

func (on streamOf[K, V]) call(c *call, others []any) (any, error) {
	s, opts := on.s, c.opts()
	all := func(K, V) bool { return true }
	nothing := func(Record[K, V]) {}
	switch c.operator {
	case "filter":
		return withSerdes(s.Filter(all, opts...)), nil
	case "filterNot":
		return withSerdes(s.FilterNot(all, opts...)), nil
	case "map":
		return withSerdes(Map(s, func(K, V) (string, string) { return "", "" }, opts...)), nil
	case "mapValues":
		return withSerdes(MapValues(s, func(V) string { return "" }, opts...)), nil
	case "flatMap":
		return withSerdes(FlatMap(s, func(K, V) iter.Seq2[string, string] { return nil }, opts...)), nil
	case "flatMapValues":
		return withSerdes(FlatMapValues(s, func(V) iter.Seq[string] { return nil }, opts...)), nil
	case "selectKey":
		return withSerdes(SelectKey(s, func(K, V) string { return "" }, opts...)), nil
	case "peek":
		return withSerdes(s.Peek(nothing, opts...)), nil
	case "foreach":
		s.ForEach(nothing, opts...)
		return nil, nil
	case "to":
		s.To(c.topic, serdeOf[K](), serdeOf[V](), opts...)
		return nil, nil
	case "merge":
		return withSerdes(s.Merge(others[0].(streamOf[K, V]).s, opts...)), nil
	case "process":
		var opts []ProcessOption
		for _, name := range c.uses {
			opts = append(opts, c.stores.of(s.b, name))
		}
		if c.name != "" {
			opts = append(opts, WithName(c.name))
		}
		return withSerdes(Process(s, func() Processor[K, V, string, string] { return idle[K, V]{} }, opts...)), nil
	case "split":
		return splitOf[K, V]{s.Split(opts...)}, nil
	case "repartition":
		return withSerdes(s.Repartition(c.name, c.partitions, serdeOf[K](), serdeOf[V]())), nil
	case "groupBy":
		return groupOf[V]{GroupBy(s, func(K, V) string { return "" }, Text(), opts...)}, nil
	case "groupByKey":
		switch s := any(s).(type) {
		case *Stream[string, string]:
			return groupOf[string]{s.GroupByKey(opts...)}, nil
		case *Stream[string, int64]:
			return groupOf[int64]{s.GroupByKey(opts...)}, nil
		}
	case "join", "leftJoin":
		switch s := any(s).(type) {
		case *Stream[string, string]:
			return joinScripted(s, c, others[0])
		case *Stream[string, int64]:
			return joinScripted(s, c, others[0])
		}
	}
	return nil, c.unknown(on)
}

func joinScripted[V any](s *Stream[string, V], c *call, table any) (any, error) {
	switch t := table.(type) {
	case tableOf[string, string]:
		return joinTyped(s, c, t.t), nil
	case tableOf[string, int64]:
		return joinTyped(s, c, t.t), nil
	}
	return nil, fmt.Errorf("cannot join %T", table)
}

func joinTyped[V, W any](s *Stream[string, V], c *call, t *Table[string, W]) any {
	if c.operator == "join" {
		return withSerdes(Join(s, t, func(V, W) string { return "" }, c.opts()...))
	}
	return withSerdes(LeftJoin(s, t, func(V, W, bool) string { return "" }, c.opts()...))
}

// storesByName are the stores of processors, each declared when first used.
type storesByName map[string]*KeyValueStore[string, string]

func (s storesByName) of(b *Builder, name string) *KeyValueStore[string, string] {
	if s[name] == nil {
		s[name] = NewKeyValueStore(b, name, Text(), Text())
	}
	return s[name]
}

type idle[K, V any] struct{}

func (idle[K, V]) Init(*ProcessorContext[string, string]) error { return nil }
func (idle[K, V]) Process(Record[K, V]) error                   { return nil }

type splitOf[K, V any] struct{ split *Split[K, V] }

func (on splitOf[K, V]) call(c *call, _ []any) (any, error) {
	switch c.operator {
	case "branch":
		return withSerdes(on.split.Branch(func(K, V) bool { return true }, c.opts()...)), nil
	case "defaultBranch":
		return withSerdes(on.split.Default(c.opts()...)), nil
	}
	return nil, c.unknown(on)
}

// groupOf has text keys only: of a windowed one would come windows of windows, without an end.
type groupOf[V any] struct{ g *Grouped[string, V] }

func (on groupOf[V]) call(c *call, _ []any) (any, error) {
	switch c.operator {
	case "count":
		return tableOf[string, int64]{Count(on.g, c.store, c.opts()...)}, nil
	case "countWindows":
		return tableOf[Windowed[string], int64]{CountWindows(on.g.WindowedBy(c.windows()), c.store, c.windowOpts()...)}, nil
	case "reduceWindows":
		return tableOf[Windowed[string], V]{ReduceWindows(on.g.WindowedBy(c.windows()), c.store, func(_, v V) V { return v }, c.windowOpts()...)}, nil
	case "aggregateWindows":
		empty := func() string { return "" }
		fold := func(_ string, _ V, a string) string { return a }
		w := on.g.WindowedBy(c.windows())
		return tableOf[Windowed[string], string]{AggregateWindows(w, c.store, empty, fold, Text(), c.windowOpts()...)}, nil
	case "reduce":
		return tableOf[string, V]{on.g.Reduce(c.store, func(_, v V) V { return v }, c.opts()...)}, nil
	case "aggregate":
		empty := func() string { return "" }
		fold := func(_ string, _ V, a string) string { return a }
		return tableOf[string, string]{Aggregate(on.g, c.store, empty, fold, Text(), c.opts()...)}, nil
	}
	return nil, c.unknown(on)
}

type tableOf[K, V any] struct{ t *Table[K, V] }

func (on tableOf[K, V]) call(c *call, _ []any) (any, error) {
	all := func(K, V) bool { return true }
	switch c.operator {
	case "filter":
		return tableOf[K, V]{on.t.Filter(all, c.opts()...)}, nil
	case "filterNot":
		return tableOf[K, V]{on.t.FilterNot(all, c.opts()...)}, nil
	case "mapValues":
		return tableOf[K, string]{MapTableValues(on.t, func(V) string { return "" }, c.opts()...)}, nil
	case "toStream":
		return withSerdes(on.t.ToStream(c.opts()...)), nil
	}
	return nil, c.unknown(on)
}
