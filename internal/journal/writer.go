package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Path is the journal file of one process of an instance.
func Path(dir, application, instance string, pid int) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%s.%d.jsonl", application, instance, pid))
}

// Writer appends events to a journal file. It is safe for concurrent use.
type Writer struct {
	application, instance string
	now                   func() time.Time

	mu   sync.Mutex
	file *os.File
	err  error
}

// Create opens the journal at path for an instance, after the events that an earlier process of the same pid left there. now is the clock.
func Create(path, application, instance string, now func() time.Time) (*Writer, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	if err := cutHalfLine(f); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", path, err), f.Close())
	}
	return &Writer{application: application, instance: instance, now: now, file: f}, nil
}

// cutHalfLine removes the end of a file that a writer was killed in the middle of.
func cutHalfLine(f *os.File) error {
	old, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(old, '\n') + 1
	if whole == len(old) {
		return nil
	}
	return f.Truncate(int64(whole))
}

// Write appends one event and returns it. The line has left this process when Write returns. An error is kept for Close: no instance
// stops counting because its journal cannot be written, but none hides it either.
func (w *Writer) Write(p Payload) Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := Event{Time: w.now(), Application: w.application, Instance: w.instance}
	p.in(&e)
	line, err := json.Marshal(&e)
	if err == nil {
		_, err = w.file.Write(append(line, '\n')) // one write, so that no reader sees half a line for long
	}
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("journal %s: %w", w.file.Name(), err)
	}
	return e
}

// Close closes the file and returns the first error of any Write.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.err, w.file.Close())
}
