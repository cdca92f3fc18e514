package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzMeta reads entries of the meta bucket: each is refused as damage or is exactly what was written.
func FuzzMeta(f *testing.F) {
	position := append(bytes.Repeat([]byte{0xab}, 16), 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 1, 0xa0, 0x95, 0x0f, 0x41, 0x7b)
	f.Add(positionKey+"orders-per-store", position)
	f.Add(positionKey+"orders-per-store", position[:31])
	f.Add(positionKey, bytes.Repeat([]byte{0xff}, positionLength))
	f.Add(streamTimeKey+"orders-per-store-minute", []byte{0, 0, 1, 0x8b, 0xcf, 0xe6, 0xee, 0x9f})
	f.Add(streamTimeKey, []byte{})
	f.Add(maxStartKey+"orders-per-store-minute", []byte{1})
	f.Add(formatKey, []byte{0, 0, 0, formatVersion})
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		db := &DB{positions: map[string]Position{}, streamTimes: map[string]int64{}}
		err := db.loadMeta([]byte(key), value)
		if err != nil {
			if !errors.Is(err, errDamaged) || len(db.positions)+len(db.streamTimes) > 0 {
				t.Fatalf("%v with %v %v", err, db.positions, db.streamTimes)
			}
			return
		}
		if name, ok := strings.CutPrefix(key, positionKey); ok {
			p := db.positions[name]
			again := binary.BigEndian.AppendUint64(p.TopicID[:], uint64(p.Next))
			again = binary.BigEndian.AppendUint64(again, uint64(p.CommittedAt.UnixMilli()))
			if !bytes.Equal(again, value) {
				t.Errorf("position %x came back as %x", value, again)
			}
		}
		if name, ok := strings.CutPrefix(key, streamTimeKey); ok {
			if again := binary.BigEndian.AppendUint64(nil, uint64(db.streamTimes[name])); !bytes.Equal(again, value) {
				t.Errorf("stream time %x came back as %x", value, again)
			}
		}
	})
}

// FuzzMark reads state.mark: only two texts let a state file be opened.
func FuzzMark(f *testing.F) {
	f.Add([]byte("clean\n"), "1", true)
	f.Add([]byte("open 1\n"), "1", true)
	f.Add([]byte("open 1\n"), "2", true)
	f.Add([]byte("open 1"), "1", false)
	f.Add([]byte("open \n"), "", true)
	f.Add([]byte("cle"), "1", true)
	f.Add(bytes.Repeat([]byte("x"), maxMarkBytes+1), "1", true)
	path := filepath.Join(f.TempDir(), markFile)
	f.Fuzz(func(t *testing.T, content []byte, bootID string, known bool) {
		noError(t, os.WriteFile(path, content, 0o600))
		mark, err := readMark(path)
		noError(t, err)
		if len(mark) > maxMarkBytes {
			t.Errorf("a mark of %d bytes", len(mark))
		}
		trusted := mark == "clean" || known && mark == "open "+bootID
		if reason := distrust(mark, bootID, known); (reason == "") != trusted {
			t.Errorf("mark %q, boot %q (%t): %q", mark, bootID, known, reason)
		}
	})
}
