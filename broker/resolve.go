package broker

import (
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
	case "", Embedded, Existing:
		return k, nil
	case "docker", "jvm":
		return "", fmt.Errorf("--broker %s: %w, which has embedded and existing", s, ErrUnavailable)
	default:
		return "", fmt.Errorf("--broker %s: %w (embedded, existing)", s, ErrUnknownKind)
	}
}

// New decides which broker a workspace uses: the one of Bootstrap, else the one that its record says is running, else a new one of the
// asked kind. Asking for something else than what runs is ErrContradiction.
func New(cfg Config) (Broker, error) {
	cfg = cfg.withDefaults()
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
		if kind == Embedded {
			return nil, fmt.Errorf("--broker %s %w --bootstrap %s", kind, ErrContradiction, cfg.Bootstrap)
		}
		return existing{cfg}, nil
	}
	if kind == Existing {
		return nil, fmt.Errorf("--broker %s without --bootstrap %w itself: it does not say which cluster", kind, ErrContradiction)
	}
	f, err := filesOf(cfg.Dir)
	if err != nil {
		return nil, err
	}
	return embedded{cfg, f}, nil
}

const maxPort = 65535

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
		return fmt.Errorf("--port %d %w the broker that runs on port %d (pid %d): stop it first, or leave --port out",
			cfg.Port, ErrContradiction, r.Port, r.PID)
	}
	return nil
}

// notRunning tells whether err says only that there is no broker.
func notRunning(err error) bool { return errors.Is(err, ErrNotRunning) }
