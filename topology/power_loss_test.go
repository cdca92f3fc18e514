package topology_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// After a crash of the machine, and not only of the process, the state files of the counts cannot be trusted. Each sign of that is seen by the
// next start: the stores are rebuilt from the start of their changelogs, the reason is said, and the counts are right.
func TestUntrustedStateIsRebuilt(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, task string) // a task's folder
		reason string
	}{
		"another boot": {
			damage: func(t *testing.T, task string) {
				write(t, filepath.Join(task, "state.mark"), []byte("open 00000000-0000-0000-0000-000000000000\n"))
			},
			reason: "the machine was restarted while the file was open",
		},
		"no mark": {
			damage: func(t *testing.T, task string) {
				if err := os.Remove(filepath.Join(task, "state.mark")); err != nil {
					t.Fatal(err)
				}
			},
			reason: "state.mark is missing",
		},
		"torn file": {
			damage: func(t *testing.T, task string) {
				path := filepath.Join(task, "state.db")
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				clear(b[:2*os.Getpagesize()]) // both meta pages
				write(t, path, b)
			},
			reason: "damaged",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
				t.Run(string(guarantee), func(t *testing.T) {
					l := newLabAnywhere(t, 2*time.Minute, shortSessions())
					l.config.ProcessingGuarantee, l.config.StateDir = guarantee, t.TempDir()
					i := l.process(t, "victim", l.config.StateDir, "processing.guarantee="+string(guarantee))
					i.await("state RUNNING", 1)
					f := l.flow()
					if err := f.send(600, 100, time.Millisecond); err != nil {
						t.Fatal(err)
					}
					l.awaitLag()
					l.awaitFile("1_0", "state.mark") // written before the state file follows its first commit
					l.awaitFile("1_1", "state.mark")
					i.kill()
					for _, task := range []string{"1_0", "1_1"} {
						c.damage(t, filepath.Join(l.config.StateDir, l.config.ApplicationID, task))
					}
					l.awaitMembers(0)

					var r restores
					stop := l.start(topology.Hooks{}, r.listener())
					for _, tp := range l.countChangelogs() {
						start := r.starts[streams.TopicPartition(tp)]
						if start.From != 0 || start.To == 0 || !strings.Contains(start.Reason, c.reason) {
							t.Errorf("%s: restored from %d to %d because of %q", tp, start.From, start.To, start.Reason)
						}
					}
					if err := f.send(600, 100, time.Millisecond); err != nil {
						t.Fatal(err)
					}
					l.awaitLag()
					stop()
					f.checkExact() // all had been committed before the kill
				})
			}
		})
	}
}

// awaitFile waits until a task's folder has a file.
func (l *lab) awaitFile(task, name string) {
	l.t.Helper()
	path := filepath.Join(l.config.StateDir, l.config.ApplicationID, task, name)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			l.t.Fatalf("%s is not written", path)
		}
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
