package topology_test

import (
	"os"
	ossignal "os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
	"golang.org/x/sys/unix"
)

// An instance that meets a limit for the size of files gets an error from its write, as on a full disk, and not the signal that goes with it.
func init() {
	if os.Getenv(childEnv) != "" {
		ossignal.Ignore(syscall.SIGXFSZ)
	}
}

// The state files cannot grow any more, as on a full disk. The tasks are lost and rebuilt, which fails as well, and the instance ends and names
// the file. Nothing is committed that was not counted: with space again, all orders are counted, exactly once if that is the guarantee.
func TestFullDisk(t *testing.T) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(guarantee), func(t *testing.T) {
			l := newLabAnywhere(t, 2*time.Minute, shortSessions())
			l.config.ProcessingGuarantee, l.config.StateDir = guarantee, t.TempDir()
			log := filepath.Join(t.TempDir(), "log")
			i := l.process(t, "victim", l.config.StateDir, "processing.guarantee="+string(guarantee), "test.log="+log)
			i.await("state RUNNING", 1)
			f := l.flow()
			f.stores = 20_000
			if err := f.send(1000, 1000, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			l.awaitLag()
			limit := l.largestState()
			if err := unix.Prlimit(i.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil {
				t.Fatal(err)
			}
			if err := f.send(f.stores, 5000, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			i.drain()
			if err := i.cmd.Wait(); err == nil {
				t.Error("the instance ended well")
			}
			said, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"the tasks start again from the last commit", "file too large", "state.db"} {
				if !strings.Contains(string(said), what) {
					t.Errorf("the instance does not say %q:\n%s", what, said)
				}
			}
			l.awaitMembers(0)

			stop := l.start(topology.Hooks{}, streams.Listener{})
			l.awaitLag()
			stop()
			t.Logf("%d orders, %d counted again", f.sent, f.checkCounts(guarantee))
		})
	}
}

// largestState is the size of the largest state file.
func (l *lab) largestState() (largest uint64) {
	l.t.Helper()
	files, err := filepath.Glob(filepath.Join(l.config.StateDir, l.config.ApplicationID, "*", "state.db"))
	if err != nil || len(files) == 0 {
		l.t.Fatalf("no state files: %v", err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			l.t.Fatal(err)
		}
		largest = max(largest, uint64(info.Size()))
	}
	return largest
}
