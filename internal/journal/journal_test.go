package journal_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/windowed-order-counter/lab/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func create(t *testing.T, dir, application, instance string, pid int) *journal.Writer {
	t.Helper()
	clock := time.Unix(100, 0).UTC()
	w, err := journal.Create(journal.Path(dir, application, instance, pid), application, instance, func() time.Time {
		clock = clock.Add(time.Second)
		return clock
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// The lines are those of the original program.
func TestLines(t *testing.T) {
	tests := []struct {
		payload journal.Payload
		want    string
	}{
		{&journal.Started{PID: 7}, "instance a pid 7"},
		{&journal.State{From: "CREATED", To: "REBALANCING"}, "state a CREATED -> REBALANCING"},
		{
			&journal.Tasks{Active: []journal.Task{
				{ID: "1_1", Partitions: []string{"order-counter-orders-by-store-repartition-1"}},
				{ID: "0_0", Partitions: []string{"orders.status-0", "orders.placed-0"}},
			}},
			"active tasks a {0_0=[orders.status-0, orders.placed-0], 1_1=[order-counter-orders-by-store-repartition-1]}",
		},
		{&journal.Tasks{}, "active tasks a {}"},
		{
			&journal.FirstRecord{Store: "store-17", Partition: "order-counter-orders-by-store-repartition-1"},
			"first record for store-17 instance=a partition=order-counter-orders-by-store-repartition-1",
		},
		{&journal.TableApplied{Key: "ord-1042", Value: "PAID"}, "table applied ord-1042=PAID"},
		{&journal.Joined{Key: "ord-1042", Value: "PAID|{}"}, "joined ord-1042=PAID|{}"},
		{
			&journal.RestoreStart{Store: "orders-per-store", Partition: "order-counter-orders-per-store-changelog-1", From: 0, To: 13},
			"restore start instance=a store=orders-per-store partition=order-counter-orders-per-store-changelog-1 from=0 to=13",
		},
		{
			&journal.RestoreEnd{Store: "orders-per-store", Partition: "order-counter-orders-per-store-changelog-1", Restored: 13},
			"restore end instance=a store=orders-per-store partition=order-counter-orders-per-store-changelog-1 restored=13",
		},
		{&journal.Skipped{Text: "Skipping record for expired window."}, "[1970-01-01 00:01:50,000] WARN Skipping record for expired window."},
		{
			&journal.Skipped{Text: "Skipping record for expired window.", Late: &journal.Late{}},
			"[1970-01-01 00:01:51,000] WARN Skipping record for expired window. " +
				"(org.apache.kafka.streams.kstream.internals.KStreamWindowAggregate)",
		},
		{
			&journal.DeadLetter{Partition: "orders.placed-2", Offset: 13, Kind: "value cannot be decoded", Error: "no JSON"},
			"dead letter orders.placed-2 offset 13: value cannot be decoded: no JSON",
		},
		{
			&journal.Misplaced{Partition: "orders.status-1", Offset: 3, Want: 2, Records: 1},
			"misplaced orders.status-1 offset 3: its key belongs to partition 2, a join may miss it",
		},
		{
			&journal.Misplaced{Partition: "orders.status-1", Offset: 3, Want: 2, Records: 40},
			"misplaced orders.status-1: 40 records whose keys belong to other partitions, a join may have missed them",
		},
		{
			&journal.Excused{Task: "0_1", Partition: "orders.placed-1", WaitedMs: 5000},
			"task 0_1 is not waited for any longer, after 5000 ms for orders.placed-1: its records may come late downstream",
		},
		{
			&journal.Excused{Task: "0_1", WaitedMs: 5000},
			"task 0_1 is not waited for any longer, after 5000 ms for its restore: its records may come late downstream",
		},
		{&journal.Waiting{Reason: "no topic"}, "instance a waits: no topic"},
		{&journal.Halted{Store: "store-17", Record: 20}, "halting before counting store-17 record 20"},
		{
			&journal.CrashPoint{At: "before-offset-commit", Commit: 3, Stores: []journal.Excess{
				{Store: "store-17", Orders: 4, OrdersAgain: 3, Records: 2, RecordsAgain: 2}, {Store: "store-18", OrdersAgain: 1, RecordsAgain: 1},
			}},
			"halting at before-offset-commit of commit 3: 4 orders will come to be counted again, 3 records will be counted again",
		},
		{
			&journal.CrashPoint{At: "in-transaction", Commit: 1, Error: "broker gone"},
			"halting at in-transaction of commit 1, and what comes again is not known: broker gone",
		},
		{&journal.Stopped{}, "instance a stopped"},
		{&journal.Stopped{Error: "broker gone"}, "instance a failed: broker gone"},
		{
			&journal.RestoreProgress{Store: "s", Partition: "log-1", Restored: 9, Position: 10, To: 30, Rate: 10, ETA: 2000},
			"restore progress instance=a store=s partition=log-1 position=10 to=30 rate=10/s eta=2s",
		},
		{
			&journal.RestoreSuspended{Store: "s", Partition: "log-1", Restored: 9, Position: 10, To: 30},
			"restore suspended instance=a store=s partition=log-1 position=10 to=30 restored=9",
		},
		{
			&journal.Tasks{Active: []journal.Task{{ID: "1_1", Partitions: []string{"r-1"}, Thread: 2}, {ID: "0_0", Partitions: []string{"o-0"}, Thread: 1}}},
			"active tasks a {0_0=[o-0] StreamThread-1, 1_1=[r-1] StreamThread-2}",
		},
		{
			&journal.Standbys{Standby: []journal.Task{
				{ID: "1_1", Partitions: []string{"order-counter-orders-per-store-changelog-1"}},
				{ID: "0_0", Partitions: []string{"order-counter-order-status-changelog-0"}},
			}},
			"standby tasks a {0_0=[order-counter-order-status-changelog-0], 1_1=[order-counter-orders-per-store-changelog-1]}",
		},
		{
			&journal.StandbyCaughtUp{Task: "1_1", Store: "orders-per-store", Partition: "order-counter-orders-per-store-changelog-1", Position: 13},
			"standby caught up instance=a store=orders-per-store partition=order-counter-orders-per-store-changelog-1 position=13",
		},
	}
	dir := t.TempDir()
	w := create(t, dir, "order-counter", "a", 7)
	var want, got []string
	for _, tt := range tests {
		written := w.Write(tt.payload)
		want = append(want, tt.want)
		if line := written.Line(); line != tt.want {
			t.Errorf("written: got %q, want %q", line, tt.want)
		}
	}
	events, err := journal.Read(journal.Path(dir, "order-counter", "a", 7))
	if err != nil {
		t.Fatal(err)
	}
	for i := range events {
		got = append(got, events[i].Line())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadAllMergesByTimeAndApplication(t *testing.T) {
	dir := t.TempDir()
	a, b := create(t, dir, "order-counter", "a", 1), create(t, dir, "order-counter", "b", 2)
	other := create(t, dir, "order-counter.x", "a", 3)
	a.Write(&journal.Started{PID: 1}) // second 101
	a.Write(&journal.State{To: "RUNNING"})
	b.Write(&journal.Started{PID: 2}) // second 101
	other.Write(&journal.Started{PID: 3})
	events, err := journal.ReadAll(dir, "order-counter")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range events {
		got = append(got, events[i].Line())
	}
	if diff := cmp.Diff([]string{"instance a pid 1", "instance b pid 2", "state a  -> RUNNING"}, got); diff != "" {
		t.Error(diff)
	}
}

// Who follows an application sees each event once, of processes that are there and of those that are still to start.
func TestFollowAll(t *testing.T) {
	dir := t.TempDir()
	f := journal.FollowAll(dir, "order-counter")
	defer f.Close()
	next := func() []string {
		t.Helper()
		events, err := f.Next()
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for i := range events {
			lines = append(lines, events[i].Line())
		}
		return lines
	}
	if got := next(); len(got) != 0 {
		t.Errorf("before anything started: %q", got)
	}
	a := create(t, dir, "order-counter", "a", 1)
	a.Write(&journal.Started{PID: 1})
	create(t, dir, "order-counter.x", "a", 3).Write(&journal.Started{PID: 3})
	if diff := cmp.Diff([]string{"instance a pid 1"}, next()); diff != "" {
		t.Error(diff)
	}
	create(t, dir, "order-counter", "b", 2).Write(&journal.Started{PID: 2}) // second 101
	a.Write(&journal.State{To: "RUNNING"})                                  // second 102
	if diff := cmp.Diff([]string{"instance b pid 2", "state a  -> RUNNING"}, next()); diff != "" {
		t.Error(diff)
	}
	if got := next(); len(got) != 0 {
		t.Errorf("again: %q", got)
	}
	if diff := cmp.Diff([]string{"instance a pid 1", "instance b pid 2", "state a  -> RUNNING"}, f.Last()); diff != "" {
		t.Error(diff)
	}
}

// A killed writer may leave half a line. It is not an event, and the next process that gets the same pid goes on after the whole lines.
func TestHalfALineIsNoEvent(t *testing.T) {
	dir := t.TempDir()
	path := journal.Path(dir, "order-counter", "a", 1)
	if err := os.WriteFile(path, []byte(`{"instance":"a","stopped":{}}`+"\n"+`{"instance":"a","sto`), 0o644); err != nil {
		t.Fatal(err)
	}
	events, err := journal.Read(path)
	if err != nil || len(events) != 1 {
		t.Errorf("%d events, %v", len(events), err)
	}
	create(t, dir, "order-counter", "a", 1).Write(&journal.Started{PID: 1})
	events, err = journal.Read(path)
	if err != nil || len(events) != 2 {
		t.Errorf("after the next process began: %d events, %v", len(events), err)
	}
	if events, err := journal.Read(path + ".none"); err != nil || len(events) != 0 {
		t.Errorf("no file: %d events, %v", len(events), err)
	}
}

func TestWaitSeesEventsThatComeLater(t *testing.T) {
	dir := t.TempDir()
	f := journal.Follow(journal.Path(dir, "order-counter", "a", 1))
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w := create(t, dir, "order-counter", "a", 1)
		w.Write(&journal.Started{PID: 1})
		w.Write(&journal.TableApplied{Key: "ord-1042", Value: "PAID"})
		w.Write(&journal.TableApplied{Key: "ord-1042", Value: "SHIPPED"})
	}()
	defer func() { <-written }()
	applied := func(e *journal.Event) bool { return e.TableApplied != nil }
	for _, want := range []string{"PAID", "SHIPPED"} { // each once, in order
		e, err := f.Wait(ctx, "a table row", applied)
		if err != nil {
			t.Fatal(err)
		}
		if e.TableApplied.Value != want {
			t.Errorf("got %s, want %s", e.TableApplied.Value, want)
		}
	}
}

func TestWaitErrorTellsWhatForHowLongAndTheLastLines(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, "order-counter", "a", 1)
	for range 9 {
		w.Write(&journal.State{From: "RUNNING", To: "REBALANCING"})
	}
	w.Write(&journal.Stopped{Error: "no broker"})
	f := journal.Follow(journal.Path(dir, "order-counter", "a", 1))
	defer f.Close()
	exited := errors.New("instance a exited")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(exited)
	_, err := f.Wait(ctx, "RUNNING", func(e *journal.Event) bool { return e.State != nil && e.State.To == "RUNNING" })
	var wait *journal.WaitError
	if !errors.As(err, &wait) || !errors.Is(err, exited) {
		t.Fatalf("got %v", err)
	}
	if len(wait.Last) != 5 || wait.Last[4] != "instance a failed: no broker" {
		t.Errorf("last lines: %q", wait.Last)
	}
	for _, part := range []string{"for RUNNING", "waited ", "instance a failed: no broker"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}
