package streams

import (
	"fmt"
	"sort"
)

// Observer watches the records of one node without adding a node, which would burn an index and change the
// description and every later name. It is the engine's form of Java's processor.wrapper.class. There is one for all tasks, so with several
// stream threads it is called by several at the same time.
type Observer struct {
	node string
	// A process[K, V] each, or nil: their types are checked against the node's when a task binds the topology.
	before, after any
}

// Before observes each record that reaches the node, before the node does anything with it.
func Before[K, V any](node string, fn func(*Context, Record[K, V])) *Observer {
	return &Observer{node: node, before: process[K, V](fn)}
}

// After observes each result of the node, once the nodes below are done with it: the record that the node
// forwarded (for a join the joined value), or, for a node with a store of its own, what the record at work put
// there (for a count the new count), since that is forwarded at the next commit only. Nodes that end a branch
// yield what they got. A record that the node drops has no After.
func After[K, V any](node string, fn func(*Context, Record[K, V])) *Observer {
	return &Observer{node: node, after: process[K, V](fn)}
}

// observersByNode joins the observers of each node. A node that the topology does not have is an error.
func (t *Topology) observersByNode(list []*Observer) (map[string]*Observer, error) {
	known := make(map[string]bool, len(t.nodes))
	for _, n := range t.nodes {
		known[n.name] = true
	}
	byNode := make(map[string]*Observer, len(list))
	for _, o := range list {
		if !known[o.node] {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			sort.Strings(names)
			return nil, fmt.Errorf("observer of node %s: the topology has no such node, only %v", o.node, names)
		}
		both := byNode[o.node]
		if both == nil {
			both = &Observer{node: o.node}
			byNode[o.node] = both
		}
		if both.before != nil && o.before != nil || both.after != nil && o.after != nil {
			return nil, fmt.Errorf("observer of node %s: two observers for the same side", o.node)
		}
		if o.before != nil {
			both.before = o.before
		}
		if o.after != nil {
			both.after = o.after
		}
	}
	return byNode, nil
}

// observeBefore is p behind the node's Before observer, or p itself if there is none.
func observeBefore[K, V any](b *binding, n *node, p process[K, V]) process[K, V] {
	o := b.rt.observer(n.name)
	if o == nil || o.before == nil {
		return p
	}
	fn, ok := o.before.(process[K, V])
	if !ok {
		b.errs = append(b.errs, observerType[K, V](n, "before", o.before))
		return p
	}
	return func(ctx *Context, r Record[K, V]) {
		ctx.node = n
		fn(ctx, r)
		p(ctx, r)
	}
}

// observeAfter is p followed by the node's After observer, or p itself if there is none.
func observeAfter[K, V any](b *binding, n *node, p process[K, V]) process[K, V] {
	o := b.rt.observer(n.name)
	if o == nil || o.after == nil {
		return p
	}
	fn, ok := o.after.(process[K, V])
	if !ok {
		b.errs = append(b.errs, observerType[K, V](n, "after", o.after))
		return p
	}
	return func(ctx *Context, r Record[K, V]) {
		p(ctx, r)
		if ctx.err == nil {
			ctx.node = n
			fn(ctx, r)
		}
	}
}

func observerType[K, V any](n *node, side string, got any) error {
	return fmt.Errorf("observer %s node %s: takes %T, the node has %T", side, n.name, got, process[K, V](nil))
}
