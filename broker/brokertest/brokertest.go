// Package brokertest gives the tests of other packages a broker.
//
// Start is for tests that must hold on any Kafka: it yields the cluster named by LAB_TEST_BOOTSTRAP, or else an embedded broker of the
// test's own. Embedded is for tests that need to break something: it always yields an embedded broker, whose Cluster can fail, delay
// or observe requests. The aliases below keep kfake an import of the broker packages alone.
package brokertest

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/windowed-order-counter/lab/broker"
)

// Env names the variable that points tests at a real cluster: a comma-separated list of host:port.
const Env = "LAB_TEST_BOOTSTRAP"

// dialTimeout bounds the check that the cluster named by Env is there.
const dialTimeout = 5 * time.Second

type (
	// Cluster is an embedded broker with its fault injection: Fault, ControlKey, SleepControl, MoveTopicPartition and more.
	Cluster = kfake.Cluster
	// Fault makes matching requests fail, see Cluster.Fault.
	Fault = kfake.Fault
	// FaultHandle counts, awaits and removes installed faults.
	FaultHandle = kfake.FaultHandle
	// Option adjusts an embedded broker.
	Option = kfake.Opt
)

// Brokers sets the number of nodes, one by default.
func Brokers(n int) Option { return kfake.NumBrokers(n) }

// Topics creates topics of the given partition count before the first request.
func Topics(partitions int32, names ...string) Option { return kfake.SeedTopics(partitions, names...) }

// Configs sets broker configs on top of those of broker.EmbeddedConfigs.
func Configs(configs map[string]string) Option { return kfake.BrokerConfigs(configs) }

// Login makes clients log in, by each SASL mechanism that the client speaks.
func Login(user, password string) []Option {
	options := []Option{kfake.EnableSASL()}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		options = append(options, kfake.Superuser(mechanism, user, password))
	}
	return options
}

// TLS makes the listeners speak TLS.
func TLS(config *tls.Config) Option { return kfake.TLS(config) }

// SleepOutOfOrder lets the broker handle other requests of a connection while a control function sleeps.
func SleepOutOfOrder() Option { return kfake.SleepOutOfOrder() }

// Code returns the Kafka error of a code, for Fault.Err. It is nil for 0.
func Code(code int16) *kerr.Error { return kerr.TypedErrorForCode(code) }

// Start returns the bootstrap list of a broker for this test: the value of LAB_TEST_BOOTSTRAP, or a fresh embedded broker on a free
// port, closed when the test ends. A cluster that was asked for and does not answer fails the test: a lane must not pass by not running.
// Options only apply to the embedded broker. Topic and group names must be unique to the test, since a real cluster is shared.
func Start(t testing.TB, opts ...Option) string {
	t.Helper()
	bootstrap := os.Getenv(Env)
	if bootstrap == "" {
		return Bootstrap(Embedded(t, opts...))
	}
	if err := reachable(bootstrap); err != nil {
		t.Fatalf("%s=%s: no broker answers: %v", Env, bootstrap, err)
	}
	return bootstrap
}

// Embedded starts a broker of the test's own, whatever LAB_TEST_BOOTSTRAP says, and closes it when the test ends. It has one node, a
// free port and a data folder, and does not create topics by itself.
func Embedded(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	// TempDir comes first: cleanups run last in, first out, so the broker closes before its folder goes.
	all := []Option{kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.BrokerConfigs(broker.EmbeddedConfigs())}
	cluster, err := kfake.NewCluster(append(all, opts...)...)
	if err != nil {
		t.Fatalf("starting an embedded broker: %v", err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// Bootstrap returns the addresses of an embedded broker as a comma-separated list.
func Bootstrap(c *Cluster) string { return strings.Join(c.ListenAddrs(), ",") }

// reachable reports whether at least one of the addresses accepts a connection.
func reachable(bootstrap string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var last error
	for addr := range strings.SplitSeq(bootstrap, ",") {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimSpace(addr))
		if err == nil {
			return conn.Close()
		}
		last = err
	}
	return last
}
