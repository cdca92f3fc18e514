package phases

import (
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
)

// The ledger names each late record once, however often it was dropped, with what closed its window; other drops are not in it.
func TestLateLedger(t *testing.T) {
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if s, err := lateOrders(w); err != nil || s.Count != 0 || s.Last == nil {
		t.Errorf("without a journal: %+v, %v", s, err)
	}
	now := time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)
	clock := now
	j, err := journal.Create(journal.Path(w.Journals(), topology.ApplicationID, "a", 1), topology.ApplicationID, "a", func() time.Time {
		clock = clock.Add(time.Second)
		return clock
	})
	if err != nil {
		t.Fatal(err)
	}
	drop := func(offset, timestamp, streamTime int64, mover *journal.Mover) {
		start := timestamp - timestamp%60_000
		j.Write(&journal.Skipped{Partition: repartitionTopic + "-1", Offset: offset, Late: &journal.Late{
			Timestamp: timestamp, WindowStart: start, WindowEnd: start + 60_000, Closes: start + 90_000, StreamTime: streamTime, Mover: mover,
		}})
	}
	base := firstBase.UnixMilli()
	j.Write(&journal.Skipped{Text: "Skipping record due to null key.", Partition: "orders.placed-0", Offset: 1})
	for offset := range int64(4) {
		drop(offset, base, base+100_000, nil)
	}
	moved := &journal.Mover{Partition: repartitionTopic + "-1", Offset: 152, Timestamp: base + 180_000, Before: base + 65_000}
	for range 2 { // the second time after a restart
		drop(153, base+45_000, base+180_000, moved)
	}
	first := &journal.Mover{Partition: repartitionTopic + "-0", Offset: 0, Timestamp: now.Add(24 * time.Hour).UnixMilli(), Before: -1}
	drop(154, base+45_000, first.Timestamp, first)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	s, err := lateOrders(w)
	if err != nil || s.Count != 6 || len(s.Last) != maxLate {
		t.Fatalf("%+v, %v", s, err)
	}
	if l := s.Last[3]; l.Offset != 153 || l.Dropped != now.Add(7*time.Second) || l.Instance != "a" {
		t.Errorf("the last but one: %+v", l)
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	s.write(table)
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"late records  6\n",
		"repartition-1@153 of 2026-09-12T10:00:45Z: its window from 2026-09-12T10:00:00Z to 2026-09-12T10:01:00Z " +
			"closes at 2026-09-12T10:01:30Z, and stream time was 2026-09-12T10:03:00Z\n",
		"repartition-1@152 moved it there from 2026-09-12T10:01:05Z, by 1m55s\n",
		"repartition-0@0 set it, the first record: a record from the future, which closes every window up to it\n",
		"it was there before the instance started\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("does not say %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "@0 of") {
		t.Errorf("shows more than the last:\n%s", text.String())
	}
}
