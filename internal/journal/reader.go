package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pollEvery is how often a follower looks for new lines.
const pollEvery = 10 * time.Millisecond

// tailLines is how many of the last lines a WaitError shows.
const tailLines = 5

// Read returns all events of one file, or none if there is no such file. A line that its writer was killed in the middle of is left out.
func Read(path string) ([]Event, error) {
	r := newReader(path)
	events, err := r.next()
	return events, errors.Join(err, r.close())
}

// ReadAll returns the events of every process of an application, by time.
func ReadAll(dir, application string) ([]Event, error) {
	r := newAllReader(dir, application)
	events, err := r.next()
	return events, errors.Join(err, r.close())
}

// source is where a follower's events come from.
type source interface {
	next() ([]Event, error) // those that have come since
	close() error
}

// reader reads the complete lines of a file as it grows.
type reader struct {
	path string
	file *os.File
	rest []byte // the beginning of a line whose end is not there yet
	line int
}

func newReader(path string) *reader { return &reader{path: path} }

func (r *reader) next() ([]Event, error) {
	if r.file == nil {
		f, err := os.Open(r.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		r.file = f
	}
	data, err := io.ReadAll(r.file)
	if err != nil {
		return nil, err
	}
	r.rest = append(r.rest, data...)
	var events []Event
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte{'\n'})
		if !whole {
			return events, nil
		}
		r.rest, r.line = rest, r.line+1
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return events, fmt.Errorf("journal %s line %d: %w", r.path, r.line, err)
		}
		events = append(events, e)
	}
}

func (r *reader) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// allReader reads the files of every process of an application as they come and grow.
type allReader struct {
	pattern, application string
	readers              map[string]*reader // by path
}

func newAllReader(dir, application string) *allReader {
	return &allReader{
		pattern: filepath.Join(dir, application+".*.jsonl"), application: application, readers: map[string]*reader{},
	}
}

// next returns by time what has come since. Events that two processes write at about the same moment may come in two calls, and then in any
// order.
func (a *allReader) next() ([]Event, error) {
	paths, err := filepath.Glob(a.pattern)
	if err != nil {
		return nil, err
	}
	var all []Event
	for _, path := range paths {
		r := a.readers[path]
		if r == nil {
			r = newReader(path)
			a.readers[path] = r
		}
		events, err := r.next()
		if err != nil {
			return all, err
		}
		// The pattern also finds the files of an application whose id goes on after a dot.
		all = append(all, slices.DeleteFunc(events, func(e Event) bool { return e.Application != a.application })...)
	}
	slices.SortStableFunc(all, func(x, y Event) int { return x.Time.Compare(y.Time) })
	return all, nil
}

func (a *allReader) close() error {
	var errs []error
	for _, r := range a.readers {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

// Follower reads journals from their beginning and waits for what is still to come. They need not exist yet. Not safe for concurrent use.
type Follower struct {
	source source
	seen   []Event // read, not yet looked at by Wait
	last   []Event // for WaitError
}

// Follow returns a follower of the journal at path.
func Follow(path string) *Follower { return &Follower{source: newReader(path)} }

// FollowAll returns a follower of every process of an application, those that are still to start included.
func FollowAll(dir, application string) *Follower {
	return &Follower{source: newAllReader(dir, application)}
}

// Close closes the files.
func (f *Follower) Close() error { return f.source.close() }

// Next returns the events that have come since the last call, and does not wait. Do not mix it with Wait.
func (f *Follower) Next() ([]Event, error) {
	events, err := f.source.next()
	f.last = append(f.last, events...)
	f.last = f.last[max(0, len(f.last)-tailLines):]
	return events, err
}

// WaitError says that an event did not come.
type WaitError struct {
	What  string        // what was waited for
	Spent time.Duration // how long
	Last  []string      // the last lines of the instance, oldest first
	Err   error         // why the wait ended
}

func (e *WaitError) Error() string {
	text := fmt.Sprintf("waited %s for %s: %v", e.Spent.Round(time.Millisecond), e.What, e.Err)
	if len(e.Last) > 0 {
		text += "; the instance's last lines:\n  " + strings.Join(e.Last, "\n  ")
	}
	return text
}

// Unwrap returns why the wait ended.
func (e *WaitError) Unwrap() error { return e.Err }

// Wait returns the first event that match accepts, after the one that the last Wait returned. It ends with a *WaitError when ctx does: give
// it a deadline, and a cause where there is more to tell.
func (f *Follower) Wait(ctx context.Context, what string, match func(*Event) bool) (Event, error) {
	start := time.Now()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		// Looked at before the file: what was written before the end counts.
		ended := context.Cause(ctx)
		events, err := f.source.next()
		f.seen = append(f.seen, events...)
		for i := range f.seen {
			f.last = append(f.last[max(0, len(f.last)-tailLines+1):], f.seen[i])
			if match(&f.seen[i]) {
				found := f.seen[i]
				f.seen = f.seen[i+1:]
				return found, nil
			}
		}
		f.seen = nil
		if err = cmp.Or(err, ended); err != nil {
			return Event{}, &WaitError{What: what, Spent: time.Since(start), Last: f.Last(), Err: err}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// Last is the last lines that were read, oldest first, as a WaitError shows them.
func (f *Follower) Last() []string {
	lines := make([]string, 0, len(f.last))
	for i := range f.last {
		lines = append(lines, f.last[i].Line())
	}
	return lines
}
