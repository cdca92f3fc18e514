package kafka

import (
	"encoding/binary"
	"hash/crc32"
)

// A record batch of format 2 (KIP-98) is a header of 61 bytes and records whose lengths, deltas and sizes are zigzag varints. All numbers of
// the header are big endian. batch_read.go reads what is written here.
const (
	batchOffsetAt      = 0  // int64, base offset
	batchLengthAt      = 8  // int32, bytes after this field
	batchLeaderEpochAt = 12 // int32, set by the broker
	batchMagicAt       = 16 // int8, 2
	batchCRCAt         = 17 // uint32, CRC-32C of all that follows
	batchAttributesAt  = 21 // int16
	batchLastDeltaAt   = 23 // int32, last offset - base offset
	batchBaseTimeAt    = 27 // int64
	batchMaxTimeAt     = 35 // int64
	batchProducerAt    = 43 // int64, producer id
	batchEpochAt       = 51 // int16, producer epoch
	batchSequenceAt    = 53 // int32, sequence of the first record
	batchCountAt       = 57 // int32, number of records
	batchHeaderSize    = 61

	batchLengthEnd = 12 // base offset and length themselves

	attrCompression   = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// producerID is a producer id with its epoch, as InitProducerId gave it. Sequences count per partition and per producerID.
type producerID struct {
	id    int64
	epoch int16
}

// batchBuilder encodes records straight into the bytes of a batch. It is reused after reset, so that appending does not allocate once its
// buffer has grown.
type batchBuilder struct {
	buf      []byte // header, then records, which finish may replace by their compressed form
	packed   bool   // the records are in their final form
	codec    Compression
	count    int32
	baseTime int64
	maxTime  int64
}

func (b *batchBuilder) reset() {
	if cap(b.buf) < batchHeaderSize {
		b.buf = make([]byte, batchHeaderSize, 4096)
	}
	*b = batchBuilder{buf: b.buf[:batchHeaderSize]}
}

// size is the number of bytes on the wire before compression.
func (b *batchBuilder) size() int { return len(b.buf) }

// recordBound is an upper bound of what a record adds to a batch.
func recordBound(key, value []byte, headers []Header) int {
	const lengthAttributesDeltas = binary.MaxVarintLen32 + 1 + binary.MaxVarintLen64 + binary.MaxVarintLen32
	n := lengthAttributesDeltas + 3*binary.MaxVarintLen32 + len(key) + len(value)
	for i := range headers {
		n += 2*binary.MaxVarintLen32 + len(headers[i].Key) + len(headers[i].Value)
	}
	return n
}

// append adds a record. The timestamp is written as given: 0 and -1 (none) too.
func (b *batchBuilder) append(timestamp int64, key, value []byte, headers []Header) {
	if b.count == 0 {
		b.baseTime, b.maxTime = timestamp, timestamp
	}
	b.maxTime = max(b.maxTime, timestamp)
	timeDelta, offsetDelta := timestamp-b.baseTime, int64(b.count)

	length := 1 + varintLen(timeDelta) + varintLen(offsetDelta) + bytesLen(key) + bytesLen(value) + varintLen(int64(len(headers)))
	for i := range headers {
		n := len(headers[i].Key)
		length += varintLen(int64(n)) + n + bytesLen(headers[i].Value)
	}

	buf := binary.AppendVarint(b.buf, int64(length))
	buf = append(buf, 0) // attributes: none are defined for records
	buf = binary.AppendVarint(buf, timeDelta)
	buf = binary.AppendVarint(buf, offsetDelta)
	buf = appendBytes(buf, key)
	buf = appendBytes(buf, value)
	buf = binary.AppendVarint(buf, int64(len(headers)))
	for i := range headers {
		buf = binary.AppendVarint(buf, int64(len(headers[i].Key)))
		buf = append(buf, headers[i].Key...)
		buf = appendBytes(buf, headers[i].Value)
	}
	b.buf = buf
	b.count++
}

// finish compresses the records, the first time it is called, and fills in the header. Calling it again gives the same records to another
// producer id or sequence, which is how a batch survives the loss of its producer id. The result is valid until reset.
func (b *batchBuilder) finish(codec Compression, producer producerID, sequence int32, transactional bool) ([]byte, error) {
	if !b.packed {
		if err := b.pack(codec); err != nil {
			return nil, err
		}
	}
	attributes := uint16(b.codec)
	if transactional {
		attributes |= attrTransactional
	}
	h := b.buf
	binary.BigEndian.PutUint64(h[batchOffsetAt:], 0)
	binary.BigEndian.PutUint32(h[batchLengthAt:], uint32(len(h)-batchLengthEnd))
	binary.BigEndian.PutUint32(h[batchLeaderEpochAt:], 0xffffffff) // -1: the broker's to set
	h[batchMagicAt] = 2
	binary.BigEndian.PutUint16(h[batchAttributesAt:], attributes)
	binary.BigEndian.PutUint32(h[batchLastDeltaAt:], uint32(b.count-1))
	binary.BigEndian.PutUint64(h[batchBaseTimeAt:], uint64(b.baseTime))
	binary.BigEndian.PutUint64(h[batchMaxTimeAt:], uint64(b.maxTime))
	binary.BigEndian.PutUint64(h[batchProducerAt:], uint64(producer.id))
	binary.BigEndian.PutUint16(h[batchEpochAt:], uint16(producer.epoch))
	binary.BigEndian.PutUint32(h[batchSequenceAt:], uint32(sequence))
	binary.BigEndian.PutUint32(h[batchCountAt:], uint32(b.count))
	binary.BigEndian.PutUint32(h[batchCRCAt:], crc32.Checksum(h[batchAttributesAt:], castagnoli))
	return h, nil
}

func (b *batchBuilder) pack(codec Compression) error {
	b.packed, b.codec = true, codec
	if codec == Uncompressed {
		return nil
	}
	packed, err := compressRecords(codec, b.buf[:batchHeaderSize], b.buf[batchHeaderSize:])
	if err != nil {
		return err
	}
	if len(packed) >= len(b.buf) {
		b.codec = Uncompressed // not worth it, and a batch must not grow past the limit it was filled to
		return nil
	}
	b.buf = append(b.buf[:0], packed...) // keeps the grown buffer for the next batch
	return nil
}

// nextSequence is the sequence after count more records; sequences wrap around to 0 after the largest int32.
func nextSequence(sequence, count int32) int32 {
	return int32((uint32(sequence) + uint32(count)) & 0x7fffffff)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func bytesLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

func varintLen(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
