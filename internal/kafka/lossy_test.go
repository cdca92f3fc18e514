package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// loseAnswer makes the connection break that carries the next answer to a request of that API: the broker has carried it out then. The
// returned channel is closed when that has happened.
func loseAnswer(c *Client, key kmsg.Key) <-chan struct{} {
	l := &loser{key: key, lost: make(chan struct{})}
	c.transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.conns.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &lossyConn{Conn: conn, loser: l}, nil
	}
	c.transport.CloseIdleConnections() // the next pool dials by the new function
	return l.lost
}

type loser struct {
	key  kmsg.Key
	once sync.Once
	lost chan struct{}
}

type lossyConn struct {
	net.Conn
	loser *loser
	armed bool // the request was written; both ends of a connection are used by one goroutine
}

func (l *lossyConn) Write(b []byte) (int, error) {
	if len(b) >= 6 && kmsg.Key(binary.BigEndian.Uint16(b[4:])) == l.loser.key {
		l.armed = true
	}
	return l.Conn.Write(b)
}

var errLost = errors.New("the answer is lost")

func (l *lossyConn) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err != nil || !l.armed {
		return n, err
	}
	l.armed = false
	first := false
	l.loser.once.Do(func() { first = true })
	if !first {
		return n, nil
	}
	close(l.loser.lost)
	return 0, errLost
}
