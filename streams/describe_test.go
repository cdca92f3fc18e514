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
