package phases

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// On a shared cluster the evidence listed 500 topics of other people.
func TestListed(t *testing.T) {
	lab := []string{"analytics.orders-per-store", "analytics.orders-per-store.eos", "order-counter-alos-order-status-changelog", "orders.placed"}
	title, ours := listed(lab)
	if title != "kafka-topics --list" {
		t.Errorf("title %q", title)
	}
	if diff := cmp.Diff(lab, ours); diff != "" {
		t.Error(diff)
	}
	title, ours = listed(append([]string{"__consumer_offsets", "order-counter-dashboard"}, lab...))
	if title != "kafka-topics --list (the lab's own; others on the cluster: 2)" {
		t.Errorf("title %q", title)
	}
	if diff := cmp.Diff(lab, ours); diff != "" {
		t.Error(diff)
	}
}
