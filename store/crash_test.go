package store

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

const crashKeys = 500

// helperCommitLoop commits generation after generation: each sets every key, the position and the stream time to its
// number. Between commits it leaves uncommitted entries about.
func helperCommitLoop(dir string) error {
	db, err := Open(dir, testSpecs(), Options{BootID: bootID("boot-1")})
	if err != nil {
		return err
	}
	var last int64
	if p, ok := db.Position(kvName); ok {
		last = p.Next
	}
	kv, win := db.KeyValue(kvName), db.Window(winName)
	flush := func(Change) error { return nil }
	for n := last + 1; ; n++ {
		value := binary.BigEndian.AppendUint64(nil, uint64(n))
		for i := range crashKeys {
			key := []byte(strconv.Itoa(i))
			if err := kv.Put(key, value, n, nil); err != nil {
				return err
			}
			if err := win.Put(key, n*minute, value, n, nil); err != nil {
				return err
			}
		}
		if err := kv.Flush(flush); err != nil {
			return err
		}
		if err := win.Flush(flush); err != nil {
			return err
		}
		err := db.Commit(Commit{
			Positions:   map[string]Position{kvName: {Next: n}, winName: {Next: n}},
			StreamTimes: map[string]int64{"node": n},
			At:          time.UnixMilli(n),
		})
		if err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// kill -9 at any moment leaves exactly one commit's state: the last that was reported, or a later one.
func TestKillDuringCommits(t *testing.T) {
	dir := t.TempDir()
	for round := range 6 {
		cmd, line, lines := startHelper(t, "commit-loop", dir)
		for range rand.IntN(20) {
			if !lines.Scan() {
				t.Fatal("the helper ended by itself")
			}
			line = lines.Text()
		}
		kill(t, cmd)
		for lines.Scan() { // what it still reported
			line = lines.Text()
		}
		reported, err := strconv.ParseInt(line, 10, 64)
		noError(t, err)

		db := mustOpen(t, dir, testOptions())
		if db.Recovered() != "" {
			t.Fatalf("round %d: rebuilt: %s", round, db.Recovered())
		}
		p, _ := db.Position(kvName)
		if p.Next < reported {
			t.Fatalf("round %d: position %d, but commit %d was done", round, p.Next, reported)
		}
		if st, _ := db.StreamTime("node"); st != p.Next || db.Window(winName).MaxStart() != p.Next*minute {
			t.Errorf("round %d: position %d, stream time %d, largest window %d", round, p.Next, st, db.Window(winName).MaxStart())
		}
		n := 0
		noError(t, db.KeyValue(kvName).Range(func(key, value []byte, ts int64) bool {
			n++
			if got := int64(binary.BigEndian.Uint64(value)); got != p.Next || ts != p.Next {
				t.Errorf("round %d: key %s is of commit %d, not %d", round, key, got, p.Next)
			}
			return true
		}))
		latest := 0
		noError(t, db.Window(winName).Range(func(_ []byte, start int64, value []byte, _ int64) bool {
			if got := int64(binary.BigEndian.Uint64(value)); got*minute != start {
				t.Errorf("round %d: window %d is of commit %d", round, start, got)
			}
			if start == p.Next*minute {
				latest++
			}
			return true
		}))
		if n != crashKeys || latest != crashKeys {
			t.Errorf("round %d: %d keys and %d windows of the last commit, not %d", round, n, latest, crashKeys)
		}
		noError(t, db.check("test"))
		noError(t, db.Abandon())
	}
}
