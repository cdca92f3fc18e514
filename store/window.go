package store

import (
	"encoding/binary"
	"fmt"
)

// Window is a timestamped window store. A window is named by its start, in ms since the epoch; its size is not stored.
type Window struct {
	t   *table
	key []byte // scratch
}

// windowSuffixLen is the length of what follows the key: int64 BE window start, int32 BE sequence number.
const windowSuffixLen = 8 + 4

// WindowKey appends the store and changelog key of a window to dst: the key, int64 BE start, int32 BE 0. The last is the
// sequence number, which is other than 0 only in stores with duplicates (Kafka Streams 4.3.1, WindowKeySchema).
func WindowKey(dst, key []byte, start int64) []byte {
	dst = append(dst, key...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(start))
	return append(dst, 0, 0, 0, 0)
}

// SplitWindowKey is the reverse of WindowKey. The error wraps ErrWindowKey. The key is a part of b.
func SplitWindowKey(b []byte) (key []byte, start int64, err error) {
	n := len(b) - windowSuffixLen
	if n < 0 {
		return nil, 0, fmt.Errorf("%w: %x: %d bytes, at least %d needed", ErrWindowKey, b, len(b), windowSuffixLen)
	}
	start = int64(binary.BigEndian.Uint64(b[n:]))
	if seq := binary.BigEndian.Uint32(b[n+8:]); start < 0 || seq != 0 {
		return nil, 0, fmt.Errorf("%w: %x: window start %d, sequence number %d", ErrWindowKey, b, start, seq)
	}
	return b[:n:n], start, nil
}

// windowStart is the start in a key that WindowKey made.
func windowStart[K ~string | ~[]byte](key K) int64 {
	var start uint64
	for i := len(key) - windowSuffixLen; i < len(key)-4; i++ {
		start = start<<8 | uint64(key[i])
	}
	return int64(start)
}

// Get returns the value of a window and its timestamp. A window is hidden once its start is not later than the largest
// window start minus the retention. The value is valid until the next call on the DB or its stores.
func (w *Window) Get(key []byte, start int64) (value []byte, ts int64, ok bool, err error) {
	if start < 0 || w.t.hidden(start) {
		return nil, 0, false, w.t.db.failed
	}
	w.key = WindowKey(w.key[:0], key, start)
	return w.t.get(w.t.segment(start), w.key)
}

// Put sets the value of a window, or deletes it if value is nil. Key, value and headers are copied. A window in a dead
// segment is reported by Flush, since Kafka Streams logs it too, but never stored: the changelog is written above the
// store that refuses it.
func (w *Window) Put(key []byte, start int64, value []byte, ts int64, headers []Header) error {
	if start < 0 {
		return fmt.Errorf("store %s: %w: window start %d", w.t.spec.Name, ErrWindowKey, start)
	}
	w.key = WindowKey(w.key[:0], key, start)
	if err := w.t.put(w.key, value, ts, headers); err != nil {
		return err
	}
	w.t.maxStart = max(w.t.maxStart, start)
	return nil
}

// Flush is KeyValue.Flush. Change.Key is the changelog key, see SplitWindowKey.
func (w *Window) Flush(fn func(Change) error) error { return w.t.flush(fn) }

// MaxStart is the largest window start ever put, uncommitted ones included, -1 if there was none. It survives restarts.
func (w *Window) MaxStart() int64 { return w.t.maxStart }

// Range calls fn for each window that is not hidden, in the byte order of the changelog keys (for keys of the same
// length: by key, then by start), until fn returns false. The slices are valid until fn returns. The DB must not be
// written meanwhile.
func (w *Window) Range(fn func(key []byte, start int64, value []byte, ts int64) bool) error {
	sc, err := w.t.scan(nil, nil)
	if err != nil {
		return err
	}
	return w.each(sc, fn)
}

// Fetch calls fn for each window of one key that starts in [from, to] and is not hidden, by start, until fn returns false.
// The value is valid until fn returns. The DB must not be written meanwhile.
func (w *Window) Fetch(key []byte, from, to int64, fn func(start int64, value []byte, ts int64) bool) error {
	from = max(from, 0)
	if to < from {
		return w.t.db.failed
	}
	sc, err := w.t.scan(WindowKey(nil, key, from), WindowKey(nil, key, to))
	if err != nil {
		return err
	}
	return w.each(sc, func(k []byte, start int64, value []byte, ts int64) bool {
		// A longer key can lie between two windows of this one.
		return len(k) != len(key) || fn(start, value, ts)
	})
}

func (w *Window) each(sc *scanner, fn func(key []byte, start int64, value []byte, ts int64) bool) error {
	for {
		ok, err := sc.next()
		if !ok || err != nil {
			return err
		}
		n := len(sc.key) - windowSuffixLen
		start := windowStart(sc.key)
		if w.t.hidden(start) {
			continue
		}
		if !fn(sc.key[:n:n], start, sc.row[timestampLen:], rowTimestamp(sc.row)) {
			return nil
		}
	}
}
