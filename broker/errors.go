package broker

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrNotRunning says that this workspace has no running broker.
	ErrNotRunning = errors.New("no broker is running")
	// ErrNotOurs says that the lab did not start this broker and therefore does not stop it.
	ErrNotOurs = errors.New("not started by the lab")
	// ErrDamagedRecord says that broker.json cannot be read; the error text names the file.
	ErrDamagedRecord = errors.New("damaged broker record")
	// ErrExited says that the broker process ended before it answered; the error text holds the end of its log.
	ErrExited = errors.New("broker ended while starting")
	// ErrTimeout says that the broker did not start or stop in time; the error text names its pid.
	ErrTimeout = errors.New("broker did not get there in time")

	// ErrNoDocker says that Docker is not installed.
	ErrNoDocker = errors.New("no Docker is installed")
	// ErrNoDaemon says that Docker is installed and its daemon does not run.
	ErrNoDaemon = errors.New("the Docker daemon does not run")
	// ErrDockerPermission says that this user may not talk to the daemon.
	ErrDockerPermission = errors.New("no permission to talk to the Docker daemon")
	// ErrDockerHost says that DOCKER_HOST names no daemon that could be used.
	ErrDockerHost = errors.New("DOCKER_HOST leads to no Docker daemon")
	// ErrNameTaken says that there is a container of the lab's name that is not this workspace's; the error text describes it.
	ErrNameTaken = errors.New("the name of the container is taken")

	// ErrContradiction says that a flag asks for another broker than the one that runs, or that two flags exclude each other.
	ErrContradiction = errors.New("contradicts")
	// ErrUnavailable says that this machine cannot have that kind of broker as it is; the error text says what is missing.
	ErrUnavailable = errors.New("not available here")
	// ErrUnknownKind says that --broker names nothing known.
	ErrUnknownKind = errors.New("unknown kind of broker")
	// ErrNodes says that --nodes is no number of nodes that the lab starts.
	ErrNodes = errors.New("invalid number of nodes")
	// ErrAddress says that --port or --bootstrap is no port or no list of addresses.
	ErrAddress = errors.New("invalid address")
)

// timedOut marks the error of a wait that its deadline has ended, and not the user, as ErrTimeout.
func timedOut(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}

// IsUsage tells whether err is a mistake in what was asked for, which ends a command with the exit code of a usage error.
func IsUsage(err error) bool {
	return errors.Is(err, ErrContradiction) || errors.Is(err, ErrUnknownKind) || errors.Is(err, ErrNodes) || errors.Is(err, ErrAddress)
}
