package streams_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"pgregory.net/rapid"
)

// click is a record of the property tests.
type click struct {
	key string
	at  int64
}

// drawnWindows are windows in milliseconds.
type drawnWindows struct{ size, advance, grace int64 }

func drawWindows(t *rapid.T) drawnWindows {
	w := drawnWindows{size: rapid.Int64Range(1, 50).Draw(t, "size"), grace: rapid.Int64Range(0, 60).Draw(t, "grace")}
	w.advance = w.size
	if rapid.Bool().Draw(t, "hopping") {
		w.advance = rapid.Int64Range(1, w.size).Draw(t, "advance")
	}
	return w
}

func (w drawnWindows) windows() streams.Windows {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return streams.Hopping(ms(w.size), ms(w.advance)).Grace(ms(w.grace))
}

func drawClicks(t *rapid.T) []click {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) click {
		return click{rapid.SampledFrom([]string{"a", "b", "c", "", "a\x00"}).Draw(t, "key"), rapid.Int64Range(0, 300).Draw(t, "at")}
	}), 0, 40).Draw(t, "clicks")
}

// windowOf names a window of a key.
type windowOf struct {
	key   string
	start int64
}

// lateIn is a record that is too late for a window.
type lateIn struct {
	partition int32
	offset    int64
	start     int64
}

// model is windowed counting by the definition: for each record, each window that may hold it.
type model struct {
	counts map[windowOf]int64
	late   []lateIn
}

func newModel(w drawnWindows, clicks []click, partitions int32) model {
	m := model{counts: map[windowOf]int64{}}
	streamTime, offsets := map[int32]int64{}, map[int32]int64{}
	for _, c := range clicks {
		p := kafka.PartitionFor([]byte(c.key), partitions)
		streamTime[p] = max(streamTime[p], c.at)
		for start := (max(0, c.at-w.size) / w.advance) * w.advance; start <= c.at; start += w.advance {
			switch {
			case c.at >= start+w.size:
			case start+w.size+w.grace <= streamTime[p]:
				m.late = append(m.late, lateIn{p, offsets[p], start})
			default:
				m.counts[windowOf{c.key, start}]++
			}
		}
		offsets[p]++
	}
	return m
}

func countingWindows(t *rapid.T, w drawnWindows, opts ...streams.WindowOption) *streams.Topology {
	b, text := streams.NewBuilder(), streams.Text()
	g := streams.Consume(b, "in", text, text).GroupByKey()
	streams.Count(g, "plain").ToStream().To("counts", text, streams.Int64())
	counts := streams.CountWindows(g.WindowedBy(w.windows()), "windowed", opts...).ToStream()
	counts.To("minutes", streams.TimeWindowed(text, time.Duration(w.size)*time.Millisecond), streams.Int64())
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// drive pipes the clicks, with restarts before some of them, and gives the latest count of each window in the output, and of each key.
func drive(
	t *rapid.T, topology *streams.Topology, cfg streams.DriverConfig, clicks []click, restarts map[int][]streams.RestartOption,
) (model, map[string]int64) {
	d, err := streams.NewTestDriver(topology, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	text := streams.Text()
	in := streams.Input(d, "in", text, text)
	for i, c := range clicks {
		if opts, ok := restarts[i]; ok {
			if err := d.Restart(opts...); err != nil {
				t.Fatal(err)
			}
		}
		if err := in.PipeAt(c.at, c.key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	got := model{counts: map[windowOf]int64{}}
	windowed, err := streams.Output(d, "minutes", streams.TimeWindowed(text, time.Millisecond), streams.Int64()).Records()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range windowed {
		got.counts[windowOf{r.Key.Key, r.Key.Start}] = r.Value
	}
	for _, s := range d.Late() {
		got.late = append(got.late, lateIn{s.Partition, s.Offset, s.WindowStart})
	}
	plain := map[string]int64{}
	entries, err := streams.Entries(d, "plain", text, streams.Int64())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range entries {
		plain[r.Key] = r.Value
	}
	return got, plain
}

var modelFields = gocmp.AllowUnexported(model{}, windowOf{}, lateIn{})

// Whatever the records, their order, the windows, the cache and the restarts with their state: counts and late records are those of the
// definition.
func TestWindowsEqualTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, clicks := drawWindows(t), drawClicks(t)
		cfg := streams.DriverConfig{
			ManualCommit: rapid.Bool().Draw(t, "manual commit"),
			NoCache:      rapid.Bool().Draw(t, "no cache"),
			Partitions:   rapid.SampledFrom([]int32{1, 3}).Draw(t, "partitions"),
		}
		restarts := map[int][]streams.RestartOption{}
		if len(clicks) > 0 && rapid.Bool().Draw(t, "restart") {
			restarts[rapid.IntRange(0, len(clicks)-1).Draw(t, "restart before")] = nil
		}
		want := newModel(w, clicks, cfg.Partitions)
		got, plain := drive(t, countingWindows(t, w), cfg, clicks, restarts)
		if diff := gocmp.Diff(want, got, modelFields); diff != "" {
			t.Errorf("-model +driver:\n%s", diff)
		}
		each := map[string]int64{}
		for _, c := range clicks {
			each[c.key]++
		}
		if diff := gocmp.Diff(each, plain); diff != "" {
			t.Errorf("plain counts, -model +driver:\n%s", diff)
		}
	})
}

// A longer retention only keeps windows: it changes no count, no output and no late record. What a restore without local state brings
// back is what the store had.
func TestRetentionAndRestoreChangeNoCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, clicks := drawWindows(t), drawClicks(t)
		w.grace = 1000 // else stream time, of which only the largest window start is left, could take a late record
		kept := streams.WithRetention(time.Duration(w.size+w.grace+rapid.Int64Range(0, 100_000).Draw(t, "more")) * time.Millisecond)
		restarts := map[int][]streams.RestartOption{}
		if len(clicks) > 0 {
			restarts[rapid.IntRange(0, len(clicks)-1).Draw(t, "state lost before")] = []streams.RestartOption{streams.WithoutState()}
		}
		want, _ := drive(t, countingWindows(t, w), streams.DriverConfig{ManualCommit: true}, clicks, nil)
		got, _ := drive(t, countingWindows(t, w, kept), streams.DriverConfig{ManualCommit: true}, clicks, restarts)
		if diff := gocmp.Diff(want, got, modelFields); diff != "" {
			t.Errorf("-undisturbed +restored:\n%s", diff)
		}
	})
}

// With a grace that no record exceeds the partitions do not show: one task counts what three count.
func TestPartitionsAgreeWithinTheGrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, clicks := drawWindows(t), drawClicks(t)
		w.grace = 300
		one, plain := drive(t, countingWindows(t, w), streams.DriverConfig{ManualCommit: true}, clicks, nil)
		three, plain3 := drive(t, countingWindows(t, w), streams.DriverConfig{ManualCommit: true, Partitions: 3}, clicks, nil)
		if diff := gocmp.Diff(one, three, modelFields); diff != "" {
			t.Errorf("-one +three:\n%s", diff)
		}
		if diff := gocmp.Diff(plain, plain3); diff != "" {
			t.Errorf("plain counts, -one +three:\n%s", diff)
		}
	})
}

// In time order nothing is late, without any grace.
func TestNothingIsLateInTimeOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, clicks := drawWindows(t), drawClicks(t)
		w.grace = 0
		slices.SortStableFunc(clicks, func(a, b click) int { return cmp.Compare(a.at, b.at) })
		got, _ := drive(t, countingWindows(t, w), streams.DriverConfig{ManualCommit: true}, clicks, nil)
		if len(got.late) > 0 {
			t.Errorf("late in time order: %v", got.late)
		}
	})
}
