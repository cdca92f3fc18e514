package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/filelock"
	bolt "go.etcd.io/bbolt"
)

const stateFile = "state.db"

// defaultBudget is statestore.cache.max.bytes of Kafka Streams 4.3.1.
const defaultBudget = 10 << 20

// Options configure a DB. The zero value is safe to use.
type Options struct {
	// Budget is shared by all tasks of a stream thread. Default: 10 MiB for this DB alone.
	Budget *Budget
	// Logger is told when a file is rebuilt or lost. Default: none.
	Logger *slog.Logger
	// Strict checks the whole file and the overlay after each commit and restore. It is slow and meant for tests.
	Strict bool
	// BootID identifies this boot of the machine, or reports that there is no such id, and then each commit is synced.
	// Default: the system's on Linux and macOS, none elsewhere.
	BootID func() (string, bool)
}

// DB is the state of one task. It belongs to one goroutine at a time.
type DB struct {
	file   *boltFile
	path   string // of state.db
	budget *Budget
	log    *slog.Logger
	strict bool

	bootID    string
	hasBootID bool
	mark      string // what state.mark says, "" if unknown

	tables      []*table
	byName      map[string]*table
	positions   map[string]Position
	streamTimes map[string]int64

	recovered string
	failed    error  // what every call answers once the DB is lost or closed
	row       []byte // scratch: a row read from Bolt
}

// Open opens the stores of a task, making the folder and the file as needed. A file that cannot be trusted, see mark.go,
// or turns out to be damaged, or was written for other stores, is deleted first; Recovered tells. The error wraps ErrInUse
// if somebody else has the file open; Open waits up to a second for it.
func Open(dir string, specs []Spec, opt Options) (*DB, error) {
	db := &DB{
		path:   filepath.Join(dir, stateFile),
		budget: opt.Budget,
		log:    opt.Logger,
		strict: opt.Strict,
		byName: make(map[string]*table, len(specs)),
	}
	if db.budget == nil {
		db.budget = NewBudget(defaultBudget)
	}
	if db.log == nil {
		db.log = slog.New(slog.DiscardHandler)
	}
	bootID := opt.BootID
	if bootID == nil {
		bootID = systemBootID
	}
	db.bootID, db.hasBootID = bootID()

	for _, spec := range specs {
		if err := spec.validate(); err != nil {
			return nil, err
		}
		if db.byName[spec.Name] != nil {
			return nil, fmt.Errorf("store %s is declared twice", spec.Name)
		}
		t := newTable(db, spec)
		db.tables = append(db.tables, t)
		db.byName[spec.Name] = t
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("create task folder: %w", err)
	}
	if err := db.open(); err != nil {
		return nil, fmt.Errorf("open %s: %w", db.path, err)
	}
	if db.recovered != "" {
		db.log.Warn("local state is rebuilt", "file", db.path, "reason", db.recovered)
	}
	return db, nil
}

// open applies the durability rule and opens the file, once more after deleting a damaged one.
func (db *DB) open() error {
	mark, err := readMark(db.markPath())
	if err != nil {
		return err
	}
	_, err = os.Stat(db.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return db.openFile() // the mark belongs to a file that is gone
	case err != nil:
		return err
	}
	if reason := distrust(mark, db.bootID, db.hasBootID); reason != "" {
		return db.rebuild(reason)
	}
	db.mark = mark
	if err = db.openFile(); errors.Is(err, errDamaged) {
		return db.rebuild(err.Error())
	}
	return err
}

func (db *DB) rebuild(reason string) error {
	db.recovered, db.mark = reason, ""
	if err := removeState(db.path, db.markPath()); err != nil {
		return err
	}
	return db.openFile()
}

// removeState deletes the Bolt file and its mark, but not from under a DB that has it open.
func removeState(path, markPath string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	free, err := filelock.TryFile(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if !free {
		return ErrInUse
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	if err := os.Remove(markPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// openFile opens Bolt and reads what a task needs to know of it.
func (db *DB) openFile() error {
	file, err := openBolt(db.path, bolt.Options{NoSync: db.hasBootID})
	if err != nil {
		return err
	}
	db.file = file
	db.positions = make(map[string]Position)
	db.streamTimes = make(map[string]int64)
	for _, t := range db.tables {
		t.maxStart, t.committedMaxStart = -1, -1
	}
	if err := guarded(db.load); err != nil {
		return errors.Join(err, file.close())
	}
	return nil
}

// The keys of the meta bucket. All numbers are big endian.
const (
	formatKey      = "format"            // uint32
	positionKey    = "position/"         // + store: topic id, int64 next offset, int64 ms of the commit
	maxStartKey    = "max-start/"        // + window store: int64 ms
	intervalKey    = "segment-interval/" // + window store: int64 ms
	streamTimeKey  = "stream-time/"      // + key: int64 ms
	formatVersion  = 1
	positionLength = 16 + 8 + 8
)

// load reads the meta bucket and looks at each store, so that the damage that shows at once shows here. To be called
// inside a guard.
func (db *DB) load() error {
	tx, err := db.file.read()
	if err != nil {
		return err
	}
	meta := tx.Bucket([]byte(metaBucket))
	if meta == nil {
		if k, _ := tx.Cursor().First(); k != nil {
			return fmt.Errorf("%w: it has buckets, but no meta bucket", errDamaged)
		}
		return nil // new
	}
	if v := meta.Get([]byte(formatKey)); len(v) != 4 || binary.BigEndian.Uint32(v) != formatVersion {
		return fmt.Errorf("%w: format %x, not %d", errDamaged, v, formatVersion)
	}
	if err := meta.ForEach(db.loadMeta); err != nil {
		return err
	}
	for _, t := range db.tables {
		if err := t.load(tx, meta); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) loadMeta(k, v []byte) error {
	key := string(k)
	if name, ok := strings.CutPrefix(key, positionKey); ok {
		if len(v) != positionLength {
			return fmt.Errorf("%w: %s has %d bytes, not %d", errDamaged, key, len(v), positionLength)
		}
		db.positions[name] = Position{
			TopicID:     [16]byte(v),
			Next:        int64(binary.BigEndian.Uint64(v[16:])),
			CommittedAt: time.UnixMilli(int64(binary.BigEndian.Uint64(v[24:]))),
		}
	} else if name, ok := strings.CutPrefix(key, streamTimeKey); ok {
		ms, err := metaInt64(key, v)
		if err != nil {
			return err
		}
		db.streamTimes[name] = ms
	}
	return nil
}

func metaInt64(key string, v []byte) (int64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: %s has %d bytes, not 8", errDamaged, key, len(v))
	}
	return int64(binary.BigEndian.Uint64(v)), nil
}

// load checks that the file was written for this store as it is declared now, and finds the largest window start.
func (t *table) load(tx *bolt.Tx, meta *bolt.Bucket) error {
	other := *t
	other.spec.Kind = KeyValueKind + WindowKind - t.spec.Kind
	if tx.Bucket(other.bucketName()) != nil {
		return fmt.Errorf("%w: store %s is a %s store in it, not a %s store", errDamaged, t.spec.Name, other.spec.Kind, t.spec.Kind)
	}
	if t.spec.Kind == WindowKind {
		if key := intervalKey + t.spec.Name; meta.Get([]byte(key)) != nil {
			ms, err := metaInt64(key, meta.Get([]byte(key)))
			if err != nil {
				return err
			}
			if ms != t.interval {
				return fmt.Errorf("%w: store %s has segments of %d ms in it, not %d ms: its retention was changed",
					errDamaged, t.spec.Name, ms, t.interval)
			}
		}
		if key := maxStartKey + t.spec.Name; meta.Get([]byte(key)) != nil {
			ms, err := metaInt64(key, meta.Get([]byte(key)))
			if err != nil {
				return err
			}
			t.maxStart, t.committedMaxStart = ms, ms
		}
	}
	_, err := t.empty()
	return err
}

// Recovered is empty if the file was opened as it was, or is new. Otherwise it says why it was deleted.
func (db *DB) Recovered() string { return db.recovered }

// KeyValue returns a store by name, nil if there is no key-value store of that name.
func (db *DB) KeyValue(name string) *KeyValue {
	if t := db.byName[name]; t != nil && t.spec.Kind == KeyValueKind {
		return &KeyValue{t: t}
	}
	return nil
}

// Window returns a store by name, nil if there is no window store of that name.
func (db *DB) Window(name string) *Window {
	if t := db.byName[name]; t != nil && t.spec.Kind == WindowKind {
		return &Window{t: t}
	}
	return nil
}

// Position tells up to where Bolt has followed the changelog of a store, false if it holds no position.
func (db *DB) Position(store string) (Position, bool) {
	p, ok := db.positions[store]
	return p, ok
}

// StreamTime returns a committed stream time, in ms since the epoch.
func (db *DB) StreamTime(key string) (int64, bool) {
	ms, ok := db.streamTimes[key]
	return ms, ok
}

// Empty reports whether Bolt holds no row of a store, expired ones included. A store that is not declared is empty.
func (db *DB) Empty(store string) bool {
	t := db.byName[store]
	if t == nil || db.failed != nil {
		return true
	}
	empty := false
	_ = db.guardedRead(func() (err error) { // a lost file is what the next call tells
		empty, err = t.empty()
		return err
	})
	return empty
}

// empty looks for a row in Bolt. To be called inside a guard.
func (t *table) empty() (bool, error) {
	segments, err := t.segments()
	if err != nil {
		return false, err
	}
	for _, segment := range segments {
		c, err := t.cursor(segment)
		if err != nil {
			return false, err
		}
		if c == nil {
			continue
		}
		if k, _ := c.First(); k != nil {
			return false, nil
		}
	}
	return true, nil
}

// Close syncs the file and marks it clean. Uncommitted entries are dropped. A lost DB is abandoned, and its loss returned.
func (db *DB) Close() error {
	if db.failed == nil && db.mark != markClean {
		if err := db.file.bolt.Sync(); err != nil {
			_ = db.lose("sync", err) // what the page cache still holds is not to be trusted either
		}
	}
	if failed := db.failed; failed != nil {
		return errors.Join(failed, db.Abandon())
	}
	db.release()
	err := db.file.close()
	if err == nil {
		err = db.setMark(markClean)
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", db.path, err)
	}
	return nil
}

// Abandon closes the file without syncing it or marking it clean, for a task that was lost. Uncommitted entries are
// dropped. It also releases a lost DB.
func (db *DB) Abandon() error {
	if errors.Is(db.failed, ErrClosed) {
		return nil
	}
	db.release()
	if err := db.file.close(); err != nil {
		return fmt.Errorf("abandon %s: %w", db.path, err)
	}
	return nil
}

// release gives back what the overlays hold of the budget. Every later call answers ErrClosed.
func (db *DB) release() {
	for _, t := range db.tables {
		t.overlay.clear()
	}
	db.failed = fmt.Errorf("%w: %s", ErrClosed, db.path)
}

func (db *DB) markPath() string { return filepath.Join(filepath.Dir(db.path), markFile) }

// setMark makes state.mark say text.
func (db *DB) setMark(text string) error {
	if db.mark == text {
		return nil
	}
	if err := writeMark(db.markPath(), text); err != nil {
		return err
	}
	db.mark = text
	return nil
}

// lose makes the DB unusable. The next Open must not trust the file, and the mark sees to it.
func (db *DB) lose(op string, cause error) error {
	if db.failed != nil {
		return db.failed
	}
	db.failed = fmt.Errorf("%w: %s %s: %w", ErrLost, op, db.path, cause)
	if db.file.bolt.IsReadOnly() {
		return db.failed
	}
	db.log.Error("local state is lost", "file", db.path, "operation", op, "error", cause)
	if err := writeMark(db.markPath(), "lost: "+op+": "+cause.Error()); err != nil {
		// A full disk has no room for a reason, but a file can always be deleted.
		if err := os.Remove(db.markPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			db.log.Error("the file of the lost state could not be marked", "file", db.path, "error", err)
		}
	}
	return db.failed
}

// losing makes the DB lost if *err is set. It is for a defer that comes before (and so runs after) recovered.
func (db *DB) losing(op string, err *error) {
	if *err != nil {
		*err = db.lose(op, *err)
	}
}

// guardedRead runs fn, which reads Bolt; an error means that the DB is lost.
func (db *DB) guardedRead(fn func() error) (err error) {
	defer db.losing("read", &err)
	return guarded(fn)
}
