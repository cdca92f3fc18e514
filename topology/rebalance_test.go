package topology_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Three instances are restarted in turn, cleanly, while orders flow. A stop commits what was processed and gives the tasks back, and a task
// that stays goes on where it is: each order is processed once, and counted once. 100,000 orders and 30 restarts in the long form.
func TestRollingRestarts(t *testing.T) {
	restarts, perRestart := size(6, 30), size(20_000/6, 100_000/30+1)
	l := newLabAnywhere(t, 10*time.Minute)
	var members []*member
	for i := range 3 {
		m := l.member(fmt.Sprint("member-", i))
		m.start()
		m.awaitRunning()
		members = append(members, m)
	}
	f := l.flow()
	var slowest time.Duration
	for i := range restarts {
		sent := make(chan error, 1)
		go func() { sent <- f.send(perRestart, 50, 5*time.Millisecond) }()
		m := members[i%len(members)]
		m.stop()
		begin := time.Now()
		m.start()
		m.awaitRunning()
		slowest = max(slowest, time.Since(begin))
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
	l.awaitLag()
	for _, m := range members {
		m.stop()
		if w := m.warnings(); w != "" {
			t.Errorf("%s has warned:\n%s", m.config.ClientID, w)
		}
	}
	f.checkExact()
	t.Logf("%d orders, %d restarts; from a start to RUNNING at most %s", f.sent, restarts, slowest.Round(time.Millisecond))
}

// An instance joins and leaves every three seconds, for two minutes in the long form. The others work on, nobody is evicted, no count is off.
func TestJoiningAndLeaving(t *testing.T) {
	rounds, stay := size(3, 20), 3*time.Second
	if os.Getenv(longEnv) == "" {
		stay = 300 * time.Millisecond
	}
	l := newLabAnywhere(t, 10*time.Minute)
	steady, guest := l.member("steady"), l.member("guest")
	steady.start()
	steady.awaitRunning()
	f := l.flow()
	for range rounds {
		sent := make(chan error, 1)
		go func() { sent <- f.send(int(2*stay/(10*time.Millisecond)), 10, 100*time.Millisecond) }()
		guest.start()
		<-time.After(stay)
		guest.awaitRunning()
		guest.stop()
		<-time.After(stay)
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
	l.awaitLag()
	steady.stop()
	for _, m := range []*member{steady, guest} {
		if w := m.warnings(); w != "" {
			t.Errorf("%s has warned:\n%s", m.config.ClientID, w)
		}
	}
	f.checkExact()
}

// A connection in these tests has a goroutine of the client, three of the embedded broker, and a file on either side.
const goroutinesPerConnection, filesPerConnection = 4, 2

// pooled is how many connections more than after the first round a stream thread may have open: a client opens another one when its requests
// coincide, once, and keeps it. What a rebalance left behind would show in each round.
const pooled = 2

// heapGrowth is by how many bytes the heap may be larger in the end: the embedded broker has its records there.
const heapGrowth = 4 << 20

// After many rebalances a process has as many goroutines and open files as after the first, and holds no more memory.
func TestRebalancesLeaveNothingBehind(t *testing.T) {
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprint("threads=", threads), func(t *testing.T) { rebalancesLeaveNothingBehind(t, threads) })
	}
}

func rebalancesLeaveNothingBehind(t *testing.T, threads int) {
	rounds := size(10, 25) // of two rebalances each
	l := newLabAnywhere(t, 10*time.Minute)
	l.config.Threads = threads
	steady, guest := l.member("steady"), l.member("guest")
	steady.start()
	steady.awaitRunning()
	f := l.flow()
	round := func() {
		guest.start()
		guest.awaitRunning()
		steady.awaitRunning()
		if err := f.send(100, 100, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		guest.stop()
		steady.awaitRunning()
		l.awaitLag()
	}
	round()
	more := pooled * threads
	goroutines, files, heap := runtime.NumGoroutine()+more*goroutinesPerConnection, openFiles(t)+more*filesPerConnection, heapSize()+heapGrowth
	for range rounds {
		round()
	}
	// Connections of the last guest may take a moment to go.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(deadline); runtime.NumGoroutine() > goroutines || openFiles(t) > files || heapSize() > heap; {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("after %d rounds %d goroutines, %d files, %d bytes of heap; allowed are %d, %d, %d",
				rounds, runtime.NumGoroutine(), openFiles(t), heapSize(), goroutines, files, heap)
		}
	}
	t.Logf("after %d rounds %d goroutines, %d files, %d bytes of heap; allowed are %d, %d, %d",
		rounds, runtime.NumGoroutine(), openFiles(t), heapSize(), goroutines, files, heap)
	steady.stop()
	f.checkExact()
}

// heapSize is what of the heap is in use.
func heapSize() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// openFiles counts this process's file descriptors, where the system shows them.
func openFiles(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		// Files of the broker, whose number grows with its segments, are not ours.
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.Contains(target, ".dat") {
			n++
		}
	}
	return n
}
