package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/internal/process"
)

// jvm is Apache Kafka from its Maven jars: one process, or three, on the loopback interface. Each is broker and controller in one and outlives
// the command that started it.
//
// A node holds its lock as the embedded broker does, see ServeNode. The layout says which nodes there are and where; it stays for as long as
// the data does. The record says which processes they are, and is written by who starts them, under the lock for that.
type jvm struct {
	cfg   Config
	files files
}

// Status returns the record with those of its processes that run. It is ErrNotRunning if none does.
func (j jvm) Status(context.Context) (Record, error) {
	if err := j.files.checkStored(JVM); err != nil {
		return Record{}, err
	}
	r, err := j.recorded()
	if err != nil {
		return Record{}, err
	}
	if !slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.PID != 0 }) {
		return Record{}, ErrNotRunning
	}
	return r, j.agrees(len(r.Nodes), r)
}

// recorded returns the record, in which a node that has ended has no process any more.
func (j jvm) recorded() (Record, error) {
	r, err := readRecord(j.files.record)
	if err != nil {
		return Record{}, err
	}
	if r.Kind != JVM {
		return Record{}, ErrNotRunning // an embedded broker was killed and its data removed by hand
	}
	for i := range r.Nodes {
		running, err := runs(r.Nodes[i].ID)
		if err != nil {
			return Record{}, fmt.Errorf("looking for the process of node %d: %w", r.Nodes[i].Number, err)
		}
		if !running {
			r.Nodes[i].ID = process.ID{}
		}
	}
	r.ID = process.ID{}
	if len(r.Nodes) == 1 {
		r.ID = r.Nodes[0].ID
	}
	return r, nil
}

// agrees returns ErrContradiction if the flags ask for another cluster than the one that is there. r is zero while it does not run.
func (j jvm) agrees(nodes int, r Record) error {
	if j.cfg.Nodes != 0 && j.cfg.Nodes != nodes {
		return fmt.Errorf("--nodes %d %w the cluster of %d whose topics this workspace holds: `lab clean` removes them, another --dir has its own",
			j.cfg.Nodes, ErrContradiction, nodes)
	}
	if r.Kind == "" {
		return nil
	}
	return r.agrees(j.cfg)
}

// Up starts the nodes that do not run, with the data that they have.
func (j jvm) Up(ctx context.Context) (_ Record, err error) {
	lock, err := j.files.awaitTurn(ctx, j.cfg.Progress)
	if err != nil {
		return Record{}, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if err := j.files.checkStored(JVM); err != nil {
		return Record{}, err
	}
	layout, err := readLayout[jvmLayout](j.files.jvm)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return Record{}, err
	}
	if fresh {
		layout = newLayout(cmp.Or(j.cfg.Nodes, 1))
	}
	if err := j.agrees(len(layout.Nodes), Record{}); err != nil {
		return Record{}, err
	}
	alive := make([]process.ID, len(layout.Nodes))
	for i, n := range layout.Nodes {
		if alive[i], err = j.serving(ctx, n); err != nil {
			return Record{}, err
		}
	}
	missing := slices.Contains(alive, process.ID{})
	var java string
	var jars jars
	if missing {
		if java, err = checkJava(ctx); err != nil {
			return Record{}, err
		}
		if jars, err = cachedJars(); err != nil {
			return Record{}, err
		}
		if err := jars.fetch(ctx, j.cfg.Progress); err != nil {
			return Record{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, j.cfg.StartTimeout)
	defer cancel()
	// Nobody knows the ports of a cluster of which nothing runs, unless it was killed: then its clients wait for it on the same ones.
	if !slices.ContainsFunc(alive, func(id process.ID) bool { return id != process.ID{} }) {
		if err := layout.choosePorts(ctx, j.cfg.Port); err != nil {
			return Record{}, err
		}
		if err := writeLayout(j.files.jvm, layout); err != nil {
			return Record{}, err
		}
	} else if err := j.agrees(len(layout.Nodes), layout.record(alive)); err != nil {
		return Record{}, err
	}
	r, started, err := j.start(ctx, java, jars, layout, alive)
	if err == nil {
		err = r.write(j.files.record)
	}
	if err != nil {
		for _, s := range started { // half a cluster must not stay behind
			err = errors.Join(err, s.kill())
		}
		return Record{}, err
	}
	for _, s := range started {
		err = errors.Join(err, s.Process.Release())
	}
	if missing {
		j.cfg.Progress(r.announce())
	}
	return r, err
}

// serving returns the process of a node, zero if it does not run. It goes by the lock, since the command that started the node may have been
// killed before it had written the record.
func (j jvm) serving(ctx context.Context, n jvmNode) (process.ID, error) {
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	before := 0
	for {
		pid, held, err := lockHolder(j.files.nodeLock(n.Number))
		if err != nil || !held {
			return process.ID{}, err
		}
		// As in stopServing: who is there twice in a row is no command that only looks.
		if pid != 0 && pid == before {
			id, err := process.Of(pid)
			if err == nil || !errors.Is(err, process.ErrGone) {
				return id, err
			}
		}
		before = pid
		select {
		case <-ctx.Done():
			return process.ID{}, fmt.Errorf("looking for node %d: %w", n.Number, ctx.Err())
		case <-ticker.C:
		}
	}
}

// start starts the nodes that are not alive and returns once all answer. started are the ones of this call, also if it fails.
func (j jvm) start(
	ctx context.Context, java string, jars jars, layout jvmLayout, alive []process.ID,
) (_ Record, started []*spawned, err error) {
	if err := j.prepare(ctx, java, jars, layout, alive); err != nil {
		return Record{}, nil, err
	}
	children := make([]*spawned, len(layout.Nodes))
	for i, n := range layout.Nodes {
		if alive[i] != (process.ID{}) {
			continue
		}
		j.cfg.Progress(fmt.Sprintf("starting Apache Kafka %s on %s", kafkaVersion, loopback(n.Port)))
		s, err := j.cfg.spawn(j.files, j.files.nodeLog(n.Number), "--node", strconv.Itoa(n.Number))
		if err != nil {
			return Record{}, started, err
		}
		children[i], started = s, append(started, s)
		if alive[i], err = process.Of(s.Process.Pid); err != nil {
			return Record{}, started, s.exited()
		}
	}
	for i, n := range layout.Nodes {
		if err := j.awaitNode(ctx, n, alive[i]); err != nil {
			if s := children[i]; s != nil && notRunning(err) {
				err = s.exited()
			}
			return Record{}, started, err
		}
	}
	return layout.record(alive), started, nil
}

// prepare writes the settings of the nodes that are not alive, and formats the data folders that are new.
func (j jvm) prepare(ctx context.Context, java string, jars jars, layout jvmLayout, alive []process.ID) error {
	errs := make([]error, len(layout.Nodes))
	var formatting sync.WaitGroup
	for i, n := range layout.Nodes {
		if alive[i] == (process.ID{}) {
			formatting.Go(func() { errs[i] = prepareNode(ctx, java, jars, j.files.nodeFolder(n.Number), layout, n) })
		}
	}
	formatting.Wait()
	return errors.Join(errs...)
}

// awaitNode returns once a node answers, or ErrNotRunning once it has ended.
func (j jvm) awaitNode(ctx context.Context, n jvmNode, id process.ID) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		running, err := id.Running()
		if err != nil {
			return err
		}
		if !running {
			return fmt.Errorf("node %d: %w", n.Number, ErrNotRunning)
		}
		last := j.cfg.Probe(ctx, loopback(n.Port))
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return timedOut(ctx, fmt.Errorf("node %d, pid %d, does not answer: %w (%w); its log is %s",
				n.Number, id.PID, last, ctx.Err(), j.files.nodeLog(n.Number)))
		case <-ticker.C:
		}
	}
}

// Down asks all nodes to end and waits for them. force kills those that do not; what Kafka has acknowledged is in its logs then too.
func (j jvm) Down(ctx context.Context, force bool) (err error) {
	lock, err := j.files.awaitTurn(ctx, j.cfg.Progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	r, err := j.Status(ctx)
	if err != nil {
		return err
	}
	var nodes []process.ID
	for _, n := range r.Nodes {
		if n.PID != 0 {
			nodes = append(nodes, n.ID)
		}
	}
	if err := j.stop(ctx, nodes, force); err != nil {
		return err
	}
	return remove(j.files.record)
}

// stop ends processes of nodes.
func (j jvm) stop(ctx context.Context, nodes []process.ID, force bool) error {
	for _, id := range nodes {
		if err := requestStop(j.files, id); err != nil && !errors.Is(err, process.ErrGone) {
			return fmt.Errorf("stopping the broker, pid %d: %w", id.PID, err)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, j.cfg.StopTimeout)
	defer cancel()
	for _, id := range nodes {
		err := id.Wait(waiting)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if !force {
				return fmt.Errorf("%w: pid %d still runs %s after it was asked to end", ErrTimeout, id.PID, j.cfg.StopTimeout)
			}
			if err := id.Kill(); err != nil && !errors.Is(err, process.ErrGone) {
				return fmt.Errorf("killing the broker, pid %d: %w", id.PID, err)
			}
			err = id.Wait(ctx)
		}
		if err != nil {
			return fmt.Errorf("waiting for the broker, pid %d, to end: %w", id.PID, err)
		}
	}
	return nil
}

// newLayout is a cluster that has no ports yet.
func newLayout(nodes int) jvmLayout {
	l := jvmLayout{ClusterID: newClusterID(), Nodes: make([]jvmNode, nodes)}
	for i := range l.Nodes {
		l.Nodes[i].Number = i + 1
	}
	return l
}

// newClusterID returns what Kafka's own tool does: 16 random bytes in base 64 for URLs, and not with a dash in front, which tools take for an
// option.
func newClusterID() string {
	var raw [16]byte
	rand.Read(raw[:])
	return strings.Replace(base64.RawURLEncoding.EncodeToString(raw[:]), "-", "A", 1)
}

// record describes the cluster with the processes of its nodes.
func (l jvmLayout) record(ids []process.ID) Record {
	r := Record{Kind: JVM, Port: l.Nodes[0].Port, Asked: l.Asked, Started: time.Now().UTC().Truncate(time.Second)}
	addresses := make([]string, len(l.Nodes))
	for i, n := range l.Nodes {
		addresses[i] = loopback(n.Port)
		r.Nodes = append(r.Nodes, Node{Number: n.Number, Address: addresses[i], ID: ids[i]})
	}
	r.Bootstrap = strings.Join(addresses, ",")
	if len(ids) == 1 {
		r.ID = ids[0]
	}
	return r
}

// choosePorts keeps the ports of the last start that are free, unless another one is asked for, and gives free ones for the rest. At first the
// nodes want the port asked for and the ones after it.
func (l *jvmLayout) choosePorts(ctx context.Context, asked int) (err error) {
	if l.Asked == 0 || asked != 0 && asked != l.Asked && asked != l.Nodes[0].Port {
		l.Asked = cmp.Or(asked, DefaultPort)
		for i := range l.Nodes {
			l.Nodes[i].Port = l.Asked + i
		}
	}
	var held []net.Listener // until all are chosen, or one could be chosen twice
	defer func() {
		for _, ln := range held {
			err = errors.Join(err, ln.Close())
		}
	}()
	for i := range l.Nodes {
		for _, port := range []*int{&l.Nodes[i].Port, &l.Nodes[i].Controller} {
			ln, err := listen(ctx, *port)
			if err != nil {
				return err
			}
			held = append(held, ln)
			*port = ln.Addr().(*net.TCPAddr).Port
		}
	}
	return nil
}
