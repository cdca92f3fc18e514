package broker

import "errors"

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

	// ErrContradiction says that a flag asks for another broker than the one that runs, or that two flags exclude each other.
	ErrContradiction = errors.New("contradicts")
	// ErrUnavailable says that a kind of broker is not in this version.
	ErrUnavailable = errors.New("not in this version")
	// ErrUnknownKind says that --broker names nothing known.
	ErrUnknownKind = errors.New("unknown kind of broker")
	// ErrAddress says that --port or --bootstrap is no port or no list of addresses.
	ErrAddress = errors.New("invalid address")
)

// IsUsage tells whether err is a mistake in what was asked for, which ends a command with the exit code of a usage error.
func IsUsage(err error) bool {
	return errors.Is(err, ErrContradiction) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownKind) ||
		errors.Is(err, ErrAddress)
}
