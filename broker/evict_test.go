package broker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/filelock"
)

// holdServing makes the test itself a broker of the workspace that has its lock and is yet to write its record, which become does.
func holdServing(t *testing.T, cfg Config) (want Record, become func()) {
	t.Helper()
	f, err := filesOf(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := filelock.Try(f.serveLock)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if want, err = recordOf(ln.Addr(), cfg.Port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(ln.Close(), remove(f.record), lock.Release()); err != nil {
			t.Error(err)
		}
	})
	return want, func() {
		if err := want.write(f.record); err != nil {
			t.Error(err)
		}
	}
}

// A phase was killed between the fork of its broker and that one's record. The next phase waited for its own broker, which could not have the
// lock, and failed after 20 seconds.
func TestBrokerOfAKilledCommandIsAdopted(t *testing.T) {
	cfg := workspace(t)
	want, become := holdServing(t, cfg)
	b := open(t, cfg).(embedded)
	var other sync.WaitGroup
	other.Go(func() {
		<-time.After(5 * pollEvery) // Up waits by then; if not, it finds the record at once
		become()
	})
	got, err := b.Up(t.Context())
	other.Wait()
	if err != nil || got.ID != want.ID || got.Bootstrap != want.Bootstrap {
		t.Errorf("Up = %+v, %v; want the broker that was on its way, %+v", got, err, want)
	}
	if _, err := os.Stat(b.files.log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another broker was started: %v", err)
	}
}

// The same if it takes the lock only after the next command has looked at it.
func TestBrokerOfAKilledCommandOvertakesItsSuccessor(t *testing.T) {
	cfg := workspace(t)
	want, become := holdServing(t, cfg)
	become()
	b := open(t, cfg).(embedded)
	got, err := b.start(t.Context())
	if err != nil || got.ID != want.ID {
		t.Errorf("start = %+v, %v; want the broker that was faster, %+v", got, err, want)
	}
}

// `lab clean` looked at the record alone: it said that nothing was left while a broker was coming up, and could not be used at all after the
// record had been damaged.
func TestEvictNeedsNoRecord(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"as it is":      func(string) error { return nil },
		"no record yet": os.Remove,
		"damaged":       func(path string) error { return os.WriteFile(path, []byte("{"), 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := workspace(t)
			r := up(t, cfg)
			record := recordFile(t, cfg.Dir)
			if err := spoil(record); err != nil {
				t.Fatal(err)
			}
			stopped, release, err := Evict(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if running(t, r.ID) || len(stopped) != 1 || stopped[0] != r.ID {
				t.Errorf("stopped %v, the broker was %v", stopped, r.ID)
			}
			// Nobody starts another one meanwhile.
			impatient, cancel := context.WithTimeout(t.Context(), 5*lockRetry)
			defer cancel()
			if _, err := open(t, cfg).Up(impatient); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Up beside it = %v", err)
			}
			if err := errors.Join(remove(record), release()); err != nil {
				t.Fatal(err)
			}
			if again := up(t, cfg); again.ID == r.ID {
				t.Errorf("the evicted broker %+v was returned", again)
			}
		})
	}
}

// A broker whose starter was killed may come to itself after the workspace was cleaned.
func TestServeMakesNoWorkspace(t *testing.T) {
	dir := t.TempDir()
	err := Serve(t.Context(), ServeConfig{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Serve = %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".lab")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it made a folder: %v", err)
	}
}
