package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
)

// Every byte of a small file, as docs/formats.md describes it. A change here needs another format version.
func TestFileFormat(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, testOptions())
	put(t, db.KeyValue(kvName), kvOp{key: "s1", value: "\x00\x04", ts: 1700000099999}, kvOp{key: "", value: "", ts: -1})
	noError(t, db.Window(winName).Put([]byte("s1"), 1700000040000, []byte{0, 1}, 1700000099999, []Header{{Key: "not stored"}}))
	flushed(t, db)
	noError(t, db.Commit(Commit{
		Positions:   map[string]Position{kvName: {TopicID: [16]byte{0: 0xab, 15: 0xcd}, Next: 258}},
		StreamTimes: map[string]int64{"KSTREAM-AGGREGATE-0000000018": 1700000099999},
		At:          time.UnixMilli(1789207200123),
	}))
	noError(t, db.Close())

	want := []string{
		"key-value/orders-per-store",
		"  6b = ffffffffffffffff",
		"  6b7331 = 0000018bcfe6ee9f0004",
		"meta",
		`  "format" = 00000001`,
		`  "max-start/orders-per-store-minute" = 0000018bcfe60440`,
		`  "position/orders-per-store" = ab0000000000000000000000000000cd 0000000000000102 000001a0950f417b`,
		`  "segment-interval/orders-per-store-minute" = 000000000000ea60`,
		`  "stream-time/KSTREAM-AGGREGATE-0000000018" = 0000018bcfe6ee9f`,
		"window/orders-per-store-minute",
		"  segment 0000000001b05516",
		"    73310000018bcfe6044000000000 = 0000018bcfe6ee9f0001",
	}
	if diff := cmp.Diff(want, dumpFile(t, db.path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func dumpFile(t *testing.T, path string) (lines []string) {
	t.Helper()
	file, err := bolt.Open(path, fileMode, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	noError(t, err)
	noError(t, file.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			lines = append(lines, string(name))
			return b.ForEach(func(k, v []byte) error {
				switch {
				case v == nil:
					lines = append(lines, fmt.Sprintf("  segment %x", k))
					return b.Bucket(k).ForEach(func(k, v []byte) error {
						lines = append(lines, fmt.Sprintf("    %x = %x", k, v))
						return nil
					})
				case string(name) != metaBucket:
					lines = append(lines, fmt.Sprintf("  %x = %x", k, v))
				case len(v) == positionLength:
					lines = append(lines, fmt.Sprintf("  %q = %x %x %x", k, v[:16], v[16:24], v[24:]))
				default:
					lines = append(lines, fmt.Sprintf("  %q = %x", k, v))
				}
				return nil
			})
		})
	}))
	noError(t, file.Close())
	return lines
}

func TestInspect(t *testing.T) {
	db := mustOpen(t, t.TempDir(), testOptions())
	put(t, db.KeyValue(kvName), kvOp{key: "b", value: "2", ts: 2}, kvOp{key: "a", value: "1", ts: 1})
	noError(t, db.Window(winName).Put([]byte("w"), minute, []byte("3"), 3, nil))
	mustCommit(t, db, 1)
	noError(t, db.Close())
	mark := readFile(t, db.markPath())
	var got []string
	noError(t, Inspect(db.path, func(store string, key, value []byte, ts int64) {
		got = append(got, fmt.Sprintf("%s %q=%q@%d", store, key, value, ts))
	}))
	want := []string{
		`orders-per-store "a"="1"@1`, `orders-per-store "b"="2"@2`,
		fmt.Sprintf(`orders-per-store-minute %q="3"@3`, WindowKey(nil, []byte("w"), minute)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if readFile(t, db.markPath()) != mark {
		t.Error("inspecting changed the mark")
	}
	if err := Inspect(db.path+".none", nil); err == nil {
		t.Error("a file that is not there was inspected")
	}
}
