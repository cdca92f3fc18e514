package kafka

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The hooks of kafka-go that everything here hangs on. Should a new version change one of them, this does not compile or the tests below
// fail: the Transport would otherwise fall back to its own encoding of messages without a word.
type (
	rawExchanger = interface {
		RawExchange(io.ReadWriter) (protocol.Message, error)
	}
	required = interface {
		Required(map[protocol.ApiKey]int16) bool
	}
	brokerMessage = interface {
		Broker(protocol.Cluster) (protocol.Broker, error)
	}
)

var (
	_ interface {
		rawExchanger
		required
	} = protocol.RawExchanger(nil)
	_ brokerMessage = protocol.BrokerMessage(nil)
)

// probe counts what the Transport asks of an exchange.
type probe struct {
	*exchange
	mu    sync.Mutex
	calls map[string]int
}

func (p *probe) count(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[name]++
}

func (p *probe) Required(v map[protocol.ApiKey]int16) bool {
	p.count("Required")
	return p.exchange.Required(v)
}

func (p *probe) Broker(c protocol.Cluster) (protocol.Broker, error) {
	p.count("Broker")
	return p.exchange.Broker(c)
}

func (p *probe) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	p.count("RawExchange")
	return p.exchange.RawExchange(rw)
}

// fakeBroker speaks just enough for a Transport to connect. It keeps the frames of our client id, and answers them with answer.
type fakeBroker struct {
	t      *testing.T
	ln     net.Listener
	node   int32
	peers  []*fakeBroker
	answer func(frame []byte) []byte

	mu     sync.Mutex
	frames [][]byte
	closed chan struct{} // closed when the peer of a connection that carried one of our frames has hung up
	once   sync.Once
}

func newFakeBroker(t *testing.T, node int32) *fakeBroker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{t: t, ln: ln, node: node, closed: make(chan struct{})}
	b.peers = []*fakeBroker{b}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		conns.Wait()
	})
	return b
}

func (b *fakeBroker) serve(conn net.Conn) {
	defer conn.Close()
	ours := false
	for {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(conn, frame); err != nil {
			break
		}
		size := int(frame[2])<<8 | int(frame[3])
		frame = append(frame, make([]byte, size)...)
		if _, err := io.ReadFull(conn, frame[4:]); err != nil {
			break
		}
		key, version, correlation := kmsg.Key(int16(frame[4])<<8|int16(frame[5])), int16(frame[7]), frame[8:12]
		var out []byte
		switch idSize := int(frame[13]); {
		case string(frame[14:14+idSize]) == "ours":
			ours = true
			b.mu.Lock()
			b.frames = append(b.frames, frame)
			b.mu.Unlock()
			out = b.answer(frame)
		case key == kmsg.ApiVersions:
			resp := kmsg.NewPtrApiVersionsResponse()
			for _, k := range []kmsg.Key{kmsg.ApiVersions, kmsg.Metadata} {
				resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: int16(k), MaxVersion: 1})
			}
			resp.SetVersion(version)
			out = reply(correlation, resp.AppendTo(nil))
		case key == kmsg.Metadata:
			resp := kmsg.NewPtrMetadataResponse()
			for _, p := range b.peers {
				host, port, _ := net.SplitHostPort(p.ln.Addr().String())
				n, _ := strconv.Atoi(port)
				resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: p.node, Host: host, Port: int32(n)})
			}
			resp.SetVersion(version)
			out = reply(correlation, resp.AppendTo(nil))
		default:
			b.t.Errorf("unexpected request %s", key.Name())
			return
		}
		if _, err := conn.Write(out); err != nil {
			break
		}
	}
	if ours {
		b.once.Do(func() { close(b.closed) })
	}
}

func reply(correlation, body []byte) []byte {
	size := len(body) + 4
	return append(append([]byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, correlation...), body...)
}

func testTransport(t *testing.T) *kafkago.Transport {
	t.Helper()
	tr := &kafkago.Transport{ClientID: "theirs", MetadataTopics: []string{}}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func findCoordinator() *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{"g"}
	req.SetVersion(4)
	return req
}

// What goes over the wire is our frame, byte by byte, and what comes back is decoded by us: the request is sent to the node that we name.
func TestTransportCarriesOurFrames(t *testing.T) {
	seed, other := newFakeBroker(t, 1), newFakeBroker(t, 7)
	seed.peers = []*fakeBroker{seed, other}
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.SetVersion(4)
	resp.Coordinators = append(resp.Coordinators, kmsg.FindCoordinatorResponseCoordinator{Key: "g", NodeID: 42})
	for _, b := range seed.peers {
		b.answer = func(frame []byte) []byte {
			// Response header version 1 with a tagged field, which is to be skipped: tag 5 of two bytes.
			return reply(frame[8:12], resp.AppendTo([]byte{1, 5, 2, 0xaa, 0xbb}))
		}
	}
	tr := testTransport(t)
	for _, tc := range []struct {
		node int32
		to   *fakeBroker
	}{{7, other}, {anyNode, seed}} {
		x := &probe{exchange: newExchange(0x01020304, "ours", tc.node, findCoordinator()), calls: map[string]int{}}
		if _, err := tr.RoundTrip(testContext(t), seed.ln.Addr(), x); err != nil {
			t.Fatal(err)
		}
		for _, hook := range []string{"Required", "Broker", "RawExchange"} {
			if x.calls[hook] != 1 {
				t.Errorf("node %d: the Transport called %s %d times, want once", tc.node, hook, x.calls[hook])
			}
		}
		if got := x.resp.(*kmsg.FindCoordinatorResponse).Coordinators; len(got) != 1 || got[0].NodeID != 42 {
			t.Errorf("node %d: answer %+v", tc.node, got)
		}
		tc.to.mu.Lock()
		frames := tc.to.frames
		tc.to.mu.Unlock()
		// Size, key 10, version 4, correlation id, client id (not compact), no tags; type 0, one compact key, no tags.
		const want = "00000014" + "000a" + "0004" + "01020304" + "00046f757273" + "00" + "00" + "020267" + "00"
		if len(frames) != 1 || hex.EncodeToString(frames[0]) != want {
			t.Errorf("node %d got the frames %x, want %s", tc.node, frames, want)
		}
	}
}

// ApiVersions is answered with response header version 0, whatever its version.
func TestTransportApiVersions(t *testing.T) {
	b := newFakeBroker(t, 1)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(3)
	resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: 1, MinVersion: 4, MaxVersion: 18})
	b.answer = func(frame []byte) []byte { return reply(frame[8:12], resp.AppendTo(nil)) }
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(3)
	x := newExchange(1, "ours", anyNode, req)
	if _, err := testTransport(t).RoundTrip(testContext(t), b.ln.Addr(), x); err != nil {
		t.Fatal(err)
	}
	if got := x.resp.(*kmsg.ApiVersionsResponse).ApiKeys; len(got) != 1 || got[0].MaxVersion != 18 {
		t.Errorf("answer %+v", got)
	}
}

// A connection that is out of step must not be used again.
func TestTransportClosesAConnectionOutOfStep(t *testing.T) {
	for name, answer := range map[string]func(frame []byte) []byte{
		"correlation id": func([]byte) []byte { return reply([]byte{9, 9, 9, 9}, []byte{0}) },
		"not Kafka":      func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") },
		"tags too long":  func(frame []byte) []byte { return reply(frame[8:12], []byte{1, 5, 0x7f}) },
		"body too short": func(frame []byte) []byte { return reply(frame[8:12], []byte{0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBroker(t, 1)
			b.answer = answer
			ctx := testContext(t)
			_, err := testTransport(t).RoundTrip(ctx, b.ln.Addr(), newExchange(5, "ours", anyNode, findCoordinator()))
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want that of the answer", err)
			}
			select {
			case <-b.closed:
			case <-ctx.Done():
				t.Error("the connection is still open")
			}
		})
	}
}

// A cancelled call leaves the request to the Transport, while the caller uses its buffers again.
func TestExchangeKeepsNothingOfTheRequest(t *testing.T) {
	req := findCoordinator()
	x := newExchange(1, "ours", anyNode, req)
	before := hex.EncodeToString(x.out)
	req.CoordinatorKeys[0] = "another"
	req.SetVersion(0)
	conn := &recordedConn{}
	_, _ = x.RawExchange(conn)
	if got := hex.EncodeToString(conn.written); got != before {
		t.Errorf("wrote %s, want %s", got, before)
	}
}

type recordedConn struct{ written []byte }

func (c *recordedConn) Write(b []byte) (int, error) {
	c.written = append(c.written, b...)
	return len(b), nil
}

func (c *recordedConn) Read([]byte) (int, error) { return 0, io.EOF }
