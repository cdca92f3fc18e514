package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/windowed-order-counter/lab/internal/atomicfile"
	"github.com/windowed-order-counter/lab/internal/filelock"
)

const (
	lockFile      = "lock"
	processIDFile = "process-id"
	threadsFile   = "transactional-threads"
)

// LockedError is returned by OpenStateDir when another process, or another StateDir of this one, holds the folder.
type LockedError struct {
	Path string // the state folder
	PID  int    // of the holder, 0 if it has not written it yet
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("state folder %s is in use by another process", e.Path)
	}
	return fmt.Sprintf("state folder %s is in use by process %d", e.Path, e.PID)
}

// StateDir is the state folder of one instance of an application. It holds the folders of its tasks.
type StateDir struct {
	path      string
	lock      *filelock.Lock
	processID string
}

// OpenStateDir creates the folder if needed and locks it. The lock is the operating system's: a process that dies in any
// way has given it back. If another process holds it the error is a *LockedError.
func OpenStateDir(path string) (*StateDir, error) {
	if err := os.MkdirAll(path, dirMode); err != nil {
		return nil, fmt.Errorf("create state folder: %w", err)
	}
	lock, err := filelock.Try(filepath.Join(path, lockFile))
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil, &LockedError{Path: path, PID: held.PID}
	}
	if err != nil {
		return nil, fmt.Errorf("lock state folder: %w", err)
	}
	d := &StateDir{path: path, lock: lock}
	if d.processID, err = loadProcessID(filepath.Join(path, processIDFile)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// ProcessIDIn returns the process id of a state folder that nobody need have open; "" if it has none.
func ProcessIDIn(path string) string {
	b, err := os.ReadFile(filepath.Join(path, processIDFile))
	if id := strings.TrimSpace(string(b)); err == nil && processIDForm.MatchString(id) {
		return id
	}
	return ""
}

var processIDForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// loadProcessID reads the process id, or makes one. A damaged file is an error rather than a new id: the id is part of
// the transactional ids, and a new one would leave a transaction of the old one open until the broker ends it.
func loadProcessID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		id := strings.TrimSpace(string(b))
		if !processIDForm.MatchString(id) {
			return "", fmt.Errorf("%s holds no process id; delete the file to have a new one made", path)
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read process id: %w", err)
	}
	id := newUUID()
	if err := atomicfile.Write(path, []byte(id+"\n"), fileMode); err != nil {
		return "", fmt.Errorf("write process id: %w", err)
	}
	return id, nil
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails, see crypto/rand
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// ProcessID identifies this folder's process in the group and in transactional ids. It outlives restarts.
func (d *StateDir) ProcessID() string { return d.processID }

// RaiseTransactionalThreads writes down that stream threads 1 to n have transactional ids, and returns the highest number that any ever had
// here, n included. It has to be called before those ids are used: a later start with fewer threads ends what the others have left open.
func (d *StateDir) RaiseTransactionalThreads(n int) (highest int, err error) {
	path := filepath.Join(d.path, threadsFile)
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		if highest, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil || highest < 1 {
			return 0, fmt.Errorf("%s holds no number of threads; delete the file to have it made anew", path)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("read the number of threads: %w", err)
	}
	if n <= highest {
		return highest, nil
	}
	if err := atomicfile.Write(path, []byte(strconv.Itoa(n)+"\n"), fileMode); err != nil {
		return 0, fmt.Errorf("write the number of threads: %w", err)
	}
	return n, nil
}

// TaskDir is the folder of a task, such as 1_0.
func (d *StateDir) TaskDir(taskID string) string { return filepath.Join(d.path, taskID) }

var taskForm = regexp.MustCompile(`^[0-9]+_[0-9]+$`)

// Tasks returns the ids of the tasks that have a folder here.
func (d *StateDir) Tasks() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	var tasks []string
	for _, e := range entries {
		if e.IsDir() && taskForm.MatchString(e.Name()) {
			tasks = append(tasks, e.Name())
		}
	}
	return tasks, nil
}

// Close releases the lock. The lock file stays: deleting it could take it from under a process that has just opened it.
func (d *StateDir) Close() error {
	if d.lock == nil {
		return nil
	}
	err := d.lock.Release()
	d.lock = nil
	if err != nil {
		return fmt.Errorf("release state folder %s: %w", d.path, err)
	}
	return nil
}
