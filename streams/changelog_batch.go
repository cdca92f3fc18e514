package streams

import (
	"fmt"
	"log/slog"
	"unsafe"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// changelogBatch is what was read of a changelog and is not in its store yet.
type changelogBatch struct {
	entries []store.Entry
	bytes   int
}

// entryOverhead is what an entry takes beside its key and value.
const entryOverhead = int(unsafe.Sizeof(store.Entry{}))

// add takes a record, unless it has no key (Kafka Streams 4.3.1, StoreChangelogReader) or is an input that processing has refused.
func (b *changelogBatch) add(log *changelog, rec *kafka.Record, logger *slog.Logger) {
	if rec.Key == nil {
		logger.Warn("skipping a changelog record without a key", "partition", log.tp.String(), "offset", rec.Offset)
		return
	}
	e := store.Entry{Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp}
	if log.source != nil {
		in := inputOf(log.tp, rec)
		var err error
		if e.Timestamp, err = log.source.load(&in, noTime); err != nil {
			return // it went to the dead letters when its turn came
		}
	}
	b.entries = append(b.entries, e)
	b.bytes += len(e.Key) + len(e.Value) + entryOverhead
}

// put writes the entries and the position after them, and says how many there were, also of windows that have expired: the original counts
// what it replays.
func (b *changelogBatch) put(db *store.DB, log *changelog, pos store.Position) (restored int64, err error) {
	if _, err := db.Restore(log.store, b.entries, pos); err != nil {
		return 0, fmt.Errorf("restore of %s: %w", log.tp, err)
	}
	restored = int64(len(b.entries))
	clear(b.entries) // they hold fetch answers
	b.entries, b.bytes = b.entries[:0], 0
	return restored, nil
}
