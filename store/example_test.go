package store_test

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/windowed-order-counter/lab/store"
)

// A write goes to the overlay, from there through Flush to the changelog, and with Commit into the file.
func Example() {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := store.Open(dir, []store.Spec{{Name: "counts", Kind: store.KeyValueKind, Logged: true}}, store.Options{})
	if err != nil {
		log.Fatal(err)
	}
	counts := db.KeyValue("counts")
	for _, value := range []string{"1", "2", "3"} {
		if err := counts.Put([]byte("store-17"), []byte(value), 1789207200000, nil); err != nil {
			log.Fatal(err)
		}
	}
	err = counts.Flush(func(c store.Change) error {
		fmt.Printf("to the changelog: %s=%s @%d\n", c.Key, c.Value, c.Timestamp)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// The changelog's record was acknowledged at offset 0, so the file follows it up to offset 1.
	err = db.Commit(store.Commit{Positions: map[string]store.Position{"counts": {Next: 1}}, At: time.Now()})
	if err != nil {
		log.Fatal(err)
	}
	value, timestamp, ok, err := counts.Get([]byte("store-17"))
	fmt.Printf("%s @%d %v %v\n", value, timestamp, ok, err)
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// to the changelog: store-17=3 @1789207200000
	// 3 @1789207200000 true <nil>
}
