package kafka

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
)

// CorruptBatchError is a record batch that cannot be read. Offset is the first one that could not be.
type CorruptBatchError struct {
	TopicPartition
	Offset int64
	Err    error
}

func (e *CorruptBatchError) Error() string {
	return fmt.Sprintf("partition %s: the record batch at offset %d cannot be read: %v", e.TopicPartition, e.Offset, e.Err)
}

func (e *CorruptBatchError) Unwrap() error { return e.Err }

var (
	errCRC         = errors.New("the checksum does not match: the batch is damaged")
	errShortRecord = errors.New("a record ends beyond its batch")
)

// abortedTxn is one entry of the list that a read_committed fetch gives: transactional batches of that producer id are not to be seen,
// from first on until the producer id's abort marker.
type abortedTxn struct {
	producer int64
	first    int64
}

// batchWalk says what to read.
type batchWalk struct {
	tp      TopicPartition
	from    int64 // records below are left out: brokers answer with whole batches
	aborted []abortedTxn
	iso     Isolation
	control bool // give transaction markers too
}

// walk appends the records in raw to dst. next is the position after all that was read, which also counts markers, aborted records and
// offsets that compaction removed. A batch that is cut off at the end is normal: brokers cut at a byte limit. On an error, dst holds what
// came before it and next is the offset at fault.
//
// The records alias raw, or a buffer of their own where the batch is compressed.
func (w batchWalk) walk(dst []Record, raw []byte) (records []Record, next int64, err error) {
	next = w.from
	var filter abortFilter
	if w.iso == ReadCommitted {
		filter = newAbortFilter(w.aborted)
	}
	for len(raw) > batchMagicAt {
		h, rest, err := cutBatch(raw)
		if err == nil && h.raw == nil {
			break
		}
		before := len(dst)
		if err == nil {
			dst, err = w.batch(dst, h, &filter)
		}
		if err != nil {
			return dst[:before], next, &CorruptBatchError{TopicPartition: w.tp, Offset: next, Err: err}
		}
		next = max(next, h.last+1)
		raw = rest
	}
	return dst, next, nil
}

// batchHeader is what is needed of the header of a batch that was found complete and undamaged.
type batchHeader struct {
	raw         []byte // the whole batch
	base, last  int64
	leaderEpoch int32
	attributes  uint16
	baseTime    int64
	maxTime     int64
	producer    int64
	epoch       int16 // of the producer id
	count       int32
}

// cutBatch takes the first batch off raw, which is longer than the magic byte's place. A batch that is cut off has no raw bytes.
func cutBatch(raw []byte) (h batchHeader, rest []byte, err error) {
	if magic := raw[batchMagicAt]; magic != 2 {
		return h, nil, fmt.Errorf("message format %d, this program reads format 2 (Apache Kafka 0.11 and newer)", int8(magic))
	}
	length := int64(int32(binary.BigEndian.Uint32(raw[batchLengthAt:])))
	if length < batchHeaderSize-batchLengthEnd {
		return h, nil, fmt.Errorf("batch length %d", length)
	}
	if length > int64(len(raw)-batchLengthEnd) {
		return h, nil, nil
	}
	end := batchLengthEnd + int(length)
	b := raw[:end:end]
	if crc32.Checksum(b[batchAttributesAt:], castagnoli) != binary.BigEndian.Uint32(b[batchCRCAt:]) {
		return h, nil, errCRC
	}
	h = batchHeader{
		raw:         b,
		base:        int64(binary.BigEndian.Uint64(b[batchOffsetAt:])),
		leaderEpoch: int32(binary.BigEndian.Uint32(b[batchLeaderEpochAt:])),
		attributes:  binary.BigEndian.Uint16(b[batchAttributesAt:]),
		baseTime:    int64(binary.BigEndian.Uint64(b[batchBaseTimeAt:])),
		maxTime:     int64(binary.BigEndian.Uint64(b[batchMaxTimeAt:])),
		producer:    int64(binary.BigEndian.Uint64(b[batchProducerAt:])),
		epoch:       int16(binary.BigEndian.Uint16(b[batchEpochAt:])),
		count:       int32(binary.BigEndian.Uint32(b[batchCountAt:])),
	}
	delta := int32(binary.BigEndian.Uint32(b[batchLastDeltaAt:]))
	if h.base < 0 || delta < 0 || h.base > math.MaxInt64-int64(delta)-1 || h.count < 0 {
		return h, nil, fmt.Errorf("base offset %d, last offset delta %d, %d records", h.base, delta, h.count)
	}
	h.last = h.base + int64(delta)
	return h, raw[end:], nil
}

// sign tells whose record it is.
func (h *batchHeader) sign(rec *Record) {
	rec.Transactional, rec.ProducerID, rec.ProducerEpoch = h.attributes&attrTransactional != 0, h.producer, h.epoch
}

func (w batchWalk) batch(dst []Record, h batchHeader, filter *abortFilter) ([]Record, error) {
	filter.advance(h.last)
	body := h.raw[batchHeaderSize:]
	if h.attributes&attrControl != 0 {
		return w.controlBatch(dst, h, body, filter)
	}
	if h.last < w.from || (h.attributes&attrTransactional != 0 && filter.drops(h.producer)) {
		return dst, nil
	}
	if codec := Compression(h.attributes & attrCompression); codec != Uncompressed {
		var err error
		if body, err = unpackRecords(codec, body, maxUnpacked); err != nil {
			return dst, err
		}
	}
	return w.records(dst, h, body)
}

// minRecordSize is a record without key, value and headers. It bounds how many records a batch can hold, whatever its header says.
const minRecordSize = 7

func (w batchWalk) records(dst []Record, h batchHeader, body []byte) ([]Record, error) {
	dst = slices.Grow(dst, min(int(h.count), len(body)/minRecordSize))
	r := recordReader{b: body}
	for i := range h.count {
		rec, err := r.record(&h)
		if err != nil {
			return dst, fmt.Errorf("record %d of %d: %w", i, h.count, err)
		}
		if rec.Offset < w.from {
			continue
		}
		if w.control {
			h.sign(&rec)
		}
		dst = append(dst, rec)
	}
	return dst, nil
}

// controlBatch reads a transaction marker. A marker's key is a version and a type, each of 16 bits: 0 is abort, 1 is commit. Other types
// stand in the brokers' own logs.
func (w batchWalk) controlBatch(dst []Record, h batchHeader, body []byte, filter *abortFilter) ([]Record, error) {
	r := recordReader{b: body}
	for range h.count {
		rec, err := r.record(&h)
		if err != nil {
			return dst, fmt.Errorf("control record: %w", err)
		}
		if len(rec.Key) < 4 {
			return dst, fmt.Errorf("control record with a key of %d bytes", len(rec.Key))
		}
		switch binary.BigEndian.Uint16(rec.Key[2:]) {
		case 0:
			rec.Control = ControlAbort
			filter.ended(h.producer)
		case 1:
			rec.Control = ControlCommit
		}
		if w.control && rec.Control != ControlNone && rec.Offset >= w.from {
			h.sign(&rec)
			dst = append(dst, rec)
		}
	}
	return dst, nil
}

// abortFilter knows which producer ids are, at this point of the log, inside a transaction that was aborted later.
type abortFilter struct {
	pending []abortedTxn // by first offset
	active  map[int64]struct{}
}

func newAbortFilter(aborted []abortedTxn) abortFilter {
	if len(aborted) == 0 {
		return abortFilter{}
	}
	sorted := slices.SortedFunc(slices.Values(aborted), func(a, b abortedTxn) int { return cmp.Compare(a.first, b.first) })
	return abortFilter{pending: sorted, active: map[int64]struct{}{}}
}

// advance takes in the transactions that begin in or before a batch whose last offset is given.
func (f *abortFilter) advance(last int64) {
	for len(f.pending) > 0 && f.pending[0].first <= last {
		f.active[f.pending[0].producer] = struct{}{}
		f.pending = f.pending[1:]
	}
}

func (f *abortFilter) drops(producer int64) bool {
	_, ok := f.active[producer]
	return ok
}

func (f *abortFilter) ended(producer int64) { delete(f.active, producer) }

// recordReader reads the records of one batch, in order.
type recordReader struct {
	b   []byte
	bad bool
}

func (r *recordReader) record(h *batchHeader) (rec Record, err error) {
	size := r.varint()
	if r.bad || size < 0 || size > int64(len(r.b)) {
		return rec, errShortRecord
	}
	after := r.b[size:]
	r.b = r.b[:size:size]
	r.skip(1) // attributes
	timeDelta, offsetDelta := r.varint(), r.varint()
	rec.Key = r.bytes()
	rec.Value = r.bytes()
	rec.Headers = r.headers()
	if r.bad {
		return rec, errShortRecord
	}
	rec.Offset = h.base + offsetDelta
	if offsetDelta < 0 || rec.Offset > h.last {
		return rec, fmt.Errorf("offset delta %d in a batch of offsets %d to %d", offsetDelta, h.base, h.last)
	}
	rec.Timestamp = h.baseTime + timeDelta
	if h.attributes&attrLogAppendTime != 0 {
		rec.Timestamp = h.maxTime
	}
	rec.LeaderEpoch = h.leaderEpoch
	r.b = after
	return rec, nil
}

func (r *recordReader) varint() int64 {
	if len(r.b) > 0 && r.b[0] < 0x80 { // most of them
		v := r.b[0]
		r.b = r.b[1:]
		return int64(v>>1) ^ -int64(v&1)
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *recordReader) skip(n int) {
	if n > len(r.b) {
		r.fail()
		return
	}
	r.b = r.b[n:]
}

// bytes reads a nullable byte string.
func (r *recordReader) bytes() []byte {
	n := r.varint()
	if n < 0 {
		return nil
	}
	if n > int64(len(r.b)) {
		r.fail()
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *recordReader) headers() []Header {
	n := r.varint()
	if n == 0 || r.bad {
		return nil
	}
	if n < 0 || n > int64(len(r.b)/2) { // a header takes two bytes at least
		r.fail()
		return nil
	}
	headers := make([]Header, n)
	for i := range headers {
		headers[i] = Header{Key: string(r.bytes()), Value: r.bytes()}
	}
	return headers
}

func (r *recordReader) fail() { r.bad, r.b = true, nil }
