// Package connect gets a command from its flags to a client of the workspace's broker.
package connect

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/clientconfig"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Options are the global flags that choose a broker.
type Options struct {
	Dir       string
	Kind      string // --broker, "" if not given
	Bootstrap string // --bootstrap, "" if not given
	Port      int    // --port, 0 if not given
	Nodes     int    // --nodes, 0 if not given
	// Client says how to talk to a cluster that someone else runs. Brokers that the lab starts speak plain text on the loopback interface.
	Client clientconfig.Config
	// Progress gets a line for each step of starting a broker.
	Progress func(line string)
	Logger   *slog.Logger
}

// Conn is a client with the broker that it talks to.
type Conn struct {
	*kafka.Client
	Broker broker.Record
	// Security is how the client talks to it.
	Security kafka.Security
}

// Bootstrap lists the broker's addresses.
func (c *Conn) Bootstrap() string { return c.Broker.Bootstrap }

// Ours reports whether the lab started the broker. On another one only a phase creates the lab's topics unasked.
func (c *Conn) Ours() bool { return c.Broker.Kind != broker.Existing }

// Choose returns the broker that the options name. It looks at nothing outside the program.
func (o Options) Choose() (broker.Broker, error) {
	kind, err := broker.ParseKind(o.Kind)
	if err != nil {
		return nil, err
	}
	return broker.New(broker.Config{
		Dir: o.Dir, Kind: kind, Bootstrap: o.Bootstrap, Port: o.Port, Nodes: o.Nodes, Progress: o.Progress,
		Probe: func(ctx context.Context, bootstrap string) error {
			c, err := kafka.New(ctx, kafka.Config{Seeds: seeds(bootstrap), Security: o.security(o.Bootstrap != "")})
			if err == nil {
				c.Close()
			}
			return err
		},
	})
}

// Up connects to the workspace's broker and starts it if there is none. Close the connection.
func Up(ctx context.Context, o Options) (*Conn, error) {
	b, err := o.Choose()
	if err != nil {
		return nil, err
	}
	r, err := b.Up(ctx)
	if err != nil {
		return nil, err
	}
	return dial(ctx, o, r)
}

// Find connects to the workspace's broker, or returns broker.ErrNotRunning. Close the connection.
func Find(ctx context.Context, o Options) (*Conn, error) {
	b, err := o.Choose()
	if err != nil {
		return nil, err
	}
	r, err := b.Status(ctx)
	if err != nil {
		return nil, err
	}
	return dial(ctx, o, r)
}

func dial(ctx context.Context, o Options, r broker.Record) (*Conn, error) {
	security := o.security(r.Kind == broker.Existing)
	client, err := kafka.New(ctx, kafka.Config{Seeds: seeds(r.Bootstrap), Security: security, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Conn{Client: client, Broker: r, Security: security}, nil
}

// security is how to talk to a broker.
func (o Options) security(existing bool) kafka.Security {
	if existing {
		return o.Client.Security
	}
	return kafka.Security{}
}

// ConfigVariable names the file of client properties for programs that the lab starts: a secret has no place on a command line, which everyone
// on the machine can read.
const ConfigVariable = "LAB_CONFIG"

// Environment is what an instance that is to talk to the broker of c gets beside this process's own. On a broker of the lab's the file of
// client properties is not for it.
func (o Options) Environment(c *Conn) []string {
	if c.Ours() {
		return []string{ConfigVariable + "="}
	}
	return []string{ConfigVariable + "=" + o.Client.File}
}

// IsGone tells whether err says that no broker could be asked.
func IsGone(err error) bool {
	var network *kafka.NetworkError
	var security *kafka.SecurityError
	return errors.Is(err, broker.ErrNotRunning) || errors.As(err, &network) || errors.As(err, &security)
}

func seeds(bootstrap string) []string {
	return strings.FieldsFunc(bootstrap, func(r rune) bool { return r == ',' || r == ' ' })
}
