package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// localStore is a store of a task as a state file holds it, and what its changelog comes to up to the same position (docs/formats.md).
type localStore struct {
	file     string
	name     string
	topic    [16]byte // the changelog's id
	position int64    // the next offset of the changelog
	windows  bool
	rows     map[string]uint64 // fingerprints of value and timestamp, by key of the changelog

	logged  map[string]loggedRow // the last record of each key below the position
	later   map[string]bool      // keys with a record from the position on
	records int64                // of the log below the position, markers and aborted ones included
	latest  int64                // the largest window start below the position
}

type loggedRow struct {
	content uint64
	deleted bool
	offset  int64
}

// add takes a record of the changelog.
func (s *localStore) add(r *kafka.Record) {
	switch {
	case r.Key == nil:
	case r.Offset >= s.position:
		s.later[string(r.Key)] = true
	default:
		s.logged[string(r.Key)] = loggedRow{fingerprint(r.Value, r.Timestamp), r.Value == nil, r.Offset}
		if s.windows {
			s.latest = max(s.latest, windowStart(r.Key))
		}
	}
}

// windowStart is the start of the window that a key is of, in ms; 0 if it is of none.
func windowStart(key []byte) int64 {
	if len(key) < 12 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(key[len(key)-12:]))
}

// expired tells whether a window store has let go of a window: all windows of a minute go together, once it lies wholly before the latest
// window less what a store retains, which is a window and its grace.
func (s *localStore) expired(key string) bool {
	return s.windows && floorMinute(windowStart([]byte(key))) < floorMinute(s.latest-minute-grace)
}

// keyText shows a key of the store.
func (s *localStore) keyText(key string) string {
	if s.windows {
		return windowKey([]byte(key))
	}
	return key
}

// checkState compares what stands on disk with the changelogs: a store is what its changelog comes to up to the position in the file. That
// holds for the file of an earlier owner too, at its own position. There is no such check where there is nothing to compare: without a state
// folder, or if instances have all files in use.
//
// A topic that has been compacted does not tell what a key was at an earlier position if it has a later record, or had one that deleted it.
func (g *grader) checkState(ctx context.Context) []Check {
	if g.opt.State == "" {
		return nil
	}
	checks, _ := g.state.get(func() ([]Check, error) {
		const name, want = "local state", "the changelogs up to the positions in the files"
		var f findings
		stores, err := g.readState(&f)
		if err == nil && len(stores) == 0 && len(f.unknown) == 0 {
			return nil, nil
		}
		var all map[kafka.TopicPartition]bounds
		if err == nil {
			all, err = g.foldChangelogs(ctx, stores)
		}
		if err != nil {
			return []Check{unread(name, want, err)}, nil
		}
		rows := 0
		files := map[string]bool{}
		for tp, list := range stores {
			for _, s := range list {
				files[s.file] = true
				rows += s.judge(&f, tp, all[tp])
			}
		}
		slices.Sort(f.wrong)
		slices.Sort(f.unknown)
		return []Check{g.check(name, topicPlaced, want, fmt.Sprintf("%d rows in %d files", rows, len(files)), f)}, nil
	})
	return checks
}

// judge compares the rows of a store with its changelog, which reaches over b, and returns how many it could compare.
func (s *localStore) judge(f *findings, tp kafka.TopicPartition, b bounds) int {
	at := fmt.Sprintf("%s, store %s at offset %d of %s", s.file, s.name, s.position, tp)
	switch {
	case s.position > b.end:
		f.wrongf("%s: the topic ends at %d", at, b.end)
		return 0
	case s.position > b.stable:
		f.unknownf("%s: a transaction is open from %d on", at, b.stable)
		return 0
	}
	whole := s.records == s.position // nothing was compacted or deleted
	right, untold := 0, 0
	for _, key := range unionKeys(s.rows, s.logged, strings.Compare) {
		row, there := s.rows[key]
		l, logged := s.logged[key]
		switch {
		case there && !logged && !whole && (s.later[key] || b.start > 0 || s.position+1 < b.end):
			untold++
		case there && !logged:
			f.wrongf("%s: %s has a row, and no record", at, s.keyText(key))
		case there && l.deleted:
			f.wrongf("%s: %s has a row, and offset %d deletes it", at, s.keyText(key), l.offset)
		case there && l.content != row:
			f.wrongf("%s: the row of %s is not that of offset %d", at, s.keyText(key), l.offset)
		case !there && !l.deleted && !s.expired(key):
			f.wrongf("%s: %s has no row, and offset %d is one", at, s.keyText(key), l.offset)
		default:
			right++
		}
	}
	if untold > 0 {
		f.notef("%s: %d rows whose records have been compacted or deleted", at, untold)
	}
	return right
}

// readState reads the state files of the application, by the changelog partition of each store. What cannot be told from a file goes to f.
func (g *grader) readState(f *findings) (map[kafka.TopicPartition][]*localStore, error) {
	root := os.DirFS(g.opt.State)
	files, err := fs.Glob(root, "*/"+g.opt.ApplicationID+"/*_*/state.db")
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", g.opt.State, err)
	}
	stores := map[kafka.TopicPartition][]*localStore{}
	var used []string
	for _, file := range files {
		dir := path.Dir(file)
		_, number, _ := strings.Cut(path.Base(dir), "_")
		partition, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			continue // no task's folder
		}
		if why := distrusted(filepath.Join(g.opt.State, dir)); why != "" {
			f.notef("%s is not looked at: %s, so the next start restores it", file, why)
			continue
		}
		found, err := readStateFile(filepath.Join(g.opt.State, file))
		switch {
		case errors.Is(err, bolterrors.ErrTimeout):
			used = append(used, file)
			continue
		case err != nil:
			f.unknownf("%s cannot be read: %v", file, err)
			continue
		}
		for _, s := range found {
			s.file = file
			tp := kafka.TopicPartition{Topic: g.internal(s.name + "-changelog"), Partition: int32(partition)}
			if t, ok := g.found[tp.Topic]; !ok || t.id != s.topic {
				f.notef("%s is not looked at: its store %s is of another topic than the %s that is there now", file, s.name, tp.Topic)
				continue
			}
			stores[tp] = append(stores[tp], s)
		}
	}
	if len(used) > 0 {
		f.notef("not looked at, as instances have them in use: %s", someOf(used))
	}
	return stores, nil
}

// distrusted says why a start would not open the state file of a folder; "" if it would.
func distrusted(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "state.mark"))
	mark := strings.TrimSuffix(string(b), "\n")
	boot, open := strings.CutPrefix(mark, "open ")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it has no state.mark"
	case err != nil:
		return err.Error()
	case mark == "clean", open && boot != "" && boot == bootID():
		return ""
	default:
		return fmt.Sprintf("its state.mark says %q", mark)
	}
}

// lockPatience is how long the lock of a state file is waited for: less than Bolt's interval between two tries, so that there is one.
const lockPatience = time.Millisecond

// readStateFile reads the stores of a file, and changes nothing. Bolt panics on a damaged page, and faults on one that a truncated file lacks.
func readStateFile(file string) (stores []*localStore, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			stores, err = nil, fmt.Errorf("damaged: %v", p)
		}
	}()
	db, err := bolt.Open(file, 0, &bolt.Options{ReadOnly: true, Timeout: lockPatience})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		stores, err = storesIn(tx)
		return err
	})
	return stores, err
}

func storesIn(tx *bolt.Tx) ([]*localStore, error) {
	meta := tx.Bucket([]byte("meta"))
	if meta == nil {
		return nil, nil // nothing was ever committed to it
	}
	if format := meta.Get([]byte("format")); len(format) != 4 || binary.BigEndian.Uint32(format) != 1 {
		return nil, fmt.Errorf("its format is %x", format)
	}
	found := map[string]*localStore{}
	err := meta.ForEach(func(k, v []byte) error {
		name, ok := strings.CutPrefix(string(k), "position/")
		if !ok {
			return nil
		}
		if len(v) != 32 {
			return fmt.Errorf("its %s has %d bytes", k, len(v))
		}
		found[name] = &localStore{
			name: name, topic: [16]byte(v[:16]), position: int64(binary.BigEndian.Uint64(v[16:])),
			rows: map[string]uint64{}, logged: map[string]loggedRow{}, later: map[string]bool{},
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = tx.ForEach(func(bucket []byte, b *bolt.Bucket) error {
		kind, name, _ := strings.Cut(string(bucket), "/")
		s := found[name]
		switch {
		case kind != "key-value" && kind != "window":
			return nil
		case s == nil:
			return fmt.Errorf("its store %s has no position", name)
		case kind == "key-value":
			return b.ForEach(func(k, v []byte) error { return s.addRow(k[1:], v) })
		}
		s.windows = true
		return b.ForEachBucket(func(segment []byte) error { return b.Bucket(segment).ForEach(s.addRow) })
	})
	return slices.Collect(maps.Values(found)), err
}

func (s *localStore) addRow(key, row []byte) error {
	if len(row) < 8 {
		return fmt.Errorf("a row of its store %s has %d bytes", s.name, len(row))
	}
	s.rows[string(key)] = fingerprint(row[8:], int64(binary.BigEndian.Uint64(row)))
	return nil
}

// foldChangelogs reads the changelogs of the stores. Their ends are asked for now, after the files were read: they are behind no file then.
func (g *grader) foldChangelogs(ctx context.Context, stores map[kafka.TopicPartition][]*localStore) (map[kafka.TopicPartition]bounds, error) {
	all, err := g.topics.Bounds(ctx, slices.Collect(maps.Keys(stores)))
	if err != nil {
		return nil, err
	}
	stable := map[kafka.TopicPartition]bounds{}
	for tp, b := range all {
		stable[tp] = bounds{b.start, min(b.end, b.stable), b.stable}
	}
	err = g.topics.Read(ctx, stable, func(tp kafka.TopicPartition, r *kafka.Record) {
		for _, s := range stores[tp] {
			s.add(r)
		}
	})
	if err != nil {
		return nil, err
	}
	return all, g.topics.Log(ctx, stable, func(tp kafka.TopicPartition, r *kafka.Record) {
		for _, s := range stores[tp] {
			if r.Offset < s.position {
				s.records++
			}
		}
	})
}
