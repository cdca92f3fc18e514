package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWindowKey(t *testing.T) {
	// Kafka Streams 4.3.1: "s1" in the window that starts at 1700000040000.
	const want = "7331" + "0000018bcfe60440" + "00000000"
	got := WindowKey(nil, []byte("s1"), 1700000040000)
	if hex.EncodeToString(got) != want {
		t.Fatalf("WindowKey = %x, want %s", got, want)
	}
	key, start, err := SplitWindowKey(got)
	if err != nil || string(key) != "s1" || start != 1700000040000 {
		t.Errorf("SplitWindowKey = %q, %d, %v", key, start, err)
	}
	for _, bad := range []string{"", "0000018bcfe604400000", "7331ffff018bcfe6044000000000", "73310000018bcfe6044000000001"} {
		b, err := hex.DecodeString(bad)
		noError(t, err)
		if _, _, err := SplitWindowKey(b); !errors.Is(err, ErrWindowKey) {
			t.Errorf("SplitWindowKey(%s) = %v", bad, err)
		}
	}
}

func FuzzSplitWindowKey(f *testing.F) {
	f.Add([]byte(""))
	f.Add(WindowKey(nil, []byte("store-17"), 1789207200000))
	f.Add(WindowKey(nil, nil, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		key, start, err := SplitWindowKey(b)
		if err != nil {
			return
		}
		if again := WindowKey(nil, key, start); !bytes.Equal(again, b) {
			t.Errorf("%x came back as %x", b, again)
		}
		if windowStart(b) != start || windowStart(string(b)) != start {
			t.Errorf("%x: start %d, not %d", b, windowStart(b), start)
		}
	})
}

const minute = 60_000

func TestWindowExpiry(t *testing.T) {
	type window struct {
		start int64
		seen  bool // by Get and Range
		kept  bool // in Bolt after a commit
	}
	// Retention 90 s, segments of 60 s. With the largest start M, windows up to M - 90 s are hidden, and segments before
	// that of M - 90 s are dead.
	tests := []struct {
		name    string
		max     int64
		windows []window
	}{
		{"all live", 90_000, []window{{0, false, true}, {1, true, true}, {minute, true, true}}},
		{"one ms less hides nothing", 89_999, []window{{0, true, true}}},
		{"hidden but in a live segment", 149_999, []window{{0, false, true}, {minute - 1, false, true}, {minute, true, true}}},
		{"a dead segment", 150_000, []window{{0, false, false}, {minute - 1, false, false}, {minute, false, true}, {minute + 1, true, true}}},
		{"only itself", 1_000 * minute, []window{{0, false, false}, {minute, false, false}}},
	}
	for _, late := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s, late %v", tt.name, late), func(t *testing.T) {
				dir := t.TempDir()
				db := mustOpen(t, dir, testOptions())
				w := db.Window(winName)
				key := []byte("s")
				if late { // the windows are put after the one that expires them
					noError(t, w.Put(key, tt.max, []byte("m"), 0, nil))
				}
				for _, x := range tt.windows {
					noError(t, w.Put(key, x.start, []byte("v"), 0, nil))
				}
				if !late {
					mustCommit(t, db, 1)
					noError(t, w.Put(key, tt.max, []byte("m"), 0, nil))
				}
				var seen []string
				for _, x := range tt.windows {
					_, _, ok, err := w.Get(key, x.start)
					noError(t, err)
					if ok != x.seen {
						t.Errorf("Get(%d) found %v", x.start, ok)
					}
					if x.seen {
						seen = append(seen, fmt.Sprintf(`"s"/%d="v"@0`, x.start))
					}
				}
				seen = append(seen, fmt.Sprintf(`"s"/%d="m"@0`, tt.max))
				if diff := cmp.Diff(seen, windowRows(t, db)); diff != "" {
					t.Errorf("uncommitted (-want +got):\n%s", diff)
				}
				changes := flushed(t, db)
				if want := 1 + len(tt.windows); late && len(changes) != want {
					t.Errorf("%d changes reported, not %d: what the store refuses is logged too", len(changes), want)
				}
				mustCommit(t, db, 2)
				if diff := cmp.Diff(seen, windowRows(t, db)); diff != "" {
					t.Errorf("committed (-want +got):\n%s", diff)
				}
				noError(t, db.Close())

				kept := map[int64]bool{}
				noError(t, Inspect(db.path, func(_ string, key, _ []byte, _ int64) { kept[windowStart(key)] = true }))
				for _, x := range tt.windows {
					if kept[x.start] != x.kept {
						t.Errorf("window %d in Bolt: %v", x.start, kept[x.start])
					}
				}
				db = mustOpen(t, dir, testOptions())
				if got := db.Window(winName).MaxStart(); got != tt.max {
					t.Errorf("MaxStart after reopen = %d, not %d", got, tt.max)
				}
				if diff := cmp.Diff(seen, windowRows(t, db)); diff != "" {
					t.Errorf("reopened (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestSegmentInterval(t *testing.T) {
	for _, tt := range []struct{ retention, interval int64 }{{90_000, minute}, {120_000, minute}, {120_002, minute + 1}, {600_000, 300_000}} {
		spec := Spec{Name: "w", Kind: WindowKind, Retention: time.Duration(tt.retention) * time.Millisecond}
		if got := newTable(&DB{}, spec).interval; got != tt.interval {
			t.Errorf("retention %d ms: segments of %d ms, not %d", tt.retention, got, tt.interval)
		}
	}
}

// A deletion of an expired window finds nothing, as in Kafka Streams the read below the cache does.
func TestWindowTombstones(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	w := db.Window(winName)
	for _, start := range []int64{0, minute, 2 * minute} {
		noError(t, w.Put([]byte("s"), start, []byte("v"), 0, nil))
	}
	mustCommit(t, db, 1)
	noError(t, w.Put([]byte("s"), 0, nil, 5, nil))          // hidden: 120 s - 90 s
	noError(t, w.Put([]byte("s"), minute, nil, 6, nil))     // there
	noError(t, w.Put([]byte("other"), minute, nil, 7, nil)) // never was
	want := []string{renderChange(Change{Key: WindowKey(nil, []byte("s"), minute), Timestamp: 6, Deleted: true})}
	if diff := cmp.Diff(want, flushed(t, db)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	mustCommit(t, db, 2)
	if diff := cmp.Diff([]string{`"s"/120000="v"@0`}, windowRows(t, db)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWindowRangeAndFetch(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	w := db.Window(winName)
	const base = 100 * minute
	for i, p := range []struct {
		key   string
		start int64
	}{{"b", base}, {"a", base + minute}, {"a", base}, {"", base}} {
		noError(t, w.Put([]byte(p.key), p.start, []byte{byte('0' + i)}, int64(i), nil))
	}
	mustCommit(t, db, 1)
	noError(t, w.Put([]byte("a"), base+minute+1, []byte("new"), 9, nil))
	noError(t, w.Put([]byte("b"), base+minute, []byte("new"), 9, nil))
	noError(t, w.Put([]byte("a"), base, nil, 9, nil))
	// Lies between two windows of "a" in byte order: "a" + 00 00.
	noError(t, w.Put([]byte("a\x00\x00"), base, []byte("longer"), 9, nil))

	want := []string{
		`""/6000000="3"@3`, `"a\x00\x00"/6000000="longer"@9`, `"a"/6060000="1"@1`, `"a"/6060001="new"@9`,
		`"b"/6000000="0"@0`, `"b"/6060000="new"@9`,
	}
	got := windowRows(t, db)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("range (-want +got):\n%s", diff)
	}
	fetch := func(key string, from, to int64) (starts []int64) {
		noError(t, w.Fetch([]byte(key), from, to, func(start int64, _ []byte, _ int64) bool {
			starts = append(starts, start)
			return true
		}))
		return starts
	}
	for _, tt := range []struct {
		key      string
		from, to int64
		want     []int64
	}{
		{"a", -1, base + 10*minute, []int64{base + minute, base + minute + 1}},
		{"a", base + minute, base + minute, []int64{base + minute}},
		{"b", base, base + minute - 1, []int64{base}},
		{"b", base + 1, base, nil},
		{"c", 0, base, nil},
	} {
		if diff := cmp.Diff(tt.want, fetch(tt.key, tt.from, tt.to)); diff != "" {
			t.Errorf("fetch %s [%d,%d] (-want +got):\n%s", tt.key, tt.from, tt.to, diff)
		}
	}
}

func TestNegativeWindowStart(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	if err := db.Window(winName).Put([]byte("a"), -1, []byte("v"), 0, nil); !errors.Is(err, ErrWindowKey) {
		t.Errorf("Put = %v", err)
	}
	if _, _, ok, err := db.Window(winName).Get([]byte("a"), -1); ok || err != nil {
		t.Errorf("Get = %v, %v", ok, err)
	}
	if got := db.Window(winName).MaxStart(); got != -1 {
		t.Errorf("MaxStart = %d", got)
	}
}
