// Package broker is how the lab has a Kafka broker: an embedded one in a background process of its own, or any cluster that exists.
//
// New decides which one a workspace uses and returns it as a Broker; Find is the same for commands that must not start one. Serve is
// the other end: the body of the background process. They meet in the workspace's .lab folder:
//
//	broker.json       the record: where the running broker answers and which process it is
//	broker.log        everything the process prints
//	broker/           kafka data
//	broker.lock       held by the serving process for as long as it lives
//	broker.up.lock    held while one is being started, so that two commands at once start one broker
//
// File map: resolve.go (New, Find), embedded.go (start and stop the process), serve.go (be the process), kfake.go and timestamps.go (what
// makes kfake more like Kafka), evict.go (stop it without its record), existing.go (any cluster), record.go (broker.json), errors.go.
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

	// Command is the program that calls Serve, without its --dir and --port. The first element is a path. The default is this very
	// executable with "broker", "serve".
	Command []string
	// Probe checks that a broker answers on a bootstrap list, at best by a real request. The default opens a connection.
	Probe func(ctx context.Context, bootstrap string) error
	// Progress gets one line of human text per step; the default drops it.
	Progress func(line string)
	// StartTimeout bounds Up, 30 s by default.
	StartTimeout time.Duration
	// StopTimeout bounds Down, 30 s by default: kfake writes its state on the way out.
	StopTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Probe == nil {
		c.Probe = dial
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 30 * time.Second
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 30 * time.Second
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
