package streams

import (
	"time"

	"github.com/windowed-order-counter/lab/store"
)

// Header is one header of a record. Input headers travel with a record to every sink; an aggregate's output
// carries those of the record that last updated the entry (Kafka Streams 4.3.1, CachingKeyValueStore).
type Header = store.Header

// Record is one record on its way through the topology.
//
// A null key or value never meets a Serde: NullKey and NullValue carry it, and Key or Value then is the zero
// value of its type. A user function is handed that zero value; what Map, MapValues, FlatMap and FlatMapValues
// make of a null value is null again, so a tombstone stays one on its way to a compacted topic.
type Record[K, V any] struct {
	Key   K
	Value V
	// Timestamp is the event time in milliseconds since 1970, never negative.
	Timestamp int64
	Headers   []Header
	NullKey   bool
	NullValue bool
}

// withValue is r with another value: what an operator that keeps the key forwards.
func withValue[K, V, V2 any](r *Record[K, V], v V2) Record[K, V2] {
	return Record[K, V2]{
		Key: r.Key, Value: v, Timestamp: r.Timestamp, Headers: r.Headers,
		NullKey: r.NullKey, NullValue: r.NullValue,
	}
}

// Windowed is the key of a windowed aggregate: a key in the window [Start, End), both in milliseconds since 1970.
type Windowed[K any] struct {
	Key        K
	Start, End int64
}

// StartTime is the window's start as Java's Instant.toString prints it: UTC, seconds always, a fraction only
// where there is one, "2026-09-12T10:01:00Z".
func (w Windowed[K]) StartTime() string {
	t := time.UnixMilli(w.Start).UTC()
	if t.Nanosecond() == 0 {
		return t.Format("2006-01-02T15:04:05Z")
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}
