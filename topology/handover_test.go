package topology_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// owner is one turn of an application that changes hands: an instance of the Java program or of ours.
type owner interface {
	stop() // cleanly
	// restores are the ranges from and to of each store's restores, by store and partition, as far as they were asked for.
	restores() map[string][2]string
}

// goOwner is a turn of ours.
type goOwner struct {
	halt     func()
	restored map[string][2]string
}

func (o *goOwner) stop()                          { o.halt() }
func (o *goOwner) restores() map[string][2]string { return o.restored }

// turns hands the application from one owner to the next, and keeps what a replay needs to know of that.
type turns struct {
	*lab
	dirs    map[string]string // state folders, by program
	handed  [][]int64         // for each turn of Java: where it began, in each partition of the repartition topic
	started int
}

func (l *lab) turns() *turns {
	return &turns{lab: l, dirs: map[string]string{"java": l.t.TempDir(), "go": l.t.TempDir()}}
}

// begin starts the next owner. The one before has ended.
func (s *turns) begin(program string) owner {
	s.t.Helper()
	s.started++
	name := fmt.Sprint(program, "-", s.started)
	if program == "java" {
		s.handed = append(s.handed, s.counted())
		p := s.peer(name, s.dirs[program])
		p.awaitRunning()
		return p
	}
	o := &goOwner{restored: map[string][2]string{}}
	base := s.config.StateDir
	s.config.StateDir = s.dirs[program]
	defer func() { s.config.StateDir = base }()
	o.halt = s.start(topology.Hooks{}, streams.Listener{RestoreStart: func(r streams.RestoreStart) {
		o.restored[fmt.Sprint(r.Store, "-", r.Changelog.Partition)] = [2]string{fmt.Sprint(r.From), fmt.Sprint(r.To)}
	}})
	return o
}

// counted is how far the counting stage has committed.
func (s *turns) counted() []int64 {
	s.t.Helper()
	committed, err := s.client.CommittedOffsets(s.ctx, s.config.ApplicationID, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	offsets := make([]int64, topology.RepartitionPartitions)
	for p := range offsets {
		offsets[p] = committed[kafka.TopicPartition{Topic: s.internal(topology.Repartition), Partition: int32(p)}].Offset
	}
	return offsets
}

// replayed replays the repartition topic with the turns of Java, each of which begins without a stream time.
func (s *turns) replayed() *replay {
	s.t.Helper()
	r := newReplay()
	handed := [topology.RepartitionPartitions]int{}
	for _, rec := range s.committedRecords(s.internal(topology.Repartition)) {
		for n := &handed[rec.partition]; *n < len(s.handed) && rec.Offset >= s.handed[*n][rec.partition]; *n++ {
			r.javaStarts(rec.partition)
		}
		r.add(rec)
	}
	return r
}

// place sends placed orders of store-17 one by one, each when what came before is done.
func (s *turns) place(orders ...feed.Order) {
	s.t.Helper()
	for _, o := range orders {
		s.send(s.prefix+topology.OrdersPlaced, row{Timestamp: flowBase, Key: o.OrderID, Value: string(feed.AppendOrder(nil, o))})
		s.awaitLag()
	}
}

func (s *turns) status(value string) {
	s.t.Helper()
	s.send(s.prefix+topology.OrdersStatus, row{Timestamp: flowBase, Key: "ord-1042", Value: value})
	s.awaitLag()
}

func (s *turns) feed(rows []row) {
	s.t.Helper()
	s.send(s.prefix+topology.OrdersPlaced, rows...)
}

// order is one of store-17, so many seconds after 10:00.
func (s *turns) order(id string, second int64) feed.Order {
	return feed.Order{OrderID: id, StoreID: "store-17", Status: feed.Placed, Amount: 5000, OccurredAt: flowBase + second*1000}
}

// An application changes hands: Java, ours and Java again, or the other way round, each time with orders on their way, and the first owner
// gets it back with the state folder that it left or without any. Counts, minutes and the table go on where they were: every order is
// counted once, the status of one owner's turn is joined in the next, and the minutes are those of a replay. That has to know the turns:
// Java begins each without a stream time, and accepts orders that ours, which goes on with the one that there was, takes for late.
func TestHandOverBetweenJavaAndGo(t *testing.T) {
	for _, order := range [][3]string{{"java", "go", "java"}, {"go", "java", "go"}} {
		for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
			for _, keep := range []bool{true, false} {
				if keep != (guarantee == streams.ExactlyOnce) && size(0, 1) == 0 {
					continue // the other pairs are for the long form
				}
				name := fmt.Sprintf("%s/%s/state kept=%t", strings.Join(order[:], "-"), guarantee, keep)
				t.Run(name, func(t *testing.T) { testHandOver(t, order, guarantee, keep) })
			}
		}
	}
}

func testHandOver(t *testing.T, order [3]string, guarantee streams.Guarantee, keep bool) {
	s := newPeerLab(t, guarantee).turns()
	rows := labInput()

	first := s.begin(order[0])
	s.feed(rows[:200])
	s.awaitLag()
	s.status("PAID")
	s.feed(rows[200:300]) // on their way
	first.stop()

	second := s.begin(order[1])
	s.awaitLag()
	s.place(s.order("ord-2001", 65), s.order("ord-2002", 30), s.order("ord-2003", 180), s.order("ord-2004", 45), s.order("ord-1042", 210))
	s.status("SHIPPED")
	onTheWay, rest := s.splitFeed(rows[307:607])
	s.feed(onTheWay)
	second.stop()

	if !keep {
		if err := os.RemoveAll(s.dirs[order[0]]); err != nil {
			t.Fatal(err)
		}
	}
	third := s.begin(order[2])
	s.awaitLag()
	s.place(s.order("ord-2005", 10), s.order("ord-1042", 3605))
	s.feed(rest)
	s.awaitLag()
	s.place(s.order("ord-2006", 3900))
	third.stop()

	s.checkRestores(third, keep)
	s.checkCountedOnce()
	replay := s.replayed()
	s.checkReplay(replay, true)
	s.checkJoined()
	// ord-2005 is the first that the last owner's task sees, and its minute was closed when ord-2003 came, two turns ago.
	late := slices.ContainsFunc(replay.late, func(r record) bool { return bytes.Contains(r.Value, []byte("ord-2005")) })
	if late != (order[2] == "go") {
		t.Errorf("ord-2005 is late: %t", late)
	}
}

// splitFeed takes orders of a feed apart: some for the first task of the counting stage, and the rest.
func (s *turns) splitFeed(rows []row) (some, rest []row) {
	s.t.Helper()
	for i, r := range rows {
		o, err := feed.DecodeOrder([]byte(r.Value))
		if err != nil {
			s.t.Fatal(err)
		}
		if i < 200 && kafka.PartitionFor([]byte(o.StoreID), topology.RepartitionPartitions) == 0 {
			some = append(some, r)
		} else {
			rest = append(rest, r)
		}
	}
	return some, rest
}

// checkRestores expects the stores to begin where the state folder that was kept ends, or at the beginning.
func (s *turns) checkRestores(o owner, keep bool) {
	s.t.Helper()
	restores := o.restores()
	if len(restores) == 0 {
		s.t.Error("nothing was restored")
	}
	for store, r := range restores {
		if (r[0] != "0") != (keep && r[1] != "0") && !strings.HasPrefix(store, "order-status") {
			s.t.Errorf("%s restored from %s to %s, its state kept: %t", store, r[0], r[1], keep)
		}
	}
}

// checkCountedOnce expects each placed order once in the repartition topic and in the count of its store.
func (l *lab) checkCountedOnce() {
	l.t.Helper()
	want, wantCounts := l.placed()
	got := map[string]int{}
	for _, r := range l.committedRecords(l.internal(topology.Repartition)) {
		got[string(r.Value)]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Errorf("orders in the repartition topic (-placed +got):\n%s", diff)
	}
	for topic, number := range l.counts() {
		if diff := cmp.Diff(wantCounts, number); diff != "" {
			l.t.Errorf("%s (-placed +counted):\n%s", topic, diff)
		}
	}
}

// placed are the placed orders of the input with how often each is there, and their number for each store.
func (l *lab) placed() (orders map[string]int, perStore map[string]int64) {
	l.t.Helper()
	orders, perStore = map[string]int{}, map[string]int64{}
	for _, r := range l.records(l.prefix + topology.OrdersPlaced) {
		o, err := feed.DecodeOrder(r.Value)
		if err != nil {
			l.t.Fatal(err)
		}
		if o.Status == feed.Placed {
			orders[string(r.Value)]++
			perStore[o.StoreID]++
		}
	}
	return orders, perStore
}

// counts are the last counts of each store, by the topic that holds them.
func (l *lab) counts() map[string]map[string]int64 {
	l.t.Helper()
	output, changelog := map[string]int64{}, map[string]int64{}
	for store, r := range last(l.rowsOf(l.prefix + topology.OrdersPerStore)) {
		n, err := strconv.ParseInt(r.Value, 10, 64)
		if err != nil {
			l.t.Fatal(err)
		}
		output[store] = n
	}
	for store, r := range last(l.rowsOf(l.internal(topology.PerStoreChangelog))) {
		changelog[store] = int64(binary.BigEndian.Uint64([]byte(r.Value)))
	}
	return map[string]map[string]int64{topology.OrdersPerStore: output, topology.PerStoreChangelog: changelog}
}

// checkJoined expects each order of ord-1042 that came after a status with the one of its time.
func (s *turns) checkJoined() {
	s.t.Helper()
	joined := func(status string, second int64) row {
		o := s.order("ord-1042", second)
		return row{sinkPartition(o.OrderID), o.OccurredAt, o.OrderID, status + "|" + string(feed.AppendOrder(nil, o))}
	}
	second := feed.Events(time.UnixMilli(flowBase).Add(time.Hour))[42]
	want := []row{joined("PAID", 210), joined("SHIPPED", 3605),
		{sinkPartition(second.OrderID), second.OccurredAt, second.OrderID, "SHIPPED|" + string(feed.AppendOrder(nil, second))}}
	if diff := cmp.Diff(sorted(want), sorted(s.rowsOf(s.prefix+topology.OrdersWithStatus))); diff != "" {
		s.t.Errorf("joined orders (-want +got):\n%s", diff)
	}
}

// A member of the Java program is still in the group when ours is started: because it works, because it was stopped as Kafka Streams is,
// which leaves it to the group to notice, or because it was killed in the middle of orders. Ours waits, says for whom, and goes on when
// that one is gone. Exactly once the count is exact then; at least once no order is missing.
func TestWaitsForJavaMember(t *testing.T) {
	gone := map[string]func(p *peer){
		"leaves":  func(p *peer) { p.stop() },
		"stopped": func(p *peer) { p.stop() }, // without leaving
		"killed":  func(p *peer) { p.kill() },
	}
	for name, end := range gone {
		for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
			t.Run(fmt.Sprintf("%s/%s", name, guarantee), func(t *testing.T) {
				l := newPeerLab(t, guarantee)
				rows := labInput()
				var properties []string
				if name == "stopped" {
					properties = []string{"peer.leave=false"}
				}
				java := l.peer("java", t.TempDir(), properties...)
				java.awaitRunning()
				l.send(l.prefix+topology.OrdersPlaced, rows[:200]...)
				l.awaitLag()
				l.send(l.prefix+topology.OrdersPlaced, rows[200:300]...)
				if name != "leaves" {
					end(java)
				}
				waiting, running := make(chan string, 1000), make(chan struct{}, 1000)
				cancel, done := l.run(topology.Hooks{}, streams.Listener{
					Waiting: func(reason string) { waiting <- reason },
					StateChanged: func(c streams.StateChange) {
						if c.To == streams.StateRunning {
							running <- struct{}{}
						}
					},
				})
				await := func(what string, says <-chan string, is <-chan struct{}) (said string) {
					t.Helper()
					select {
					case said = <-says:
					case <-is:
					case err := <-done:
						t.Fatalf("ended before it was %s: %v", what, err)
					case <-l.ctx.Done():
						t.Fatalf("not %s in time", what)
					}
					return said
				}
				said := await("waiting", waiting, nil)
				for _, word := range []string{l.config.ApplicationID, "java-", `"stream"`} {
					if !strings.Contains(said, word) {
						t.Errorf("it says %q, and not %s", said, word)
					}
				}
				if name == "leaves" {
					end(java)
				}
				await("running", nil, running)
				l.send(l.prefix+topology.OrdersPlaced, rows[307:607]...)
				l.awaitLag()
				cancel()
				if err := <-done; err != nil {
					t.Errorf("clean stop: %v", err)
				}
				if guarantee == streams.ExactlyOnce || name != "killed" {
					l.checkCountedOnce()
					return
				}
				_, want := l.placed()
				for topic, got := range l.counts() {
					for store, n := range want {
						if got[store] < n {
							t.Errorf("%s: %s has %d of %d", topic, store, got[store], n)
						}
					}
				}
			})
		}
	}
}

// The other way round nobody waits: a Java member that finds ours in the group ends with the broker's refusal, and ours counts on.
func TestJavaMemberIsRefused(t *testing.T) {
	l := newPeerLab(t, streams.AtLeastOnce)
	stop := l.start(topology.Hooks{}, streams.Listener{})
	java := l.peer("java", t.TempDir())
	if said := java.await("failed java "); !strings.Contains(said, "InconsistentGroupProtocolException") {
		t.Errorf("Java says %s", said)
	}
	java.stop()
	l.send(l.prefix+topology.OrdersPlaced, labInput()[:300]...)
	l.awaitLag()
	stop()
	l.checkCountedOnce()
}
