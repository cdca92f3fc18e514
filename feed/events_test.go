package feed

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

var base = time.Date(2026, time.September, 12, 10, 0, 0, 0, time.UTC)

// published is a line of testdata/feed-1.txt.
type published struct {
	partition  int32
	key, value string
}

// readPublished reads what the lab's Java program published for this base, in the order of the events.
func readPublished(t *testing.T) []published {
	t.Helper()
	f, err := os.Open("testdata/feed-1.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []published
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), "\t", 3)
		n, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, published{int32(n), fields[1], fields[2]})
	}
	if err := lines.Err(); err != nil || len(all) != EventCount {
		t.Fatalf("%d events in the file (%v)", len(all), err)
	}
	return all
}

func TestEventsAreThoseOfTheLab(t *testing.T) {
	events := Events(base)
	if len(events) != EventCount {
		t.Fatalf("%d events", len(events))
	}
	for i, want := range readPublished(t) {
		m := events[i].Message(base)
		if string(m.Key) != want.key || string(m.Value) != want.value || m.Topic != OrdersPlaced || m.Partition != kafka.AnyPartition {
			t.Fatalf("event %d: %s\t%s\nwant     %s\t%s", i, m.Key, m.Value, want.key, want.value)
		}
		if decoded, err := DecodeOrder([]byte(want.value)); err != nil || decoded != events[i] {
			t.Fatalf("event %d: decoded %+v, %v", i, decoded, err)
		}
	}
}

// The numbers are those of the lab's text.
func TestEventsAddUp(t *testing.T) {
	placed, high, minutes := 0, 0, map[int64]int{}
	stores := map[string]int{}
	for _, e := range Events(base) {
		minutes[e.OccurredAt/60_000]++
		if e.Status != Placed {
			continue
		}
		placed++
		stores[e.StoreID]++
		if e.Amount >= 100_000 {
			high++
		}
	}
	if placed != 270 || high != 115 || len(minutes) != 1 || stores["store-17"] != 50 || stores["store-22"] != 40 || len(stores) != 6 {
		t.Errorf("placed %d, high %d, minutes %v, stores %v", placed, high, minutes, stores)
	}
}

func TestParseBase(t *testing.T) {
	tests := map[string]struct {
		text    string
		want    time.Time
		err     error
		nearest string
	}{
		"instant":          {text: "2026-09-12T10:00:00Z", want: base},
		"with offset":      {text: "2026-09-12T12:00:00+02:00", want: base},
		"milliseconds":     {text: "1789207200000", want: base},
		"epoch":            {text: "0", want: time.Unix(0, 0).UTC()},
		"seconds too many": {text: "2026-09-12T10:00:05Z", err: ErrOffBoundary, nearest: "2026-09-12T10:00:00Z"},
		"rather the next":  {text: "1789207259999", err: ErrOffBoundary, nearest: "2026-09-12T10:01:00Z"},
		"half a minute":    {text: "2026-09-12T10:00:30Z", err: ErrOffBoundary, nearest: "2026-09-12T10:01:00Z"},
		"odd zone":         {text: "2026-09-12T10:00:00.5+00:00", err: ErrOffBoundary, nearest: "2026-09-12T10:00:00Z"},
		"no zone":          {text: "2026-09-12T10:00:00", err: ErrNotInstant},
		"word":             {text: "now", err: ErrNotInstant},
		"empty":            {text: "", err: ErrNotInstant},
		"before 1970":      {text: "-60000", err: ErrBaseRange},
		"far":              {text: "9223372036854775807", err: ErrBaseRange},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseBase(tt.text)
			if !errors.Is(err, tt.err) || !got.Equal(tt.want) {
				t.Fatalf("got %v, %v; want %v, %v", got, err, tt.want, tt.err)
			}
			var e *BaseError
			if tt.err != nil && !errors.As(err, &e) {
				t.Fatalf("%v is no *BaseError", err)
			}
			if tt.nearest != "" && (e.Nearest.Format(time.RFC3339) != tt.nearest || !strings.Contains(err.Error(), tt.nearest)) {
				t.Errorf("%v: nearest %s, want %s", err, e.Nearest, tt.nearest)
			}
		})
	}
}

func TestStatusRow(t *testing.T) {
	m := StatusRow{"ord-1042", "PAID"}.Message(base)
	if m.Topic != OrdersStatus || string(m.Key) != "ord-1042" || string(m.Value) != "PAID" || m.Timestamp != base.UnixMilli() {
		t.Errorf("%+v", m)
	}
}
