//go:build unix

package topology_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/streams"
)

// An owner is suspended for longer than its session, its tasks go to the other one, and it wakes with fetched orders in its sockets. It finds
// that it has lost its tasks, sends nothing for them, and joins again. When it had committed before, or processes exactly once, all counts
// hold.
func TestSuspendedOwner(t *testing.T) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(guarantee), func(t *testing.T) {
			l := newLabAnywhere(t, 5*time.Minute, shortSessions())
			l.config.ProcessingGuarantee = guarantee
			property := "processing.guarantee=" + string(guarantee)
			sleeper := l.process(t, "sleeper", t.TempDir(), property)
			sleeper.await("state RUNNING", 1)
			other := l.process(t, "other", t.TempDir(), property)
			other.await("state RUNNING", 1)
			f := l.flow()
			if err := f.send(600, 60, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			stop := func() {}
			if guarantee == streams.ExactlyOnce { // suspended in the middle of its work
				stop = f.stream(10, 10*time.Millisecond)
				sleeper.await("commit", 5)
			} else {
				l.awaitLag()
			}
			signal(t, sleeper.cmd.Process, syscall.SIGSTOP)
			if err := f.sendMore(stop, 60); err != nil { // these wait in the sleeper's sockets
				t.Fatal(err)
			}
			l.awaitMembers(1)
			other.await("tasks 0_0 0_1 0_2 1_0 1_1", 1)
			l.awaitLag()
			for len(sleeper.lines) > 0 {
				<-sleeper.lines
			}
			signal(t, sleeper.cmd.Process, syscall.SIGCONT)
			sleeper.await("state REBALANCING", 1)
			sleeper.await("state RUNNING", 1)
			if err := f.send(600, 60, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			l.awaitLag()
			sleeper.end()
			other.end()
			if guarantee == streams.AtLeastOnce {
				f.checkExact()
				return
			}
			f.checkCounts(guarantee)
		})
	}
}

// sendMore ends a stream and sends n more.
func (f *flow) sendMore(stop func(), n int) error {
	stop()
	return f.send(n, n, time.Millisecond)
}

func signal(t *testing.T, p *os.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}
