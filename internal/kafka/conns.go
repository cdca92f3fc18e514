package kafka

import (
	"context"
	"net"
	"sync"
	"time"
)

const dialTimeout = 5 * time.Second

// connections are the open connections of a Transport. The Transport itself closes idle ones only: a request whose caller has gone away
// keeps its connection and its goroutine until the deadline, which for a JoinGroup is minutes away.
type connections struct {
	dialer net.Dialer

	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

func newConnections() *connections {
	return &connections{dialer: net.Dialer{Timeout: dialTimeout}, open: map[*trackedConn]struct{}{}}
}

// dial is the Transport's Dial hook.
func (s *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: conn, owner: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return nil, ErrClosed
	}
	s.open[t] = struct{}{}
	return t, nil
}

// close ends all connections, those in use included, and lets no new one open.
func (s *connections) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for t := range s.open {
		_ = t.Conn.Close()
	}
	clear(s.open)
}

func (s *connections) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

type trackedConn struct {
	net.Conn
	owner *connections
}

func (t *trackedConn) Close() error {
	t.owner.mu.Lock()
	delete(t.owner.open, t)
	t.owner.mu.Unlock()
	return t.Conn.Close()
}
