package phases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/atomicfile"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/verify"
)

// recordingName is the file of observations/ that holds the topics as they were last graded, for `lab verify --from`.
const recordingName = "run.jsonl.gz"

// The bounds of what recording adds to a command, and to clean, whose broker may be a dead one. Half a million records took 3 s.
const (
	recordingTimeout = 30 * time.Second
	lastTimeout      = 10 * time.Second
)

// Record keeps a recording of what the cluster holds of the lab in observations/, if it holds anything. That it cannot be written is a
// warning and changes nothing else. It returns the number of records, 0 if nothing was written.
func (c Config) Record(ctx context.Context, conn *connect.Conn) int {
	if c.Version == "" || ctx.Err() != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, recordingTimeout)
	defer cancel()
	var b bytes.Buffer
	n, err := verify.Record(ctx, conn.Client, &b, c.Version)
	if errors.Is(err, verify.ErrNoRun) {
		return 0
	}
	path := c.Workspace.Observation(recordingName)
	if err == nil {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = atomicfile.Write(path, b.Bytes(), 0o644)
		}
	}
	if err != nil {
		c.Warn(fmt.Sprintf("observations/%s was not written, so this run cannot be graded without its broker: %s", recordingName, oneLine(err.Error())))
		return 0
	}
	return n
}

// recordLast records this workspace's run before it is deleted, if its broker answers.
func (c Config) recordLast(ctx context.Context) {
	p, ok, err := c.Workspace.Progress()
	if c.Version == "" || err != nil || !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastTimeout)
	defer cancel()
	at := c.Connect
	if p.Broker == string(broker.Existing) && at.Bootstrap == "" {
		at.Kind, at.Bootstrap, at.Port = p.Broker, p.Bootstrap, 0
	}
	conn, err := connect.Find(ctx, at)
	if err != nil {
		return
	}
	defer conn.Close()
	// What others have on the same cluster is not this workspace's run.
	if record, err := provision.Check(ctx, conn, c.Workspace); err == nil && record.Known {
		c.Record(ctx, conn)
	}
}
