// Package broker is how the lab has a Kafka broker: an embedded one in a background process of its own, Apache Kafka from its jars or in a
// container, or any cluster that exists.
//
// New decides which one a workspace uses and returns it as a Broker; Find is the same for commands that must not start one. Serve is
// the other end: the body of the background process, and ServeNode that of a node of Kafka. They meet in the workspace's .lab folder:
//
//	broker.json       the record: where the running broker answers and which process it is
//	broker.log        everything the process prints
//	broker/           kafka data, and what to start it again with
//	broker.lock       held by the serving process for as long as it lives
//	broker-2.lock …   the same for further nodes, which have a log of their own too
//	broker.up.lock    held while one is being started, so that two commands at once start one broker
//
// File map: resolve.go (New, Find), embedded.go (start and stop the process), serve.go (be the process), kfake.go and timestamps.go (what
// makes kfake more like Kafka), jvm.go (start and stop nodes of Kafka), jvm_jars.go (have its jars), jvm_node.go (be a node), settings.go
// (what Kafka is told), docker.go, docker_daemon.go, docker_run.go (Kafka in a container), evict.go (stop it without its record), existing.go
// (any cluster), record.go (broker.json), layout.go (whose data there is), errors.go.
package broker

import (
	"context"
	"net"
	"strings"
	"time"
)

// Kind is a way to have a broker, the value of --broker.
type Kind string

const (
	// Embedded is kfake in a background process on the loopback interface, the default.
	Embedded Kind = "embedded"
	// JVM is Apache Kafka itself from its Maven jars, one process or three on the loopback interface.
	JVM Kind = "jvm"
	// Docker is Apache Kafka in a container of its published image.
	Docker Kind = "docker"
	// Existing is a cluster that someone else runs.
	Existing Kind = "existing"
)

// DefaultPort is where an embedded broker listens if nothing else is asked for and the port is free.
const DefaultPort = 9092

// Broker is one way to have a cluster.
type Broker interface {
	// Up returns once the broker answers. One that is up already is left as it is.
	Up(ctx context.Context) (Record, error)
	// Status returns where the broker answers, or ErrNotRunning.
	Status(ctx context.Context) (Record, error)
	// Down stops the broker and returns once it is gone, or ErrNotRunning if there is none, or ErrNotOurs if it is not the lab's to
	// stop. force kills a broker that does not end by itself, which can tear transactions.
	Down(ctx context.Context, force bool) error
}

// Config says which broker a workspace is to use. The zero value of every field but Dir is a default.
type Config struct {
	// Dir is the workspace.
	Dir string
	// Kind is what --broker asks for; empty means whatever is there, else Embedded.
	Kind Kind
	// Bootstrap is --bootstrap or else LAB_BOOTSTRAP: host:port, comma-separated. It implies Existing.
	Bootstrap string
	// Port is what --port asks for; 0 means DefaultPort, without contradicting a broker that runs elsewhere.
	Port int
	// Nodes is what --nodes asks for, 1 or 3, of JVM only; 0 means one, without contradicting a cluster that is there.
	Nodes int

	// Command is the program that calls Serve, without its --dir and --port, or ServeNode, without its --dir and --node. The first element
	// is a path. The default is this very executable with "broker", "serve".
	Command []string
	// Probe checks that a broker answers on a bootstrap list, at best by a real request. The default opens a connection.
	Probe func(ctx context.Context, bootstrap string) error
	// Progress gets one line of human text per step; the default drops it.
	Progress func(line string)
	// StartTimeout bounds Up, 30 s by default, and 4 minutes for Kafka itself, three nodes of which took 90 s to agree on a busy machine of two
	// processors. What is fetched before that has no bound but the context.
	StartTimeout time.Duration
	// StopTimeout bounds Down, 30 s by default, and a minute for Kafka itself: kfake writes its state on the way out, and Kafka hands its
	// partitions over.
	StopTimeout time.Duration
}

func (c Config) withDefaults() Config {
	kafka := c.Kind == JVM || c.Kind == Docker
	if c.Probe == nil {
		c.Probe = dial
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 30 * time.Second
		if kafka {
			c.StartTimeout = 4 * time.Minute
		}
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 30 * time.Second
		if kafka {
			c.StopTimeout = time.Minute
		}
	}
	return c
}

// dial is the default Probe: one of the addresses accepts a connection.
func dial(ctx context.Context, bootstrap string) error {
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
