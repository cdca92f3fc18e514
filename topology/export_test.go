package topology

import "github.com/windowed-order-counter/lab/streams"

// BuildOn makes the topology with a prefix before the names of all user topics, for a cluster that other tests use too.
func BuildOn(prefix string) (*streams.Topology, error) { return Build(Options{Prefix: prefix}) }
