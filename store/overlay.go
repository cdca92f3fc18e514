package store

import "encoding/binary"

// overlay holds the entries of one store that are newer than Bolt (dirty, flushed) and some that equal it (clean).
type overlay struct {
	budget  *Budget
	keepOld bool // Spec.OldValues
	entries map[string]*entry
	dirty   list // not yet through Flush, in the order of the last update (Kafka Streams 4.3.1, NamedCache)
	flushed list // through Flush, not yet in Bolt
}

type entryState uint8

const (
	stateDirty   entryState = iota // on overlay.dirty
	stateFlushed                   // on overlay.flushed
	stateClean                     // on Budget.lru
)

// presence is what the changelog last said of a key, as far as known without a look into Bolt.
type presence uint8

const (
	presenceUnknown presence = iota
	presenceAbsent
	presencePresent
)

const timestampLen = 8

type entry struct {
	key     string
	row     []byte // int64 BE timestamp, then the value: the bytes that Bolt holds
	old     []byte // value of the last flush, if that is not in Bolt yet and the entry was put again; see Spec.OldValues
	headers []Header
	hbuf    []byte // backs the header values
	size    int64
	owner   *overlay
	state   entryState
	logged  presence
	deleted bool

	prev, next *entry
}

func (e *entry) value() []byte    { return e.row[timestampLen:] }
func (e *entry) timestamp() int64 { return rowTimestamp(e.row) }

func rowTimestamp(row []byte) int64 { return int64(binary.BigEndian.Uint64(row)) }

// entryOverhead is the fixed part of an entry's size (Kafka Streams 4.3.1, NamedCache.LRUNode and LRUCacheEntry): node,
// flags, record context. The topic name of the record context is left out: it is shared, not copied.
const entryOverhead = 24 + 1 + 20

func (e *entry) measure() int64 {
	n := len(e.key) + entryOverhead + len(e.row)
	for i := range e.headers {
		n += len(e.headers[i].Key) + len(e.headers[i].Value)
	}
	return int64(n)
}

func (e *entry) set(value []byte, ts int64, headers []Header) {
	e.deleted = value == nil
	n := timestampLen + len(value)
	if cap(e.row) < n {
		e.row = make([]byte, n)
	}
	e.row = e.row[:n]
	copy(e.row[timestampLen:], value) // value may be this very row (Get, change in place, Put)
	binary.BigEndian.PutUint64(e.row, uint64(ts))

	e.headers, e.hbuf = e.headers[:0], e.hbuf[:0]
	for _, h := range headers {
		c := Header{Key: h.Key}
		if h.Value != nil {
			at := len(e.hbuf)
			e.hbuf = append(e.hbuf, h.Value...)
			c.Value = e.hbuf[at:len(e.hbuf):len(e.hbuf)]
		}
		e.headers = append(e.headers, c)
	}
}

// get returns the entry of a key, nil if there is none, and counts as a use of it.
func (o *overlay) get(key []byte) *entry {
	e := o.entries[string(key)]
	if e != nil && e.state == stateClean {
		o.budget.lru.moveToBack(e)
	}
	return e
}

// put makes the entry of key the last of the dirty ones.
func (o *overlay) put(key, value []byte, ts int64, headers []Header) {
	e := o.entries[string(key)]
	switch {
	case e == nil:
		e = &entry{key: string(key), owner: o}
		o.entries[e.key] = e
		o.dirty.pushBack(e)
	case e.state == stateDirty:
		o.dirty.moveToBack(e)
	case e.state == stateFlushed:
		if o.keepOld && !e.deleted {
			e.old = append(make([]byte, 0, len(e.value())), e.value()...)
		}
		o.flushed.remove(e)
		o.dirty.pushBack(e)
	case e.state == stateClean:
		o.budget.lru.remove(e)
		o.budget.clean -= e.size
		o.budget.dirty += e.size
		o.dirty.pushBack(e)
	}
	e.state = stateDirty
	e.set(value, ts, headers)
	o.resize(e)
	o.budget.trim()
}

// resize accounts for a changed entry, which is dirty or flushed.
func (o *overlay) resize(e *entry) {
	size := e.measure()
	o.budget.dirty += size - e.size
	e.size = size
}

// discard forgets an entry.
func (o *overlay) discard(e *entry) {
	switch e.state {
	case stateDirty:
		o.dirty.remove(e)
		o.budget.dirty -= e.size
	case stateFlushed:
		o.flushed.remove(e)
		o.budget.dirty -= e.size
	case stateClean:
		o.budget.lru.remove(e)
		o.budget.clean -= e.size
	}
	delete(o.entries, e.key)
}

// settle turns what was flushed into clean entries, once Bolt holds it. Deletions are forgotten, and so are the entries
// that Bolt did not take because they are expired.
func (o *overlay) settle(expired func(*entry) bool) {
	for e := o.flushed.front; e != nil; e = o.flushed.front {
		if e.deleted || expired(e) {
			o.discard(e)
			continue
		}
		e.headers, e.hbuf = nil, nil
		o.resize(e)
		o.flushed.remove(e)
		o.budget.dirty -= e.size
		o.budget.clean += e.size
		o.budget.lru.pushBack(e)
		e.state = stateClean
	}
	o.budget.trim()
}

// rollback forgets what Bolt does not hold. A key that was clean before it was changed is read from Bolt again.
func (o *overlay) rollback() {
	for e := o.dirty.front; e != nil; e = o.dirty.front {
		o.discard(e)
	}
	for e := o.flushed.front; e != nil; e = o.flushed.front {
		o.discard(e)
	}
}

// uncommitted is how many entries are not in Bolt yet.
func (o *overlay) uncommitted() int { return o.dirty.n + o.flushed.n }

// clear forgets everything.
func (o *overlay) clear() {
	for _, e := range o.entries {
		o.discard(e)
	}
}

// list is a doubly linked list through the entries themselves, so that moving one allocates nothing. An entry is on
// exactly one list, which its state names.
type list struct {
	front, back *entry
	n           int
}

func (l *list) pushBack(e *entry) {
	e.prev, e.next = l.back, nil
	if l.back == nil {
		l.front = e
	} else {
		l.back.next = e
	}
	l.back = e
	l.n++
}

func (l *list) pushFront(e *entry) {
	e.prev, e.next = nil, l.front
	if l.front == nil {
		l.back = e
	} else {
		l.front.prev = e
	}
	l.front = e
	l.n++
}

func (l *list) remove(e *entry) {
	if e.prev == nil {
		l.front = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.back = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	l.n--
}

func (l *list) moveToBack(e *entry) {
	if l.back == e {
		return
	}
	l.remove(e)
	l.pushBack(e)
}
