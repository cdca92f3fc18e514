package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// MemberConfig says how a member takes part in its group. Group, Protocol, Topics and Assign are required.
type MemberConfig struct {
	Group string
	// InstanceID makes a static member (KIP-345): it keeps its partitions over a restart shorter than the session timeout.
	InstanceID string
	// Protocol names the way of assignment. All members must know it; a group with members of others refuses us.
	Protocol string
	// ClientID is what brokers show for this member. Default Config.ClientID.
	ClientID string
	Topics   []string

	SessionTimeout    time.Duration // how long the coordinator waits for a heartbeat; brokers allow 6 s to 30 min; default 45 s
	RebalanceTimeout  time.Duration // how long a rebalance waits for this member to join; default 300 s
	HeartbeatInterval time.Duration // default 3 s; at most a third of SessionTimeout
	// OtherSession is the session timeout of members of another protocol, which no request tells. Default: Kafka's 45 s, or ours if longer.
	OtherSession time.Duration

	// UserData is asked once in each Join for what the leader's Assign shall see.
	UserData func() []byte
	// Owned is asked once in each Join for the partitions still held from the last session. Not asked after a loss of the membership.
	Owned func() []TopicPartition
	// Assign decides which member gets what. It is called in Join, on the leader only, and may take its time. Each member it does not
	// mention gets nothing.
	Assign func(ctx context.Context, members []Subscription) (map[string]MemberAssignment, error)

	// Waiting is told, again and again, of whom Join waits for without a rebalance under way: members of another protocol. Default: a warning.
	Waiting func(reason string)

	// LeaveStatic makes Leave remove a static member from the group too.
	LeaveStatic bool
	Logger      *slog.Logger     // default: the client's
	Clock       func() time.Time // for LastBeat; default SuspendClock
}

// Session is one generation of a group from a member's side.
type Session struct {
	Generation int32
	MemberID   string
	Leader     bool
	Partitions []TopicPartition
	UserData   []byte // from the leader's MemberAssignment
}

// Member is one member of a group of the classic protocol (JoinGroup, SyncGroup). Its owner runs this cycle:
//
//	Join → work until Rebalance → finish and commit → Join → … → Leave
//
// Heartbeats go on in a goroutine from the first Join to Leave or Close, whatever the owner does meanwhile: an owner that takes long to
// finish its work stays a member up to the rebalance timeout. Join, Leave and Close belong to the owner and must not overlap; the other
// methods may be called from anywhere.
type Member struct {
	c         *Client
	cfg       MemberConfig
	log       *slog.Logger
	rebalance chan struct{}

	// Of the owner, between calls.
	id         string // "" until the coordinator gave one, and after it forgot us
	generation int32  // of the last session, -1 if none or lost
	beats      *beats // nil before the first generation

	mu       sync.Mutex // guards the rest; never held over a request
	meta     GroupMeta
	lastBeat time.Time
	lost     error
}

// NewMember prepares a member. It says nothing to the group before Join.
func (c *Client) NewMember(cfg MemberConfig) *Member {
	cfg.SessionTimeout = cmp.Or(cfg.SessionTimeout, 45*time.Second)
	cfg.RebalanceTimeout = cmp.Or(cfg.RebalanceTimeout, 300*time.Second)
	cfg.HeartbeatInterval = min(cmp.Or(cfg.HeartbeatInterval, 3*time.Second), cfg.SessionTimeout/3)
	cfg.OtherSession = cmp.Or(cfg.OtherSession, max(cfg.SessionTimeout, 45*time.Second))
	if cfg.Logger == nil {
		cfg.Logger = c.log
	}
	if cfg.Clock == nil {
		cfg.Clock = SuspendClock
	}
	return &Member{
		c:          c,
		cfg:        cfg,
		log:        cfg.Logger.With("group", cfg.Group),
		rebalance:  make(chan struct{}, 1),
		generation: -1,
		meta:       GroupMeta{Group: cfg.Group, Generation: -1, InstanceID: cfg.InstanceID},
	}
}

// Meta is what commits have to say about this member: of the last session that Join returned, also after its loss, since the coordinator
// must then refuse the commit. It is of no use before the first.
func (m *Member) Meta() GroupMeta {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.meta
}

// Rebalance receives when the owner has to call Join again: because the group rebalances, so that commits are still accepted and have to be
// made first, or because the membership was lost, which Lost tells.
func (m *Member) Rebalance() <-chan struct{} { return m.rebalance }

// Lost returns why the membership was lost, or nil while it stands. The session's partitions are then somebody else's: nothing of them may
// be committed. Join starts anew, unless the reason is one that Join meets again (another process took the instance id, an ACL is missing).
func (m *Member) Lost() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// LastBeat is when the last request that the coordinator answered as a sign of life was sent, on the clock of MemberConfig. If that is
// longer ago than the session timeout, the coordinator may have given our partitions away, even if it could not tell us yet.
func (m *Member) LastBeat() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastBeat
}

func (m *Member) signOfLife(sent time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sent.After(m.lastBeat) {
		m.lastBeat = sent
	}
}

// Join takes part in the next generation of the group and returns what it assigned to this member. It blocks until all other members have
// joined too, or the rebalance timeout has removed them. Rebalances that begin meanwhile, lost answers, coordinators that move or restart
// and a membership that was lost are dealt with inside; only ctx ends that.
//
// Members of another protocol, such as Kafka Streams' own, are waited for for their session timeout + 5 s: one that was killed a moment
// ago, or stopped as Kafka Streams is, which does not leave, is still there for that long. The error is then InconsistentGroupProtocol.
//
// Whatever error Join returns, the coordinator may take this member for one: call Join again or Leave.
func (m *Member) Join(ctx context.Context) (Session, error) {
	if err := m.Lost(); err != nil {
		m.afterLoss(err)
	}
	subscription := m.subscription()
	var conflict conflict
	for try := 1; ; try++ {
		s, err := m.joinOnce(ctx, subscription)
		if err == nil {
			return s, nil
		}
		var assign *assignError
		switch act := actionFor(int16(kmsg.JoinGroup), err); {
		case ctx.Err() != nil:
			return Session{}, context.Cause(ctx)
		case errors.As(err, &assign):
			return Session{}, assign.err
		case errors.Is(err, InconsistentGroupProtocol):
			if err := m.awaitOthers(ctx, &conflict, err); err != nil {
				return Session{}, err
			}
		case act == ActForgetMember:
			m.afterLoss(err)
			subscription.Owned, subscription.Generation = nil, -1
		case act == ActRejoin, retriable(act):
		default:
			return Session{}, fmt.Errorf("joining group %s: %w", m.cfg.Group, err)
		}
		m.log.Log(ctx, levelOf(try), "joining again", "try", try, "error", err)
		if err := m.c.pause(ctx, try); err != nil {
			return Session{}, err
		}
	}
}

// levelOf keeps the retries of a long outage from filling the log.
func levelOf(try int) slog.Level {
	if try%32 == 0 { // about every 10 s
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (m *Member) subscription() Subscription {
	s := Subscription{Topics: m.cfg.Topics, Generation: m.generation}
	if m.cfg.UserData != nil {
		s.UserData = m.cfg.UserData()
	}
	if m.cfg.Owned != nil && m.generation >= 0 {
		s.Owned = m.cfg.Owned()
	}
	return s
}

// afterLoss prepares for a new membership. A coordinator that knows us but in another generation keeps the member id: joining with a new
// one would leave the old one behind as a ghost that the next rebalance waits for.
func (m *Member) afterLoss(err error) {
	m.stopBeats()
	m.generation = -1
	if errors.Is(err, UnknownMemberID) {
		m.id = ""
	}
}

// assignError keeps an error of MemberConfig.Assign from being taken for one of JoinGroup.
type assignError struct{ err error }

func (e *assignError) Error() string { return e.err.Error() }

// joinOnce goes through JoinGroup, Assign and SyncGroup.
func (m *Member) joinOnce(ctx context.Context, s Subscription) (Session, error) {
	joined, err := m.sendJoin(ctx, s)
	if err != nil {
		return Session{}, err
	}
	var assignments []kmsg.SyncGroupRequestGroupAssignment
	leader := joined.LeaderID == joined.MemberID
	// A static leader that came back within its session is told to skip the assignment: the group keeps the one it has (KIP-814).
	if leader && !joined.SkipAssignment {
		if assignments, err = m.assign(ctx, joined); err != nil {
			return Session{}, &assignError{err}
		}
	}
	assigned, err := m.sendSync(ctx, joined, assignments)
	if err != nil {
		return Session{}, err
	}
	m.mu.Lock()
	m.meta.Generation, m.meta.MemberID = joined.Generation, joined.MemberID
	m.lost = nil
	m.mu.Unlock()
	if lost := m.beats.setQuiet(false); lost != nil {
		return Session{}, lost
	}
	return Session{
		Generation: joined.Generation,
		MemberID:   joined.MemberID,
		Leader:     leader,
		Partitions: assigned.Partitions,
		UserData:   assigned.UserData,
	}, nil
}

// sendJoin sends JoinGroup and waits for its answer. The heartbeats of the generation before go on meanwhile: Kafka would not need them,
// but the embedded broker does not stop the session timer of a member that waits in JoinGroup. They also tell when the answer will never
// come.
func (m *Member) sendJoin(ctx context.Context, s Subscription) (*kmsg.JoinGroupResponse, error) {
	if m.beats != nil {
		_ = m.beats.setQuiet(true) // a loss ends the call below
	}
	metadata := encodeSubscription(s)
	for {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.MemberID, req.InstanceID, req.ProtocolType = m.cfg.Group, m.id, optional(m.cfg.InstanceID), protocolType
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = millis(m.cfg.SessionTimeout), millis(m.cfg.RebalanceTimeout)
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = m.cfg.Protocol, metadata
		req.Protocols = append(req.Protocols, p)

		sent := m.cfg.Clock()
		resp, err := m.call(ctx, Request{Req: req, Check: func(resp kmsg.Response) error {
			return m.errorOf(req, resp.(*kmsg.JoinGroupResponse).ErrorCode)
		}})
		if errors.Is(err, MemberIDRequired) { // KIP-394: joining in two steps, so that a lost answer leaves no ghost
			m.id = resp.(*kmsg.JoinGroupResponse).MemberID
			continue
		}
		if err != nil {
			return nil, err
		}
		joined := resp.(*kmsg.JoinGroupResponse)
		m.stopBeats()
		select {
		case <-m.rebalance: // that of the generation before
		default:
		}
		m.id, m.generation = joined.MemberID, joined.Generation
		m.signOfLife(sent)
		m.startBeats(ctx)
		return joined, nil
	}
}

func (m *Member) assign(ctx context.Context, joined *kmsg.JoinGroupResponse) ([]kmsg.SyncGroupRequestGroupAssignment, error) {
	members := make([]Subscription, 0, len(joined.Members))
	for _, jm := range joined.Members {
		s, err := decodeSubscription(jm.ProtocolMetadata)
		if err != nil {
			return nil, fmt.Errorf("group %s member %s: %w", m.cfg.Group, jm.MemberID, err)
		}
		s.MemberID, s.InstanceID = jm.MemberID, deref(jm.InstanceID)
		members = append(members, s)
	}
	slices.SortFunc(members, func(a, b Subscription) int { return cmp.Compare(a.MemberID, b.MemberID) })
	given, err := m.cfg.Assign(ctx, members)
	if err != nil {
		return nil, err
	}
	assignments := make([]kmsg.SyncGroupRequestGroupAssignment, 0, len(members))
	for _, s := range members {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = s.MemberID, encodeAssignment(given[s.MemberID])
		assignments = append(assignments, a)
	}
	return assignments, nil
}

// sendSync sends SyncGroup and waits for the leader's. Repeating it is safe: the coordinator gives the same assignment again.
func (m *Member) sendSync(
	ctx context.Context, joined *kmsg.JoinGroupResponse, assignments []kmsg.SyncGroupRequestGroupAssignment,
) (MemberAssignment, error) {
	for try := 1; ; try++ {
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.Generation, req.MemberID, req.InstanceID = m.cfg.Group, joined.Generation, joined.MemberID, optional(m.cfg.InstanceID)
		req.ProtocolType, req.Protocol = joined.ProtocolType, joined.Protocol
		req.GroupAssignment = assignments

		sent := m.cfg.Clock()
		resp, err := m.call(ctx, Request{Req: req, Wait: m.cfg.RebalanceTimeout, Check: func(resp kmsg.Response) error {
			return m.errorOf(req, resp.(*kmsg.SyncGroupResponse).ErrorCode)
		}})
		if err == nil {
			m.signOfLife(sent)
			a, err := decodeAssignment(resp.(*kmsg.SyncGroupResponse).MemberAssignment)
			if err != nil {
				return a, fmt.Errorf("group %s generation %d: %w", m.cfg.Group, joined.Generation, err)
			}
			return a, nil
		}
		if ctx.Err() != nil || !retriable(actionFor(req.Key(), err)) {
			return MemberAssignment{}, err
		}
		m.log.Log(ctx, levelOf(try), "sending SyncGroup again", "try", try, "error", err)
		if err := m.c.pause(ctx, try); err != nil {
			return MemberAssignment{}, err
		}
	}
}

// call sends a request to the coordinator once. It gives up when a heartbeat says that the coordinator does not know us any more, since it
// then may hold the request for ever.
func (m *Member) call(ctx context.Context, r Request) (kmsg.Response, error) {
	r.Route, r.ClientID, r.Once = GroupCoordinator(m.cfg.Group), m.cfg.ClientID, true
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if m.beats != nil {
		m.beats.setOnLoss(cancel)
		defer m.beats.setOnLoss(nil)
	}
	return m.c.Do(ctx, r)
}

func (m *Member) errorOf(req kmsg.Request, code int16) error {
	if code == 0 {
		return nil
	}
	return &Error{API: req.Key(), Code: Code(code), Resource: "group " + m.cfg.Group}
}

// conflict remembers since when a group of another protocol refuses us.
type conflict struct {
	since, told time.Time
}

// awaitOthers says who holds a group that refuses us and returns err once that has lasted longer than a killed member can stay.
func (m *Member) awaitOthers(ctx context.Context, c *conflict, err error) error {
	const slack, pace = 5 * time.Second, 5 * time.Second
	now := time.Now()
	if c.since.IsZero() {
		c.since = now
	}
	over := now.Sub(c.since) > m.cfg.OtherSession+slack
	if !over && !c.told.IsZero() && now.Sub(c.told) < pace {
		return nil
	}
	c.told = now
	who := m.others(ctx)
	if over {
		return fmt.Errorf("group %s is held by %s, and protocol %s is not theirs: %w", m.cfg.Group, who, m.cfg.Protocol, err)
	}
	if m.cfg.Waiting != nil {
		m.cfg.Waiting(fmt.Sprintf("group %s is held by %s; protocol %s waits for them to leave", m.cfg.Group, who, m.cfg.Protocol))
	} else {
		m.log.Warn("waiting for members of another protocol to leave", "members", who, "protocol", m.cfg.Protocol)
	}
	return nil
}

func (m *Member) others(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, m.c.cfg.Timeout)
	defer cancel()
	d, err := m.c.DescribeGroup(ctx, m.cfg.Group)
	if err != nil {
		return fmt.Sprintf("unknown members (%v)", err)
	}
	if len(d.Members) == 0 {
		return "members that are just leaving"
	}
	names := make([]string, 0, len(d.Members))
	for _, o := range d.Members {
		names = append(names, o.ClientID+" at "+strings.TrimPrefix(o.Host, "/"))
	}
	return fmt.Sprintf("%d members of protocol type %q, protocol %q: %s", len(names), d.ProtocolType, d.Protocol, strings.Join(names, ", "))
}

// Leave stops the heartbeats and takes the member out of the group, so that the others get its partitions at once. A static member stays,
// unless LeaveStatic is set: the group waits for its return until the session timeout. Leave may be called again.
func (m *Member) Leave(ctx context.Context) error {
	m.stopBeats()
	if m.id == "" || (m.cfg.InstanceID != "" && !m.cfg.LeaveStatic) {
		return nil
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.cfg.Group
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID, member.InstanceID = m.id, optional(m.cfg.InstanceID)
	req.Members = append(req.Members, member)
	_, err := m.c.Do(ctx, Request{
		Route: GroupCoordinator(m.cfg.Group), Req: req, ClientID: m.cfg.ClientID,
		Check: func(resp kmsg.Response) error {
			r := resp.(*kmsg.LeaveGroupResponse)
			code := r.ErrorCode
			for _, rm := range r.Members {
				code = cmp.Or(code, rm.ErrorCode)
			}
			return m.errorOf(req, code)
		},
	})
	if err != nil && !errors.Is(err, UnknownMemberID) {
		return fmt.Errorf("leaving group %s: %w", m.cfg.Group, err)
	}
	m.id, m.generation = "", -1
	return nil
}

// Close stops the heartbeats without leaving the group: the coordinator finds out when the session times out.
func (m *Member) Close() { m.stopBeats() }
