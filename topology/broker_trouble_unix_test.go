//go:build unix

package topology_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/streams"
)

// ownKafkaEnv names a folder for a real Kafka that belongs to the tests alone: they start it by scripts/kafka.sh, kill and suspend it, and
// wipe its data.
const ownKafkaEnv = "LAB_TEST_OWN_KAFKA"

// ownKafka is that broker. Its controller is a process of its own, as in any cluster that is meant to last, and lives through the broker's
// troubles. A node that is both takes itself for the leader of its partitions when it comes back from SIGKILL, as it was, until it has read
// otherwise. In that time Apache Kafka 4.3.1 may complete a transaction without writing its markers ("these partitions are likely deleted
// already and hence can be skipped"), which leaves its offsets and its records undecided for ever.
type ownKafka struct {
	t         *testing.T
	env       []string
	home      string
	bootstrap string
}

func newOwnKafka(t *testing.T, settings ...string) *ownKafka {
	t.Helper()
	home := os.Getenv(ownKafkaEnv)
	if home == "" {
		t.Skip("needs a Kafka that it may kill, see ", ownKafkaEnv)
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		t.Fatal(err)
	}
	cluster := "KAFKA_CLUSTER_ID=" + base64.RawURLEncoding.EncodeToString(id)
	port := freePorts(t)
	voter := fmt.Sprint("127.0.0.1:", port+1)
	node := func(home string, port int, settings ...string) *ownKafka {
		k := &ownKafka{t: t, home: home, bootstrap: fmt.Sprint("127.0.0.1:", port), env: append(os.Environ(), cluster, "KAFKA_HOME_DIR="+home,
			fmt.Sprint("KAFKA_TIMEOUT=", scriptTimeout.Seconds()), fmt.Sprint("KAFKA_PORT=", port), "KAFKA_OVERRIDES="+strings.Join(append(settings, "controller.quorum.voters=2@"+voter), ";"))}
		k.script("wipe")
		t.Cleanup(func() { k.script("wipe") })
		k.script("up")
		return k
	}
	node(home, port, "process.roles=controller", "node.id=2", "listeners=CONTROLLER://"+voter, "advertised.listeners=CONTROLLER://"+voter,
		"broker.session.timeout.ms=3000") // less than any trouble lasts: the cluster notices
	broker := filepath.Join(home, "broker")
	if err := os.MkdirAll(broker, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("..", "libs"), filepath.Join(broker, "libs")); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	port = freePorts(t)
	return node(broker, port, append(settings, "process.roles=broker", fmt.Sprint("listeners=PLAINTEXT://127.0.0.1:", port),
		"broker.heartbeat.interval.ms=500", "offsets.topic.num.partitions=5", "transaction.state.log.num.partitions=5")...)
}

// freePorts is a free port whose successor, for the controller, is free too.
func freePorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		client, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := client.Addr().(*net.TCPAddr).Port
		controller, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port+1))
		_ = client.Close()
		if err == nil {
			_ = controller.Close()
			return port
		}
	}
	t.Fatal("no two free ports beside each other")
	return 0
}

// scriptTimeout is for a broker that starts on a busy machine.
const scriptTimeout = 4 * deadline

func (k *ownKafka) script(command string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout+deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "scripts", "kafka.sh"), command)
	cmd.Env = k.env
	if out, err := cmd.CombinedOutput(); err != nil {
		k.t.Fatalf("kafka.sh %s: %v\n%s", command, err, out)
	}
}

func (k *ownKafka) process() *os.Process {
	k.t.Helper()
	b, err := os.ReadFile(filepath.Join(k.home, "pid"))
	if err != nil {
		k.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		k.t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		k.t.Fatal(err)
	}
	return p
}

// kill ends the broker with SIGKILL, starts it again after a while, and returns once it answers.
func (k *ownKafka) kill(lasts time.Duration) {
	k.t.Helper()
	p := k.process()
	signal(k.t, p, syscall.SIGKILL)
	for tick := time.NewTicker(10 * time.Millisecond); p.Signal(syscall.Signal(0)) == nil; <-tick.C {
	}
	<-time.After(lasts)
	k.script("up")
}

// suspend stops the broker where it is. Connections stay open, requests wait in its sockets, and it finds all its timers run out when it
// goes on.
func (k *ownKafka) suspend(lasts time.Duration) {
	k.t.Helper()
	p := k.process()
	signal(k.t, p, syscall.SIGSTOP)
	defer signal(k.t, p, syscall.SIGCONT)
	<-time.After(lasts)
}

// restart stops the broker cleanly and starts it, again and again: each time the coordinators of groups and transactions go away (codes 15 and
// 16) and load their partitions (14), of which there are several.
func (k *ownKafka) restart(lasts time.Duration) {
	k.t.Helper()
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		k.script("down")
		k.script("up")
	}
}

// fsyncDelay is what each fsync takes longer on a slow disk.
const fsyncDelay = 100 * time.Millisecond

// slowDisk delays each fsync of the broker by strace. It wants flushEachAppend, or the broker leaves most of them to the system.
func (k *ownKafka) slowDisk(lasts time.Duration) {
	k.t.Helper()
	cmd := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-p", fmt.Sprint(k.process().Pid), "-e", "trace=fsync,fdatasync",
		"-e", fmt.Sprint("inject=fsync,fdatasync:delay_enter=", fsyncDelay.Microseconds()))
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	<-time.After(lasts)
	signal(k.t, cmd.Process, syscall.SIGTERM) // it lets the broker go on alone; that it still ran is what this checks
	_ = cmd.Wait()                            // it was terminated
}

const flushEachAppend = "log.flush.interval.messages=1"

// recovery is the longest that an application may take from the broker's return to its next commits: the sessions of the members that it had
// before, of 6 s, and a rebalance, on a machine that is busy starting all of this.
const recovery = time.Minute

// A real broker gets into trouble under two applications of two instances each, one for each guarantee, and a flow of orders for either; for
// longer than sessions and transactions last. When it is over they go on by themselves, within seconds, and no order is lost; exactly once
// none is counted twice. The short form kills and
// suspends the broker for 8 s; the long form has all kinds of trouble, for 30 s each.
func TestBrokerTrouble(t *testing.T) {
	lasts := time.Duration(size(8, 30)) * time.Second
	for _, trouble := range []struct {
		name     string
		long     bool // only in the long form
		settings []string
		happen   func(*ownKafka, time.Duration)
	}{
		{name: "killed", happen: (*ownKafka).kill},
		{name: "suspended", happen: (*ownKafka).suspend},
		{name: "coordinators reloaded", long: true, happen: (*ownKafka).restart},
		{name: "slow disk", long: true, settings: []string{flushEachAppend}, happen: (*ownKafka).slowDisk},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			if trouble.long && os.Getenv(longEnv) == "" {
				t.Skip("only in the long form, see ", longEnv)
			}
			k := newOwnKafka(t, trouble.settings...)
			t.Setenv(brokertest.Env, k.bootstrap)
			var loads []*load
			for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
				loads = append(loads, underLoad(t, guarantee))
			}
			trouble.happen(k, lasts)
			up := time.Now()
			for _, l := range loads { // the broker is back once its coordinators have loaded the groups
				if _, err := l.client.DescribeGroup(l.ctx, l.config.ApplicationID); err != nil {
					t.Fatal(err)
				}
				l.forget()
			}
			back := time.Now()
			t.Logf("the coordinators answer %s after the end of the trouble", back.Sub(up).Round(time.Millisecond))
			for _, l := range loads {
				l.awaitCommits(1)
				took := time.Since(back)
				t.Logf("%s: both commit %s after the broker's return", l.guarantee, took.Round(time.Millisecond))
				if took > recovery {
					t.Errorf("%s: the instances commit again only after %s", l.guarantee, took)
				}
			}
			for _, l := range loads {
				l.finish(back)
			}
		})
	}
}

// load is an application of two instances with a flow of orders.
type load struct {
	*lab
	guarantee streams.Guarantee
	instances []*instance
	flow      *flow
	stop      func() // ends the flow
}

func underLoad(t *testing.T, guarantee streams.Guarantee) *load {
	t.Helper()
	a := &load{lab: newLabAnywhere(t, 10*time.Minute), guarantee: guarantee}
	for _, name := range []string{"first", "second"} {
		a.instances = append(a.instances, a.process(t, name, t.TempDir(), "processing.guarantee="+string(guarantee), "transaction.timeout.ms=5000",
			fmt.Sprint("retry.timeout.ms=", retryTimeout.Milliseconds()))) // a busy machine takes long to start a broker
	}
	a.awaitMembers(len(a.instances))
	a.flow = a.lab.flow()
	a.stop = a.flow.stream(10, 10*time.Millisecond)
	a.awaitCommits(5)
	return a
}

// awaitCommits waits until each instance has committed n times.
func (a *load) awaitCommits(n int) {
	a.t.Helper()
	for _, i := range a.instances {
		i.await("commit", n)
	}
}

// forget drops what the instances have said so far.
func (a *load) forget() {
	for _, i := range a.instances {
		for len(i.lines) > 0 {
			<-i.lines
		}
	}
}

// finish ends flow and instances, once all is counted, and checks the counts.
func (a *load) finish(back time.Time) {
	a.t.Helper()
	a.awaitCommits(5) // the flow outlasts the trouble
	a.stop()
	a.awaitLag()
	caughtUp := time.Since(back)
	for _, i := range a.instances {
		i.end()
	}
	again := a.flow.checkCounts(a.guarantee)
	a.t.Logf("%s: all is counted %s after the broker's return: %d orders, %d counted again",
		a.guarantee, caughtUp.Round(time.Millisecond), a.flow.sent, again)
}
