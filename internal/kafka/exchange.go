package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxFrame bounds a response, so that a peer that does not speak Kafka cannot make us allocate what its first four bytes happen to say.
const maxFrame = 512 << 20

// exchange is one request and its response on one connection. It plugs into kafka-go's Transport through two of its hooks:
// protocol.BrokerMessage chooses the broker, protocol.RawExchanger hands over the connection.
//
// The Transport runs one exchange at a time on a connection, so the correlation id need not be unique, but a wrong one means that the
// stream is out of step: the error makes the Transport close the connection.
type exchange struct {
	correlation int32
	clientID    string
	node        int32 // -1: any seed
	req         kmsg.Request
	resp        kmsg.Response
	out         []byte // the request's frame, see newExchange
}

// newExchange encodes the request at once. A cancelled RoundTrip returns while the Transport may still be about to write, so by then nothing
// may refer to the caller's request: the producer reuses the buffers of its batches, the fetcher those of its requests.
func newExchange(correlation int32, clientID string, node int32, req kmsg.Request) *exchange {
	x := &exchange{correlation: correlation, clientID: clientID, node: node, req: req, resp: req.ResponseKind()}
	x.resp.SetVersion(req.GetVersion())
	x.out = x.frame()
	return x
}

var (
	_ protocol.BrokerMessage = (*exchange)(nil)
	_ protocol.RawExchanger  = (*exchange)(nil)
)

func (x *exchange) ApiKey() protocol.ApiKey { return protocol.ApiKey(x.req.Key()) }

// Required is given kafka-go's own version choice, which stops at the keys it knows; ours is made in Client.pick, so always take the raw path.
func (x *exchange) Required(map[protocol.ApiKey]int16) bool { return true }

func (x *exchange) Broker(protocol.Cluster) (protocol.Broker, error) {
	return protocol.Broker{ID: x.node}, nil
}

func (x *exchange) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	_, err := rw.Write(x.out)
	x.out = nil
	if err != nil {
		return nil, err
	}
	body, err := readFrame(rw, x.correlation)
	if err != nil {
		return nil, err
	}
	// ApiVersions answers with header version 0 in every version, or old clients could not read it (KIP-511).
	if x.resp.IsFlexible() && x.req.Key() != int16(kmsg.ApiVersions) {
		if body, err = skipTags(body); err != nil {
			return nil, err
		}
	}
	if err := x.resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode %s v%d response: %w", kmsg.NameForKey(x.req.Key()), x.resp.GetVersion(), err)
	}
	return x, nil
}

func (x *exchange) frame() []byte {
	b := make([]byte, 4, 512+payloadSize(x.req))
	b = binary.BigEndian.AppendUint16(b, uint16(x.req.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(x.req.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, uint32(x.correlation))
	b = binary.BigEndian.AppendUint16(b, uint16(len(x.clientID))) // never a compact string, in header version 2 too
	b = append(b, x.clientID...)
	if x.req.IsFlexible() {
		b = append(b, 0) // header version 2: no tagged fields
	}
	b = x.req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// payloadSize is the size of the record batches in a request, which would otherwise make the frame grow step by step.
func payloadSize(req kmsg.Request) int {
	n := 0
	if r, ok := req.(*kmsg.ProduceRequest); ok {
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				n += 32 + len(r.Topics[i].Partitions[j].Records)
			}
		}
	}
	return n
}

func readFrame(r io.Reader, correlation int32) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > maxFrame {
		return nil, fmt.Errorf("response of %d bytes: this is not a Kafka broker speaking this protocol", size)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != correlation {
		return nil, fmt.Errorf("correlation id %d where %d was asked: connection out of step", got, correlation)
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return body, nil
}

var errShortHeader = errors.New("response header is too short")

// skipTags steps over the tagged fields of response header version 1.
func skipTags(b []byte) ([]byte, error) {
	next := func() (uint64, bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	count, ok := next()
	if !ok {
		return nil, errShortHeader
	}
	for range count {
		if _, ok = next(); !ok {
			return nil, errShortHeader
		}
		size, ok := next()
		if !ok || size > uint64(len(b)) {
			return nil, errShortHeader
		}
		b = b[size:]
	}
	return b, nil
}
