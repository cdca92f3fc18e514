package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go/compress"
)

// Compression is how the records of a batch are packed.
type Compression int8

// The compressions of the protocol, with its numbers.
const (
	Uncompressed Compression = 0
	Gzip         Compression = 1
	Snappy       Compression = 2
	LZ4          Compression = 3
	Zstd         Compression = 4
)

func (c Compression) String() string {
	if c == Uncompressed {
		return "none"
	}
	return compress.Compression(c).String()
}

// maxUnpacked bounds what one batch may unpack to, so that a few damaged or hostile bytes cannot take all memory. Brokers cap a batch at
// 1 MiB as it is on the wire, by default.
const maxUnpacked = 256 << 20

var errUnpackedSize = errors.New("the records unpack to more than is allowed for a batch")

// compressRecords returns header followed by the packed records, in a new buffer.
func compressRecords(codec Compression, header, records []byte) ([]byte, error) {
	impl := compress.Compression(codec).Codec()
	if impl == nil {
		return nil, fmt.Errorf("unknown compression %d", codec)
	}
	out := bytes.NewBuffer(make([]byte, 0, len(header)+len(records)/2))
	out.Write(header)
	w := impl.NewWriter(out)
	if _, err := w.Write(records); err != nil {
		return nil, fmt.Errorf("%s: %w", codec, errors.Join(err, w.Close()))
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("%s: %w", codec, err)
	}
	return out.Bytes(), nil
}

// unpackRecords returns the records of a compressed batch, limit bytes at most, in a buffer of their own.
func unpackRecords(codec Compression, packed []byte, limit int64) ([]byte, error) {
	impl := compress.Compression(codec).Codec()
	if impl == nil {
		return nil, fmt.Errorf("unknown compression %d", codec)
	}
	if codec == Snappy {
		if err := checkSnappy(packed, limit); err != nil {
			return nil, err
		}
	}
	r := impl.NewReader(bytes.NewReader(packed))
	out := bytes.NewBuffer(make([]byte, 0, 4*len(packed)))
	n, err := io.Copy(out, io.LimitReader(r, limit+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", codec, err)
	}
	if n > limit {
		return nil, errUnpackedSize
	}
	return out.Bytes(), nil
}

// xerialMagic starts the framing that Java's snappy streams put around snappy blocks: 16 bytes of header, then blocks with their lengths.
var xerialMagic = [8]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

// checkSnappy looks at the sizes that snappy data claims, before kafka-go's reader allocates what they say.
func checkSnappy(b []byte, limit int64) error {
	if len(b) < 16 || [8]byte(b) != xerialMagic {
		return checkSnappyBlock(b, limit)
	}
	for b = b[16:]; len(b) > 0; {
		if len(b) < 4 {
			return io.ErrUnexpectedEOF
		}
		size := uint64(binary.BigEndian.Uint32(b))
		if b = b[4:]; size > uint64(len(b)) {
			return io.ErrUnexpectedEOF
		}
		if err := checkSnappyBlock(b[:size], limit); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// maxSnappyRatio is above what snappy can reach: its densest element makes 64 bytes out of 3.
const maxSnappyRatio = 22

func checkSnappyBlock(b []byte, limit int64) error {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > maxSnappyRatio*uint64(len(b)) {
		return io.ErrUnexpectedEOF
	}
	if size > uint64(limit) {
		return errUnpackedSize
	}
	return nil
}
