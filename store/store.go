package store

import (
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrLost means that the Bolt file of a task could not be read or written (no space left, an I/O error, damage).
	// The DB answers every later call with it. The way on is Abandon, Open (which rebuilds the file) and a restore.
	ErrLost = errors.New("local state lost")
	// ErrClosed is returned by every call after Close or Abandon.
	ErrClosed = errors.New("store is closed")
	// ErrInUse means that another DB, in this or another process, holds the task's Bolt file open.
	ErrInUse = errors.New("state file is in use")
	// ErrUnflushed is returned by Commit while an entry has not been through Flush. Its changelog record was never
	// sent, so committing it would put Bolt ahead of the changelog. Nothing is written.
	ErrUnflushed = errors.New("entries not flushed")
	// ErrUncommitted is returned by Restore while the store has uncommitted entries. Nothing is written.
	ErrUncommitted = errors.New("entries not committed")
	// ErrKeyTooLarge is returned for a key of more than MaxKeyBytes. Nothing is changed.
	ErrKeyTooLarge = errors.New("key too large")
	// ErrWindowKey is returned for bytes that are no window store key.
	ErrWindowKey = errors.New("malformed window key")
)

// MaxKeyBytes is the length of the longest key: Bolt's limit of 32768 bytes for a row, less the twelve that a window store
// adds. It is the same for all kinds of stores, so that a key which one of a task's stores takes is not refused by the next.
const MaxKeyBytes = bolt.MaxKeySize - windowSuffixLen

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}

// Kind is the kind of a store.
type Kind uint8

// The kinds of stores.
const (
	KeyValueKind Kind = iota + 1
	WindowKind
)

func (k Kind) String() string {
	switch k {
	case KeyValueKind:
		return "key-value"
	case WindowKind:
		return "window"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Spec declares one store of a task.
type Spec struct {
	Name string
	Kind Kind
	// Retention is how long a window is kept behind the largest window start, at least size + grace. It is rounded down
	// to milliseconds. Window stores only.
	Retention time.Duration
	// Logged says that the store has a changelog. A store without one starts empty when its file has to be rebuilt.
	Logged bool
	// OldValues says that Flush hands over with each change the value that the flush before it left, which costs a read.
	OldValues bool
	// EveryDeletion says that Flush hands over each deletion, also of a key that has no value, as Kafka Streams logs and
	// forwards them where it has no record cache.
	EveryDeletion bool
}

// minSegmentInterval is the shortest segment of a window store (Kafka Streams 4.3.1, Stores.defaultSegmentInterval).
const minSegmentInterval = time.Minute

func (s Spec) validate() error {
	switch {
	case s.Name == "":
		return errors.New("store without a name")
	case s.Kind != KeyValueKind && s.Kind != WindowKind:
		return fmt.Errorf("store %s: unknown kind %s", s.Name, s.Kind)
	case s.Kind == WindowKind && s.Retention < time.Millisecond:
		return fmt.Errorf("store %s: a window store needs a retention of at least 1 ms, not %s", s.Name, s.Retention)
	}
	return nil
}

// Position says how far a store in Bolt has followed its changelog.
type Position struct {
	// TopicID is the changelog's topic id. A topic that was deleted and created again has another one.
	TopicID [16]byte
	// Next is the offset after the last changelog record that Bolt holds.
	Next int64
	// CommittedAt is the wall time of the commit or restore that wrote the position, to the millisecond. Bolt can miss
	// deletions that the broker has compacted away if it is older than the topic's delete.retention.ms.
	CommittedAt time.Time
}

// Entry is one changelog record to restore. A nil Value deletes, an empty one does not. A record with a nil Key is
// passed over (Kafka Streams 4.3.1, StoreChangelogReader).
type Entry struct {
	Key, Value []byte
	Timestamp  int64 // ms since the epoch
}

// Change is a dirty entry on its way to the changelog and downstream. Its slices are valid until the flush function
// returns and must not be modified. A key or value without bytes is empty, never nil.
type Change struct {
	// Key is the changelog key: the key of a key-value store as it is, of a window store as WindowKey makes it.
	Key       []byte
	Value     []byte // nil if Deleted
	Old       []byte // nil if the key had no value, or if the Spec does not ask for OldValues
	Timestamp int64  // ms since the epoch
	Headers   []Header
	Deleted   bool
}

// Commit is what becomes durable together with the flushed entries.
type Commit struct {
	// Positions has the changelog position of each logged store after the flush. CommittedAt in it is ignored, At rules.
	// A store that is not named keeps the position it has.
	Positions map[string]Position
	// StreamTimes is the observed stream time of window processors, ms since the epoch, by a key of the caller's choice.
	StreamTimes map[string]int64
	// At is the wall time of the commit.
	At time.Time
}
