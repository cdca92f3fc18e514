package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/windowed-order-counter/lab/internal/process"
)

// lockWait is how long Serve waits for a broker of the same workspace that is on its way out, or for a command that only looks at the lock.
const lockWait = 5 * time.Second

// ServeConfig says what Serve serves.
type ServeConfig struct {
	// Dir is the workspace.
	Dir string
	// Port is where to listen; if it is taken, a free one is used. 0 asks for a free one.
	Port int
	// Log gets what the broker reports.
	Log *slog.Logger
}

// Serve runs the embedded broker in the calling process until it is told to stop: by SIGTERM, on Windows by Down's stop file, or by the
// end of ctx. Signals of a terminal are ignored for the whole process, so that Ctrl-C at a phase does not take the broker with it.
//
// The broker has one node, keeps its data in .lab/broker and creates no topics by itself. Its record is written once it listens, and is
// the last thing to go.
func Serve(ctx context.Context, cfg ServeConfig) (err error) {
	f, err := filesOf(cfg.Dir)
	if err != nil {
		return err
	}
	// Who starts a broker has made the folder. If that was killed and the workspace cleaned meanwhile, nobody wants this broker any more.
	if _, err := os.Stat(filepath.Dir(f.record)); err != nil {
		return fmt.Errorf("no workspace to serve: %w", err)
	}
	ctx, cancel := untilStopped(ctx, f)
	defer cancel()

	waiting, cancelWait := context.WithTimeout(ctx, lockWait)
	defer cancelWait()
	lock, err := acquire(waiting, f.serveLock)
	if err != nil {
		return fmt.Errorf("another broker serves %s: %w", f.data, err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if err := remove(f.stop); err != nil {
		return err
	}

	ln, err := listen(ctx, cfg.Port)
	if err != nil {
		return err
	}
	// kfake closes the listener, also when it fails to start.
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return ln, nil }),
		kfake.DataDir(f.data),
		kfake.BrokerConfigs(EmbeddedConfigs()),
		kfake.WithLogger(logger{cfg.Log}),
	)
	if err != nil {
		return fmt.Errorf("starting kfake on %s: %w", f.data, err)
	}
	defer func() {
		cluster.Close()
		err = errors.Join(err, remove(f.record))
		cfg.Log.Info("broker stopped")
	}()

	refuseFutureTimestamps(cluster, time.Now)

	r, err := recordOf(ln.Addr(), cfg.Port)
	if err != nil {
		return err
	}
	// Before the record: who finds that finds the line too.
	cfg.Log.Info("broker ready", "bootstrap", r.Bootstrap, "asked", r.Asked, "pid", r.PID, "data", f.data)
	if err := r.write(f.record); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// recordOf describes the calling process as the broker that listens on addr.
func recordOf(addr net.Addr, asked int) (Record, error) {
	self, err := process.Self()
	if err != nil {
		return Record{}, err
	}
	_, text, err := net.SplitHostPort(addr.String())
	if err != nil {
		return Record{}, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return Record{}, err
	}
	return Record{
		Kind: Embedded, Bootstrap: addr.String(), Port: port, Asked: asked, ID: self, Started: time.Now().UTC().Truncate(time.Second),
	}, nil
}

// listen opens the wanted port on the loopback interface, or a free one if that is taken.
func listen(ctx context.Context, want int) (net.Listener, error) {
	const host = "127.0.0.1"
	wanted := net.JoinHostPort(host, strconv.Itoa(want))
	var lc net.ListenConfig
	// A listener on all interfaces does not stop another one on the loopback address everywhere (macOS, Windows), and would then be
	// hidden by it. So ask first whether anyone answers.
	if want != 0 && dial(ctx, wanted) != nil {
		ln, err := lc.Listen(ctx, "tcp", wanted)
		if !errors.Is(err, errAddrInUse) {
			return ln, err
		}
	}
	return lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
}
