package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var testTP = TopicPartition{"orders", 2}

// buildBatch returns a batch of records, with base offset base.
func buildBatch(t testing.TB, base int64, codec Compression, producer producerID, transactional bool, records []Record) []byte {
	t.Helper()
	var b batchBuilder
	b.reset()
	for _, r := range records {
		bound := b.size() + recordBound(r.Key, r.Value, r.Headers)
		b.append(r.Timestamp, r.Key, r.Value, r.Headers)
		if b.size() > bound {
			t.Fatalf("a record took the batch to %d bytes, above its bound of %d", b.size(), bound)
		}
	}
	raw, err := b.finish(codec, producer, 0, transactional)
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Clone(raw)
	binary.BigEndian.PutUint64(raw[batchOffsetAt:], uint64(base))
	return raw
}

// marker returns a control batch as a broker writes it.
func marker(t testing.TB, offset int64, producer producerID, commit bool) []byte {
	t.Helper()
	key := []byte{0, 0, 0, 0}
	if commit {
		key[3] = 1
	}
	raw := buildBatch(t, offset, Uncompressed, producer, true, []Record{{Timestamp: 1, Key: key, Value: make([]byte, 6)}})
	raw[batchAttributesAt+1] |= attrControl
	return fixCRC(raw)
}

func fixCRC(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[batchCRCAt:], crc32.Checksum(raw[batchAttributesAt:], castagnoli))
	return raw
}

// sampleRecords has each combination of null, empty and filled keys, values and headers, and timestamps that go back and are none.
func sampleRecords() []Record {
	var records []Record
	for i, key := range [][]byte{nil, {}, []byte("key")} {
		for j, value := range [][]byte{nil, {}, bytes.Repeat([]byte("value "), 40)} {
			for k, headers := range [][]Header{
				nil,
				{{Key: "", Value: nil}},
				{{Key: "a", Value: []byte{}}, {Key: "a", Value: []byte("1")}, {Key: "żółw", Value: []byte{0xff}}},
			} {
				times := []int64{0, -1, 1789207200000, 5, math.MaxInt64, math.MinInt64}
				n := i*9 + j*3 + k
				records = append(records, Record{
					Offset: int64(n), Timestamp: times[n%len(times)], LeaderEpoch: -1, Key: key, Value: value, Headers: headers,
				})
			}
		}
	}
	return records
}

func TestBatchRoundTrip(t *testing.T) {
	want := sampleRecords()
	for codec := Uncompressed; codec <= Zstd; codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			raw := buildBatch(t, 0, codec, producerID{7, 3}, true, want)
			if got := Compression(raw[batchAttributesAt+1] & attrCompression); got != codec {
				t.Errorf("the batch says compression %s", got)
			}
			got, next, err := batchWalk{tp: testTP}.walk(nil, raw)
			if err != nil {
				t.Fatal(err)
			}
			if next != int64(len(want)) {
				t.Errorf("next offset %d, want %d", next, len(want))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("records (-sent +read):\n%s", diff)
			}
		})
	}
}

// A batch that lost its producer id is finished again: only the header may change.
func TestBatchFinishedAgain(t *testing.T) {
	for codec := Uncompressed; codec <= Zstd; codec++ {
		var b batchBuilder
		b.reset()
		for range 50 {
			b.append(1, []byte("key"), []byte("the same value again"), nil)
		}
		first, err := b.finish(codec, producerID{1, 1}, 100, false)
		if err != nil {
			t.Fatal(err)
		}
		first = bytes.Clone(first)
		second, err := b.finish(codec, producerID{2, 0}, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first[batchHeaderSize:], second[batchHeaderSize:]) {
			t.Errorf("%s: the records changed", codec)
		}
		if records, _, err := (batchWalk{tp: testTP}).walk(nil, second); err != nil || len(records) != 50 {
			t.Errorf("%s: %d records, error %v", codec, len(records), err)
		}
		if id := binary.BigEndian.Uint64(second[batchProducerAt:]); id != 2 {
			t.Errorf("%s: producer id %d", codec, id)
		}
	}
}

func TestWalkStartsInTheMiddleAndEndsCutOff(t *testing.T) {
	one := func(base int64) []byte {
		return buildBatch(t, base, Uncompressed, producerID{-1, -1}, false, make([]Record, 3))
	}
	raw := append(one(10), one(13)...)
	for cut := 0; cut <= len(raw); cut++ {
		records, next, err := batchWalk{tp: testTP, from: 11}.walk(nil, raw[:cut])
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := "next 11"
		switch {
		case cut == len(raw):
			want = "11 12 13 14 15 next 16"
		case cut >= len(raw)/2:
			want = "11 12 next 13"
		}
		if got := offsetsOf(records, next); got != want {
			t.Fatalf("cut at %d: %s, want %s", cut, got, want)
		}
	}
}

// offsetsOf prints what a walk gave: offsets, with the kind of markers, and the next one.
func offsetsOf(records []Record, next int64) string {
	var b strings.Builder
	for _, r := range records {
		fmt.Fprintf(&b, "%d", r.Offset)
		switch r.Control {
		case ControlCommit:
			b.WriteString("C")
		case ControlAbort:
			b.WriteString("A")
		}
		b.WriteString(" ")
	}
	fmt.Fprintf(&b, "next %d", next)
	return b.String()
}

func TestAbortFilter(t *testing.T) {
	const p1, p2 = 1, 2
	txn := func(producer int64, offset int64) []byte {
		return buildBatch(t, offset, Uncompressed, producerID{producer, 0}, true, []Record{{Value: []byte("v")}})
	}
	plain := func(producer int64, offset int64) []byte {
		return buildBatch(t, offset, Uncompressed, producerID{producer, 0}, false, []Record{{Value: []byte("v")}})
	}
	end := func(producer int64, offset int64, commit bool) []byte {
		return marker(t, offset, producerID{producer, 0}, commit)
	}
	log := func(batches ...[]byte) []byte { return bytes.Join(batches, nil) }

	interleaved := log(txn(p1, 0), txn(p2, 1), plain(-1, 2), txn(p1, 3), end(p1, 4, false),
		txn(p2, 5), txn(p1, 6), end(p2, 7, true), end(p1, 8, true))
	for _, tc := range []struct {
		name    string
		raw     []byte
		from    int64
		aborted []abortedTxn
		iso     Isolation
		control bool
		want    string
	}{
		{"uncommitted sees all", interleaved, 0, []abortedTxn{{p1, 0}}, ReadUncommitted, false, "0 1 2 3 5 6 next 9"},
		{"control records on demand", interleaved, 0, nil, ReadUncommitted, true, "0 1 2 3 4A 5 6 7C 8C next 9"},
		{"nothing aborted", interleaved, 0, nil, ReadCommitted, false, "0 1 2 3 5 6 next 9"},
		{"first transaction of one producer", interleaved, 0, []abortedTxn{{p1, 0}}, ReadCommitted, false, "1 2 5 6 next 9"},
		{"list out of order", log(txn(p1, 0), end(p1, 1, false), txn(p2, 2), end(p2, 3, false), txn(p1, 4), end(p1, 5, false), plain(-1, 6)), 0,
			[]abortedTxn{{p1, 4}, {p2, 2}, {p1, 0}}, ReadCommitted, false, "6 next 7"},
		{"marker frees the id for its next transaction", log(txn(p1, 0), end(p1, 1, false), txn(p1, 2), end(p1, 3, true)), 0,
			[]abortedTxn{{p1, 0}}, ReadCommitted, false, "2 next 4"},
		{"plain batch of an aborted id", log(txn(p1, 0), plain(p1, 1), end(p1, 2, false)), 0,
			[]abortedTxn{{p1, 0}}, ReadCommitted, false, "1 next 3"},
		{"starts inside the transaction", log(txn(p1, 3), end(p1, 4, false), plain(-1, 5)), 3,
			[]abortedTxn{{p1, 0}}, ReadCommitted, false, "5 next 6"},
		{"starts inside a batch", buildBatch(t, 0, Uncompressed, producerID{p1, 0}, true, make([]Record, 4)), 2,
			[]abortedTxn{{p1, 0}}, ReadCommitted, false, "next 4"},
		{"begins later than this batch", log(txn(p1, 0), end(p1, 1, true), txn(p1, 2), end(p1, 3, false)), 0,
			[]abortedTxn{{p1, 2}}, ReadCommitted, false, "0 next 4"},
		{"markers only", log(end(p1, 7, false), end(p2, 8, true)), 7, nil, ReadCommitted, false, "next 9"},
		{"aborted with control", log(txn(p1, 0), end(p1, 1, false)), 0, []abortedTxn{{p1, 0}}, ReadCommitted, true, "1A next 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := batchWalk{tp: testTP, from: tc.from, aborted: tc.aborted, iso: tc.iso, control: tc.control}
			records, next, err := w.walk(nil, tc.raw)
			if err != nil {
				t.Fatal(err)
			}
			if got := offsetsOf(records, next); got != tc.want {
				t.Errorf("read %s, want %s", got, tc.want)
			}
		})
	}
}

func TestCorruptBatches(t *testing.T) {
	good := buildBatch(t, 5, Uncompressed, producerID{-1, -1}, false, []Record{{Value: []byte("first")}})
	batch := func(change func(b []byte)) []byte {
		raw := buildBatch(t, 6, Uncompressed, producerID{-1, -1}, false, []Record{{Key: []byte("k"), Value: []byte("second")}})
		change(raw)
		return raw
	}
	withCRC := func(change func(b []byte)) []byte {
		return batch(func(b []byte) { change(b); fixCRC(b) })
	}
	for _, tc := range []struct {
		name, want string
		raw        []byte
	}{
		{"bit flip", "checksum", batch(func(b []byte) { b[len(b)-1] ^= 1 })},
		{"old format", "message format 1", batch(func(b []byte) { b[batchMagicAt] = 1 })},
		{"length", "batch length 3", batch(func(b []byte) { binary.BigEndian.PutUint32(b[batchLengthAt:], 3) })},
		{"negative length", "batch length -1", batch(func(b []byte) { binary.BigEndian.PutUint32(b[batchLengthAt:], 0xffffffff) })},
		{"negative count", "-1 records", withCRC(func(b []byte) { binary.BigEndian.PutUint32(b[batchCountAt:], 0xffffffff) })},
		{"too many records", "record 1 of 1000000", withCRC(func(b []byte) { binary.BigEndian.PutUint32(b[batchCountAt:], 1000000) })},
		{"negative last delta", "last offset delta -1", withCRC(func(b []byte) { binary.BigEndian.PutUint32(b[batchLastDeltaAt:], 0xffffffff) })},
		{"offset overflow", "base offset", withCRC(func(b []byte) { binary.BigEndian.PutUint64(b[batchOffsetAt:], math.MaxInt64) })},
		{"record length", "ends beyond", withCRC(func(b []byte) { b[batchHeaderSize] = 0x7e })},
		{"key length", "ends beyond", withCRC(func(b []byte) { b[batchHeaderSize+4] = 0x7e })},
		{"header count", "ends beyond", withCRC(func(b []byte) { b[len(b)-1] = 0x7e })},
		{"offset delta", "offset delta 3", withCRC(func(b []byte) { b[batchHeaderSize+3] = 6 })},
		{"unknown compression", "unknown compression 7", withCRC(func(b []byte) { b[batchAttributesAt+1] = 7 })},
		{"not gzip", "gzip", withCRC(func(b []byte) { b[batchAttributesAt+1] = 1 })},
		{"not snappy", "snappy", withCRC(func(b []byte) { b[batchAttributesAt+1] = 2 })},
		{"not lz4", "lz4", withCRC(func(b []byte) { b[batchAttributesAt+1] = 3 })},
		{"not zstd", "zstd", withCRC(func(b []byte) { b[batchAttributesAt+1] = 4 })},
		{"control key", "control record", withCRC(func(b []byte) { b[batchAttributesAt+1] = attrControl })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			records, next, err := batchWalk{tp: testTP}.walk(nil, append(bytes.Clone(good), tc.raw...))
			var corrupt *CorruptBatchError
			if !errors.As(err, &corrupt) {
				t.Fatalf("error %v, want a CorruptBatchError", err)
			}
			if corrupt.Offset != 6 || corrupt.TopicPartition != testTP ||
				!strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "orders-2") {
				t.Errorf("error %q, want offset 6, partition orders-2 and %q", err, tc.want)
			}
			if len(records) != 1 || string(records[0].Value) != "first" || next != 6 {
				t.Errorf("%d records and next %d before the error, want one and 6", len(records), next)
			}
		})
	}
}

// A few bytes must not unpack to gigabytes, nor claim to.
func TestUnpackingIsBounded(t *testing.T) {
	const limit = 1 << 20
	huge := binary.AppendUvarint(nil, limit+1)
	if _, err := unpackRecords(Snappy, append(huge, make([]byte, limit)...), limit); !errors.Is(err, errUnpackedSize) {
		t.Errorf("snappy block: %v", err)
	}
	boast := append(binary.AppendUvarint(nil, 1000), make([]byte, 40)...)
	if _, err := unpackRecords(Snappy, boast, limit); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("snappy block that claims more than it can hold: %v", err)
	}
	frame := append(append(xerialMagic[:], 0, 0, 0, 1, 0, 0, 0, 1), 0x7f, 0xff, 0xff, 0xff)
	if _, err := unpackRecords(Snappy, frame, limit); err == nil {
		t.Error("snappy frame longer than its data was taken")
	}
	for codec := Gzip; codec <= Zstd; codec++ {
		for size, want := range map[int]error{limit: nil, limit + 1: errUnpackedSize} {
			packed, err := compressRecords(codec, nil, make([]byte, size))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := unpackRecords(codec, packed, limit); !errors.Is(err, want) {
				t.Errorf("%s, %d bytes packed into %d: error %v, want %v", codec, size, len(packed), err, want)
			}
		}
	}
}

func TestNextSequence(t *testing.T) {
	for _, tc := range []struct{ sequence, count, want int32 }{
		{0, 1, 1}, {5, 10, 15}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 3, 1},
	} {
		if got := nextSequence(tc.sequence, tc.count); got != tc.want {
			t.Errorf("nextSequence(%d, %d) = %d, want %d", tc.sequence, tc.count, got, tc.want)
		}
	}
}

func TestBatchAppendDoesNotAllocate(t *testing.T) {
	var b batchBuilder
	key, value, headers := []byte("ord-1000"), make([]byte, 140), []Header{{Key: "h", Value: []byte("1")}}
	fill := func() {
		b.reset()
		for range 100 {
			b.append(1789207200000, key, value, headers)
		}
		if _, err := b.finish(Uncompressed, producerID{1, 0}, 0, false); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if n := testing.AllocsPerRun(100, fill); n > 0 {
		t.Errorf("%v allocations for a batch, want none", n)
	}
}

func FuzzWalk(f *testing.F) {
	for codec := Uncompressed; codec <= Zstd; codec++ {
		f.Add(buildBatch(f, 3, codec, producerID{1, 0}, codec%2 == 0, sampleRecords()), int64(4), true)
	}
	f.Add(append(marker(f, 0, producerID{1, 0}, true), marker(f, 1, producerID{1, 0}, false)...), int64(0), false)
	f.Add([]byte{}, int64(0), false)
	f.Fuzz(func(t *testing.T, raw []byte, from int64, fix bool) {
		if fix && len(raw) >= batchHeaderSize { // or nearly all inputs would end at the checksum
			raw = bytes.Clone(raw)
			binary.BigEndian.PutUint32(raw[batchLengthAt:], uint32(len(raw)-batchLengthEnd))
			raw[batchMagicAt] = 2
			fixCRC(raw)
		}
		w := batchWalk{tp: testTP, from: from, aborted: []abortedTxn{{1, 0}}, iso: ReadCommitted, control: true}
		records, next, err := w.walk(nil, raw)
		if next < from {
			t.Errorf("next %d is before %d", next, from)
		}
		for _, r := range records {
			if r.Offset < from || (err == nil && r.Offset >= next) {
				t.Errorf("offset %d outside of %d to %d", r.Offset, from, next)
			}
		}
		var corrupt *CorruptBatchError
		if err != nil && (!errors.As(err, &corrupt) || corrupt.Offset != next) {
			t.Errorf("error %v at next %d", err, next)
		}
	})
}
