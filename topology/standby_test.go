package topology_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/streams"
)

// Two instances keep standbys for each other, and one after the other is killed with SIGKILL while orders flow: the other one takes over
// with its copies, and the killed one comes back as the standby. No order is lost and, exactly once, none is counted twice. Ten kills in the
// long form.
func TestKilledOwnersWithStandbys(t *testing.T) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(guarantee), func(t *testing.T) { killedOwnersWithStandbys(t, guarantee) })
	}
}

func killedOwnersWithStandbys(t *testing.T, guarantee streams.Guarantee) {
	kills := size(4, 10)
	l := newLabAnywhere(t, 10*time.Minute, shortSessions())
	dirs := []string{t.TempDir(), t.TempDir()}
	instances := make([]*instance, len(dirs))
	startOne := func(i int) {
		instances[i] = l.process(t, fmt.Sprint("process-", i), dirs[i], "num.standby.replicas=1", "processing.guarantee="+string(guarantee))
	}
	f := l.flow()
	stop := f.stream(10, 10*time.Millisecond)
	startOne(0)
	instances[0].await("state RUNNING", 1)
	startOne(1)
	for k := range kills {
		victim, other := instances[k%2], instances[1-k%2]
		if n := other.awaitStandbys(); n == 0 {
			t.Fatal("no standbys")
		}
		victim.awaitStandbys()
		other.await("caught up", 2)
		victim.kill()
		other.await("0 standbys", 1) // it has noticed, and works alone
		other.await("state RUNNING", 1)
		other.await("commit", 2)
		startOne(k % 2)
	}
	stop()
	l.awaitLag()
	for _, i := range instances {
		i.end()
	}
	t.Logf("%d orders, %d kills, %d counted again", f.sent, kills, f.checkCounts(guarantee))
}

// awaitStandbys waits until the instance has been given standbys, and says how many.
func (i *instance) awaitStandbys() (n int) {
	i.t.Helper()
	limit := time.After(deadline)
	for {
		select {
		case line, ok := <-i.lines:
			if !ok {
				i.t.Fatal("the instance ended before it had standbys")
			}
			if _, err := fmt.Sscanf(line, "%d standbys", &n); err == nil && n > 0 && strings.Contains(line, " standbys ") {
				return n
			}
		case <-limit:
			i.t.Fatalf("no standbys within %s", deadline)
		}
	}
}
