package topology

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The description is what Kafka Streams 4.3.1 prints for the same program, byte for byte.
func TestDescribe(t *testing.T) {
	want, err := os.ReadFile("testdata/topology.txt")
	if err != nil {
		t.Fatal(err)
	}
	top, err := Build(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), top.Describe()); diff != "" {
		t.Errorf("description (-Java +ours):\n%s", diff)
	}
}
