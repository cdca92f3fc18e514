package store

// KeyValue is a timestamped key-value store.
type KeyValue struct{ t *table }

// Get returns the value of a key and its timestamp. The value is valid until the next call on the DB or its stores. A
// read from the overlay allocates nothing.
func (s *KeyValue) Get(key []byte) (value []byte, ts int64, ok bool, err error) {
	return s.t.get(noSegment, key)
}

// Put sets the value of a key, or deletes it if value is nil. Key, value and headers are copied. The key becomes the last
// in the flush order. Putting a key that is in the overlay allocates nothing if its value has not grown.
func (s *KeyValue) Put(key, value []byte, ts int64, headers []Header) error {
	return s.t.put(key, value, ts, headers)
}

// Flush calls fn for each entry changed since the last flush, in the order of their last update, and marks it flushed.
// A deletion of a key that the changelog does not have is left out. An error of fn ends the flush and is returned; the
// entry stays dirty. The store may be read and put by fn, also by way of processors downstream.
func (s *KeyValue) Flush(fn func(Change) error) error { return s.t.flush(fn) }

// Range is Between without bounds.
func (s *KeyValue) Range(fn func(key, value []byte, ts int64) bool) error {
	return s.Between(nil, nil, fn)
}

// Between calls fn for each key that is not less than from and not greater than to, nil being no bound, in byte order,
// uncommitted ones included, until fn returns false. The slices are valid until fn returns. fn may put: a change of a key
// that is still to come may show or not. The DB must not be committed, restored, reset or rolled back meanwhile.
func (s *KeyValue) Between(from, to []byte, fn func(key, value []byte, ts int64) bool) error {
	sc, err := s.t.scan(from, to)
	if err != nil {
		return err
	}
	for {
		ok, err := sc.next()
		if !ok || err != nil {
			return err
		}
		if !fn(sc.key, sc.row[timestampLen:], rowTimestamp(sc.row)) {
			return nil
		}
	}
}
