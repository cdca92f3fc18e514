package phases

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/atomicfile"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/topology"
)

// write replaces an evidence file.
func (r *run) write(name string, content []byte) error {
	path := r.Workspace.Observation(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Write(path, content, 0o644); err != nil {
		return err
	}
	r.Console.Printf("  wrote observations/%s (%d lines)", name, bytes.Count(content, []byte{'\n'}))
	return nil
}

// rows are the records of a topic as key TAB value, from the beginning.
func (r *run) rows(ctx context.Context, topic string, last bool) ([]byte, error) {
	var b bytes.Buffer
	err := kafkatools.Dump(ctx, r.conn.Client, kafkatools.DumpConfig{
		ReadConfig: kafkatools.ReadConfig{Topic: topic}, PrintKey: true, Last: last,
	}, &b)
	return b.Bytes(), err
}

// instanceLines are the lines of all instances of the lab's application so far, in the order of time. An interrupted phase had more than one
// instance, and then a store's first record was seen by each; the first of them is the one that counts.
func (r *run) instanceLines() (all, firstRecords []string, err error) {
	events, err := journal.ReadAll(r.Workspace.Journals(), topology.ApplicationID)
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for i := range events {
		e := &events[i]
		if first := e.FirstRecord; first != nil {
			if seen[first.Store] {
				continue
			}
			seen[first.Store] = true
			firstRecords = append(firstRecords, e.Line())
		}
		all = append(all, e.Line())
	}
	return all, firstRecords, nil
}

// linesSince are the lines of all instances of the lab's application from a point in time on.
func (r *run) linesSince(t time.Time) ([]string, error) {
	events, err := journal.ReadAll(r.Workspace.Journals(), topology.ApplicationID)
	var all []string
	for i := range events {
		if !events[i].Time.Before(t) {
			all = append(all, events[i].Line())
		}
	}
	return all, err
}

// section is a part of an evidence file under its own heading.
func section(title string, content []byte) []byte {
	return fmt.Appendf(nil, "# %s\n%s\n", title, bytes.TrimRight(content, "\n"))
}

func lines(list []string) []byte { return []byte(strings.Join(list, "\n") + "\n") }

// showCounts returns the running counts, the last of each store, and prints them.
func (r *run) showCounts(ctx context.Context) ([]byte, error) {
	last, err := r.rows(ctx, topology.OrdersPerStore, true)
	for row := range bytes.Lines(last) {
		r.Console.Printf("  %s", bytes.TrimSpace(row))
	}
	return last, err
}

// excess says why there is more than the orders lead to. It prints that as a warning and returns it for the evidence.
func (r *run) excess(what string) (string, error) {
	killed, err := crashes(r.Workspace)
	if err != nil {
		return "", err
	}
	why := cmp.Or(becauseKilled(killed), "no instance here was killed, so other orders, or another application, led to them")
	r.Console.Warnf("%s: %s", what, why)
	return what + ": " + why, nil
}
