// Package store keeps the state of one Kafka Streams task on local disk: key-value and window stores in one Bolt file,
// behind a write-back overlay, restorable from changelog topics.
//
// # What is where
//
// A [StateDir] is the folder of one instance; its lock admits one process. A [DB] is the folder of one task: the Bolt
// file state.db with a bucket per store, and state.mark, which says whether that file can be trusted after a crash.
// [KeyValue] and [Window] are the stores. They hold bytes; serdes are the business of the layer above.
//
// # How a write travels
//
// Put changes only the overlay in memory. Flush hands the dirty entries, in the order of their last update, to the
// caller, which sends each to the changelog and then downstream. Commit writes what was flushed to Bolt, together with
// the changelog offsets that these writes correspond to, in one transaction. Bolt is never written outside Commit,
// Restore and Reset, and so is never ahead of a committed changelog: after kill -9 a restart restores the tail of the
// changelog and never wipes. (Kafka Streams 4.3.1 writes RocksDB at flush, and so has to wipe under exactly-once.)
//
// # What is not obvious
//
//   - Commits do not wait for the disk. A killed process loses nothing, since the page cache survives it; a machine that
//     lost power may leave a torn file. state.mark tells the two apart by the boot id, and a file that may be torn is
//     deleted unread and rebuilt from the changelog. See mark.go.
//   - Bolt cannot grow its file while a read transaction is open in the same goroutine (it waits for it, for ever).
//     Reads share one long-lived read transaction, which is closed before every write transaction.
//   - A damaged Bolt file makes bbolt panic, or fault on its memory map. Every call into Bolt is guarded; the guard turns
//     both into an error that wraps [ErrLost]. Values are copied out of the map inside the guard.
//   - Bolt refuses empty keys, Kafka does not. Rows of a key-value bucket carry a one-byte prefix for that reason.
//
// A DB and its stores belong to one goroutine at a time, and so do all the DBs that share a [Budget].
//
// docs/formats.md describes every byte on disk.
package store
