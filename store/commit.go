package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Commit writes the flushed entries, the positions and the stream times in one Bolt transaction, and deletes what has
// expired. It does not wait for the disk where state.mark can tell a killed process from a lost machine.
//
// An error that wraps ErrLost means that the file could not be written. Any other error is a mistake of the caller;
// nothing was written then, and the entries are still there.
func (db *DB) Commit(c Commit) error {
	if db.failed != nil {
		return db.failed
	}
	for _, t := range db.tables {
		if t.overlay.dirty.n > 0 {
			return fmt.Errorf("commit %s: store %s: %w: %d", db.path, t.spec.Name, ErrUnflushed, t.overlay.dirty.n)
		}
	}
	for name := range c.Positions {
		if _, err := db.loggedTable(name); err != nil {
			return fmt.Errorf("commit %s: %w", db.path, err)
		}
	}
	positions := make(map[string]Position, len(c.Positions))
	for name, p := range c.Positions {
		p.CommittedAt = c.At
		positions[name] = p
	}
	err := db.update("commit", func(tx *bolt.Tx, meta *bolt.Bucket) error {
		for _, t := range db.tables {
			if err := t.write(tx, meta); err != nil {
				return err
			}
		}
		for name, p := range positions {
			if err := putPosition(meta, name, p); err != nil {
				return err
			}
		}
		for key, ms := range c.StreamTimes {
			if err := putInt64(meta, streamTimeKey+key, ms); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name, p := range positions {
		db.setPosition(name, p)
	}
	for key, ms := range c.StreamTimes {
		db.streamTimes[key] = ms
	}
	for _, t := range db.tables {
		t.settle()
	}
	return db.check("commit")
}

// Rollback drops what is not committed, largest window starts included.
func (db *DB) Rollback() {
	for _, t := range db.tables {
		t.overlay.rollback()
		t.maxStart = t.committedMaxStart
	}
}

// restoreChunk is the number of entries in one Bolt transaction of a large Restore. Bolt holds each page that a
// transaction touches as a node in memory, about 10 KB for small rows.
const restoreChunk = 4096

// Restore applies changelog records to a store and moves its position. Entries of the same key apply in their order. A
// large batch is written in the order of keys, so that it goes through the file once whatever its size: in the order of
// the changelog each entry would be on another page. It takes several Bolt transactions then, and the position is in the
// last of them: after a crash in between the same records are restored again, over themselves. A window store first
// advances its largest window start over the whole batch and then skips the records of dead segments, as Kafka Streams
// 4.3.1 does (AbstractRocksDBSegmentedBytesStore.restoreAllInternal); applied counts the others.
//
// Errors are as those of Commit: the store is unchanged unless the DB is lost.
func (db *DB) Restore(store string, entries []Entry, pos Position) (applied int, err error) {
	if db.failed != nil {
		return 0, db.failed
	}
	t, err := db.loggedTable(store)
	if err != nil {
		return 0, fmt.Errorf("restore %s: %w", db.path, err)
	}
	if n := t.overlay.uncommitted(); n > 0 {
		return 0, fmt.Errorf("restore %s: store %s: %w: %d", db.path, store, ErrUncommitted, n)
	}
	maxStart := t.maxStart
	for i := range entries {
		if entries[i].Key == nil {
			continue
		}
		err := t.checkKey(entries[i].Key)
		if err == nil && t.spec.Kind == WindowKind {
			var start int64
			_, start, err = SplitWindowKey(entries[i].Key)
			maxStart = max(maxStart, start)
		}
		if err != nil {
			return 0, fmt.Errorf("restore %s: store %s: record %d of a batch up to offset %d: %w", db.path, store, i, pos.Next, err)
		}
	}
	t.maxStart = maxStart
	rest := entries
	if len(rest) > restoreChunk {
		rest = slices.SortedStableFunc(slices.Values(rest), func(a, b Entry) int { return bytes.Compare(a.Key, b.Key) })
	}
	for last := false; !last; {
		chunk := rest[:min(len(rest), restoreChunk)]
		rest = rest[len(chunk):]
		last = len(rest) == 0
		err = db.update("restore", func(tx *bolt.Tx, meta *bolt.Bucket) error {
			n, err := t.restore(tx, meta, chunk)
			if err != nil {
				return err
			}
			applied += n
			if !last {
				return nil
			}
			return putPosition(meta, store, pos)
		})
		if err != nil {
			return 0, err
		}
	}
	for i := range entries {
		if e := t.overlay.entries[string(entries[i].Key)]; e != nil {
			t.overlay.discard(e)
		}
	}
	t.settle()
	db.setPosition(store, pos)
	return applied, db.check("restore")
}

// restore puts entries into Bolt and counts those that are not expired.
func (t *table) restore(tx *bolt.Tx, meta *bolt.Bucket, entries []Entry) (applied int, err error) {
	w, err := t.writer(tx, meta)
	if err != nil {
		return 0, err
	}
	for i := range entries {
		e := &entries[i]
		if e.Key == nil {
			continue
		}
		segment := int64(noSegment)
		if t.spec.Kind == WindowKind {
			if segment = t.segment(windowStart(e.Key)); segment < t.minLiveSegment(t.maxStart) {
				continue
			}
		}
		var row []byte
		if e.Value != nil {
			row = binary.BigEndian.AppendUint64(make([]byte, 0, timestampLen+len(e.Value)), uint64(e.Timestamp))
			row = append(row, e.Value...)
		}
		if err := w.set(segment, e.Key, row); err != nil {
			return 0, err
		}
		applied++
	}
	return applied, w.finish(meta)
}

// Reset empties a store and forgets its position, for a rebuild from the start of the changelog. Uncommitted entries of
// the store are dropped.
func (db *DB) Reset(store string) error {
	if db.failed != nil {
		return db.failed
	}
	t := db.byName[store]
	if t == nil {
		return fmt.Errorf("reset %s: no store %s", db.path, store)
	}
	err := db.update("reset", func(tx *bolt.Tx, meta *bolt.Bucket) error {
		if tx.Bucket(t.bucketName()) != nil {
			if err := tx.DeleteBucket(t.bucketName()); err != nil {
				return err
			}
		}
		for _, key := range []string{positionKey, maxStartKey, intervalKey} {
			if err := meta.Delete([]byte(key + store)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.overlay.clear()
	t.maxStart, t.committedMaxStart = -1, -1
	delete(db.positions, store)
	return nil
}

func (db *DB) loggedTable(store string) (*table, error) {
	t := db.byName[store]
	switch {
	case t == nil:
		return nil, fmt.Errorf("no store %s", store)
	case !t.spec.Logged:
		return nil, fmt.Errorf("store %s has no changelog", store)
	}
	return t, nil
}

// setPosition remembers a position as a reader of the file would see it.
func (db *DB) setPosition(store string, p Position) {
	p.CommittedAt = time.UnixMilli(p.CommittedAt.UnixMilli())
	db.positions[store] = p
}

// update runs fn in a write transaction after state.mark has been made to say that the file may be ahead of the disk. An
// error means that the DB is lost.
func (db *DB) update(op string, fn func(tx *bolt.Tx, meta *bolt.Bucket) error) (err error) {
	defer db.losing(op, &err)
	mark := markClean // each commit is synced, so the file can be trusted at any time
	if db.hasBootID {
		mark = openMark(db.bootID)
	}
	if err := db.setMark(mark); err != nil {
		return err
	}
	return guarded(func() error {
		return db.file.update(func(tx *bolt.Tx) error {
			meta := tx.Bucket([]byte(metaBucket))
			if meta == nil {
				var err error
				if meta, err = tx.CreateBucket([]byte(metaBucket)); err != nil {
					return err
				}
				if err = meta.Put([]byte(formatKey), binary.BigEndian.AppendUint32(nil, formatVersion)); err != nil {
					return err
				}
			}
			return fn(tx, meta)
		})
	})
}

// write puts the flushed entries of a store into Bolt.
func (t *table) write(tx *bolt.Tx, meta *bolt.Bucket) error {
	if t.overlay.flushed.n == 0 && t.maxStart == t.committedMaxStart {
		return nil
	}
	w, err := t.writer(tx, meta)
	if err != nil {
		return err
	}
	for e := t.overlay.flushed.front; e != nil; e = e.next {
		segment := int64(noSegment)
		if t.spec.Kind == WindowKind {
			if t.expired(e) {
				continue
			}
			segment = t.segment(windowStart(e.key))
		}
		row := e.row
		if e.deleted {
			row = nil
		}
		t.key = append(t.key[:0], e.key...)
		if err := w.set(segment, t.key, row); err != nil {
			return err
		}
	}
	return w.finish(meta)
}

// settle follows a committed transaction in memory.
func (t *table) settle() {
	t.overlay.settle(t.expired)
	if t.spec.Kind != WindowKind {
		return
	}
	before := t.minLiveSegment(t.committedMaxStart)
	t.committedMaxStart = t.maxStart
	if t.minLiveSegment(t.maxStart) == before {
		return
	}
	for _, e := range t.overlay.entries { // clean entries of the segments that have just died
		if t.expired(e) {
			t.overlay.discard(e)
		}
	}
}

// writer writes the rows of one store in one transaction.
type writer struct {
	t        *table
	bucket   *bolt.Bucket
	segments map[int64]*bolt.Bucket
}

func (t *table) writer(tx *bolt.Tx, meta *bolt.Bucket) (*writer, error) {
	b, err := tx.CreateBucketIfNotExists(t.bucketName())
	if err != nil {
		return nil, err
	}
	w := &writer{t: t, bucket: b}
	if t.spec.Kind == WindowKind {
		w.segments = make(map[int64]*bolt.Bucket)
		if err := putInt64(meta, intervalKey+t.spec.Name, t.interval); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// set puts a row, or deletes it if it is nil. Bolt copies the key and keeps the row until the transaction ends.
func (w *writer) set(segment int64, key, row []byte) error {
	b, err := w.segment(segment, row != nil)
	if err != nil || b == nil {
		return err
	}
	w.t.rowKey = w.t.appendRowKey(w.t.rowKey[:0], key)
	if row == nil {
		return b.Delete(w.t.rowKey)
	}
	return b.Put(w.t.rowKey, row)
}

// segment returns the bucket of a segment, nil if it does not exist and is not wanted.
func (w *writer) segment(segment int64, create bool) (*bolt.Bucket, error) {
	if w.t.spec.Kind == KeyValueKind {
		return w.bucket, nil
	}
	if b := w.segments[segment]; b != nil {
		return b, nil
	}
	name := segmentKey(segment)
	b := w.bucket.Bucket(name)
	if b == nil && create {
		var err error
		if b, err = w.bucket.CreateBucket(name); err != nil {
			return nil, err
		}
	}
	if b != nil {
		w.segments[segment] = b
	}
	return b, nil
}

// finish deletes the segments that have died and writes down the largest window start.
func (w *writer) finish(meta *bolt.Bucket) error {
	t := w.t
	if t.spec.Kind == KeyValueKind || t.maxStart == t.committedMaxStart {
		return nil
	}
	segments, err := segmentsOf(w.bucket)
	if err != nil {
		return err
	}
	for _, segment := range segments {
		if segment >= t.minLiveSegment(t.maxStart) {
			break
		}
		if err := w.bucket.DeleteBucket(segmentKey(segment)); err != nil {
			return err
		}
	}
	return putInt64(meta, maxStartKey+t.spec.Name, t.maxStart)
}

// segmentsOf lists the segments of a window store, oldest first.
func segmentsOf(b *bolt.Bucket) ([]int64, error) {
	var segments []int64
	err := b.ForEachBucket(func(k []byte) error {
		if len(k) != 8 {
			return fmt.Errorf("%w: a segment named %x", errDamaged, k)
		}
		segments = append(segments, int64(binary.BigEndian.Uint64(k)))
		return nil
	})
	return segments, err
}

func putInt64(meta *bolt.Bucket, key string, v int64) error {
	return meta.Put([]byte(key), binary.BigEndian.AppendUint64(nil, uint64(v)))
}

func putPosition(meta *bolt.Bucket, store string, p Position) error {
	b := append(make([]byte, 0, positionLength), p.TopicID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(p.Next))
	b = binary.BigEndian.AppendUint64(b, uint64(p.CommittedAt.UnixMilli()))
	return meta.Put([]byte(positionKey+store), b)
}

// check is the strict mode: the file is consistent, no dead segment is left, and each clean entry equals its row.
func (db *DB) check(op string) (err error) {
	if !db.strict {
		return nil
	}
	defer db.losing(op, &err)
	return guarded(func() error {
		tx, err := db.file.read()
		if err != nil {
			return err
		}
		var damage []error
		for err := range tx.Check() {
			damage = append(damage, fmt.Errorf("%w: %w", errDamaged, err))
		}
		for _, t := range db.tables {
			damage = append(damage, t.check())
		}
		return errors.Join(damage...)
	})
}

func (t *table) check() error {
	segments, err := t.segments()
	if err != nil {
		return err
	}
	for _, segment := range segments {
		if t.spec.Kind == WindowKind && t.bucket != nil && segment < t.minLiveSegment(t.maxStart) {
			return fmt.Errorf("%w: store %s: segment %d is dead", errDamaged, t.spec.Name, segment)
		}
	}
	for key, e := range t.overlay.entries {
		if e.state != stateClean {
			continue
		}
		segment := int64(noSegment)
		if t.spec.Kind == WindowKind {
			segment = t.segment(windowStart(key))
		}
		c, err := t.cursor(segment)
		if err != nil {
			return err
		}
		rowKey := t.appendRowKey(nil, []byte(key))
		if c != nil {
			if k, v := c.Seek(rowKey); string(k) == string(rowKey) && string(v) == string(e.row) {
				continue
			}
		}
		return fmt.Errorf("%w: store %s: the clean entry %x is not what Bolt holds", errDamaged, t.spec.Name, key)
	}
	return nil
}
