//go:build unix

package broker

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/windowed-order-counter/lab/internal/process"
)

const errAddrInUse = syscall.EADDRINUSE

// requestStop asks a serving process to end.
func requestStop(_ files, id process.ID) error { return id.Terminate() }

// untilStopped returns a context that ends when requestStop is called, and makes the process deaf to its terminal.
func untilStopped(ctx context.Context, _ files) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	return signal.NotifyContext(ctx, syscall.SIGTERM)
}

// keepInherited marks every descriptor above stderr as closed for new programs. Go opens its own that way, but those that this process
// inherited (descriptor 3 of a test runner, a pipe of make) would be passed on, and whoever reads such a pipe would wait for as long as
// the broker lives.
func keepInherited() error {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
