package store

import (
	"bytes"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// scanner merges the uncommitted entries of a store over its rows in Bolt, in the order of their keys.
type scanner struct {
	t       *table
	heads   []head
	entries []*entry // dirty and flushed, sorted
	to      []byte

	key, row []byte // of the current row; copies, valid until next
}

// head is the next row of a segment. Its slices point into Bolt's memory map.
type head struct {
	cursor   *bolt.Cursor
	key, row []byte // key is nil at the end
}

// scan starts at the first key that is not less than from and ends with the last that is not greater than to; nil means
// no bound.
func (t *table) scan(from, to []byte) (*scanner, error) {
	if t.db.failed != nil {
		return nil, t.db.failed
	}
	s := &scanner{t: t, to: to}
	for _, l := range []*list{&t.overlay.dirty, &t.overlay.flushed} {
		for e := l.front; e != nil; e = e.next {
			if e.key >= string(from) && (to == nil || e.key <= string(to)) {
				s.entries = append(s.entries, e)
			}
		}
	}
	slices.SortFunc(s.entries, func(a, b *entry) int { return strings.Compare(a.key, b.key) })
	if err := s.seek(from); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *scanner) seek(from []byte) (err error) {
	defer s.t.db.losing("read", &err)
	return guarded(func() error {
		segments, err := s.t.segments()
		if err != nil {
			return err
		}
		rowKey := s.t.appendRowKey(nil, from)
		for _, segment := range segments {
			c, err := s.t.cursor(segment)
			if err != nil {
				return err
			}
			if c == nil {
				continue
			}
			// A cursor of its own, so that reads during the scan do not move it.
			h := head{cursor: c.Bucket().Cursor()}
			h.key, h.row = h.cursor.Seek(rowKey)
			s.heads = append(s.heads, h)
		}
		return nil
	})
}

// segments lists the segments in Bolt, for a key-value store the one that stands for the whole. To be called inside a
// guard.
func (t *table) segments() ([]int64, error) {
	if _, err := t.cursor(noSegment); err != nil { // positions t.bucket at the current view
		return nil, err
	}
	if t.spec.Kind == KeyValueKind || t.bucket == nil {
		return []int64{noSegment}, nil
	}
	return segmentsOf(t.bucket)
}

// next moves to the next row and reports whether there is one.
func (s *scanner) next() (ok bool, err error) {
	if s.t.db.failed != nil {
		return false, s.t.db.failed
	}
	defer s.t.db.losing("read", &err)
	err = guarded(func() error {
		for {
			h := s.least()
			if len(s.entries) > 0 {
				e := s.entries[0]
				order := -1
				if h != nil {
					order = strings.Compare(e.key, string(s.t.overlayKey(h.key)))
				}
				if order == 0 {
					h.key, h.row = h.cursor.Next()
				}
				if order <= 0 {
					s.entries = s.entries[1:]
					if e.deleted {
						continue
					}
					s.key = append(s.key[:0], e.key...)
					s.row = append(s.row[:0], e.row...)
					ok = true
					return nil
				}
			}
			if h == nil {
				return nil
			}
			if len(h.row) < timestampLen {
				return shortRow(s.t.spec.Name, h.key, h.row)
			}
			s.key = append(s.key[:0], s.t.overlayKey(h.key)...)
			s.row = append(s.row[:0], h.row...)
			h.key, h.row = h.cursor.Next()
			ok = true
			return nil
		}
	})
	return ok, err
}

// least is the head with the smallest key, nil if there is none within bounds.
func (s *scanner) least() *head {
	var least *head
	for i := range s.heads {
		h := &s.heads[i]
		if h.key != nil && (least == nil || bytes.Compare(h.key, least.key) < 0) {
			least = h
		}
	}
	if least != nil && s.to != nil && bytes.Compare(s.t.overlayKey(least.key), s.to) > 0 {
		return nil
	}
	return least
}

// overlayKey is the reverse of appendRowKey.
func (t *table) overlayKey(rowKey []byte) []byte {
	if t.spec.Kind == KeyValueKind {
		return rowKey[1:]
	}
	return rowKey
}
