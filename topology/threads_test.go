package topology_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/streams"
)

// Two instances have two threads each. One is killed again and again while orders flow, and started again: now at once, so that it comes back
// into a group that still waits for it, now after the other's threads have taken its tasks over. Between kills tasks move from thread to
// thread within either process. 30 kills in the long form.
func TestKilledInstanceWithThreads(t *testing.T) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(guarantee), func(t *testing.T) { killedInstanceWithThreads(t, guarantee) })
	}
}

func killedInstanceWithThreads(t *testing.T, guarantee streams.Guarantee) {
	kills := size(4, 30)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	l := newLabAnywhere(t, 20*time.Minute, shortSessions())
	properties := []string{"num.stream.threads=2", "processing.guarantee=" + string(guarantee)}
	steady := l.process(t, "steady", t.TempDir(), properties...)
	steady.await("state RUNNING", 1)
	dir := t.TempDir()
	f := l.flow()
	stop := f.stream(10, 10*time.Millisecond)
	for kill := range kills {
		victim := l.process(t, "victim", dir, properties...)
		victim.await("state RUNNING", 1)
		victim.await("commit", 1+rng.IntN(4))
		<-time.After(time.Duration(rng.IntN(50)) * time.Millisecond) // any moment between two commits will do
		victim.kill()
		if kill%2 == 1 {
			l.awaitMembers(2)
		}
	}
	stop() // the input has outlasted the last kill
	l.awaitLag()
	steady.end()
	again := f.checkCounts(guarantee)
	t.Logf("%d orders, %d kills, %d counted again", f.sent, kills, again)
}
