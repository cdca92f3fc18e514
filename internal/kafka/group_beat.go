package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// beats is the heartbeat goroutine of one member in one generation.
type beats struct {
	memberID   string
	generation int32
	cancel     context.CancelFunc
	done       chan struct{}

	mu     sync.Mutex
	quiet  bool        // the owner is in Join: it will learn of a rebalance there
	lost   error       // why the goroutine ended by itself
	onLoss func(error) // called once when it does
}

// setQuiet turns off the news of rebalances. They belong to sessions that Join has returned: a coordinator may answer REBALANCE_IN_PROGRESS
// before SyncGroup has completed.
//
// It returns the loss that has been kept to itself meanwhile, if any.
func (b *beats) setQuiet(quiet bool) (lost error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quiet = quiet
	return b.lost
}

func (b *beats) isQuiet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.quiet
}

// setOnLoss has f called when the coordinator forgets the member, at once if it has done so already.
func (b *beats) setOnLoss(f func(error)) {
	b.mu.Lock()
	b.onLoss = f
	lost := b.lost
	b.mu.Unlock()
	if lost != nil && f != nil {
		f(lost)
	}
}

// end keeps the reason of a loss and tells the request under way, if any.
func (b *beats) end(lost error) (quiet bool) {
	b.mu.Lock()
	b.lost = lost
	quiet, onLoss := b.quiet, b.onLoss
	b.mu.Unlock()
	if onLoss != nil {
		onLoss(lost)
	}
	return quiet
}

// startBeats begins the heartbeats of the generation just joined. They outlive the Join that started them.
func (m *Member) startBeats(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.beats = &beats{memberID: m.id, generation: m.generation, cancel: cancel, done: make(chan struct{}), quiet: true}
	go m.beat(ctx, m.beats)
}

func (m *Member) stopBeats() {
	if m.beats == nil {
		return
	}
	m.beats.cancel()
	<-m.beats.done
	m.beats = nil
}

// beat sends heartbeats until ctx ends or the membership does. Missing answers and coordinators that move or restart do not end it.
func (m *Member) beat(ctx context.Context, b *beats) {
	defer close(b.done)
	timer := time.NewTimer(m.cfg.HeartbeatInterval)
	defer timer.Stop()
	signalled := false
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		sent := m.cfg.Clock()
		err := m.heartbeat(ctx, b)
		if ctx.Err() != nil {
			return
		}
		act := actionFor(int16(kmsg.Heartbeat), err)
		wait := m.cfg.HeartbeatInterval
		switch {
		case err == nil || act == ActRejoin: // the coordinator knows us, rebalance or not
			m.signOfLife(sent)
			failures = 0
			if err != nil && !signalled && !b.isQuiet() {
				m.log.Debug("the group rebalances", "generation", b.generation)
				signalled = true
				m.signal()
			}
		case retriable(act):
			wait = min(wait, m.c.cfg.Backoff<<min(failures, 4))
			failures++
			m.log.Log(ctx, levelOf(failures), "no heartbeat", "generation", b.generation, "failures", failures, "error", err)
		case errors.Is(err, IllegalGeneration) && b.isQuiet():
			// Join is about to return a newer generation.
		default:
			if quiet := b.end(err); !quiet {
				m.log.Warn("membership lost", "generation", b.generation, "error", err)
				m.mu.Lock()
				m.lost = err
				m.mu.Unlock()
				m.signal()
			}
			return
		}
		timer.Reset(wait)
	}
}

func (m *Member) signal() {
	select {
	case m.rebalance <- struct{}{}:
	default:
	}
}

// heartbeat sends one heartbeat. A third of the session is time enough for the answer: after that it is better to try another connection.
func (m *Member) heartbeat(ctx context.Context, b *beats) error {
	timeout := min(m.c.cfg.Timeout, m.cfg.SessionTimeout/3)
	callCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = m.cfg.Group, b.generation, b.memberID, optional(m.cfg.InstanceID)
	route := GroupCoordinator(m.cfg.Group)
	_, err := m.c.Do(callCtx, Request{
		Route: route, Req: req, ClientID: m.cfg.ClientID, Once: true,
		Check: func(resp kmsg.Response) error { return m.errorOf(req, resp.(*kmsg.HeartbeatResponse).ErrorCode) },
	})
	if err != nil && ctx.Err() == nil && callCtx.Err() != nil {
		m.c.distrust(route)
		return &NetworkError{API: req.Key(), Node: anyNode, Err: err}
	}
	return err
}
