package brokertest

import (
	"net"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStartYieldsTheNamedCluster(t *testing.T) {
	named := Bootstrap(Embedded(t))
	t.Setenv(Env, named)
	if got := Start(t); got != named {
		t.Fatalf("Start = %s, want the cluster of %s, %s", got, Env, named)
	}
}

func TestStartWithoutAClusterStartsOne(t *testing.T) {
	t.Setenv(Env, "")
	one, two := Start(t), Start(t)
	if one == two {
		t.Fatalf("two tests share the embedded broker %s", one)
	}
	for _, addr := range []string{one, two} {
		if err := reachable(addr); err != nil {
			t.Errorf("embedded broker %s: %v", addr, err)
		}
	}
}

// A lane that points at a dead cluster must fail. Start itself calls t.Fatal, so the check behind it is what can be tested.
func TestReachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	alive := Bootstrap(Embedded(t))
	if err := reachable(dead); err == nil {
		t.Errorf("reachable(%s) = nil for a closed port", dead)
	}
	if err := reachable(dead + ", " + alive); err != nil {
		t.Errorf("one live seed of two: %v", err)
	}
}

func TestEmbedded(t *testing.T) {
	c := Embedded(t, Topics(3, "orders"), Configs(map[string]string{"message.max.bytes": "2000"}))
	if got := len(c.PartitionInfos("orders")); got != 3 {
		t.Errorf("orders has %d partitions, want 3", got)
	}
	if got := len(c.ListenAddrs()); got != 1 {
		t.Errorf("%d nodes, want 1", got)
	}
	if got := len(Embedded(t, Brokers(3)).ListenAddrs()); got != 3 {
		t.Errorf("Brokers(3) started %d nodes", got)
	}
}
