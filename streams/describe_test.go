package streams

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/store"
)

// TestDescribeGraphs compares 60 random topologies with what Kafka Streams 4.3.1 printed for them
// (testdata/java/Graphs.java, seed 7). Sorting names by any simple rule fails on most of them.
func TestDescribeGraphs(t *testing.T) {
	data, err := os.ReadFile("testdata/describe-graphs.txt")
	if err != nil {
		t.Fatal(err)
	}
	graphs := strings.Split(string(data), "#GRAPH\n")[1:]
	if len(graphs) != 60 {
		t.Fatalf("%d graphs, want 60", len(graphs))
	}
	for i, g := range graphs {
		lines, want, _ := strings.Cut(strings.TrimSuffix(g, "#END\n"), "#DESC\n")
		topology := parseGraph(t, lines)
		if diff := cmp.Diff(want, topology.Describe()); diff != "" {
			t.Fatalf("graph %d (-java +ours):\n%s\n%s", i, diff, lines)
		}
	}
}

// TestHashOrder: names whose hash codes are equal, which "Aa" and "BB" are made for, make Java's table grow early. What
// comes out is what `new HashMap` of Java 17 gave after it was filled from a HashSet, as describe does.
func TestHashOrder(t *testing.T) {
	for _, c := range []struct{ name, names, want string }{
		{
			"early growth",
			"n592 AaBBAaBB n440 AaBBAaAa AaBBBBAa n132 n403 AaAaBBAa n558 AaAaAaAa AaBBBBBB BBAaAaAa n105 AaAaBBBB BBAaAaBB n80 AaAaAaBB",
			"AaBBAaBB AaBBAaAa AaBBBBAa AaAaBBAa AaAaAaAa AaBBBBBB BBAaAaAa AaAaBBBB BBAaAaBB AaAaAaBB n132 n592 n558 n80 n440 n105 n403",
		},
		{
			"the set grew and the map did not",
			"AaAaAaBB AaBBAaAa AaBBBBBB n168 AaAaBBBB n121 n473 n133 AaAaAaAa AaBBBBAa BBAaAaAa n733 n190 AaAaBBAa AaBBAaBB n726",
			"n190 AaAaAaBB AaBBAaAa AaBBBBBB AaAaBBBB AaAaAaAa AaBBBBAa BBAaAaAa AaAaBBAa AaBBAaBB n473 n121 n133 n168 n733 n726",
		},
		{
			"the set and the map differ again",
			"AaBBBBBB BBAaAaAa n798 n853 AaBBBBAa n339 AaAaAaAa AaAaBBBB n368 n124 n731 n851 AaBBAaBB n62 n134 AaBBAaAa AaAaBBAa AaAaAaBB n881",
			"AaBBBBBB BBAaAaAa AaBBBBAa AaAaAaAa AaAaBBBB AaBBAaBB AaBBAaAa AaAaBBAa AaAaAaBB n62 n881 n851 n731 n368 n134 n124 n339 n798 n853",
		},
	} {
		set, dict := newHashOrder(), newHashOrder()
		for _, name := range strings.Fields(c.names) {
			set.add(name)
		}
		set.each(dict.add)
		var got []string
		dict.each(func(name string) { got = append(got, name) })
		if diff := cmp.Diff(strings.Fields(c.want), got); diff != "" {
			t.Errorf("%s (-java +ours):\n%s", c.name, diff)
		}
	}
}

// parseGraph reads lines "S name topic", "P name store parent…" and "K name topic parent…".
func parseGraph(t *testing.T, lines string) *Topology {
	t.Helper()
	topology := &Topology{}
	byName := map[string]*node{}
	stores := map[string]*storeSpec{}
	for sc := bufio.NewScanner(strings.NewReader(lines)); sc.Scan(); {
		f := strings.Fields(sc.Text())
		n := &node{name: f[1], topic: f[2]}
		switch f[0] {
		case "S":
			n.kind = sourceNode
		case "K":
			n.kind = sinkNode
		case "P":
			n.kind = processorNode
			if f[2] != "-" {
				if stores[f[2]] == nil {
					stores[f[2]] = &storeSpec{Spec: store.Spec{Name: f[2]}}
				}
				n.store = stores[f[2]]
			}
		}
		for _, p := range f[3:] {
			if byName[p] == nil {
				t.Fatalf("no parent %s", p)
			}
			n.parents = append(n.parents, byName[p])
		}
		byName[n.name] = n
		topology.nodes = append(topology.nodes, n)
	}
	topology.group()
	return topology
}
