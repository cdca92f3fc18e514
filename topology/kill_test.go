package topology_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
	"go.uber.org/goleak"
)

// childEnv makes the test binary an instance of the application instead: its value is "<bootstrap> <state folder> <guarantee>".
const childEnv = "LAB_TEST_INSTANCE"

func TestMain(m *testing.M) {
	if v := os.Getenv(childEnv); v != "" {
		f := strings.Fields(v)
		if err := runChild(f[0], f[1], streams.Guarantee(f[2])); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// runChild counts until its standard input ends, with a line on standard output for each thing that happens.
func runChild(bootstrap, dir string, guarantee streams.Guarantee) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	top, err := topology.Build("")
	if err != nil {
		return err
	}
	cfg := streams.DefaultConfig()
	cfg.ApplicationID, cfg.Bootstrap, cfg.StateDir = topology.ApplicationID, []string{bootstrap}, dir
	cfg.ProcessingGuarantee = guarantee
	cfg.CommitInterval = 5 * time.Millisecond // so that many kills fall into a commit
	cfg.SessionTimeout, cfg.HeartbeatInterval = 6*time.Second, 500*time.Millisecond
	cfg.RepartitionPurgeInterval = 50 * time.Millisecond
	cfg.Listener = streams.Listener{
		StateChanged: func(s streams.StateChange) { fmt.Println("state", s.To) },
		Committed:    func(c streams.Commit) { fmt.Println("commit", c.Records) },
	}
	app, err := streams.NewApp(top, cfg)
	if err != nil {
		return err
	}
	return app.Run(ctx)
}

// instance is a child process.
type instance struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
}

func startInstance(t *testing.T, bootstrap, dir string, guarantee streams.Guarantee) *instance {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{t: t, cmd: exec.Command(exe), lines: make(chan string, 10_000)}
	i.cmd.Env = append(os.Environ(), childEnv+"="+bootstrap+" "+dir+" "+string(guarantee))
	i.cmd.Stderr = os.Stderr
	if i.stdin, err = i.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := i.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := i.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(i.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			i.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { _ = i.cmd.Process.Kill() })
	return i
}

// await waits for n lines that begin with prefix, or the end of the process.
func (i *instance) await(prefix string, n int) {
	i.t.Helper()
	limit := time.After(deadline)
	for n > 0 {
		select {
		case line, ok := <-i.lines:
			if !ok {
				i.t.Fatalf("the instance ended before it said %q", prefix)
			}
			if strings.HasPrefix(line, prefix) {
				n--
			}
		case <-limit:
			i.t.Fatalf("no %q within %s", prefix, deadline)
		}
	}
}

// drain reads the lines to the end of the process.
func (i *instance) drain() {
	for range i.lines {
	}
}

// removeMembers takes the dead out of the group, so that a test need not wait for their session to end.
func (l *lab) removeMembers() {
	l.t.Helper()
	g, err := l.client.DescribeGroup(l.ctx, topology.ApplicationID)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, m := range g.Members {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = topology.ApplicationID
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		req.Members = append(req.Members, member)
		if _, err := l.client.Do(l.ctx, kafka.Request{Route: kafka.GroupCoordinator(topology.ApplicationID), Req: req}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// An instance is killed with SIGKILL again and again while orders flow, many times in the middle of a commit. Each order is counted, exactly
// once if that is the guarantee; at least once processing may count one twice. The state folder's lock never stands in the way of the next
// start.
func TestKilledInstanceLosesNothing(t *testing.T) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(guarantee), func(t *testing.T) { killedInstanceLosesNothing(t, guarantee) })
	}
}

func killedInstanceLosesNothing(t *testing.T, guarantee streams.Guarantee) {
	const rounds, perRound = 12, 2000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	l := newLab(t)
	bootstrap := l.config.Bootstrap[0]

	want := map[string]int64{}
	base := time.UnixMilli(1789207200000)
	for round := range rounds {
		i := startInstance(t, bootstrap, l.config.StateDir, guarantee)
		rows := make([]row, perRound)
		for n := range rows {
			o := feed.Order{OrderID: fmt.Sprintf("ord-%d-%d", round, n), StoreID: fmt.Sprint("store-", 17+rng.IntN(6)), Status: feed.Placed,
				Amount: 5000, OccurredAt: base.UnixMilli() + int64(round*perRound+n)}
			want[o.StoreID]++
			rows[n] = row{Timestamp: time.Now().UnixMilli(), Key: o.OrderID, Value: string(feed.AppendOrder(nil, o))}
		}
		i.await("state RUNNING", 1)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for len(rows) > 0 {
				l.send(topology.OrdersPlaced, rows[:50]...)
				rows = rows[50:]
			}
		}()
		i.await("commit", 1+rng.IntN(4))
		<-time.After(time.Duration(rng.IntN(10_000)) * time.Microsecond) // any moment between two commits will do
		if err := i.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		i.drain()
		_ = i.cmd.Wait() // it was killed
		<-sent
		l.removeMembers()
	}
	i := startInstance(t, bootstrap, l.config.StateDir, guarantee)
	i.await("state RUNNING", 1)
	l.awaitLag()
	if err := i.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	i.drain()
	if err := i.cmd.Wait(); err != nil {
		t.Errorf("clean stop: %v", err)
	}
	replayed := int64(0)
	got := last(l.read(topology.OrdersPerStore))
	for store, n := range want {
		count, err := strconv.ParseInt(got[store].Value, 10, 64)
		if err != nil || count < n {
			t.Errorf("%s: counted %q, %d orders were placed", store, got[store].Value, n)
		}
		replayed += count - n
		if guarantee == streams.ExactlyOnce && count != n {
			t.Errorf("%s: counted %d times, %d orders were placed", store, count, n)
		}
	}
	t.Logf("%d orders, %d kills, %d counted again", rounds*perRound, rounds, replayed)
}
