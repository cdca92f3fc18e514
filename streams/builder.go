// Package streams runs Kafka Streams topologies without a JVM. A Builder collects operators into a Topology, whose
// node names, sub-topologies, internal topics and description are those that Kafka Streams 4.3.1 gives the same
// calls; an App runs it as one instance of an application.
//
//	b := streams.NewBuilder()
//	orders := streams.Consume(b, "orders", streams.Text(), streams.Text())
//	counts := streams.Count(orders.GroupByKey(), "orders-per-customer")
//	counts.ToStream().To("counts", streams.Text(), streams.Int64())
//	topology, err := b.Build()
//
// Operators that keep a stream's types are methods, those that change one are functions.
package streams

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/windowed-order-counter/lab/store"
)

// Builder collects a topology. Operators report nothing by themselves: what was wrong with one of them is an
// error of Build that names its node.
//
// One counter numbers every operator in the order of the calls, and a name given by WithName still uses up the
// number it replaces (Kafka Streams 4.3.1, InternalStreamsBuilder). Names, sub-topology ids, and with them task
// ids and state folders, therefore depend on call order: inserting an operator renumbers all later ones.
type Builder struct {
	index    int
	priority int
	root     vertex
	errs     []error
	built    bool

	topics       map[string]bool // consumed by a source
	repartitions map[string]bool
	stores       map[string]bool
	groups       [][]*node // sources that must be co-partitioned
}

// NewBuilder is an empty topology.
func NewBuilder() *Builder {
	return &Builder{topics: map[string]bool{}, repartitions: map[string]bool{}, stores: map[string]bool{}}
}

// vertex is one operator: a node, or the two of a table source, or the three of a repartition. Operators are
// built in order of priority, each once all its parents are.
type vertex struct {
	priority          int
	parents, children []*vertex
	nodes             []*node // in build order
	entry, exit       *node   // the ones that the parents' records reach, and that the children follow
	written           bool
	relaxed           bool // a join that takes null keys
	repart            *repartitionSpec
}

// add links v below its parents. Adding a vertex again, which grouping by name does, moves it to the end of the
// call order, as in Java.
func (b *Builder) add(v *vertex, parents ...*vertex) {
	if b.built {
		b.fail(v.exit.name, errors.New("added after Build"))
		return
	}
	for _, p := range parents {
		if !containsVertex(p.children, v) {
			p.children = append(p.children, v)
			v.parents = append(v.parents, p)
		}
	}
	v.priority = b.priority
	b.priority++
}

func containsVertex(list []*vertex, v *vertex) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

func (b *Builder) fail(node string, err error) {
	b.errs = append(b.errs, fmt.Errorf("node %s: %w", node, err))
}

// nodeName is given, or else generated from prefix; the index is used up either way.
func (b *Builder) nodeName(given, prefix string) string {
	generated := fmt.Sprintf("%s%010d", prefix, b.index)
	b.index++
	if given != "" {
		return given
	}
	return generated
}

// newStore declares a store named name, or one with a generated name, which alone uses up an index.
func (b *Builder) newStore(name, prefix string, kind store.Kind) *storeSpec {
	if name == "" {
		name = b.nodeName("", prefix+"STATE-STORE-")
	}
	return b.declareStore(name, kind)
}

func (b *Builder) declareStore(name string, kind store.Kind) *storeSpec {
	if err := checkName(name); err != nil {
		b.errs = append(b.errs, fmt.Errorf("store %s: %w", name, err))
	}
	if b.stores[name] {
		b.errs = append(b.errs, fmt.Errorf("store %s: two operators have a store of this name", name))
	}
	b.stores[name] = true
	return &storeSpec{Spec: store.Spec{Name: name, Kind: kind, Logged: true}}
}

// subscribe claims a user topic for one source.
func (b *Builder) subscribe(node, topic string) {
	if b.topics[topic] {
		b.fail(node, fmt.Errorf("topic %s is already consumed: use that stream or table twice instead", topic))
	}
	b.topics[topic] = true
	if err := checkName(topic); err != nil {
		b.fail(node, fmt.Errorf("topic: %w", err))
	}
}

var legalName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// checkName applies Kafka's rule for topics to nodes and stores too, as Java's Named does.
func checkName(name string) error {
	if name == "." || name == ".." || !legalName.MatchString(name) {
		return fmt.Errorf("%q is not a legal name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'", name)
	}
	return nil
}

// NodeOption sets something about one operator.
type NodeOption interface{ applyNode(*nodeOptions) }

// SourceOption sets something about a source.
type SourceOption interface{ applySource(*sourceOptions) }

type nodeOptions struct{ name string }

type sourceOptions struct {
	name      string
	extractor any // a TimestampExtractor[K, V]
	reuse     bool
}

// Name is the option that WithName makes.
type Name string

// WithName names the operator's node. A table source named x has the nodes x-source and x; a grouping or a join
// that needs a repartition topic names that topic x-repartition.
func WithName(name string) Name { return Name(name) }

func (n Name) applyNode(o *nodeOptions)     { o.name = string(n) }
func (n Name) applySource(o *sourceOptions) { o.name = string(n) }

func named(opts []NodeOption) string {
	var o nodeOptions
	for _, opt := range opts {
		opt.applyNode(&o)
	}
	return o.name
}

// TimestampExtractor gives a record's event time in milliseconds since 1970. r.Timestamp is the record's own
// timestamp, partitionTime the largest extracted so far in the partition, -1 if none. An error, like a negative
// result, makes the record a *RecordError.
type TimestampExtractor[K, V any] func(r Record[K, V], partitionTime int64) (int64, error)

type eventTime struct{ extractor any }

func (e eventTime) applySource(o *sourceOptions) { o.extractor = e.extractor }

// EventTime sets the source's timestamp extractor; without it the record's own timestamp is taken. Repartition
// topics never ask an extractor: what they carry is the extracted timestamp.
func EventTime[K, V any](extractor TimestampExtractor[K, V]) SourceOption {
	return eventTime{extractor}
}

type reuseSourceTopic struct{}

func (reuseSourceTopic) applySource(o *sourceOptions) { o.reuse = true }

// ReuseSourceTopic lets a table have no changelog topic: its store is restored from the topic that it is read from, up to the committed
// offset. That topic must be compacted and never lose records, or a restored table lacks them. Describe does not show it. To turn it on
// or off in an application that has run changes what its store is restored from: do it with the changelog complete, or afresh (Java's
// topology.optimization=reuse.ktable.source.topics, which holds for all tables).
func ReuseSourceTopic() SourceOption { return reuseSourceTopic{} }

// newSource is the node of a source, with its claim on the topic.
func newSource[K, V any](b *Builder, name, topic string, keys Serde[K], values Serde[V], o sourceOptions) *node {
	b.subscribe(name, topic)
	var extract TimestampExtractor[K, V]
	if o.extractor != nil {
		var ok bool
		if extract, ok = o.extractor.(TimestampExtractor[K, V]); !ok {
			b.fail(name, fmt.Errorf("EventTime has a %T, the topic's records need a %T", o.extractor, extract))
		}
	}
	needSerde(b, name, "key", keys, "give it to the source")
	needSerde(b, name, "value", values, "give it to the source")
	return sourceOf(name, topic, false, keys, values, extract)
}

func needSerde[T any](b *Builder, node, what string, s Serde[T], remedy string) {
	if !s.known() {
		var zero T
		b.fail(node, fmt.Errorf("no serde for its %s (%T): %s", what, zero, remedy))
	}
}

// Consume reads a topic as a stream of independent records.
func Consume[K, V any](b *Builder, topic string, keys Serde[K], values Serde[V], opts ...SourceOption) *Stream[K, V] {
	var o sourceOptions
	for _, opt := range opts {
		opt.applySource(&o)
	}
	n := newSource(b, b.nodeName(o.name, "KSTREAM-SOURCE-"), topic, keys, values, o)
	if o.reuse {
		b.fail(n.name, errors.New("ReuseSourceTopic is for tables: a stream has no store"))
	}
	v := single(n)
	b.add(v, &b.root)
	return &Stream[K, V]{b: b, v: v, keys: keys, values: values, sources: []*node{n}}
}

// ReadTable reads a topic as a table: the latest value of each key, kept in the named store. A null value deletes
// its key. Without a store name the table is only kept where a join reads it, under a generated name.
func ReadTable[K, V any](
	b *Builder, topic, storeName string, keys Serde[K], values Serde[V], opts ...SourceOption,
) *Table[K, V] {
	var o sourceOptions
	for _, opt := range opts {
		opt.applySource(&o)
	}
	spec := b.newStore(storeName, topic+"-", store.KeyValueKind)
	spec.materialized = storeName != ""
	if o.reuse {
		spec.sourceTopic = topic
	}
	sourceName := ""
	if o.name != "" {
		sourceName = o.name + "-source"
	}
	src := newSource(b, b.nodeName(sourceName, "KSTREAM-SOURCE-"), topic, keys, values, o)
	n := &node{name: b.nodeName(o.name, "KTABLE-SOURCE-"), kind: processorNode, store: spec, parents: []*node{src}}
	spec.owner = n
	n.bind = bindTableSource(n, keys, values)
	v := &vertex{nodes: []*node{src, n}, exit: n}
	b.add(v, &b.root)
	return &Table[K, V]{
		b: b, v: v, keys: keys, values: values, sources: []*node{src},
		materialize: func() *storeSpec { spec.materialized = true; return spec },
		view:        viewOf(spec, keys, values), previous: previousOf[K](spec, values), remember: spec.remember,
	}
}

func single(n *node) *vertex {
	return &vertex{nodes: []*node{n}, entry: n, exit: n}
}

// Build makes the topology. It may be called once.
func (b *Builder) Build() (*Topology, error) {
	if b.built {
		return nil, fmt.Errorf("topology: %w", errors.Join(append(b.errs, errors.New("Build was already called"))...))
	}
	b.built = true
	if err := errors.Join(b.errs...); err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	t, err := newTopology(b)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return t, nil
}

var generatedName = regexp.MustCompile(`^KSTREAM.*-[0-9]{10}$`)

// repartitionNames are the topic and nodes of a repartition, named after prefix unless that was generated. The
// three indices are used up even if an earlier repartition is used again.
type repartitionNames struct{ topic, sink, filter, source string }

func (b *Builder) repartitionNames(prefix string) repartitionNames {
	r := repartitionNames{topic: prefix}
	if !strings.HasSuffix(prefix, "-repartition") {
		r.topic += "-repartition"
	}
	r.sink, r.filter, r.source = b.nodeName("", "KSTREAM-SINK-"), b.nodeName("", "KSTREAM-FILTER-"), b.nodeName("", "KSTREAM-SOURCE-")
	if !generatedName.MatchString(prefix) {
		r.sink, r.filter, r.source = r.topic+"-sink", r.topic+"-filter", r.topic+"-source"
	}
	return r
}
