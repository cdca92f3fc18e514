package topology_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// peerEnv asks for the tests with the same application in Java, scripts/peer, on the cluster of LAB_TEST_BOOTSTRAP.
const peerEnv = "LAB_TEST_PEER"

// peerPatience is what a test allows for a start of a Java program, or for a group to notice that one is gone.
const peerPatience = 2 * time.Minute

var peerScript = filepath.Join("..", "scripts", "peer.sh")

// buildPeer compiles the Java program once.
var buildPeer = sync.OnceValue(func() error {
	out, err := exec.Command(peerScript, "build").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the Java peer: %w\n%s", err, out)
	}
	return nil
})

// newPeerLab is a lab for a test with the Java program.
func newPeerLab(t *testing.T, guarantee streams.Guarantee) *lab {
	t.Helper()
	if os.Getenv(peerEnv) == "" {
		t.Skip("needs Java, Maven and a real Kafka, see ", peerEnv)
	}
	if !onRealBroker() {
		t.Fatalf("%s is set and %s is not: the Java program has no broker", peerEnv, brokertest.Env)
	}
	if err := buildPeer(); err != nil {
		t.Fatal(err)
	}
	l := newLabAnywhere(t, 10*time.Minute)
	l.config.ProcessingGuarantee = guarantee
	return l
}

// peer is an instance of the application in Java, as a process.
type peer struct {
	t        testing.TB
	l        *lab
	name     string
	cmd      *exec.Cmd
	lines    chan string
	seen     []string
	warnings bytes.Buffer // its standard error; to be read once it has ended
	ended    bool
}

// peer starts an instance of the Java program with the lab's configuration and its state in a folder. It leaves the group when it is
// stopped.
func (l *lab) peer(name, dir string, properties ...string) *peer {
	l.t.Helper()
	args := []string{"run", name, "bootstrap.servers=" + strings.Join(l.config.Bootstrap, ","), "application.id=" + l.config.ApplicationID,
		"client.id=" + name, "state.dir=" + dir, "lab.topic.prefix=" + l.prefix, "peer.leave=true",
		"processing.guarantee=" + string(l.config.ProcessingGuarantee), fmt.Sprint("statestore.cache.max.bytes=", l.config.CacheMaxBytes),
		fmt.Sprint("commit.interval.ms=", l.config.CommitInterval.Milliseconds()), "session.timeout.ms=6000", "heartbeat.interval.ms=500"}
	p := &peer{t: l.t, l: l, name: name, lines: make(chan string, 100), cmd: exec.Command(peerScript, append(args, properties...)...)}
	p.cmd.Stderr = &p.warnings
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(p.lines)
		for sc := bufio.NewScanner(stdout); sc.Scan(); {
			p.lines <- sc.Text()
		}
	}()
	l.t.Cleanup(func() {
		if !p.ended {
			p.kill()
			l.t.Logf("%s at the end:\n%s%s", p.name, strings.Join(p.seen, "\n"), p.warnings.String())
		}
	})
	return p
}

// await waits for a line that begins like that, and returns it.
func (p *peer) await(want string) string {
	p.t.Helper()
	limit := time.After(peerPatience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.end()
				p.t.Fatalf("%s ended before it said %q:\n%s%s", p.name, want, strings.Join(p.seen, "\n"), p.warnings.String())
			}
			p.seen = append(p.seen, line)
			if strings.HasPrefix(line, want) {
				return line
			}
		case <-limit:
			p.t.Fatalf("%s has not said %q within %s:\n%s", p.name, want, peerPatience, strings.Join(p.seen, "\n"))
		}
	}
}

func (p *peer) awaitRunning() {
	p.t.Helper()
	p.await("state " + p.name + " REBALANCING -> RUNNING")
}

// stop stops it cleanly.
func (p *peer) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	p.await("stopped " + p.name)
	p.end()
}

func (p *peer) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	p.end()
}

// end reads what it still says and waits for the process, whose exit code tells how it was ended.
func (p *peer) end() {
	for line := range p.lines {
		p.seen = append(p.seen, line)
	}
	_ = p.cmd.Wait()
	p.ended = true
}

var restoreLine = regexp.MustCompile(`^restore start instance=\S+ store=(\S+) partition=\S+-(\d+) from=(\d+) to=(\d+)$`)

// restores are the ranges from and to of each store's restores, by store and partition.
func (p *peer) restores() map[string][2]string {
	out := map[string][2]string{}
	for _, line := range p.seen {
		if m := restoreLine.FindStringSubmatch(line); m != nil {
			out[m[1]+"-"+m[2]] = [2]string{m[3], m[4]}
		}
	}
	return out
}

// skipped are its warnings of dropped records, as ours words them.
func (p *peer) skipped() []string {
	var out []string
	for line := range strings.Lines(p.warnings.String()) {
		if at := strings.Index(line, "Skipping record"); at >= 0 {
			out = append(out, strings.TrimSpace(line[at:]))
		}
	}
	return out
}

// The Java program and ours have the same input at the same pace, each in an application of its own on the same broker. Then everything
// that the two leave there is the same: topics and configs, each record's partition, timestamp, key and value, offsets and what is noted
// beside them. Without caches that is all records of a key in their order; with caches, which may merge updates, the last ones.
func TestSameAsJavaProgram(t *testing.T) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/cached=%t", guarantee, cached), func(t *testing.T) { testSameAsJavaProgram(t, guarantee, cached) })
		}
	}
}

func testSameAsJavaProgram(t *testing.T, guarantee streams.Guarantee, cached bool) {
	java, ours := newPeerLab(t, guarantee), newPeerLab(t, guarantee)
	if !cached {
		java.config.CacheMaxBytes, ours.config.CacheMaxBytes = 0, 0
	}
	peer := java.peer("java", t.TempDir())
	var skipped []string
	stop := ours.start(topology.Hooks{}, streams.Listener{Skipped: func(s streams.Skipped) { skipped = append(skipped, s.String()) }})
	peer.awaitRunning()
	both := func(topic string, rows ...row) {
		for _, l := range []*lab{java, ours} {
			l.send(l.prefix+topic, rows...)
		}
		for _, l := range []*lab{java, ours} {
			l.awaitLag()
		}
	}
	sendLab(both)
	committed := [2]map[string]string{java.offsets(), ours.offsets()}
	peer.stop()
	stop()

	if diff := cmp.Diff(java.describeJava(), ours.describe()); diff != "" {
		t.Errorf("description (-Java +ours):\n%s", diff)
	}
	if diff := cmp.Diff(java.internalTopics(), ours.internalTopics()); diff != "" {
		t.Errorf("internal topics (-Java +ours):\n%s", diff)
	}
	if diff := cmp.Diff(committed[0], committed[1]); diff != "" {
		t.Errorf("committed offsets (-Java +ours):\n%s", diff)
	}
	if diff := cmp.Diff(java.warnings(peer.skipped()), ours.warnings(skipped)); diff != "" || len(skipped) != 1 {
		t.Errorf("skipped records, of which there is ord-2004 (-Java +ours):\n%s", diff)
	}
	for _, topic := range []string{topology.HighValueOrders, topology.OrdersWithStatus} {
		if diff := cmp.Diff(sorted(java.rowsOf(java.prefix+topic)), sorted(ours.rowsOf(ours.prefix+topic))); diff != "" {
			t.Errorf("%s (-Java +ours):\n%s", topic, diff)
		}
	}
	theirs, mine := java.rowsOf(java.internal(topology.Repartition)), ours.rowsOf(ours.internal(topology.Repartition))
	if diff := cmp.Diff(sorted(theirs), sorted(mine)); diff != "" {
		t.Errorf("repartition topic (-Java +ours):\n%s", head(diff))
	}
	// The orders of a store come from three partitions, so the way to its counts is each application's own, and the end is the same.
	names := java.tableTopics()
	for topic, name := range ours.tableTopics() {
		if diff := cmp.Diff(last(java.rowsOf(names[topic])), last(ours.rowsOf(name))); diff != "" {
			t.Errorf("%s, last per key (-Java +ours):\n%s", topic, head(diff))
		}
	}
	java.checkReplay(java.replayed(), cached)
	ours.checkReplay(ours.replayed(), cached)
}

// sendLab sends the lab's five phases as a learner does: one feed at a time, and each order that is sent by hand when what came before is
// done.
func sendLab(send func(topic string, rows ...row)) {
	status := func(value string, timestamp int64) {
		send(topology.OrdersStatus, row{Timestamp: timestamp, Key: "ord-1042", Value: value})
	}
	rows := labInput()
	send(topology.OrdersPlaced, rows[:300]...)
	for i := 300; i < 307; i++ {
		switch i {
		case 304:
			status("PAID", 1789207405000)
		case 305:
			status("SHIPPED", 1789207415000)
		}
		send(topology.OrdersPlaced, rows[i])
	}
	send(topology.OrdersPlaced, rows[307:607]...)
	send(topology.OrdersPlaced, rows[607])
}

// checkReplay compares what was counted with a replay: each record of each key without caches; with them, any of those, in their order,
// and the last. Exactly once, the same of changelogs: a transaction marker has the time of the clock, which to a broker is weeks after the
// records, so it rolls the segment, and the log cleaner may have been there.
func (l *lab) checkReplay(r *replay, cached bool) {
	l.t.Helper()
	for topic, name := range l.countTopics() {
		want, got := byKey(r.logs[topic]), byKey(l.rowsOf(name))
		if cached || l.config.ProcessingGuarantee == streams.ExactlyOnce && strings.HasSuffix(name, "-changelog") {
			for key, rows := range want {
				want[key] = merged(rows, got[key])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			l.t.Errorf("%s (-replay of the repartition topic +written):\n%s", name, head(diff))
		}
	}
}

// merged is what of all the updates of a key a cache may have left, given what it has left.
func merged(all, got []row) []row {
	var out []row
	for i, r := range all {
		if i == len(all)-1 || len(out) < len(got) && got[len(out)] == r {
			out = append(out, r)
		}
	}
	return out
}

// describe is the description of the topology, with the lab's own names of topics.
func (l *lab) describe() string {
	l.t.Helper()
	top, err := topology.BuildOn(l.prefix)
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.ReplaceAll(top.Describe(), l.prefix, "")
}

func (l *lab) describeJava() string {
	l.t.Helper()
	out, err := exec.Command(peerScript, "--describe", "lab.topic.prefix="+l.prefix).Output()
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.ReplaceAll(string(out), l.prefix, "")
}

// anonymous takes the application's names out of texts.
func (l *lab) anonymous(texts ...string) []string {
	for i := range texts {
		texts[i] = strings.NewReplacer(l.prefix, "", l.config.ApplicationID, "application").Replace(texts[i])
	}
	return texts
}

var offsetWord = regexp.MustCompile(`offset=\[\d+\]`)

// warnings are texts without what is the application's own: names and, exactly once, the offsets of the repartition topic, where markers
// take some too.
func (l *lab) warnings(texts []string) []string {
	texts = l.anonymous(texts...)
	if l.config.ProcessingGuarantee == streams.ExactlyOnce {
		for i := range texts {
			texts[i] = offsetWord.ReplaceAllString(texts[i], "")
		}
	}
	return texts
}

// head keeps the differences of hundreds of records readable.
func head(diff string) string {
	const most = 60
	lines := strings.SplitAfterN(diff, "\n", most+1)
	if len(lines) > most {
		lines[most] = "…\n"
	}
	return strings.Join(lines, "")
}

// internalTopics are the partitions and configs of the internal topics.
func (l *lab) internalTopics() map[string]string {
	l.t.Helper()
	all, err := l.client.Topics(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string]string{}
	for name, topic := range all {
		rest, ours := strings.CutPrefix(name, l.config.ApplicationID+"-")
		if !ours {
			continue
		}
		configs, err := l.client.TopicConfigs(l.ctx, name)
		if err != nil {
			l.t.Fatal(err)
		}
		var set []string
		for _, e := range configs[name] {
			if e.Source == kafka.SourceTopic {
				set = append(set, e.Name+"="+e.Value)
			}
		}
		slices.Sort(set)
		out[rest] = fmt.Sprint(len(topic.Partitions), " partitions ", strings.Join(set, " "))
	}
	return out
}

// offsets are the group's offsets and what Kafka Streams notes beside them: the partition time. Exactly once, transaction markers take
// offsets of the repartition topic, and their number is that of the commits: there it counts that all is committed, which awaitLag saw to.
func (l *lab) offsets() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	for tp, o := range l.awaitLag() {
		text := "metadata=" + o.Metadata
		if l.config.ProcessingGuarantee == streams.AtLeastOnce || tp.Topic != l.internal(topology.Repartition) {
			text = fmt.Sprint("offset=", o.Offset, " ", text)
		}
		out[l.anonymous(tp.String())[0]] = text
	}
	return out
}

// Both read the whole lab at once. Java's tasks go through the three partitions at their own pace, so many orders reach the counting stage
// after their minute was closed there, and are dropped; ours takes them in time order and drops none. Either way the minutes hold what
// counting that application's repartition topic comes to, and the running counts hold all.
func TestCatchUpOfJavaProgram(t *testing.T) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		t.Run(string(guarantee), func(t *testing.T) {
			java, ours := newPeerLab(t, guarantee), newPeerLab(t, guarantee)
			for _, l := range []*lab{java, ours} {
				l.send(l.prefix+topology.OrdersPlaced, labInput()...)
			}
			peer := java.peer("java", t.TempDir())
			var skipped []string
			stop := ours.start(topology.Hooks{}, streams.Listener{Skipped: func(s streams.Skipped) { skipped = append(skipped, s.String()) }})
			peer.awaitRunning()
			java.awaitLag()
			ours.awaitLag()
			peer.stop()
			stop()

			counts := func(l *lab) map[string]row { return last(l.rowsOf(l.prefix + topology.OrdersPerStore)) }
			if diff := cmp.Diff(counts(java), counts(ours)); diff != "" {
				t.Errorf("running counts (-Java +ours):\n%s", diff)
			}
			for _, topic := range []func(*lab) string{
				func(l *lab) string { return l.prefix + topology.HighValueOrders },
				func(l *lab) string { return l.internal(topology.Repartition) },
			} {
				if diff := cmp.Diff(sorted(java.rowsOf(topic(java))), sorted(ours.rowsOf(topic(ours)))); diff != "" {
					t.Errorf("%s (-Java +ours):\n%s", topic(ours), head(diff))
				}
			}
			dropped := java.replayed()
			t.Logf("dropped as late: Java %d of %d, ours %d", len(dropped.late), len(java.rowsOf(java.internal(topology.Repartition))), len(skipped))
			if got := len(peer.skipped()); got != len(dropped.late) {
				t.Errorf("Java warned of %d late records, a replay of what it counted drops %d", got, len(dropped.late))
			}
			if len(skipped) > 0 {
				t.Errorf("ours dropped %d, the first: %s", len(skipped), skipped[0])
			}
			java.checkReplay(dropped, true)
			ours.checkReplay(ours.replayed(), true)
		})
	}
}
