package topology_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
	"go.uber.org/goleak"
)

// childEnv makes the test binary an instance of the application instead: its value is "<bootstrap> <state folder> key=value …". Two keys are
// the test's own: test.prefix is what comes before the names of user topics, test.log a file for all that the instance logs.
const childEnv = "LAB_TEST_INSTANCE"

func TestMain(m *testing.M) {
	if v := os.Getenv(childEnv); v != "" {
		f := strings.Fields(v)
		if err := runChild(f[0], f[1], f[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// runChild counts until its standard input ends, with a line on standard output for each thing that happens.
func runChild(bootstrap, dir string, properties []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	own := map[string]string{}
	properties = slices.DeleteFunc(properties, func(p string) bool {
		key, value, _ := strings.Cut(p, "=")
		ours := strings.HasPrefix(key, "test.")
		if ours {
			own[key] = value
		}
		return ours
	})
	top, err := topology.BuildOn(own["test.prefix"])
	if err != nil {
		return err
	}
	cfg := streams.DefaultConfig()
	cfg.ApplicationID, cfg.Bootstrap, cfg.StateDir = topology.ApplicationID, []string{bootstrap}, dir
	cfg.CommitInterval = 5 * time.Millisecond // so that many kills fall into a commit
	cfg.SessionTimeout, cfg.HeartbeatInterval = 6*time.Second, 500*time.Millisecond
	cfg.RepartitionPurgeInterval = 50 * time.Millisecond
	cfg, err = streams.ParseProperties(cfg, properties)
	if err != nil {
		return err
	}
	if path := own["test.log"]; path != "" {
		log, err := os.Create(path)
		if err != nil {
			return err
		}
		defer log.Close()
		cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	cfg.Listener = streams.Listener{
		StateChanged:     func(s streams.StateChange) { fmt.Println("state", s.To) },
		Committed:        func(c streams.Commit) { fmt.Println("commit", c.Records) },
		TasksAssigned:    func(tasks []streams.Task) { fmt.Println("tasks", idsOf(tasks)) },
		StandbysAssigned: func(tasks []streams.Task) { fmt.Println(len(tasks), "standbys", idsOf(tasks)) },
		StandbyUpdated: func(u streams.StandbyUpdate) {
			if u.Position >= u.End {
				fmt.Println("caught up", u.Changelog)
			}
		},
		RestoreStart: func(s streams.RestoreStart) { fmt.Println("restore", s.Changelog, s.From, s.To) },
	}
	app, err := streams.NewApp(top, cfg)
	if err != nil {
		return err
	}
	return app.Run(ctx)
}

func idsOf(tasks []streams.Task) string {
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID.String()
	}
	return strings.Join(ids, " ")
}

// instance is a child process.
type instance struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
}

func startInstance(t testing.TB, bootstrap, dir string, properties ...string) *instance {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{t: t, cmd: exec.Command(exe), lines: make(chan string, 10_000)}
	i.cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(append([]string{bootstrap, dir}, properties...), " "))
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
		i := startInstance(t, bootstrap, l.config.StateDir, "processing.guarantee="+string(guarantee))
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
	i := startInstance(t, bootstrap, l.config.StateDir, "processing.guarantee="+string(guarantee))
	i.await("state RUNNING", 1)
	l.awaitLag()
	if err := i.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	i.drain()
	if err := i.cmd.Wait(); err != nil {
		t.Errorf("clean stop: %v", err)
	}
	replayed := l.countedAgain(want)
	if guarantee == streams.ExactlyOnce && replayed != 0 {
		t.Errorf("%d orders were counted again", replayed)
	}
	t.Logf("%d orders, %d kills, %d counted again", rounds*perRound, rounds, replayed)
}

// countedAgain compares the final counts with the good orders of each store: none may be missing, and it says how many were counted again.
func (l *lab) countedAgain(want map[string]int64) (again int64) {
	l.t.Helper()
	got := last(l.read(topology.OrdersPerStore))
	for store, n := range want {
		count, err := strconv.ParseInt(got[store].Value, 10, 64)
		if err != nil || count < n {
			l.t.Errorf("%s: counted %q, %d good orders were placed", store, got[store].Value, n)
		}
		again += count - n
	}
	return again
}

// Two instances process exactly once; one is killed in the middle of a transaction that would stay open for a minute. The other takes over
// as soon as the group lets it: the leader ends the dead member's transaction, which would hold back the repartition topic and the offsets.
func TestTakeoverDoesNotWaitForTheDeadTransaction(t *testing.T) {
	l := newLab(t)
	bootstrap := l.config.Bootstrap[0]
	properties := []string{"processing.guarantee=exactly_once_v2", "commit.interval.ms=50000", "commit.idle.ms=-1", "transaction.timeout.ms=60000"}
	victim := startInstance(t, bootstrap, l.config.StateDir, properties...)
	victim.await("state RUNNING", 1)
	survivor := startInstance(t, bootstrap, t.TempDir(), "processing.guarantee=exactly_once_v2")
	survivor.await("state RUNNING", 1)
	victim.await("state RUNNING", 1)

	rows := labInput()[:300]
	l.send(topology.OrdersPlaced, rows...)
	// The victim is in a transaction once its output is in the repartition topic, uncommitted.
	repartition := topology.ApplicationID + "-" + topology.Repartition
	tps := []kafka.TopicPartition{{Topic: repartition, Partition: 0}, {Topic: repartition, Partition: 1}}
	open := func() bool {
		high, err := l.client.ListOffsets(l.ctx, tps, kafka.LatestOffset, kafka.ReadUncommitted)
		if err != nil {
			t.Fatal(err)
		}
		stable, err := l.client.ListOffsets(l.ctx, tps, kafka.LatestOffset, kafka.ReadCommitted)
		if err != nil {
			t.Fatal(err)
		}
		return stable[tps[0]] < high[tps[0]] || stable[tps[1]] < high[tps[1]]
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !open() {
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			t.Fatal("no open transaction")
		}
	}
	if err := victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	victim.drain()
	_ = victim.cmd.Wait() // it was killed
	killed := time.Now()
	l.awaitLag()
	t.Logf("taken over and caught up %s after the kill; the session lasts 6 s, the transaction 60 s", time.Since(killed).Round(time.Millisecond))
	if time.Since(killed) > 40*time.Second {
		t.Error("the transaction's timeout was waited for")
	}
	want := map[string]string{"store-17": "50", "store-18": "40", "store-19": "50", "store-20": "40", "store-21": "50", "store-22": "40"}
	got := map[string]string{}
	for key, r := range last(l.read(topology.OrdersPerStore)) {
		got[key] = r.Value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("running counts (-want +got):\n%s", diff)
	}
}
