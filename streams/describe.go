package streams

import (
	"sort"
	"strconv"
	"strings"
)

// Describe is the topology as Java's Topology.describe() prints it, byte for byte.
//
// Java sorts the nodes of a sub-topology by the size of what hangs below them, and keeps the names on each --> line
// in a tree that it fills while these sizes still grow: the order of those names follows from the order of
// insertions, which follows from the iteration order of a java.util.HashMap. So both are rebuilt here (Kafka
// Streams 4.3.1, InternalTopologyBuilder.describeSubtopology).
func (t *Topology) Describe() string {
	var s strings.Builder
	s.WriteString("Topologies:\n ")
	for _, sub := range t.subs {
		describeSubtopology(&s, sub)
	}
	return s.String()
}

func describeSubtopology(s *strings.Builder, sub *subtopology) {
	names := newHashOrder()
	byName := make(map[string]*described, len(sub.nodes))
	for _, n := range sub.nodes {
		names.add(n.name)
		byName[n.name] = &described{node: n, size: 1}
	}
	// Java copies a HashSet of the names, filled in build order, into a HashMap. The two can differ: how much a table
	// has grown also depends on the order of what was added, see hashOrder.add.
	again := newHashOrder()
	names.each(again.add)
	again.each(func(name string) {
		d := byName[name]
		for _, p := range d.node.parents {
			pd := byName[p.name]
			d.before.add(pd)
			pd.after.add(d)
			pd.grow(d.size)
		}
	})

	all := make([]*described, 0, len(byName))
	for _, n := range sub.nodes {
		all = append(all, byName[n.name])
	}
	sort.Slice(all, func(i, j int) bool { return all[i].compare(all[j]) < 0 })

	s.WriteString("  Sub-topology: ")
	s.WriteString(strconv.Itoa(sub.id))
	s.WriteString("\n")
	for _, d := range all {
		d.write(s)
	}
	s.WriteString("\n")
}

// described is a node while its sub-topology is described.
type described struct {
	node          *node
	size          int // 1 and the sizes of all nodes below, once per path
	before, after sizeTree
}

// compare orders larger nodes first, then by name. Names are ASCII, so Java's UTF-16 order is the bytes' order.
func (d *described) compare(o *described) int {
	if d.size != o.size {
		return o.size - d.size
	}
	return strings.Compare(d.node.name, o.node.name)
}

func (d *described) grow(by int) {
	d.size += by
	d.before.each(func(p *described) { p.grow(by) })
}

func (d *described) write(s *strings.Builder) {
	n := d.node
	switch n.kind {
	case sourceNode:
		s.WriteString("    Source: " + n.name + " (topics: [" + n.topic + "])\n")
		s.WriteString("      --> " + d.after.names() + "\n")
	case sinkNode:
		s.WriteString("    Sink: " + n.name + " (topic: " + n.topic + ")\n")
		s.WriteString("      <-- " + d.before.names() + "\n")
	case processorNode:
		var stores []string
		for _, st := range n.stores() {
			stores = append(stores, st.Name)
		}
		s.WriteString("    Processor: " + n.name + " (stores: [" + strings.Join(stores, ", ") + "])\n")
		s.WriteString("      --> " + d.after.names() + "\n")
		s.WriteString("      <-- " + d.before.names() + "\n")
	}
}

// hashOrder iterates over names as a java.util.HashMap does: by bucket, within one in order of insertion. In a table of 64
// buckets or more, Java turns a bucket of 9 names into a tree and then iterates in another order; that is not rebuilt here
// (docs/limits.md), since generated and usual names do not collide so often.
type hashOrder struct {
	buckets [][]string
	n       int
}

func newHashOrder() *hashOrder { return &hashOrder{buckets: make([][]string, 16)} }

func (h *hashOrder) add(name string) {
	b := h.bucket(name)
	*b = append(*b, name)
	if len(*b) > 8 && len(h.buckets) < 64 {
		h.grow() // HashMap.treeifyBin: a small table grows instead
	}
	h.n++
	if h.n > len(h.buckets)*3/4 {
		h.grow()
	}
}

func (h *hashOrder) grow() {
	old := h.buckets
	h.buckets = make([][]string, 2*len(old))
	for _, names := range old {
		for _, name := range names {
			b := h.bucket(name)
			*b = append(*b, name)
		}
	}
}

func (h *hashOrder) bucket(name string) *[]string {
	var hash uint32 // String.hashCode
	for i := range len(name) {
		hash = 31*hash + uint32(name[i])
	}
	hash ^= hash >> 16
	return &h.buckets[hash&uint32(len(h.buckets)-1)]
}

func (h *hashOrder) each(fn func(string)) {
	for _, names := range h.buckets {
		for _, name := range names {
			fn(name)
		}
	}
}

// sizeTree is a java.util.TreeMap under described.compare. An entry stays where it was inserted when sizes change
// later, so how the tree was balanced at that moment shows in the order.
type sizeTree struct{ root *treeEntry }

type treeEntry struct {
	key                 *described
	left, right, parent *treeEntry
	red                 bool
}

func (t *sizeTree) add(key *described) {
	if t.root == nil {
		t.root = &treeEntry{key: key}
		return
	}
	parent, c := t.root, 0
	for at := t.root; at != nil; {
		parent = at
		switch c = key.compare(at.key); {
		case c < 0:
			at = at.left
		case c > 0:
			at = at.right
		default:
			return
		}
	}
	e := &treeEntry{key: key, parent: parent, red: true}
	if c < 0 {
		parent.left = e
	} else {
		parent.right = e
	}
	t.balance(e)
}

// balance is TreeMap.fixAfterInsertion.
func (t *sizeTree) balance(x *treeEntry) {
	for x != t.root && x.parent.red {
		p := x.parent
		g := p.parent // not nil: the root is black
		isLeft := p == g.left
		uncle := g.left
		if isLeft {
			uncle = g.right
		}
		if uncle != nil && uncle.red {
			p.red, uncle.red, g.red = false, false, true
			x = g
			continue
		}
		if isLeft && x == p.right || !isLeft && x == p.left {
			x = p
			t.rotate(x, isLeft)
			p = x.parent
		}
		p.red, g.red = false, true
		t.rotate(g, !isLeft)
	}
	t.root.red = false
}

// rotate moves p down to the left or right, and its other child up.
func (t *sizeTree) rotate(p *treeEntry, left bool) {
	var up *treeEntry
	if left {
		up = p.right
		p.right = up.left
		if up.left != nil {
			up.left.parent = p
		}
		up.left = p
	} else {
		up = p.left
		p.left = up.right
		if up.right != nil {
			up.right.parent = p
		}
		up.right = p
	}
	up.parent = p.parent
	switch {
	case p.parent == nil:
		t.root = up
	case p.parent.left == p:
		p.parent.left = up
	default:
		p.parent.right = up
	}
	p.parent = up
}

func (t *sizeTree) each(fn func(*described)) { t.root.each(fn) }

func (e *treeEntry) each(fn func(*described)) {
	if e != nil {
		e.left.each(fn)
		fn(e.key)
		e.right.each(fn)
	}
}

func (t *sizeTree) names() string {
	var names []string
	t.each(func(d *described) { names = append(names, d.node.name) })
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}
