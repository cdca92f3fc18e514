package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/store"
)

// TestInput is a topic that a TestDriver's topology reads.
type TestInput[K, V any] struct {
	d      *TestDriver
	topic  string
	keys   Serde[K]
	values Serde[V]
}

// Input pipes records into a topic that the topology reads.
func Input[K, V any](d *TestDriver, topic string, keys Serde[K], values Serde[V]) *TestInput[K, V] {
	return &TestInput[K, V]{d, topic, keys, values}
}

// Pipe sends a record and processes it, with all that comes of it.
func (in *TestInput[K, V]) Pipe(r Record[K, V]) error {
	if in.d.err != nil {
		return in.d.err
	}
	if t := in.d.topics[in.topic]; t == nil || t.sub == nil || t.internal {
		return fmt.Errorf("test driver: the topology does not read topic %s", in.topic)
	}
	out := driverRecord{partition: -1, timestamp: r.Timestamp, headers: r.Headers}
	var err error
	if !r.NullKey {
		if out.key, err = in.keys.Append([]byte{}, r.Key); err != nil {
			return fmt.Errorf("test driver: encode the key for topic %s: %w", in.topic, err)
		}
	}
	if !r.NullValue {
		if out.value, err = in.values.Append([]byte{}, r.Value); err != nil {
			return fmt.Errorf("test driver: encode the value for topic %s: %w", in.topic, err)
		}
	}
	in.d.send(in.topic, out, in.keys.partitionBy)
	return in.d.work()
}

// PipeAt is Pipe of a key and a value at a time in milliseconds since 1970.
func (in *TestInput[K, V]) PipeAt(timestamp int64, key K, value V) error {
	return in.Pipe(Record[K, V]{Key: key, Value: value, Timestamp: timestamp})
}

// TestOutput is a topic that a TestDriver's topology writes.
type TestOutput[K, V any] struct {
	d      *TestDriver
	topic  string
	keys   Serde[K]
	values Serde[V]
	read   int
}

// Output reads the records of a topic that the topology writes, from the beginning. Internal topics have their full name,
// like test-orders-repartition.
func Output[K, V any](d *TestDriver, topic string, keys Serde[K], values Serde[V]) *TestOutput[K, V] {
	return &TestOutput[K, V]{d: d, topic: topic, keys: keys, values: values}
}

// Records are the records since the last call, in the order in which they were written.
func (out *TestOutput[K, V]) Records() ([]Record[K, V], error) {
	t, err := out.d.written(out.topic)
	if err != nil {
		return nil, err
	}
	var records []Record[K, V]
	for ; out.read < len(t.records); out.read++ {
		r, err := decodeRecord(&t.records[out.read], out.keys, out.values)
		if err != nil {
			return records, fmt.Errorf("test driver: topic %s, record %d: %w", out.topic, out.read, err)
		}
		records = append(records, r)
	}
	return records, nil
}

func (d *TestDriver) written(topic string) (*driverTopic, error) {
	if t := d.topics[topic]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("test driver: the topology has no topic %s, only %s", topic, strings.Join(slices.Sorted(maps.Keys(d.topics)), ", "))
}

func decodeRecord[K, V any](from *driverRecord, keys Serde[K], values Serde[V]) (Record[K, V], error) {
	r := Record[K, V]{Timestamp: from.timestamp, Headers: from.headers, NullKey: from.key == nil, NullValue: from.value == nil}
	var err error
	if !r.NullKey {
		if r.Key, err = keys.Decode(from.key); err != nil {
			return r, fmt.Errorf("decode the key: %w", err)
		}
	}
	if !r.NullValue {
		if r.Value, err = values.Decode(from.value); err != nil {
			return r, fmt.Errorf("decode the value: %w", err)
		}
	}
	return r, nil
}

// decodeEntry makes a record of a store's entry, which is never null.
func decodeEntry[K, V any](key, value []byte, ts int64, keys Serde[K], values Serde[V]) (Record[K, V], error) {
	return decodeRecord(&driverRecord{key: append([]byte{}, key...), value: value, timestamp: ts}, keys, values)
}

// Changelog is what a store's changelog topic has got so far, in bytes: for a window store the key, the window's start and
// a sequence number of 0 (store.SplitWindowKey).
func (d *TestDriver) Changelog(storeName string) ([]Record[[]byte, []byte], error) {
	s, err := d.spec(storeName)
	if err != nil {
		return nil, err
	}
	return Output(d, d.changelogTopic(s), Bytes(), Bytes()).Records()
}

func (d *TestDriver) spec(name string) (*storeSpec, error) {
	var known []string
	for _, sub := range d.topology.subs {
		for _, s := range sub.stores {
			if s.Name == name {
				return s, nil
			}
			known = append(known, s.Name)
		}
	}
	return nil, fmt.Errorf("test driver: the topology has no store %s, only %s", name, strings.Join(known, ", "))
}

// Entries are what a key-value store holds, what is not committed included: task by task, in the order of the keys' bytes.
func Entries[K, V any](d *TestDriver, storeName string, keys Serde[K], values Serde[V]) ([]Record[K, V], error) {
	var all []Record[K, V]
	err := d.each(storeName, store.KeyValueKind, func(db *store.DB, decode func(error)) error {
		return db.KeyValue(storeName).Range(func(key, value []byte, ts int64) bool {
			r, err := decodeEntry(key, value, ts, keys, values)
			all = append(all, r)
			decode(err)
			return err == nil
		})
	})
	return all, err
}

// WindowEntries are what a window store holds, expired windows left out.
func WindowEntries[K, V any](d *TestDriver, storeName string, keys Serde[K], values Serde[V]) ([]Record[Windowed[K], V], error) {
	var all []Record[Windowed[K], V]
	spec, err := d.spec(storeName)
	if err != nil {
		return nil, err
	}
	err = d.each(storeName, store.WindowKind, func(db *store.DB, decode func(error)) error {
		return db.Window(storeName).Range(func(key []byte, start int64, value []byte, ts int64) bool {
			r, err := decodeEntry(key, value, ts, keys, values)
			all = append(all, Record[Windowed[K], V]{
				Key: Windowed[K]{Key: r.Key, Start: start, End: start + spec.windowSize.Milliseconds()}, Value: r.Value, Timestamp: ts,
			})
			decode(err)
			return err == nil
		})
	})
	return all, err
}

// each goes through the tasks that have the store.
func (d *TestDriver) each(storeName string, kind store.Kind, fn func(db *store.DB, decode func(error)) error) error {
	if d.err != nil {
		return d.err
	}
	spec, err := d.spec(storeName)
	if err != nil {
		return err
	}
	if spec.Kind != kind {
		return fmt.Errorf("test driver: store %s is a %s store, not a %s store", storeName, spec.Kind, kind)
	}
	var failed error
	for _, t := range d.tasks {
		if !slices.Contains(t.sub.stores, spec) {
			continue
		}
		if err := fn(t.db, func(err error) { failed = err }); err != nil {
			return fmt.Errorf("test driver: store %s: %w", storeName, err)
		}
		if failed != nil {
			return fmt.Errorf("test driver: store %s: %w", storeName, failed)
		}
	}
	return nil
}
