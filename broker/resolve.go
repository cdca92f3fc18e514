package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// ParseKind reads the value of --broker.
func ParseKind(s string) (Kind, error) {
	switch k := Kind(s); k {
	case "", Embedded, JVM, Docker, Existing:
		return k, nil
	default:
		return "", fmt.Errorf("--broker %s: %w (embedded, jvm, docker, existing)", s, ErrUnknownKind)
	}
}

// New decides which broker a workspace uses: the one of Bootstrap, else the one of which it holds the data, else a new one of the asked
// kind. Asking for something else than what is there is ErrContradiction, once the broker is to be used: `lab clean` removes any.
func New(cfg Config) (Broker, error) {
	kind, err := ParseKind(string(cfg.Kind))
	if err != nil {
		return nil, err
	}
	if cfg.Port < 0 || cfg.Port > maxPort {
		return nil, fmt.Errorf("--port %d: %w: ports are 1 to %d", cfg.Port, ErrAddress, maxPort)
	}
	if cfg.Bootstrap != "" {
		if err := checkBootstrap(cfg.Bootstrap); err != nil {
			return nil, err
		}
		if kind != "" && kind != Existing {
			return nil, fmt.Errorf("--broker %s %w --bootstrap %s", kind, ErrContradiction, cfg.Bootstrap)
		}
		return existing{cfg.withDefaults()}, nil
	}
	if kind == Existing {
		return nil, fmt.Errorf("--broker %s without --bootstrap %w itself: it does not say which cluster", kind, ErrContradiction)
	}
	f, err := filesOf(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if kind == "" {
		if kind, err = f.stored(); err != nil {
			return nil, err
		}
	}
	if err := checkNodes(cfg.Nodes, kind); err != nil {
		return nil, err
	}
	cfg.Kind = cmp.Or(kind, Embedded)
	cfg = cfg.withDefaults()
	switch cfg.Kind {
	case JVM:
		return jvm{cfg, f}, nil
	case Docker:
		return docker{cfg, f}, nil
	default:
		return embedded{cfg, f}, nil
	}
}

// checkNodes takes one node or three: with two, the loss of either is the loss of the quorum. Only JVM has several.
func checkNodes(nodes int, kind Kind) error {
	switch {
	case nodes == 0 || nodes == 1:
		return nil
	case nodes != maxNodes:
		return fmt.Errorf("--nodes %d: %w: a cluster has 1 node or 3", nodes, ErrNodes)
	case kind != JVM:
		return fmt.Errorf("--nodes %d %w --broker %s: only --broker jvm has several", nodes, ErrContradiction, cmp.Or(kind, Embedded))
	default:
		return nil
	}
}

const (
	maxPort = 65535
	// maxNodes is how many nodes a cluster has that the lab starts, if it has not one.
	maxNodes = 3
)

// checkBootstrap tells a list of addresses from a slip of the finger, which would be looked up in the DNS at best.
func checkBootstrap(list string) error {
	for addr := range strings.SplitSeq(list, ",") {
		host, text, err := net.SplitHostPort(strings.TrimSpace(addr))
		port, perr := strconv.Atoi(text)
		if err != nil || perr != nil || host == "" || port < 1 || port > maxPort {
			return fmt.Errorf("--bootstrap %s: %w: want HOST:PORT, or several with commas between them, and not %q", list, ErrAddress, addr)
		}
	}
	return nil
}

// Find returns where the workspace's broker answers, in the order of New, or ErrNotRunning. It starts nothing.
func Find(ctx context.Context, cfg Config) (Record, error) {
	b, err := New(cfg)
	if err != nil {
		return Record{}, err
	}
	return b.Status(ctx)
}

// agrees returns ErrContradiction if the running broker is not the one asked for. A port that was asked for at the start and was taken
// still counts as asked for, so that the same command line works twice.
func (r Record) agrees(cfg Config) error {
	if cfg.Port != 0 && cfg.Port != r.Port && cfg.Port != r.Asked {
		who := fmt.Sprintf("pid %d", r.PID)
		if r.PID == 0 {
			who = r.String()
		}
		return fmt.Errorf("--port %d %w the broker that runs on port %d (%s): stop it first, or leave --port out",
			cfg.Port, ErrContradiction, r.Port, who)
	}
	return nil
}

// notRunning tells whether err says only that there is no broker.
func notRunning(err error) bool { return errors.Is(err, ErrNotRunning) }
