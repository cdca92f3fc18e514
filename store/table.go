package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
)

// The buckets of a state file. A store's bucket is named by its kind and name, so the file itself tells the kind.
const (
	metaBucket     = "meta"
	keyValuePrefix = "key-value/"
	windowPrefix   = "window/"
)

// rowPrefix comes before each key of a key-value bucket, because Bolt has no empty keys.
const rowPrefix = 'k'

// noSegment stands for the segment of a key-value store, which has none.
const noSegment = 0

// table is what key-value and window stores have in common: an overlay over a Bolt bucket. A window store's bucket holds
// a nested bucket for each segment, as each segment is a RocksDB of its own in Kafka Streams: expiry deletes it whole.
type table struct {
	db      *DB
	spec    Spec
	overlay overlay

	// Window stores only, in ms. maxStart is the largest window start ever put, -1 if none.
	retention, interval         int64
	maxStart, committedMaxStart int64

	gen     uint64                 // of the view that cursors belong to
	bucket  *bolt.Bucket           // nil if nothing was ever written
	cursors map[int64]*bolt.Cursor // by segment; nil for a segment that does not exist

	rowKey []byte // scratch: the key of a row
	key    []byte // scratch: the key of a change
	old    []byte // scratch: its old value
}

func newTable(db *DB, spec Spec) *table {
	t := &table{
		db:                db,
		spec:              spec,
		overlay:           overlay{budget: db.budget, keepOld: spec.OldValues, entries: make(map[string]*entry)},
		maxStart:          -1,
		committedMaxStart: -1,
		cursors:           make(map[int64]*bolt.Cursor),
		key:               make([]byte, 0, 64), // never nil, so that an empty key is not either
	}
	if spec.Kind == WindowKind {
		t.retention = spec.Retention.Milliseconds()
		t.interval = max(t.retention/2, int64(minSegmentInterval/time.Millisecond))
	}
	return t
}

func (t *table) bucketName() []byte {
	if t.spec.Kind == WindowKind {
		return []byte(windowPrefix + t.spec.Name)
	}
	return []byte(keyValuePrefix + t.spec.Name)
}

// segment is the segment of a window start, which is not negative.
func (t *table) segment(start int64) int64 { return start / t.interval }

// minLiveSegment is the oldest segment that is not expired once maxStart was put (Kafka Streams 4.3.1,
// AbstractSegments.getOrCreateSegmentIfLive).
func (t *table) minLiveSegment(maxStart int64) int64 { return (maxStart - t.retention) / t.interval }

// hidden reports whether reads no longer see a window, which may still be in Bolt as part of a live segment
// (Kafka Streams 4.3.1, AbstractRocksDBSegmentedBytesStore.get).
func (t *table) hidden(start int64) bool { return start < t.maxStart-t.retention+1 }

// expired reports whether Bolt does not take the entry, or has deleted it, because its segment is dead.
func (t *table) expired(e *entry) bool {
	return t.spec.Kind == WindowKind && t.segment(windowStart(e.key)) < t.minLiveSegment(t.maxStart)
}

// segmentKey is the name of a segment's bucket: big endian, so that buckets come in the order of time.
func segmentKey(segment int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(segment)) }

// appendRowKey makes the Bolt key of an overlay key.
func (t *table) appendRowKey(dst, key []byte) []byte {
	if t.spec.Kind == KeyValueKind {
		dst = append(dst, rowPrefix)
	}
	return append(dst, key...)
}

// checkKey checks the length of an overlay key.
func (t *table) checkKey(key []byte) error {
	n := len(key)
	if t.spec.Kind == WindowKind {
		n -= windowSuffixLen
	}
	if n > MaxKeyBytes {
		return fmt.Errorf("store %s: %w: %d bytes, at most %d fit", t.spec.Name, ErrKeyTooLarge, n, MaxKeyBytes)
	}
	return nil
}

// cursor returns a cursor over a segment, nil if it does not exist. To be called inside a guard.
func (t *table) cursor(segment int64) (*bolt.Cursor, error) {
	tx, err := t.db.file.read()
	if err != nil {
		return nil, err
	}
	if t.gen != t.db.file.gen {
		clear(t.cursors)
		t.gen = t.db.file.gen
		t.bucket = tx.Bucket(t.bucketName())
	}
	c, known := t.cursors[segment]
	if known {
		return c, nil
	}
	b := t.bucket
	if b != nil && t.spec.Kind == WindowKind {
		b = b.Bucket(segmentKey(segment))
	}
	if b != nil {
		c = b.Cursor()
	}
	t.cursors[segment] = c
	return c, nil
}

// lookup reads a row from Bolt into scratch memory that the next call overwrites. Rows are not taken into the overlay:
// the page cache holds them already, and a read costs no allocation.
func (t *table) lookup(segment int64, key []byte) (row []byte, ok bool, err error) {
	defer t.db.losing("read", &err)
	defer recovered(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	c, err := t.cursor(segment)
	if err != nil || c == nil {
		return nil, false, err
	}
	t.rowKey = t.appendRowKey(t.rowKey[:0], key)
	k, v := c.Seek(t.rowKey)
	if !bytes.Equal(k, t.rowKey) {
		return nil, false, nil
	}
	if len(v) < timestampLen {
		return nil, false, shortRow(t.spec.Name, k, v)
	}
	t.db.row = append(t.db.row[:0], v...)
	return t.db.row, true, nil
}

func shortRow(store string, key, row []byte) error {
	return fmt.Errorf("%w: store %s, key %x: a row of %d bytes has no timestamp", errDamaged, store, key, len(row))
}

// get reads an overlay key.
func (t *table) get(segment int64, key []byte) (value []byte, ts int64, ok bool, err error) {
	if t.db.failed != nil {
		return nil, 0, false, t.db.failed
	}
	if e := t.overlay.get(key); e != nil {
		if e.deleted {
			return nil, 0, false, nil
		}
		return e.value(), e.timestamp(), true, nil
	}
	row, ok, err := t.lookup(segment, key)
	if !ok || err != nil {
		return nil, 0, false, err
	}
	return row[timestampLen:], rowTimestamp(row), true, nil
}

// put changes an overlay key.
func (t *table) put(key, value []byte, ts int64, headers []Header) error {
	if t.db.failed != nil {
		return t.db.failed
	}
	if err := t.checkKey(key); err != nil {
		return err
	}
	t.overlay.put(key, value, ts, headers)
	return nil
}

// flush hands the dirty entries to fn. Should fn put the very key it is called for, the entry is dirty again and comes
// once more.
func (t *table) flush(fn func(Change) error) error {
	if t.db.failed != nil {
		return t.db.failed
	}
	o := &t.overlay
	for e := o.dirty.front; e != nil; e = o.dirty.front {
		t.key = append(t.key[:0], e.key...)
		had, old, err := t.logged(e, t.key)
		if err != nil {
			return err
		}
		before, beforeOld := e.logged, e.old
		o.dirty.remove(e)
		o.flushed.pushBack(e)
		e.state = stateFlushed
		e.logged, e.old = presencePresent, nil
		if e.deleted {
			e.logged = presenceAbsent
			// A deletion is dropped if the changelog has no value for the key (Kafka Streams 4.3.1,
			// CachingKeyValueStore.putAndMaybeForward, which reads the store below the cache).
			if !had && !t.spec.EveryDeletion {
				continue
			}
		}
		c := Change{Key: t.key, Old: old, Timestamp: e.timestamp(), Headers: e.headers, Deleted: e.deleted}
		if !e.deleted {
			c.Value = e.value()
		}
		if err := fn(c); err != nil {
			if e.state == stateFlushed {
				o.flushed.remove(e)
				o.dirty.pushFront(e)
				e.state = stateDirty
			}
			e.logged, e.old = before, beforeOld
			return err
		}
	}
	return nil
}

// logged reports whether the changelog has a value for the key of a dirty entry, if that matters, and which, if the store
// hands over old values.
func (t *table) logged(e *entry, key []byte) (had bool, old []byte, err error) {
	if !e.deleted && !t.spec.OldValues {
		return true, nil, nil
	}
	segment := int64(noSegment)
	if t.spec.Kind == WindowKind {
		start := windowStart(e.key)
		if t.hidden(start) {
			return false, nil, nil
		}
		segment = t.segment(start)
	}
	switch {
	case e.logged == presenceAbsent:
		return false, nil, nil
	case e.logged == presencePresent && (!t.spec.OldValues || e.old != nil):
		return true, e.old, nil
	}
	row, found, err := t.lookup(segment, key)
	if err != nil {
		return false, nil, err
	}
	had = found || e.logged == presencePresent
	if !found || !t.spec.OldValues {
		return had, nil, nil
	}
	if t.old == nil {
		t.old = make([]byte, 0, 64)
	}
	t.old = append(t.old[:0], row[timestampLen:]...) // fn may read the stores
	return had, t.old, nil
}
