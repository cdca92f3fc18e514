package kafka

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldenRecords are those that testdata/Golden.java sends.
func goldenRecords() []Record {
	order := `{"orderId":"ord-1000","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207200000}`
	plain := bytes.TrimRight(bytes.Repeat([]byte("plain value "), 9), " ")
	return []Record{
		{Offset: 0, Timestamp: 1789207200000, Key: []byte("ord-1000"), Value: []byte(order)},
		{Offset: 1, Timestamp: 1789207200200},
		{Offset: 2, Timestamp: 1789207199000, Key: []byte{}, Value: []byte{}, Headers: []Header{
			{Key: "h1", Value: []byte("a")}, {Key: "h1"}, {Key: "żółw", Value: []byte{}},
		}},
		{Offset: 3, Timestamp: 0, Key: []byte("store-17"), Value: plain},
	}
}

func readGolden(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Batches as the Java producer packs them and as Apache Kafka 4.3.1 stores them.
func TestReadBatchesOfJava(t *testing.T) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			raw := readGolden(t, "java-"+codec+".batch")
			first := raw[:batchLengthEnd+binary.BigEndian.Uint32(raw[batchLengthAt:])]
			if got := Compression(first[batchAttributesAt+1] & attrCompression).String(); got != codec {
				t.Fatalf("the file has compression %s", got)
			}
			got, next, err := batchWalk{tp: testTP}.walk(nil, first)
			if err != nil || next != 4 {
				t.Fatalf("next offset %d, error %v", next, err)
			}
			if diff := cmp.Diff(goldenRecords(), got); diff != "" {
				t.Errorf("records (-sent by Java +read):\n%s", diff)
			}
		})
	}
}

// Our bytes for the same records are those of Java, the checksum included.
func TestWriteBatchesLikeJava(t *testing.T) {
	raw := readGolden(t, "java-none.batch")
	want := bytes.Clone(raw[:batchLengthEnd+binary.BigEndian.Uint32(raw[batchLengthAt:])])
	binary.BigEndian.PutUint32(want[batchLeaderEpochAt:], 0xffffffff) // the broker has put its own in, outside of the checksum
	var b batchBuilder
	b.reset()
	for _, r := range goldenRecords() {
		b.append(r.Timestamp, r.Key, r.Value, r.Headers)
	}
	producer := producerID{
		id:    int64(binary.BigEndian.Uint64(want[batchProducerAt:])),
		epoch: int16(binary.BigEndian.Uint16(want[batchEpochAt:])),
	}
	got, err := b.finish(Uncompressed, producer, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("batch (-Java +ours):\n%s", diff)
	}
}

// The broker's transaction markers: a committed transaction of four records, and an aborted one.
func TestReadMarkersOfTheBroker(t *testing.T) {
	raw := readGolden(t, "java-none.batch")
	producer := int64(binary.BigEndian.Uint64(raw[batchProducerAt:]))
	for _, tc := range []struct {
		iso     Isolation
		control bool
		want    string
	}{
		{ReadUncommitted, false, "0 1 2 3 5 next 7"},
		{ReadUncommitted, true, "0 1 2 3 4C 5 6A next 7"},
		{ReadCommitted, false, "0 1 2 3 next 7"},
	} {
		records, next, err := batchWalk{tp: testTP, aborted: []abortedTxn{{producer, 5}}, iso: tc.iso, control: tc.control}.walk(nil, raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := offsetsOf(records, next); got != tc.want {
			t.Errorf("isolation %d, control %t: read %s, want %s", tc.iso, tc.control, got, tc.want)
		}
	}
}
