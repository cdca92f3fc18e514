package streams

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/store"
)

// Topology is what a Builder built: the nodes, divided into sub-topologies that share no topic's partitions and
// no store. It is immutable and may be used by any number of tasks at once.
//
// All names of internal topics are raw in it; the runtime prefixes them with the application id.
type Topology struct {
	nodes        []*node // build order
	subs         []*subtopology
	repartitions []*repartitionSpec
	// copartitioned are sets of topics that must have equal partition counts, since a join reads them together.
	copartitioned [][]string
}

// subtopology is the part of a topology that a task runs for one partition of its sources.
type subtopology struct {
	id      int
	nodes   []*node // build order, as all that follows
	sources []*source
	stores  []*storeSpec
	sinks   []string // topics written: user topics and repartition topics
}

// storeSpec is a store and the nodes that use it. What its changelog topic needs is in the Spec: kind and
// retention.
type storeSpec struct {
	store.Spec
	owner        *node // the table's node, which fills it; nil for a processor's store
	windowSize   time.Duration
	sourceTopic  string // the user topic that stands in for a changelog topic; "" if there is one
	users        []string
	materialized bool // named, or asked for by a join
}

// storeSpecs are the stores as a task opens them. A table without a cache logs and forwards every deletion.
func (s *subtopology) storeSpecs(uncached bool) []store.Spec {
	specs := make([]store.Spec, len(s.stores))
	for i, st := range s.stores {
		specs[i] = st.Spec
		specs[i].EveryDeletion = uncached
	}
	return specs
}

// newTopology builds the operators in order of priority, each once its parents are built, and groups the nodes
// (Kafka Streams 4.3.1, InternalStreamsBuilder.buildAndOptimizeTopology, InternalTopologyBuilder.makeNodeGroups).
func newTopology(b *Builder) (*Topology, error) {
	t := &Topology{}
	relaxed := map[*vertex]bool{}
	for _, v := range inBuildOrder(&b.root) {
		if v.entry != nil {
			for _, p := range v.parents {
				if p.exit != nil {
					v.entry.parents = append(v.entry.parents, p.exit)
				}
			}
		}
		if v.repart != nil {
			v.repart.nullKeys = takesNullKeys(v, relaxed)
			t.repartitions = append(t.repartitions, v.repart)
		}
		t.nodes = append(t.nodes, v.nodes...)
	}

	seen := map[string]bool{}
	for _, n := range t.nodes {
		if err := checkName(n.name); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.name, err)
		}
		if seen[n.name] {
			return nil, fmt.Errorf("node %s: two nodes have this name", n.name)
		}
		seen[n.name] = true
		for _, p := range n.parents {
			p.children = append(p.children, n)
		}
		n.uses = inHashOrder(n.uses)
		for _, s := range n.uses {
			s.users = append(s.users, n.name)
		}
		if n.store == nil {
			continue
		}
		if !n.store.materialized {
			n.store = nil
			continue
		}
		if !seen[n.store.owner.name] {
			// Only grouping by name can cause it: a group used again moves to the end, with the tables below it.
			return nil, fmt.Errorf("node %s: it reads store %s, whose node %s comes after it: aggregate the group for the last time before",
				n.name, n.store.Name, n.store.owner.name)
		}
		n.store.users = append(n.store.users, n.name)
	}
	t.group()
	for _, g := range b.groups {
		if topics := topicsOf(g); len(topics) > 1 {
			t.copartitioned = append(t.copartitioned, topics)
			if err := t.checkCopartitioned(topics); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// checkCopartitioned refuses repartition topics that a join reads together and that were given different counts.
// Counts of other topics are known to the runtime only.
func (t *Topology) checkCopartitioned(topics []string) error {
	var given []string
	differ := false
	var count int32
	for _, topic := range topics {
		i := slices.IndexFunc(t.repartitions, func(r *repartitionSpec) bool { return r.name == topic })
		if i < 0 || t.repartitions[i].partitions == 0 {
			continue
		}
		n := t.repartitions[i].partitions
		differ = differ || len(given) > 0 && n != count
		count = n
		given = append(given, fmt.Sprintf("%s=%d", topic, n))
	}
	if differ {
		return fmt.Errorf("a join needs as many partitions on both sides: "+
			"Following topics do not have the same number of partitions: [{%s}]", strings.Join(given, ", "))
	}
	return nil
}

// inBuildOrder walks the operators by priority.
func inBuildOrder(root *vertex) []*vertex {
	root.written = true
	var order []*vertex
	ready := slices.Clone(root.children)
	for len(ready) > 0 {
		next := 0
		for i, v := range ready {
			if v.priority < ready[next].priority {
				next = i
			}
		}
		v := ready[next]
		ready = slices.Delete(ready, next, next+1)
		v.written = true
		order = append(order, v)
		for _, c := range v.children {
			if !c.written && !slices.ContainsFunc(c.parents, func(p *vertex) bool { return !p.written }) {
				ready = append(ready, c)
			}
		}
	}
	return order
}

// takesNullKeys tells whether a join that takes null keys is anywhere below v.
func takesNullKeys(v *vertex, known map[*vertex]bool) bool {
	below, ok := known[v]
	if !ok {
		below = slices.ContainsFunc(v.children, func(c *vertex) bool { return c.relaxed || takesNullKeys(c, known) })
		known[v] = below
	}
	return below
}

// group unites each node with its parents and with the nodes that share its store, and numbers the groups by
// their first node. A repartition topic unites nothing.
func (t *Topology) group() {
	parent := make(map[*node]*node, len(t.nodes))
	var root func(n *node) *node
	root = func(n *node) *node {
		if p := parent[n]; p != nil {
			r := root(p)
			parent[n] = r
			return r
		}
		return n
	}
	unite := func(a, c *node) {
		if a, c = root(a), root(c); a != c {
			parent[c] = a
		}
	}
	user := map[*storeSpec]*node{}
	for _, n := range t.nodes {
		for _, p := range n.parents {
			unite(n, p)
		}
		for _, s := range n.stores() {
			if first := user[s]; first != nil {
				unite(first, n)
			} else {
				user[s] = n
			}
		}
	}
	subs := map[*node]*subtopology{}
	for _, n := range t.nodes {
		sub := subs[root(n)]
		if sub == nil {
			sub = &subtopology{id: len(t.subs)}
			subs[root(n)] = sub
			t.subs = append(t.subs, sub)
		}
		sub.nodes = append(sub.nodes, n)
		if n.kind == sourceNode {
			sub.sources = append(sub.sources, n.src)
		}
		if n.kind == sinkNode && !slices.Contains(sub.sinks, n.topic) {
			sub.sinks = append(sub.sinks, n.topic)
		}
		for _, s := range n.stores() {
			if !slices.Contains(sub.stores, s) {
				sub.stores = append(sub.stores, s)
			}
		}
	}
}

// inHashOrder is the order in which Java keeps the stores of a node: a HashSet of their names.
func inHashOrder(specs []*storeSpec) []*storeSpec {
	names := newHashOrder()
	byName := make(map[string]*storeSpec, len(specs))
	for _, s := range specs {
		names.add(s.Name)
		byName[s.Name] = s
	}
	var ordered []*storeSpec
	names.each(func(name string) { ordered = append(ordered, byName[name]) })
	return ordered
}

// stores are the stores that a node reads or writes.
func (n *node) stores() []*storeSpec {
	if n.store != nil {
		return []*storeSpec{n.store}
	}
	return n.uses
}

func topicsOf(sources []*node) []string {
	topics := make([]string, 0, len(sources))
	for _, n := range sources {
		topics = append(topics, n.topic)
	}
	sort.Strings(topics)
	return slices.Compact(topics)
}
