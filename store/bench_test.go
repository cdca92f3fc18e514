package store

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// counter is the hot path: read an 8-byte count, add one, write it back, over 10,000 keys.
type counter struct {
	keys    [][]byte
	scratch [8]byte
	next    int
}

func newCounter() *counter {
	c := &counter{}
	for i := range 10_000 {
		c.keys = append(c.keys, fmt.Appendf(nil, "store-%d", i))
	}
	return c
}

func (c *counter) step(tb testing.TB, get func(key []byte) ([]byte, error), put func(key, value []byte) error) {
	key := c.keys[c.next]
	if c.next++; c.next == len(c.keys) {
		c.next = 0
	}
	value, err := get(key)
	if err != nil {
		tb.Fatal(err)
	}
	var n uint64
	if value != nil {
		n = binary.BigEndian.Uint64(value)
	}
	binary.BigEndian.PutUint64(c.scratch[:], n+1)
	if err := put(key, c.scratch[:]); err != nil {
		tb.Fatal(err)
	}
}

func (c *counter) keyValueStep(tb testing.TB, db *DB) func() {
	s := db.KeyValue(kvName)
	get := func(key []byte) ([]byte, error) {
		v, _, _, err := s.Get(key)
		return v, err
	}
	put := func(key, value []byte) error { return s.Put(key, value, 1, nil) }
	return func() { c.step(tb, get, put) }
}

func (c *counter) windowStep(tb testing.TB, db *DB) func() {
	w := db.Window(winName)
	get := func(key []byte) ([]byte, error) {
		v, _, _, err := w.Get(key, minute)
		return v, err
	}
	put := func(key, value []byte) error { return w.Put(key, minute, value, 1, nil) }
	return func() { c.step(tb, get, put) }
}

var hotPaths = map[string]func(*counter, testing.TB, *DB) func(){
	"key-value": (*counter).keyValueStep,
	"window":    (*counter).windowStep,
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	for name, path := range hotPaths {
		t.Run(name, func(t *testing.T) {
			db := mustOpen(t, t.TempDir(), Options{Budget: NewBudget(1 << 30), BootID: bootID("1")})
			c := newCounter()
			step := path(c, t, db)
			for range c.keys {
				step()
			}
			check := func(state string) {
				t.Helper()
				if n := testing.AllocsPerRun(2*len(c.keys), step); n != 0 {
					t.Errorf("%s: %v allocations per update", state, n)
				}
			}
			check("dirty entries")
			kv, win := db.KeyValue(kvName), db.Window(winName)
			ignore := func(Change) error { return nil }
			updateAndFlush := func() {
				step()
				noError(t, kv.Flush(ignore))
				noError(t, win.Flush(ignore))
			}
			updateAndFlush()
			check("flushed entries")
			if n := testing.AllocsPerRun(10, updateAndFlush); n > 0 {
				t.Errorf("%v allocations per flush", n)
			}
			mustCommit(t, db, 1)
			check("clean entries")
		})
	}
}

// Reads of keys that are only in Bolt, as a join's lookups after a restart are.
func TestBoltReadDoesNotAllocate(t *testing.T) {
	db := mustOpen(t, t.TempDir(), Options{Budget: NewBudget(0), BootID: bootID("1")})
	c := newCounter()
	for _, path := range hotPaths {
		step := path(c, t, db)
		for range c.keys {
			step()
		}
	}
	mustCommit(t, db, 1)
	s, w := db.KeyValue(kvName), db.Window(winName)
	if s.t.overlay.entries[string(c.keys[0])] != nil {
		t.Fatal("the key is in the overlay")
	}
	read := func() {
		_, _, ok, err := s.Get(c.keys[c.next])
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, _, ok, err = w.Get(c.keys[c.next], minute); !ok || err != nil {
			t.Fatal(ok, err)
		}
		c.next = (c.next + 1) % len(c.keys)
	}
	if n := testing.AllocsPerRun(1000, read); n != 0 {
		t.Errorf("%v allocations per read", n)
	}
}

func BenchmarkUpdate(b *testing.B) {
	for name, path := range hotPaths {
		b.Run(name, func(b *testing.B) {
			db := mustOpen(b, b.TempDir(), Options{Budget: NewBudget(1 << 30)})
			c := newCounter()
			step := path(c, b, db)
			for range c.keys {
				step()
			}
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

func BenchmarkReadFromBolt(b *testing.B) {
	db := mustOpen(b, b.TempDir(), Options{Budget: NewBudget(0)})
	c := newCounter()
	step := c.keyValueStep(b, db)
	for range c.keys {
		step()
	}
	mustCommit(b, db, 1)
	s := db.KeyValue(kvName)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, _, _, err := s.Get(c.keys[i%len(c.keys)]); err != nil {
			b.Fatal(err)
		}
	}
}

// A commit of 10,000 changed counts: flush, one Bolt transaction.
func BenchmarkCommit(b *testing.B) {
	db := mustOpen(b, b.TempDir(), Options{Budget: NewBudget(1 << 30)})
	c := newCounter()
	step := c.keyValueStep(b, db)
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		for range c.keys {
			step()
		}
		noError(b, db.KeyValue(kvName).Flush(func(Change) error { return nil }))
		if err := db.Commit(Commit{Positions: map[string]Position{kvName: {Next: i}}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRestore(b *testing.B) {
	db := mustOpen(b, b.TempDir(), Options{})
	c := newCounter()
	entries := make([]Entry, len(c.keys))
	for i, key := range c.keys {
		entries[i] = Entry{Key: key, Value: c.scratch[:]}
	}
	b.ReportAllocs()
	n := int64(0)
	for b.Loop() {
		n++
		if _, err := db.Restore(kvName, entries, Position{Next: n}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(len(entries))/b.Elapsed().Seconds(), "records/s")
}
