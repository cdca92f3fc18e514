package phases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/console"
	"github.com/windowed-order-counter/lab/internal/instance"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
	"github.com/windowed-order-counter/lab/verify"
)

// BenchOptions say what to measure.
type BenchOptions struct {
	Records    int       // placed orders to count
	Stores     int       // over so many stores
	Properties []string  // key=value for the counter
	Keep       bool      // leave broker, topics and state for a look at them
	Progress   io.Writer // for progress bars; nil for none
}

// BenchResult is what one counter did with input that waited for it.
type BenchResult struct {
	Records    int      `json:"records"`
	Stores     int      `json:"stores"`
	Properties []string `json:"properties"`
	LoadS      float64  `json:"load_s"`    // to publish the input
	StartS     float64  `json:"start_s"`   // from the counter's start to RUNNING
	ProcessS   float64  `json:"process_s"` // from RUNNING until all is committed
	RecordsS   float64  `json:"records_per_s"`
	CPUMicros  float64  `json:"cpu_us_per_record"` // user and system time of the counter's whole life
	PeakRSS    int64    `json:"peak_rss_bytes,omitempty"`
	Late       int      `json:"late"` // windows that a record came too late for
	// WrongStores is how many stores have a wrong count; Wrong says which, up to maxWrong of them.
	WrongStores int            `json:"wrong_stores"`
	Wrong       []string       `json:"wrong,omitempty"`
	Verdict     verify.Verdict `json:"verdict"`
}

// benchBase is the event time of the first order; the orders after it are a tenth of a millisecond apart.
const benchBase = 1789207200000

// benchOrder is order number i: placed, over all stores in turn, with the feed's amounts.
func benchOrder(i, stores int) feed.Order {
	return feed.Order{
		OrderID:    "ord-" + strconv.Itoa(i),
		StoreID:    "store-" + strconv.Itoa(i%stores),
		Status:     feed.Placed,
		Amount:     5000 + int64(i%7)*25000,
		OccurredAt: benchBase + int64(i/10),
	}
}

// benchInstance is the name of the counter that is measured.
const benchInstance = "bench"

// benchWorkspace is the workspace that a benchmark has for itself, below the given one.
func benchWorkspace(cfg Config) (Config, error) {
	w, err := workspace.Open(filepath.Join(cfg.Workspace.Lab(), "bench"))
	if err != nil {
		return cfg, err
	}
	cfg.Workspace, cfg.Connect.Dir = w, w.Dir()
	cfg.Version = "" // no phase runs here, so there is nothing to grade
	return cfg, nil
}

// Bench publishes orders to a broker of its own, in a workspace of its own below the given one, lets one counter count them, and compares
// the counts. It measures a catch-up: all input is there before the counter starts.
func Bench(ctx context.Context, cfg Config, o BenchOptions) (result BenchResult, err error) {
	if cfg, err = benchWorkspace(cfg); err != nil {
		return result, err
	}
	w := cfg.Workspace
	// A mistake in a property is told before anything is begun.
	if _, err := instance.Configure(w, benchInstance, o.Properties); err != nil {
		return result, err
	}
	if err := Clean(ctx, quiet(cfg)); err != nil { // what an interrupted run left
		return result, err
	}
	if err := os.MkdirAll(w.Lab(), 0o755); err != nil {
		return result, err
	}
	r := &run{Config: cfg}
	defer func() {
		err = errors.Join(err, r.stop())
		if r.conn != nil {
			r.conn.Close()
		}
		if !o.Keep {
			err = withLog(err, w.Log(benchInstance))
			err = errors.Join(err, Clean(context.WithoutCancel(ctx), quiet(cfg)), os.RemoveAll(w.Dir()))
		}
	}()
	if _, err := r.connect(ctx); err != nil {
		return result, err
	}
	if err := r.createTopics(ctx); err != nil {
		return result, err
	}
	result = BenchResult{Records: o.Records, Stores: o.Stores, Properties: o.Properties}
	if result.LoadS, err = r.load(ctx, o); err != nil {
		return result, fmt.Errorf("publish the orders: %w", err)
	}
	r.Console.Printf("published %d orders over %d stores in %.1f s", o.Records, o.Stores, result.LoadS)
	if err := r.measure(ctx, o, &result); err != nil {
		return result, err
	}
	if err := r.compare(ctx, o, &result); err != nil {
		return result, err
	}
	result.Verdict = verify.Pass
	if result.WrongStores > 0 {
		result.Verdict = verify.Fail
	}
	return result, nil
}

// longestTail is how much of a log withLog shows, in bytes.
const longestTail = 2000

// withLog adds the end of a log to an error, for a log that is about to be deleted.
func withLog(err error, path string) error {
	if err == nil || errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled) {
		return err
	}
	log, rerr := os.ReadFile(path)
	if rerr != nil || len(log) == 0 {
		return err // it did not come so far that there is one
	}
	return fmt.Errorf("%w; that log, which goes with the benchmark, ends with:\n%s", err,
		bytes.TrimSpace(log[max(0, len(log)-longestTail):]))
}

func quiet(cfg Config) Config {
	cfg.Console = console.New(console.Config{Out: io.Discard})
	return cfg
}

func bar(o BenchOptions, title string) *progressbar.ProgressBar {
	if o.Progress == nil {
		return progressbar.DefaultSilent(int64(o.Records), title)
	}
	return progressbar.NewOptions(o.Records, progressbar.OptionSetWriter(o.Progress), progressbar.OptionSetDescription(title),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("orders"),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

func (r *run) load(ctx context.Context, o BenchOptions) (seconds float64, err error) {
	start := time.Now()
	p, err := r.conn.NewProducer(ctx, kafka.ProducerConfig{Linger: -1})
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, p.Close(ctx))
		seconds = time.Since(start).Seconds()
	}()
	progress := bar(o, "publishing")
	now := time.Now()
	for i := range o.Records {
		if err := p.Send(ctx, benchOrder(i, o.Stores).Message(now)); err != nil {
			return 0, err
		}
		if i%1000 == 999 {
			_ = progress.Add(1000) // a bar that cannot be drawn is no reason to stop
		}
	}
	_ = progress.Finish()
	return 0, nil
}

// measure runs the counter from its start until all is committed, and then stops it.
func (r *run) measure(ctx context.Context, o BenchOptions, result *BenchResult) error {
	started := time.Now()
	c, err := r.start(benchInstance, o.Properties...)
	if err != nil {
		return err
	}
	c.follower = journal.Follow(c.journal)
	r.counters = append(r.counters, c)
	if _, err := c.wait(ctx, startTimeout, "the counter to be RUNNING", isRunning); err != nil {
		return err
	}
	running := time.Now()
	result.StartS = running.Sub(started).Seconds()
	alive, cancel := c.alive(ctx, time.Hour)
	defer cancel()
	progress := bar(o, "counting  ")
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		lag, err := r.lag(alive)
		if err != nil {
			return err
		}
		if lag == 0 {
			break
		}
		// Each order is waited for twice: in the input, and in the repartition topic.
		_ = progress.Set(max(0, o.Records-int(lag)))
		select {
		case <-ticker.C:
		case <-alive.Done():
			return context.Cause(alive)
		}
	}
	_ = progress.Finish()
	result.ProcessS = time.Since(running).Seconds()
	result.RecordsS = float64(o.Records) / result.ProcessS
	cancel()
	if err := r.stop(); err != nil {
		return err
	}
	state := c.child.cmd.ProcessState
	result.CPUMicros = float64((state.UserTime() + state.SystemTime()).Microseconds()) / float64(o.Records)
	result.PeakRSS = process.PeakMemory(state)
	events, err := journal.Read(c.journal)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Skipped != nil && e.Skipped.Late != nil {
			result.Late++
		}
	}
	return nil
}

// maxWrong is how many wrong counts are listed.
const maxWrong = 10

// compare notes the stores whose final count is not the number of their orders.
func (r *run) compare(ctx context.Context, o BenchOptions, result *BenchResult) error {
	counts := map[string]string{}
	err := kafkatools.Read(ctx, r.conn.Client, kafkatools.ReadConfig{Topic: topology.OrdersPerStore}, func(_ int32, rec *kafka.Record) error {
		counts[string(rec.Key)] = string(rec.Value)
		return nil
	})
	if err != nil {
		return err
	}
	for s := range min(o.Stores, o.Records) {
		store := "store-" + strconv.Itoa(s)
		want := strconv.Itoa((o.Records - s + o.Stores - 1) / o.Stores)
		if got := counts[store]; got != want {
			result.WrongStores++
			if len(result.Wrong) < maxWrong {
				result.Wrong = append(result.Wrong, fmt.Sprintf("%s: %s orders, counted %q", store, want, got))
			}
		}
	}
	return nil
}

// Write prints the result; the last line is the verdict. In JSON it is one object.
func (b BenchResult) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeIndented(w, b)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "orders\t%d over %d stores\n", b.Records, b.Stores)
	fmt.Fprintf(t, "start to RUNNING\t%.2f s\n", b.StartS)
	fmt.Fprintf(t, "counting\t%.2f s\n", b.ProcessS)
	fmt.Fprintf(t, "throughput\t%.0f records/s\n", b.RecordsS)
	fmt.Fprintf(t, "CPU\t%.2f µs a record\n", b.CPUMicros)
	if b.PeakRSS > 0 {
		fmt.Fprintf(t, "peak memory\t%.0f MB\n", float64(b.PeakRSS)/1e6)
	}
	fmt.Fprintf(t, "late\t%d\n", b.Late)
	for _, line := range b.Wrong {
		fmt.Fprintf(t, "wrong\t%s\n", line)
	}
	if more := b.WrongStores - len(b.Wrong); more > 0 {
		fmt.Fprintf(t, "wrong\tand %d more\n", more)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s %d orders counted at %.0f records/s, %d of %d stores right\n",
		b.Verdict, b.Records, b.RecordsS, min(b.Stores, b.Records)-b.WrongStores, min(b.Stores, b.Records))
	return err
}
