package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker/opts"
)

// daemonTimeout is how long the daemon may take to answer a ping. One that is socket-activated starts with it.
const daemonTimeout = 10 * time.Second

// dockerHostEnv names the variable that says where the daemon is, as for Docker's own program.
const dockerHostEnv = "DOCKER_HOST"

// daemonAddress is where a daemon is expected, and who says so.
type daemonAddress struct {
	host    string
	fromEnv bool // DOCKER_HOST
}

func (a daemonAddress) String() string {
	if a.fromEnv {
		return dockerHostEnv + "=" + a.host
	}
	return a.host
}

// findDaemon returns where Docker's own program would look: DOCKER_HOST, else its current context (Docker Desktop and rootless daemons have
// their own sockets), else the default.
func findDaemon(ctx context.Context) daemonAddress {
	if host := os.Getenv(dockerHostEnv); host != "" {
		return daemonAddress{host: host, fromEnv: true}
	}
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
	defer cancel()
	// Without the program, or with one that knows no contexts, there is only the default.
	out, err := exec.CommandContext(ctx, "docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}").Output()
	if host := string(bytes.TrimSpace(out)); err == nil && host != "" {
		return daemonAddress{host: host}
	}
	return daemonAddress{host: opts.DefaultHost}
}

// connectDaemon returns a client of the daemon that Docker's own program would use.
func connectDaemon(ctx context.Context) (*dockertest.Pool, error) {
	return findDaemon(ctx).connect(ctx)
}

// connect returns a client of the daemon once that has answered, or an error that says which of the things is wrong that can be.
func (a daemonAddress) connect(ctx context.Context) (*dockertest.Pool, error) {
	if err := a.checkMachine(); err != nil {
		return nil, err
	}
	pool, err := dockertest.NewPool(a.host)
	if err != nil {
		return nil, a.explain(err)
	}
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
	defer cancel()
	// The client's own errors do not tell why a connection failed.
	if err := a.dial(ctx); err != nil {
		return nil, a.explain(err)
	}
	if err := pool.Client.PingWithContext(ctx); err != nil {
		return nil, a.explain(err)
	}
	return pool, nil
}

// checkMachine refuses a daemon on another machine: its containers do not answer on localhost here.
func (a daemonAddress) checkMachine() error {
	u, err := url.Parse(a.host)
	if err != nil {
		return a.explain(err)
	}
	switch u.Scheme {
	case "unix", "npipe":
		return nil
	case "tcp", "http", "https":
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			return nil
		}
		return a.explain(errors.New("that is another machine, whose containers do not answer on localhost here"))
	default:
		return a.explain(fmt.Errorf("the lab speaks unix:// and tcp://, and not %q", u.Scheme))
	}
}

// dial opens a connection to the daemon.
func (a daemonAddress) dial(ctx context.Context) error {
	network, address := "tcp", strings.TrimRight(a.host, "/")
	if _, after, ok := strings.Cut(address, "://"); ok {
		address = after
	}
	switch {
	case strings.HasPrefix(a.host, "npipe:"):
		return nil // the ping does
	case strings.HasPrefix(a.host, "unix:"):
		network = "unix"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// explain tells apart what has different cures: no Docker, no permission, a wrong DOCKER_HOST, and a daemon that does not run.
func (a daemonAddress) explain(err error) error {
	const unavailable = "--broker docker is %w: %w"
	_, missing := exec.LookPath("docker")
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf(unavailable+" at %s: %w; become a member of the group docker (`sudo usermod -aG docker $USER`, and log in again), "+
			"or use another --broker", ErrUnavailable, ErrDockerPermission, a, err)
	case a.fromEnv:
		return fmt.Errorf(unavailable+": %s: %w; correct it, or unset it for the daemon of this machine", ErrUnavailable, ErrDockerHost, a, err)
	case missing != nil && nobodyListens(err):
		return fmt.Errorf(unavailable+": there is no program docker, and nothing at %s; install Docker Engine or Docker Desktop, "+
			"or use another --broker", ErrUnavailable, ErrNoDocker, a)
	default:
		return fmt.Errorf(unavailable+" at %s: %w; start it (`sudo systemctl start docker`, or Docker Desktop), or use another --broker",
			ErrUnavailable, ErrNoDaemon, a, err)
	}
}

// nobodyListens tells whether there is no socket, or one that nobody has open.
func nobodyListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// shortID is how Docker's own program shows an id.
func shortID(id string) string { return id[:min(12, len(id))] }
