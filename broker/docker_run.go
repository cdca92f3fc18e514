package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
)

const (
	imageRepository = "apache/kafka"
	imageTag        = kafkaVersion
	containerName   = "kafka-local"
	// workspaceLabel says on a container whose it is: the path of the workspace.
	workspaceLabel = "lab.workspace"
)

// containers lists those that match a filter, running or not.
func containers(ctx context.Context, pool *dockertest.Pool, filter, value string) ([]dc.APIContainers, error) {
	list, err := pool.Client.ListContainers(dc.ListContainersOptions{All: true, Filters: map[string][]string{filter: {value}}, Context: ctx})
	if err != nil {
		return nil, fmt.Errorf("listing the containers with %s %s: %w", filter, value, err)
	}
	return list, nil
}

// own returns the container of a workspace, nil if there is none.
func own(ctx context.Context, pool *dockertest.Pool, workspace string) (*dc.APIContainers, error) {
	list, err := containers(ctx, pool, "label", workspaceLabel+"="+workspace)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// checkName refuses to go on while somebody else has a container of the name.
func checkName(ctx context.Context, pool *dockertest.Pool) error {
	list, err := containers(ctx, pool, "name", "^/"+containerName+"$")
	if err != nil || len(list) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s; it is left alone: rename or remove it, or use another --broker", ErrNameTaken, describe(list[0]))
}

// describe names a container: its id, image and owner.
func describe(c dc.APIContainers) string {
	name := ""
	if len(c.Names) > 0 {
		name = strings.TrimPrefix(c.Names[0], "/")
	}
	owner := "which the lab did not make"
	if workspace := c.Labels[workspaceLabel]; workspace != "" {
		owner = "of the workspace " + workspace
	}
	return fmt.Sprintf("container %s (%s, image %s, %s), %s", name, shortID(c.ID), c.Image, c.State, owner)
}

// publisher returns the container that has a port of this machine, in words, "" if none has.
func publisher(ctx context.Context, pool *dockertest.Pool, port int) (string, error) {
	list, err := containers(ctx, pool, "publish", strconv.Itoa(port))
	if err != nil || len(list) == 0 {
		return "", err
	}
	return describe(list[0]), nil
}

// choosePort returns the port asked for, or a free one if that is taken.
func choosePort(ctx context.Context, pool *dockertest.Pool, asked int, progress func(string)) (int, error) {
	ln, err := listen(ctx, asked)
	if err != nil {
		return 0, err
	}
	port := ln.Addr().(*net.TCPAddr).Port
	if err := ln.Close(); err != nil || port == asked {
		return port, err
	}
	who, err := publisher(ctx, pool, asked)
	if err == nil && who != "" {
		progress(fmt.Sprintf("port %d is taken by %s; it is left alone", asked, who))
	}
	return port, err
}

// pull fetches the image unless it is there, and says now and then how far it is.
func pull(ctx context.Context, pool *dockertest.Pool, progress func(string)) error {
	image := imageRepository + ":" + imageTag
	if _, err := pool.Client.InspectImage(image); err == nil {
		return nil
	} else if !errors.Is(err, dc.ErrNoSuchImage) {
		return fmt.Errorf("looking for the image %s: %w", image, err)
	}
	progress("pulling " + image)
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { // waited for below
		err := pool.Client.PullImage(dc.PullImageOptions{
			Repository: imageRepository, Tag: imageTag, OutputStream: w, RawJSONStream: true, Context: ctx,
		}, dc.AuthConfiguration{})
		ended <- errors.Join(err, w.Close())
	}()
	said := pullProgress(r, progress)
	if err := errors.Join(<-ended, said); err != nil {
		return fmt.Errorf("pulling the image %s: %w; it needs a way to Docker Hub, or the image made or loaded under that name", image, err)
	}
	return nil
}

// pullProgress reads the daemon's account of a pull, one object a line, and sums it up every few seconds. The error is one that it holds.
func pullProgress(r io.Reader, progress func(string)) error {
	type layer struct{ Current, Total int64 }
	layers := map[string]layer{}
	var failed error
	told := time.Now()
	in := json.NewDecoder(r)
	for {
		var line struct {
			ID             string `json:"id"`
			Status         string `json:"status"`
			ProgressDetail layer  `json:"progressDetail"`
			Error          string `json:"error"`
		}
		err := in.Decode(&line)
		if errors.Is(err, io.EOF) {
			return failed
		}
		if err != nil {
			_, drained := io.Copy(io.Discard, r) // the daemon must not wait for a reader
			return errors.Join(failed, err, drained)
		}
		if line.Error != "" {
			failed = errors.New(line.Error)
		}
		if line.Status == "Downloading" {
			layers[line.ID] = line.ProgressDetail
		}
		if len(layers) > 0 && time.Since(told) > fetchEvery {
			var sum layer
			for _, l := range layers {
				sum.Current += l.Current
				sum.Total += l.Total
			}
			progress(fmt.Sprintf("pulling: %d of %d MB", sum.Current>>20, sum.Total>>20))
			told = time.Now()
		}
	}
}

// run makes and starts the container. One that could be made and not started is removed.
func run(ctx context.Context, pool *dockertest.Pool, workspace string, port int) (*dc.Container, error) {
	inside := dc.Port(fmt.Sprintf("%d/tcp", port))
	made, err := pool.RunWithOptions(&dockertest.RunOptions{
		Name: containerName, Repository: imageRepository, Tag: imageTag,
		Env:          containerSettings(newClusterID(), port),
		ExposedPorts: []string{string(inside)},
		PortBindings: map[dc.Port][]dc.PortBinding{inside: {{HostIP: "127.0.0.1", HostPort: strconv.Itoa(port)}}},
		Labels:       map[string]string{workspaceLabel: workspace},
	}, func(c *dc.HostConfig) { c.PublishAllPorts = false })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the container %s: %w", containerName, err), removeOwn(ctx, pool, workspace))
	}
	return made.Container, nil
}

// removeOwn removes the containers of a workspace with their data.
func removeOwn(ctx context.Context, pool *dockertest.Pool, workspace string) error {
	list, err := containers(ctx, pool, "label", workspaceLabel+"="+workspace)
	for _, c := range list {
		err = errors.Join(err, pool.Client.RemoveContainer(dc.RemoveContainerOptions{ID: c.ID, RemoveVolumes: true, Force: true, Context: ctx}))
	}
	return err
}

// containerLog returns the end of what a container printed.
func containerLog(ctx context.Context, pool *dockertest.Pool, id string) []byte {
	var out bytes.Buffer
	err := pool.Client.Logs(dc.LogsOptions{
		Context: ctx, Container: id, OutputStream: &out, ErrorStream: &out, Stdout: true, Stderr: true, Tail: "20",
	})
	if err != nil {
		return fmt.Append(nil, err)
	}
	text := bytes.TrimSpace(out.Bytes())
	return text[max(0, len(text)-logTail):]
}

// gone tells whether an error says that a container is not there, or does not run.
func gone(err error) bool {
	var missing *dc.NoSuchContainer
	var stopped *dc.ContainerNotRunning
	return errors.As(err, &missing) || errors.As(err, &stopped)
}

// recordOfContainers lists containers for those who need no more than their names.
func recordOfContainers(list []dc.APIContainers) []Container {
	all := make([]Container, len(list))
	for i, c := range list {
		all[i] = Container{ID: c.ID, Image: c.Image}
		if len(c.Names) > 0 {
			all[i].Name = strings.TrimPrefix(c.Names[0], "/")
		}
	}
	return all
}
