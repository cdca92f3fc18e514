package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

// groupBroker starts a broker on which sessions may be short, and returns the shortest session there: Kafka's own minimum is 6 s.
func groupBroker(t *testing.T, opts ...brokertest.Option) (bootstrap string, session time.Duration) {
	t.Helper()
	t.Parallel() // these tests wait for sessions to end
	if onRealBroker() {
		return brokertest.Start(t), 6 * time.Second
	}
	return brokertest.Bootstrap(shortSessions(t, opts...)), time.Second
}

func shortSessions(t *testing.T, opts ...brokertest.Option) *brokertest.Cluster {
	t.Helper()
	return brokertest.Embedded(t, append(opts, brokertest.Configs(map[string]string{"group.min.session.timeout.ms": "100"}))...)
}

// roundRobin deals the partitions of a topic to the members in the order of their ids.
func roundRobin(topic string, partitions int32) func(context.Context, []Subscription) (map[string]MemberAssignment, error) {
	return func(_ context.Context, members []Subscription) (map[string]MemberAssignment, error) {
		given := map[string]MemberAssignment{}
		for p := range partitions {
			s := members[int(p)%len(members)]
			a := given[s.MemberID]
			a.Partitions = append(a.Partitions, TopicPartition{topic, p})
			a.UserData = fmt.Appendf(nil, "%d members", len(members))
			given[s.MemberID] = a
		}
		return given, nil
	}
}

// memberConfig has beats of 100 ms, so that news of a rebalance is quick.
func memberConfig(group, topic string, session time.Duration) MemberConfig {
	return MemberConfig{
		Group:             group,
		Protocol:          "lab",
		Topics:            []string{topic},
		SessionTimeout:    session,
		HeartbeatInterval: 100 * time.Millisecond,
		OtherSession:      session,
		Assign:            roundRobin(topic, 4),
	}
}

// member makes a member that leaves when the test ends.
func member(t *testing.T, c *Client, cfg MemberConfig) *Member {
	t.Helper()
	m := c.NewMember(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
		defer cancel()
		m.cfg.LeaveStatic = true
		if err := m.Leave(ctx); err != nil && !errors.Is(err, FencedInstanceID) {
			t.Error(err)
		}
	})
	return m
}

type joining struct {
	session Session
	err     error
}

// join calls Join beside the test.
func join(ctx context.Context, m *Member) <-chan joining {
	done := make(chan joining, 1)
	go func() {
		s, err := m.Join(ctx)
		done <- joining{s, err}
	}()
	return done
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testDeadline):
		t.Fatalf("waited %s for %s", testDeadline, what)
		panic("unreachable")
	}
}

func mustJoin(t *testing.T, m *Member) Session {
	t.Helper()
	s, err := m.Join(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func joined(t *testing.T, done <-chan joining) Session {
	t.Helper()
	j := await(t, "Join", done)
	if j.err != nil {
		t.Fatal(j.err)
	}
	return j.session
}

// checkOwners fails unless the sessions are of one generation and hold each of the topic's four partitions exactly once.
func checkOwners(t *testing.T, topic string, sessions ...Session) {
	t.Helper()
	var all []TopicPartition
	for _, s := range sessions {
		if s.Generation != sessions[0].Generation {
			t.Errorf("generations %d and %d at once", s.Generation, sessions[0].Generation)
		}
		all = append(all, s.Partitions...)
	}
	slices.SortFunc(all, TopicPartition.Compare)
	if diff := cmp.Diff([]TopicPartition{{topic, 0}, {topic, 1}, {topic, 2}, {topic, 3}}, all); diff != "" {
		t.Errorf("partitions of generation %d (-want +got):\n%s", sessions[0].Generation, diff)
	}
}

func TestMemberAlone(t *testing.T) {
	bootstrap, session := groupBroker(t)
	ctx, c := testContext(t), testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	cfg := memberConfig(group, topic, session)
	cfg.ClientID, cfg.UserData = "lab-a", func() []byte { return []byte("about a") }
	m := member(t, c, cfg)
	before := SuspendClock()
	s := mustJoin(t, m)
	checkOwners(t, topic, s)
	if !s.Leader || s.MemberID == "" || string(s.UserData) != "1 members" {
		t.Errorf("session %+v", s)
	}
	if want := (GroupMeta{Group: group, Generation: s.Generation, MemberID: s.MemberID}); m.Meta() != want {
		t.Errorf("meta %+v, want %+v", m.Meta(), want)
	}
	// Heartbeats go on: the sign of life gets younger.
	if at := m.LastBeat(); at.Before(before) {
		t.Errorf("last beat %s, before Join at %s", at, before)
	}
	joinedAt := m.LastBeat()
	eventually(t, "a heartbeat", func() bool { return m.LastBeat().After(joinedAt) })

	d, err := c.DescribeGroup(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	want := GroupDescription{ID: group, State: "Stable", ProtocolType: "consumer", Protocol: "lab", Members: []GroupMember{
		{MemberID: s.MemberID, ClientID: "lab-a", Assigned: s.Partitions, UserData: []byte("about a"), Given: s.UserData},
	}}
	if len(d.Members) == 1 {
		d.Members[0].Host = ""
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
	groups, err := c.ListGroups(ctx)
	if err != nil || !slices.Contains(groups, GroupListing{ID: group, ProtocolType: "consumer", State: "Stable"}) {
		t.Errorf("ListGroups: %v, error %v", groups, err)
	}
	if err := c.DeleteGroups(ctx, group); !errors.Is(err, NonEmptyGroup) || !strings.Contains(err.Error(), group) {
		t.Errorf("deleting a group with members: %v", err)
	}

	offsets := map[TopicPartition]Offset{{topic, 0}: {Offset: 3, LeaderEpoch: -1}}
	if err := c.CommitOffsets(ctx, m.Meta(), offsets); err != nil {
		t.Errorf("commit: %v", err)
	}
	stale := m.Meta()
	stale.Generation--
	if err := c.CommitOffsets(ctx, stale, offsets); !errors.Is(err, IllegalGeneration) {
		t.Errorf("commit of an older generation: %v, want IllegalGeneration", err)
	}
	for range 2 { // leaving twice is leaving once
		if err := m.Leave(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if d, err = c.DescribeGroup(ctx, group); err != nil || d.State != "Empty" || len(d.Members) != 0 {
		t.Errorf("after leaving: %+v, error %v", d, err)
	}
	if err := c.CommitOffsets(ctx, m.Meta(), offsets); ActionFor(kmsg.OffsetCommit, err) != ActForgetMember {
		t.Errorf("commit after leaving: %v, want a refusal", err)
	}
	if err := c.DeleteGroups(ctx, group, unique(t, "missing")); err != nil {
		t.Error(err)
	}
	if d, err = c.DescribeGroup(ctx, group); err != nil || d.State != "Dead" {
		t.Errorf("after deletion: %+v, error %v", d, err)
	}
}

func TestHandOver(t *testing.T) {
	bootstrap, session := groupBroker(t)
	ctx, c := testContext(t), testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	var owned []TopicPartition
	cfg := memberConfig(group, topic, session)
	seen := make(chan []Subscription, 10)
	cfg.Assign = func(ctx context.Context, members []Subscription) (map[string]MemberAssignment, error) {
		seen <- members
		return roundRobin(topic, 4)(ctx, members)
	}
	cfg.Owned = func() []TopicPartition { return owned }
	a := member(t, c, cfg)
	first := mustJoin(t, a)
	owned = first.Partitions
	<-seen

	cfg = memberConfig(group, topic, session)
	cfg.UserData = func() []byte { return []byte("about b") }
	b := member(t, c, cfg)
	second := join(ctx, b)
	await(t, "the rebalance", a.Rebalance())
	if err := a.Lost(); err != nil {
		t.Fatalf("a rebalance is no loss: %v", err)
	}
	// The work takes longer than the session. Heartbeats keep the membership, and the commit before the next Join is accepted.
	<-time.After(session + session/2)
	if err := c.CommitOffsets(ctx, a.Meta(), map[TopicPartition]Offset{{topic, 0}: {Offset: 7, LeaderEpoch: -1}}); err != nil {
		t.Fatalf("commit before joining again: %v", err)
	}
	sa := mustJoin(t, a)
	sb := joined(t, second)
	checkOwners(t, topic, sa, sb)
	if sa.MemberID != first.MemberID || sa.Generation != first.Generation+1 || !sa.Leader || sb.Leader {
		t.Errorf("a was %+v, is %+v; b is %+v", first, sa, sb)
	}
	want := []Subscription{
		{MemberID: sa.MemberID, Topics: []string{topic}, Owned: owned, Generation: first.Generation},
		{MemberID: sb.MemberID, Topics: []string{topic}, Generation: -1, UserData: []byte("about b")},
	}
	slices.SortFunc(want, func(a, b Subscription) int { return strings.Compare(a.MemberID, b.MemberID) })
	if diff := cmp.Diff(want, await(t, "Assign", seen)); diff != "" {
		t.Errorf("subscriptions (-want +got):\n%s", diff)
	}
	select {
	case <-a.Rebalance():
		t.Error("the rebalance that is over is told again")
	case <-time.After(300 * time.Millisecond):
	}

	// Leaving hands over at once: the other hears of it with its next heartbeat, long before the session would end.
	left := time.Now()
	if err := a.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, "the rebalance", b.Rebalance())
	checkOwners(t, topic, mustJoin(t, b))
	if onRealBroker() && time.Since(left) > session/2 {
		t.Errorf("hand-over took %s", time.Since(left))
	}
}

// A member that waits in JoinGroup for the others keeps its membership for longer than a session.
func TestWaitingInJoinKeepsTheMembership(t *testing.T) {
	bootstrap, session := groupBroker(t)
	ctx, c := testContext(t), testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	a, b := member(t, c, memberConfig(group, topic, session)), member(t, c, memberConfig(group, topic, session))
	mustJoin(t, a)
	second := join(ctx, b)
	await(t, "the rebalance", a.Rebalance())
	sa := mustJoin(t, a)
	sb := joined(t, second)

	third := join(ctx, member(t, c, memberConfig(group, topic, session)))
	await(t, "the rebalance", a.Rebalance())
	again := join(ctx, a)
	await(t, "the rebalance", b.Rebalance())
	<-time.After(session + session/2) // b drains
	sb2 := mustJoin(t, b)
	sa2 := joined(t, again)
	checkOwners(t, topic, sa2, sb2, joined(t, third))
	if sa2.MemberID != sa.MemberID || sb2.MemberID != sb.MemberID || sa2.Generation != sa.Generation+1 {
		t.Errorf("a was %+v, is %+v; b was %+v, is %+v", sa, sa2, sb, sb2)
	}
}

// The embedded broker never answers the JoinGroup of a member that it has thrown out meanwhile, and a broken path may swallow an answer for
// as long. A heartbeat tells.
func TestForgottenWhileWaitingInJoin(t *testing.T) {
	t.Parallel()
	cluster := shortSessions(t, brokertest.Topics(4, "orders"))
	ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(cluster))
	cfg := memberConfig("g", "orders", time.Second)
	b := member(t, c, cfg)
	var stopped sync.Mutex // while held, the next heartbeat is not sent
	cfg.Clock = func() time.Time {
		stopped.Lock()
		defer stopped.Unlock()
		return SuspendClock()
	}
	a := member(t, c, cfg)
	mustJoin(t, b)
	second := join(ctx, a)
	await(t, "the rebalance", b.Rebalance())
	sb := mustJoin(t, b)
	sa := joined(t, second)

	third := join(ctx, member(t, c, memberConfig("g", "orders", time.Second)))
	await(t, "the rebalance", a.Rebalance())
	joins := cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", Observe: true, Count: -1})
	again := join(ctx, a)
	if err := joins.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	func() {
		stopped.Lock()
		defer stopped.Unlock()
		eventually(t, "the end of a's session", func() bool {
			d, err := c.DescribeGroup(ctx, "g")
			if err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(d.Members, func(m GroupMember) bool { return m.MemberID == sa.MemberID })
		})
	}()
	if err := joins.Wait(ctx, 3); err != nil { // a joins as a new member, in two steps, while b drains
		t.Fatal(err)
	}
	sb2 := mustJoin(t, b)
	sa2 := joined(t, again)
	checkOwners(t, "orders", sa2, sb2, joined(t, third))
	if sa2.MemberID == sa.MemberID || sb2.MemberID != sb.MemberID || a.Lost() != nil {
		t.Errorf("a was %+v, is %+v, Lost() = %v; b was %+v, is %+v", sa, sa2, a.Lost(), sb, sb2)
	}
}

func TestLeaderDies(t *testing.T) {
	bootstrap, session := groupBroker(t)
	ctx, c := testContext(t), testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	a, b := member(t, c, memberConfig(group, topic, session)), member(t, c, memberConfig(group, topic, session))
	mustJoin(t, a)
	second := join(ctx, b)
	await(t, "the rebalance", a.Rebalance())
	if s := mustJoin(t, a); !s.Leader {
		t.Fatalf("a is not the leader: %+v", s)
	}
	joined(t, second)
	a.Close() // heartbeats end, nothing is said
	await(t, "the end of the leader's session", b.Rebalance())
	s := mustJoin(t, b)
	checkOwners(t, topic, s)
	if !s.Leader {
		t.Errorf("b is alone and not the leader: %+v", s)
	}
}

// A process that was stopped for longer than its session finds out with its next heartbeat.
func TestSessionExpires(t *testing.T) {
	bootstrap, session := groupBroker(t)
	ctx, c := testContext(t), testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	cfg := memberConfig(group, topic, session)
	var stopped sync.Mutex // while held, the next heartbeat is not sent
	cfg.Clock = func() time.Time {
		stopped.Lock()
		defer stopped.Unlock()
		return SuspendClock()
	}
	ownedAsked := 0
	cfg.Owned = func() []TopicPartition { ownedAsked++; return nil }
	m := member(t, c, cfg)
	first := mustJoin(t, m)
	func() {
		stopped.Lock()
		defer stopped.Unlock()
		eventually(t, "the end of the session", func() bool {
			d, err := c.DescribeGroup(ctx, group)
			if err != nil {
				t.Fatal(err)
			}
			return len(d.Members) == 0
		})
	}()
	await(t, "the loss", m.Rebalance())
	if err := m.Lost(); !errors.Is(err, UnknownMemberID) {
		t.Fatalf("Lost() = %v, want UnknownMemberID", err)
	}
	if err := c.CommitOffsets(ctx, m.Meta(), map[TopicPartition]Offset{{topic, 0}: {Offset: 7}}); err == nil {
		t.Error("a commit was accepted after the loss")
	}
	s := mustJoin(t, m)
	if m.Lost() != nil || s.MemberID == first.MemberID || s.Generation <= first.Generation+1 {
		t.Errorf("after the loss: %+v, before: %+v, Lost() = %v", s, first, m.Lost())
	}
	if ownedAsked != 0 {
		t.Errorf("Owned was asked %d times, but nothing was owned at the joins", ownedAsked)
	}
	checkOwners(t, topic, s)
}

func TestSlowAssignKeepsTheMembership(t *testing.T) {
	bootstrap, session := groupBroker(t)
	ctx, c := testContext(t), testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	slow := memberConfig(group, topic, session)
	calls := 0
	slow.Assign = func(ctx context.Context, members []Subscription) (map[string]MemberAssignment, error) {
		if calls++; len(members) == 2 {
			<-time.After(session + session/2)
		}
		return roundRobin(topic, 4)(ctx, members)
	}
	a, b := member(t, c, slow), member(t, c, memberConfig(group, topic, session))
	first := mustJoin(t, a)
	second := join(ctx, b)
	await(t, "the rebalance", a.Rebalance())
	sa := mustJoin(t, a)
	checkOwners(t, topic, sa, joined(t, second))
	if calls != 2 || sa.Generation != first.Generation+1 {
		t.Errorf("%d calls of Assign, generation %d after %d: somebody was thrown out", calls, sa.Generation, first.Generation)
	}
}

func TestAssignFails(t *testing.T) {
	bootstrap, session := groupBroker(t)
	c := testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	cfg := memberConfig(group, topic, session)
	refusal := &Error{API: int16(kmsg.CreateTopics), Code: RequestTimedOut} // one that Join must not take for its own
	cfg.Assign = func(context.Context, []Subscription) (map[string]MemberAssignment, error) { return nil, refusal }
	m := member(t, c, cfg)
	if _, err := m.Join(testContext(t)); !errors.Is(err, refusal) {
		t.Errorf("error %v, want Assign's own", err)
	}
	if err := m.Leave(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestCancelledJoin(t *testing.T) {
	bootstrap, session := groupBroker(t)
	c := testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	a, b := member(t, c, memberConfig(group, topic, session)), member(t, c, memberConfig(group, topic, session))
	first := mustJoin(t, a)
	ctx, cancel := context.WithCancelCause(testContext(t))
	second := join(ctx, b)
	await(t, "the rebalance", a.Rebalance())
	stop := errors.New("Ctrl-C")
	cancel(stop)
	if j := await(t, "the end of Join", second); !errors.Is(j.err, stop) {
		t.Fatalf("Join returned %+v", j)
	}
	if err := b.Leave(testContext(t)); err != nil {
		t.Fatal(err)
	}
	// Nobody waits for b any more, neither for its join nor for its session.
	s := mustJoin(t, a)
	checkOwners(t, topic, s)
	if s.MemberID != first.MemberID {
		t.Errorf("member id %s, was %s", s.MemberID, first.MemberID)
	}
}

func TestStaticMember(t *testing.T) {
	bootstrap, _ := groupBroker(t)
	ctx, c := testContext(t), testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	cfg := memberConfig(group, topic, 6*time.Second) // the member must not expire while it restarts
	cfg.InstanceID = "a-0"
	old := member(t, c, cfg)
	first := mustJoin(t, old)
	if err := old.Leave(ctx); err != nil { // stays in the group
		t.Fatal(err)
	}
	assigns := 0
	cfg.Assign = func(ctx context.Context, members []Subscription) (map[string]MemberAssignment, error) {
		assigns++
		return roundRobin(topic, 4)(ctx, members)
	}
	restarted := member(t, c, cfg)
	s := mustJoin(t, restarted)
	checkOwners(t, topic, s)
	if assigns != 0 || s.Generation != first.Generation || restarted.Meta().InstanceID != "a-0" {
		t.Errorf("restart: %d assignments, session %+v, meta %+v; before: %+v", assigns, s, restarted.Meta(), first)
	}

	// Another process takes the instance id: the one before is fenced for good.
	thief := member(t, c, cfg)
	mustJoin(t, thief)
	await(t, "the fencing", restarted.Rebalance())
	if err := restarted.Lost(); !errors.Is(err, FencedInstanceID) {
		t.Errorf("Lost() = %v, want FencedInstanceID", err)
	}
	if _, err := restarted.Join(ctx); !errors.Is(err, FencedInstanceID) {
		t.Errorf("Join of the fenced member: %v, want FencedInstanceID", err)
	}
	thief.cfg.LeaveStatic = true
	if err := thief.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	if d, err := c.DescribeGroup(ctx, group); err != nil || len(d.Members) != 0 {
		t.Errorf("after a forced leave: %+v, error %v", d, err)
	}
}

// Members of another protocol are named while they are waited for, and in the error.
func TestOtherProtocol(t *testing.T) {
	bootstrap, session := groupBroker(t)
	ctx, c := testContext(t), testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	java := memberConfig(group, topic, session)
	java.Protocol, java.ClientID = "stream", "java-thread-1"
	other := member(t, c, java)
	mustJoin(t, other)

	lines := make(chan string, 100)
	cfg := memberConfig(group, topic, session)
	cfg.Logger = slog.New(slog.NewTextHandler(lineWriter(lines), nil))
	patient := member(t, c, cfg)
	waiting := join(ctx, patient)
	line := await(t, "a word about the other member", lines)
	for _, word := range []string{group, "java-thread-1", "stream", "lab"} {
		if !strings.Contains(line, word) {
			t.Errorf("log line %q does not say %s", line, word)
		}
	}
	if err := other.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	checkOwners(t, topic, joined(t, waiting))

	// Now the other one has to wait, and gives up.
	start := time.Now()
	_, err := other.Join(ctx)
	if !errors.Is(err, InconsistentGroupProtocol) || !strings.Contains(err.Error(), group) || !strings.Contains(err.Error(), `"lab"`) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took < session+5*time.Second {
		t.Errorf("gave up after %s, before a killed member's session ends", took)
	}
}

type lineWriter chan<- string

func (w lineWriter) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

func TestRefusedJoins(t *testing.T) {
	bootstrap, _ := groupBroker(t)
	c := testClient(t, bootstrap)
	cfg := memberConfig(unique(t, "group"), "orders", 10*time.Millisecond)
	if _, err := member(t, c, cfg).Join(testContext(t)); err == nil || !strings.Contains(err.Error(), cfg.Group) {
		t.Errorf("a session of 10 ms: error %v, want the broker's refusal", err)
	}
}

// The membership survives a coordinator that moves, loads or is not there yet, at every call.
func TestCoordinatorMoves(t *testing.T) {
	for _, code := range []Code{CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator} {
		t.Run(code.Error(), func(t *testing.T) {
			t.Parallel()
			cluster := shortSessions(t, brokertest.Topics(4, "orders"))
			ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(cluster))
			fail := func(key kmsg.Key) *brokertest.FaultHandle {
				return cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{key}, Group: "g", Err: brokertest.Code(int16(code)), Count: 3})
			}
			faults := []*brokertest.FaultHandle{fail(kmsg.FindCoordinator), fail(kmsg.JoinGroup), fail(kmsg.SyncGroup)}
			m := member(t, c, memberConfig("g", "orders", time.Second))
			s := mustJoin(t, m)
			checkOwners(t, "orders", s)
			faults = append(faults, fail(kmsg.Heartbeat))
			if err := faults[3].Wait(ctx, 3); err != nil {
				t.Fatal(err)
			}
			// A session later the member is still there, and nothing was said of a rebalance or loss.
			sessionLater := m.LastBeat().Add(1200 * time.Millisecond)
			eventually(t, "heartbeats", func() bool { return m.LastBeat().After(sessionLater) })
			if d, err := c.DescribeGroup(ctx, "g"); err != nil || len(d.Members) != 1 || d.Members[0].MemberID != s.MemberID {
				t.Errorf("group %+v, error %v, want member %s", d, err, s.MemberID)
			}
			select {
			case <-m.Rebalance():
				t.Errorf("rebalance signalled, Lost() = %v", m.Lost())
			default:
			}
			faults = append(faults, fail(kmsg.LeaveGroup))
			if err := m.Leave(ctx); err != nil {
				t.Fatal(err)
			}
			for i, f := range faults {
				if f.Hits() != 3 {
					t.Errorf("fault %d hit %d times, want 3", i, f.Hits())
				}
			}
		})
	}
}

// Each request of a join may be answered with 25, 22 or 27, or not at all.
func TestJoinIsRepeated(t *testing.T) {
	for _, tc := range []struct {
		key  kmsg.Key
		code Code
	}{
		{kmsg.JoinGroup, UnknownMemberID},
		{kmsg.SyncGroup, UnknownMemberID},
		{kmsg.SyncGroup, IllegalGeneration},
		{kmsg.SyncGroup, RebalanceInProgress},
	} {
		t.Run(fmt.Sprintf("%s with %d", tc.key.Name(), tc.code), func(t *testing.T) {
			t.Parallel()
			cluster := shortSessions(t, brokertest.Topics(4, "orders"))
			c := testClient(t, brokertest.Bootstrap(cluster))
			fault := cluster.Fault(brokertest.Fault{Keys: []kmsg.Key{tc.key}, Group: "g", Err: brokertest.Code(int16(tc.code))})
			checkOwners(t, "orders", mustJoin(t, member(t, c, memberConfig("g", "orders", time.Second))))
			if fault.Hits() != 1 {
				t.Errorf("fault hit %d times", fault.Hits())
			}
		})
	}
}

// The broker carries out a request, but its answer is lost with the connection. The assignment must not be.
func TestLostAnswers(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup} {
		t.Run(key.Name(), func(t *testing.T) {
			bootstrap, session := groupBroker(t)
			ctx, c := testContext(t), testClient(t, bootstrap)
			topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
			cfg := memberConfig(group, topic, session)
			a, b := member(t, c, cfg), member(t, testClient(t, bootstrap), cfg)
			mustJoin(t, a)
			second := join(ctx, b)
			await(t, "the rebalance", a.Rebalance())
			if key == kmsg.JoinGroup || key == kmsg.SyncGroup {
				lost := loseAnswer(c, key)
				sa := mustJoin(t, a)
				await(t, "the lost answer", lost)
				checkOwners(t, topic, sa, joined(t, second))
				return
			}
			sa := mustJoin(t, a)
			checkOwners(t, topic, sa, joined(t, second))
			lost := loseAnswer(c, key)
			if key == kmsg.Heartbeat {
				await(t, "the lost answer", lost)
				before := a.LastBeat()
				eventually(t, "a heartbeat after the lost one", func() bool { return a.LastBeat().After(before) })
			}
			if err := a.Leave(ctx); err != nil {
				t.Fatal(err)
			}
			await(t, "the rebalance", b.Rebalance())
			checkOwners(t, topic, mustJoin(t, b))
		})
	}
}

// Members come and go. In each generation each partition has at most one owner, and in the end the last one has them all.
func TestChurn(t *testing.T) {
	bootstrap, session := groupBroker(t)
	c := testClient(t, bootstrap)
	topic, group := testTopic(t, c, "orders", 4), testGroup(t, c)
	owners := newOwnership(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*testDeadline)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			for round := range 7 {
				if err := liveOnce(ctx, c, memberConfig(group, topic, session), owners, i+round); err != nil {
					t.Errorf("member %d, life %d: %v", i, round, err)
					return
				}
			}
		})
	}
	wg.Wait()
	last := member(t, c, memberConfig(group, topic, session))
	s := mustJoin(t, last)
	checkOwners(t, topic, s)
	t.Logf("%d generations", s.Generation)
}

// liveOnce is one life of a member: it joins, follows a few rebalances or a while without any, commits before each, and leaves.
func liveOnce(ctx context.Context, c *Client, cfg MemberConfig, owners *ownership, rebalances int) error {
	m := c.NewMember(cfg)
	defer m.Close()
	for range 1 + rebalances%3 {
		s, err := m.Join(ctx)
		if err != nil {
			return err
		}
		owners.claim(s)
		select {
		case <-m.Rebalance():
			if err := m.Lost(); err != nil {
				return err
			}
		case <-time.After(150 * time.Millisecond):
		}
		offsets := map[TopicPartition]Offset{}
		for _, tp := range s.Partitions {
			offsets[tp] = Offset{Offset: int64(s.Generation)}
		}
		// 27 is the only refusal that a member in good standing may see: the group completes the next rebalance at this moment.
		if err := c.CommitOffsets(ctx, m.Meta(), offsets); err != nil && !errors.Is(err, RebalanceInProgress) {
			return err
		}
	}
	return m.Leave(ctx)
}

// ownership remembers who had which partition in which generation.
type ownership struct {
	t  *testing.T
	mu sync.Mutex
	by map[claim]string
}

type claim struct {
	generation int32
	tp         TopicPartition
}

func newOwnership(t *testing.T) *ownership { return &ownership{t: t, by: map[claim]string{}} }

func (o *ownership) claim(s Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, tp := range s.Partitions {
		k := claim{s.Generation, tp}
		if other, taken := o.by[k]; taken && other != s.MemberID {
			o.t.Errorf("generation %d: %s belongs to %s and to %s", s.Generation, tp, other, s.MemberID)
		}
		o.by[k] = s.MemberID
	}
}

// Groups are spread over the brokers, and their coordinators move while members work.
func TestCoordinatorsOfACluster(t *testing.T) {
	t.Parallel()
	cluster := shortSessions(t, brokertest.Brokers(3), brokertest.Topics(4, "orders"))
	ctx, c := testContext(t), testClient(t, brokertest.Bootstrap(cluster))
	var want []GroupListing
	nodes := map[int32]bool{}
	for i := range 8 {
		id := fmt.Sprintf("g%d", i)
		s := mustJoin(t, member(t, c, memberConfig(id, "orders", 10*time.Second)))
		checkOwners(t, "orders", s)
		nodes[cluster.CoordinatorFor(id)] = true
		want = append(want, GroupListing{ID: id, ProtocolType: "consumer", State: "Stable"})
	}
	if len(nodes) < 2 {
		t.Fatalf("all groups on nodes %v: choose other names", nodes)
	}
	got, err := c.ListGroups(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}

	m := member(t, c, memberConfig("moving", "orders", time.Second))
	first := mustJoin(t, m)
	for home := cluster.CoordinatorFor("moving"); cluster.CoordinatorFor("moving") == home; {
		cluster.RehashCoordinators()
	}
	sessionLater := SuspendClock().Add(1200 * time.Millisecond)
	eventually(t, "heartbeats at the new coordinator", func() bool { return m.LastBeat().After(sessionLater) })
	if err := m.Lost(); err != nil {
		t.Error(err)
	}
	s := mustJoin(t, m)
	if s.MemberID != first.MemberID || s.Generation != first.Generation+1 {
		t.Errorf("before the move %+v, after it %+v", first, s)
	}
}

// A killed member keeps its place until its session ends, and a group with members cannot be deleted.
func TestRemoveMembers(t *testing.T) {
	bootstrap, _ := groupBroker(t)
	c := testClient(t, bootstrap)
	ctx := testContext(t)
	topic := testTopic(t, c, "members", 1)
	group := unique(t, "killed")
	cfg := memberConfig(group, topic, 45*time.Second)
	cfg.UserData = func() []byte { return []byte("who it is") }
	m := c.NewMember(cfg)
	mustJoin(t, m)
	m.Close() // no more heartbeats, and no leaving
	if err := c.DeleteGroups(ctx, group); !errors.Is(err, NonEmptyGroup) {
		t.Fatalf("with a member: %v", err)
	}
	d, err := c.DescribeGroup(ctx, group)
	if err != nil || len(d.Members) != 1 || string(d.Members[0].UserData) != "who it is" {
		t.Fatalf("%+v, %v", d, err)
	}
	id := d.Members[0].MemberID
	if err := c.RemoveMembers(ctx, group, id); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveMembers(ctx, group, id); err != nil {
		t.Errorf("once more: %v", err)
	}
	if err := c.DeleteGroups(ctx, group); err != nil {
		t.Error(err)
	}
}

func TestSuspendClock(t *testing.T) {
	start, clockStart := time.Now(), SuspendClock()
	<-time.After(20 * time.Millisecond)
	ours, gos := SuspendClock().Sub(clockStart), time.Since(start)
	if ours < 19*time.Millisecond || ours > gos+time.Millisecond {
		t.Errorf("%s passed on it, %s on Go's clock", ours, gos)
	}
}
