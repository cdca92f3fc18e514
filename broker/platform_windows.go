package broker

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/windows"

	"github.com/windowed-order-counter/lab/internal/atomicfile"
	"github.com/windowed-order-counter/lab/internal/process"
)

const errAddrInUse = windows.WSAEADDRINUSE

// lookEvery is how often a serving process looks for the stop file.
const lookEvery = 100 * time.Millisecond

// requestStop asks a serving process to end. Windows has no SIGTERM for a process without a console, so a file asks.
func requestStop(f files, id process.ID) error {
	if running, err := id.Running(); err != nil || !running {
		return err
	}
	return atomicfile.Write(f.stop, nil, 0o644)
}

// untilStopped returns a context that ends when requestStop is called, and makes the process deaf to its console.
func untilStopped(ctx context.Context, f files) (context.Context, context.CancelFunc) {
	signal.Ignore(os.Interrupt)
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if _, err := os.Stat(f.stop); err == nil {
					cancel()
				}
			}
		}
	})
	return ctx, func() {
		cancel()
		watcher.Wait()
	}
}

// keepInherited has nothing to do: on Windows only listed handles are inherited.
func keepInherited() error { return nil }
