package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
)

// askEvery is how often a container is asked to end.
const askEvery = 500 * time.Millisecond

// docker is Apache Kafka in a container, on a port of localhost alone. The container holds the data: Down stops it and Up starts the same one
// again. A label says whose it is; containers without this workspace's are named and never touched.
//
// The layout is written before the container is made, so that there is none of which the workspace does not know.
type docker struct {
	cfg   Config
	files files
}

// Status asks Docker about the container of the record.
func (d docker) Status(ctx context.Context) (Record, error) {
	if err := d.files.checkStored(Docker); err != nil {
		return Record{}, err
	}
	r, err := readRecord(d.files.record)
	if err != nil {
		return Record{}, err
	}
	if r.Kind != Docker {
		return Record{}, ErrNotRunning // of an embedded broker that was killed and its data removed by hand
	}
	pool, err := connectDaemon(ctx)
	if err != nil {
		return Record{}, err
	}
	c, err := pool.Client.InspectContainerWithContext(r.Container.ID, ctx)
	if gone(err) || err == nil && !c.State.Running {
		return Record{}, ErrNotRunning
	}
	if err != nil {
		return Record{}, fmt.Errorf("looking for container %s: %w", shortID(r.Container.ID), err)
	}
	return r, r.agrees(d.cfg)
}

// Up starts the workspace's container, or makes one.
func (d docker) Up(ctx context.Context) (_ Record, err error) {
	lock, err := d.files.awaitTurn(ctx, d.cfg.Progress)
	if err != nil {
		return Record{}, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	r, err := d.Status(ctx)
	if !notRunning(err) {
		return r, err
	}
	pool, err := connectDaemon(ctx)
	if err != nil {
		return Record{}, err
	}
	layout, err := readLayout[dockerLayout](d.files.docker)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Record{}, err
	}
	known := err == nil
	c, err := own(ctx, pool, d.files.workspace())
	if err != nil {
		return Record{}, err
	}
	switch {
	case c != nil && !known:
		return Record{}, fmt.Errorf("%w: %s, is of an earlier life of this workspace; `lab clean` removes it", ErrNameTaken, describe(*c))
	case c != nil:
		layout.ID = c.ID
		err = d.restart(ctx, pool, layout)
	default:
		layout, err = d.create(ctx, pool)
	}
	if err != nil {
		return Record{}, err
	}
	return d.ready(ctx, pool, layout, c == nil)
}

// create makes a container, and what says so before it.
func (d docker) create(ctx context.Context, pool *dockertest.Pool) (dockerLayout, error) {
	if err := checkName(ctx, pool); err != nil {
		return dockerLayout{}, err
	}
	if err := pull(ctx, pool, d.cfg.Progress); err != nil {
		return dockerLayout{}, err
	}
	l := dockerLayout{Name: containerName, Asked: cmp.Or(d.cfg.Port, DefaultPort)}
	var err error
	if l.Port, err = choosePort(ctx, pool, l.Asked, d.cfg.Progress); err != nil {
		return dockerLayout{}, err
	}
	if err := writeLayout(d.files.docker, l); err != nil {
		return dockerLayout{}, err
	}
	d.cfg.Progress(fmt.Sprintf("starting %s:%s on localhost:%d", imageRepository, imageTag, l.Port))
	c, err := run(ctx, pool, d.files.workspace(), l.Port)
	if err != nil {
		return dockerLayout{}, errors.Join(err, remove(d.files.docker))
	}
	l.ID = c.ID
	return l, writeLayout(d.files.docker, l)
}

// restart starts the container that is there, on the port that it was made with.
func (d docker) restart(ctx context.Context, pool *dockertest.Pool, l dockerLayout) error {
	if p := d.cfg.Port; p != 0 && p != l.Port && p != l.Asked {
		return fmt.Errorf("--port %d %w the container %s, which was made for port %d: `lab clean` removes it, or leave --port out",
			p, ErrContradiction, l.Name, l.Port)
	}
	d.cfg.Progress(fmt.Sprintf("starting container %s (%s) on localhost:%d", l.Name, shortID(l.ID), l.Port))
	if err := pool.Client.StartContainerWithContext(l.ID, nil, ctx); err != nil {
		var running *dc.ContainerAlreadyRunning
		if errors.As(err, &running) {
			return nil
		}
		who, _ := publisher(ctx, pool, l.Port) // what is not known of it is not said
		if who != "" {
			err = fmt.Errorf("%w; the port is that of %s", err, who)
		}
		return fmt.Errorf("starting container %s (%s): %w", l.Name, shortID(l.ID), err)
	}
	return nil
}

// ready waits until the container's broker answers, and records it. A container that was just made and does not is removed.
func (d docker) ready(ctx context.Context, pool *dockertest.Pool, l dockerLayout, made bool) (Record, error) {
	r := Record{
		Kind: Docker, Bootstrap: net.JoinHostPort("localhost", strconv.Itoa(l.Port)), Port: l.Port, Asked: l.Asked,
		Container: &Container{ID: l.ID, Name: l.Name, Image: imageRepository + ":" + imageTag},
		Started:   time.Now().UTC().Truncate(time.Second),
	}
	waiting, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	err := d.awaitAnswer(waiting, pool, r)
	if err == nil {
		err = r.write(d.files.record)
	}
	if err != nil {
		if made {
			tidy := context.WithoutCancel(ctx)
			err = errors.Join(err, removeOwn(tidy, pool, d.files.workspace()), remove(d.files.docker))
		}
		return Record{}, err
	}
	d.cfg.Progress(r.announce())
	return r, nil
}

// awaitAnswer returns once the broker answers, or an error with the end of its log once the container has ended.
func (d docker) awaitAnswer(ctx context.Context, pool *dockertest.Pool, r Record) error {
	ticker := time.NewTicker(10 * pollEvery)
	defer ticker.Stop()
	for {
		last := d.cfg.Probe(ctx, r.Bootstrap)
		if last == nil {
			return nil
		}
		c, err := pool.Client.InspectContainerWithContext(r.Container.ID, ctx)
		if ctx.Err() == nil && err != nil {
			return fmt.Errorf("looking for container %s: %w", shortID(r.Container.ID), err)
		}
		if err == nil && !c.State.Running {
			return fmt.Errorf("%w: container %s, exit status %d; the end of its log:\n%s",
				ErrExited, r.Container.Name, c.State.ExitCode, containerLog(ctx, pool, r.Container.ID))
		}
		select {
		case <-ctx.Done():
			return timedOut(ctx, fmt.Errorf("container %s does not answer on %s: %w (%w)", r.Container.Name, r.Bootstrap, last, ctx.Err()))
		case <-ticker.C:
		}
	}
}

// Down stops the container, which keeps its data.
func (d docker) Down(ctx context.Context, force bool) (err error) {
	lock, err := d.files.awaitTurn(ctx, d.cfg.Progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	r, err := d.Status(ctx)
	if err != nil {
		return err
	}
	pool, err := connectDaemon(ctx)
	if err != nil {
		return err
	}
	if err := d.stop(ctx, pool, r.Container.ID, force); err != nil {
		return err
	}
	return remove(d.files.record)
}

// stop asks the broker in a container to end, again and again: until Kafka is there, the first process is a script of the image, which as the
// first one gets no signal that it has no handler for. `docker stop` would not do: dockertest makes containers with a stop signal that Kafka
// ignores, and the kill that follows leaves it a log to recover.
func (d docker) stop(ctx context.Context, pool *dockertest.Pool, id string, force bool) error {
	waiting, cancel := context.WithTimeout(ctx, d.cfg.StopTimeout)
	defer cancel()
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	signal := dc.SIGTERM
	for {
		err := pool.Client.KillContainer(dc.KillContainerOptions{ID: id, Signal: signal, Context: ctx})
		if gone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("stopping container %s: %w", shortID(id), err)
		}
		select {
		case <-ticker.C:
		case <-waiting.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("stopping container %s: %w", shortID(id), ctx.Err())
			}
			if !force {
				return fmt.Errorf("%w: container %s still runs %s after it was asked to end", ErrTimeout, shortID(id), d.cfg.StopTimeout)
			}
			signal = dc.SIGKILL
			<-ticker.C
		}
	}
}

// Containers lists the containers of a workspace, running or not. asked is false if there is no Docker to ask, and none that was recorded; with
// one that was, not to be able to ask is an error.
func Containers(ctx context.Context, cfg Config) (list []Container, asked bool, err error) {
	f, err := filesOf(cfg.Dir)
	if err != nil {
		return nil, false, err
	}
	pool, err := connectDaemon(ctx)
	if err != nil {
		if _, recorded := os.Stat(f.docker); errors.Is(recorded, fs.ErrNotExist) && ctx.Err() == nil {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("container %s of %s: %w", containerName, filepath.Dir(f.docker), err)
	}
	found, err := containers(ctx, pool, "label", workspaceLabel+"="+f.workspace())
	return recordOfContainers(found), true, err
}

// RemoveContainers removes the containers of a workspace with their data. The caller has evicted the broker, so that none is made meanwhile.
func RemoveContainers(ctx context.Context, cfg Config) error {
	list, _, err := Containers(ctx, cfg)
	if err != nil || len(list) == 0 {
		return err
	}
	f, err := filesOf(cfg.Dir)
	if err != nil {
		return err
	}
	pool, err := connectDaemon(ctx)
	if err != nil {
		return err
	}
	if cfg.Progress != nil {
		for _, c := range list {
			cfg.Progress(fmt.Sprintf("removing container %s (%s)", c.Name, shortID(c.ID)))
		}
	}
	return removeOwn(ctx, pool, f.workspace())
}
