package phases

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/verify"
)

// ChaosResult is what came of a command's runs, in order. The last one may be the first that did not pass.
type ChaosResult struct {
	Command string
	Broker  string
	Runs    []ChaosRunResult
}

// ChaosRunResult is one run with one seed.
type ChaosRunResult struct {
	Seed        uint64             `json:"seed"`
	Guarantee   string             `json:"guarantee"`
	Application string             `json:"application"`
	Records     int                `json:"records"`
	Seconds     float64            `json:"seconds"`
	Strikes     []Strike           `json:"strikes"`
	Report      verify.ChaosReport `json:"-"`
	Workspace   string             `json:"workspace"`
	Kept        string             `json:"kept,omitempty"` // where what is left of it stands; "" if nothing is
	Reason      string             `json:"reason,omitempty"`
	Verdict     verify.Verdict     `json:"verdict"`
}

// Strike is what befell an instance, and how long that lasted. Seconds count from the strike, but for AtS; 0 where nothing was seen or there
// was nothing to see.
type Strike struct {
	Round    int     `json:"round"`
	Kind     string  `json:"kind"`
	Point    string  `json:"point,omitempty"` // of a commit
	Instance string  `json:"instance"`
	PID      int     `json:"pid"`
	AtS      float64 `json:"at_s"`   // since the run began
	DownS    float64 `json:"down_s"` // as planned
	// Transactions are the victim's open ones, Lag is what was not committed of the partitions it owned.
	Transactions []string `json:"transactions,omitempty"`
	Lag          int64    `json:"lag"`
	InputOver    bool     `json:"input_over,omitempty"` // all orders were published: it proves little
	RunningS     float64  `json:"running_s"`            // until the instance was RUNNING again
	CommittedS   float64  `json:"committed_s"`          // until something new was committed of each of those partitions

	when time.Time
	hit  map[kafka.TopicPartition]int64
}

func (s *Strike) at(began, now time.Time) { s.when, s.AtS = now, now.Sub(began).Seconds() }

// line is the strike as it happens.
func (s *Strike) line() string {
	what := s.Kind
	if s.Point != "" {
		what += " " + s.Point
	}
	line := fmt.Sprintf("%6.1f s  round %d: %s of %s (pid %d)", s.AtS, s.Round, what, s.Instance, s.PID)
	switch {
	case len(s.Transactions) > 0:
		line += ": inside an open transaction, lag " + fmt.Sprint(s.Lag)
	case s.Kind != string(strikeRestart):
		line += ": lag " + fmt.Sprint(s.Lag)
	}
	if s.InputOver {
		line += ", after the input had ended"
	}
	return line + fmt.Sprintf("; back after %.1f s", s.DownS)
}

// recovered fills in how long each strike lasted.
func (r *ChaosRunResult) recovered(w *chaosWatch) {
	for i := range r.Strikes {
		s := &r.Strikes[i]
		running, committed := w.recovery(s.Instance, s.when, s.hit)
		if s.Kind != string(strikePause) { // that one is the same process all along
			s.RunningS = running.Seconds()
		}
		s.CommittedS = committed.Seconds()
	}
}

// conclude finds the verdict of a run that came to its end. A strike after the end of the input met nothing at work.
func (r *ChaosRunResult) conclude(o ChaosOptions) {
	r.Verdict, r.Reason = r.Report.Verdict(), r.Report.Reason
	over := len(slices.DeleteFunc(slices.Clone(r.Strikes), func(s Strike) bool { return !s.InputOver }))
	if r.Verdict == verify.Pass && over > 0 {
		r.Verdict = verify.Unknown
		r.Reason = fmt.Sprintf("%d of %d strikes came after the input had ended: publish more with --records, or fewer a second with --rate", over, o.total())
	}
}

// hits counts the kills, and those inside an open transaction and with a lag.
func (r *ChaosRunResult) hits() (kills, open, lagging int) {
	for _, s := range r.Strikes {
		if s.Kind != string(strikeKill) {
			continue
		}
		kills++
		if len(s.Transactions) > 0 {
			open++
		}
		if s.Lag > 0 {
			lagging++
		}
	}
	return kills, open, lagging
}

func share(n, of int) string {
	if of == 0 {
		return "none"
	}
	return fmt.Sprintf("%d of %d (%d %%)", n, of, 100*n/of)
}

// facts is what a run comes to, in one line.
func (r *ChaosRunResult) facts() string {
	kills, open, lagging := r.hits()
	t := r.Report.Tally
	var parts []string
	if kills > 0 {
		parts = append(parts, fmt.Sprintf("%d kills", kills))
		if r.Guarantee != atLeastOnce {
			parts = append(parts, share(open, kills)+" inside an open transaction")
		}
		parts = append(parts, share(lagging, kills)+" with lag")
	} else {
		parts = append(parts, fmt.Sprintf("%d strikes", len(r.Strikes)))
	}
	if len(r.Report.Checks) == 0 && t == (verify.Tally{}) { // nothing was compared, so nothing can be said to be there
		return strings.Join(append(parts, "not graded"), ", ")
	}
	parts = append(parts, tallied(t))
	if r.Guarantee == atLeastOnce {
		parts = append(parts, fmt.Sprintf("again %d, by replays", t.Again))
	}
	return strings.Join(parts, ", ")
}

func tallied(t verify.Tally) string {
	return fmt.Sprintf("lost %d, duplicated %d, unknown %d", t.Lost, t.Duplicated, t.Unknown)
}

func (r *ChaosRunResult) summary() string {
	line := fmt.Sprintf("%s chaos seed %d, %s: %s", r.Verdict, r.Seed, r.Guarantee, r.facts())
	if r.Reason != "" {
		line += ": " + r.Reason
	}
	return line
}

// histogram shows durations by seconds.
func histogram(title string, seconds []float64) string {
	var b strings.Builder
	if len(seconds) == 0 {
		return title + ": nothing measured\n"
	}
	slices.Sort(seconds)
	fmt.Fprintf(&b, "%s: median %.2f s, longest %.2f s\n", title, seconds[len(seconds)/2], seconds[len(seconds)-1])
	counts := make([]int, int(seconds[len(seconds)-1])+1)
	for _, s := range seconds {
		counts[int(s)]++
	}
	for i, n := range counts {
		fmt.Fprintf(&b, "  %2d to %2d s  %3d %s\n", i, i+1, n, strings.Repeat("#", n))
	}
	return b.String()
}

// text is the run for people and for the evidence.
func (r *ChaosRunResult) text(color bool) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "seed %d: %s, %d orders, application %s, %.0f s\n", r.Seed, r.Guarantee, r.Records, r.Application, r.Seconds)
	var running, committed []float64
	for i := range r.Strikes {
		s := &r.Strikes[i]
		if s.RunningS > 0 {
			running = append(running, s.RunningS)
		}
		if s.CommittedS > 0 {
			committed = append(committed, s.CommittedS)
		}
	}
	b.WriteString(histogram("from a strike until the instance was RUNNING again", running))
	b.WriteString(histogram("from a strike until all that the victim owned went on", committed))
	b.WriteString(r.Report.Table(color))
	if r.Kept != "" {
		fmt.Fprintf(&b, "kept: %s\n", r.Kept)
	}
	fmt.Fprintln(&b, r.summary())
	return b.String()
}

// strikesTable lists the strikes for the evidence.
func (r *ChaosRunResult) strikesTable() string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "at s\tround\tstrike\tinstance\tpid\topen transactions\tlag\tdown s\tRUNNING s\tcommitted s")
	for i := range r.Strikes {
		s := &r.Strikes[i]
		fmt.Fprintf(w, "%.1f\t%d\t%s\t%s\t%d\t%d\t%d\t%.2f\t%.2f\t%.2f\n", s.AtS, s.Round, strings.TrimSpace(s.Kind+" "+s.Point), s.Instance,
			s.PID, len(s.Transactions), s.Lag, s.DownS, s.RunningS, s.CommittedS)
	}
	_ = w.Flush() // into memory
	return b.String()
}

// text is the evidence.
func (r ChaosResult) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# command\n%s\non broker %s\n", r.Command, r.Broker)
	for i := range r.Runs {
		run := &r.Runs[i]
		b.WriteByte('\n')
		b.Write(section(fmt.Sprintf("strikes of seed %d", run.Seed), []byte(run.strikesTable())))
		b.WriteByte('\n')
		b.Write(section(fmt.Sprintf("result of seed %d", run.Seed), []byte(run.text(false))))
	}
	return b.Bytes()
}

// Verdict is that of all runs together.
func (r ChaosResult) Verdict() verify.Verdict {
	v := verify.Unknown // nothing was run
	for i := range r.Runs {
		v = r.Runs[i].Verdict
		if v != verify.Pass {
			break
		}
	}
	return v
}

// Write prints the results; the last line is the verdict. In JSON it is one object whose last field is the verdict.
func (r ChaosResult) Write(w io.Writer, asJSON, color bool) error {
	if asJSON {
		return r.writeJSON(w)
	}
	for i := range r.Runs {
		if _, err := io.WriteString(w, r.Runs[i].text(color)); err != nil {
			return err
		}
	}
	if len(r.Runs) == 1 {
		return nil // its own last line is the verdict
	}
	_, err := fmt.Fprintln(w, r.summary())
	return err
}

// summary is the verdict of several runs in one line.
func (r ChaosResult) summary() string {
	var t verify.Tally
	kills, open, lagging := 0, 0, 0
	for i := range r.Runs {
		run := &r.Runs[i]
		k, o, l := run.hits()
		kills, open, lagging = kills+k, open+o, lagging+l
		t.Add(run.Report.Tally)
	}
	parts := []string{fmt.Sprintf("%s chaos: %d runs, %d kills", r.Verdict(), len(r.Runs), kills)}
	if r.Runs[0].Guarantee != atLeastOnce {
		parts = append(parts, share(open, kills)+" inside an open transaction")
	}
	return strings.Join(append(parts, share(lagging, kills)+" with lag", tallied(t)), ", ")
}

func (r ChaosResult) writeJSON(w io.Writer) error {
	type runJSON struct {
		ChaosRunResult
		verify.Tally
		Checks []verify.Check `json:"checks"`
	}
	out := struct {
		Command string         `json:"command"`
		Broker  string         `json:"broker"`
		Runs    []runJSON      `json:"runs"`
		Verdict verify.Verdict `json:"verdict"`
	}{r.Command, r.Broker, []runJSON{}, r.Verdict()}
	for _, run := range r.Runs {
		out.Runs = append(out.Runs, runJSON{run, run.Report.Tally, append([]verify.Check{}, run.Report.Checks...)})
	}
	return writeIndented(w, out)
}

// command is how to run the same again.
func (o ChaosOptions) command() string {
	words := []string{
		"lab chaos", "--guarantee " + o.Guarantee, fmt.Sprintf("--records %d --instances %d --kills %d --seed %d", o.Records, o.Instances, o.Kills, o.Seed),
	}
	for _, f := range []struct {
		name string
		n    int
	}{
		{"pauses", o.Pauses}, {"restarts", o.Restarts}, {"crash-points", o.CrashPoints}, {"rate", o.Rate}, {"standby", o.Standby},
	} {
		if f.n > 0 {
			words = append(words, fmt.Sprintf("--%s %d", f.name, f.n))
		}
	}
	if o.Threads > 1 {
		words = append(words, fmt.Sprintf("--threads %d", o.Threads))
	}
	if o.Repeat > 1 {
		words = append(words, fmt.Sprintf("--repeat %d", o.Repeat))
	}
	if o.Static {
		words = append(words, "--static")
	}
	return strings.Join(append(words, o.Properties...), " ")
}

func (c *chaosRun) bar() *progressbar.ProgressBar {
	if c.o.Progress == nil {
		return progressbar.DefaultSilent(int64(c.o.Records), "publishing")
	}
	return progressbar.NewOptions(c.o.Records, progressbar.OptionSetWriter(c.o.Progress), progressbar.OptionSetDescription("publishing"),
		progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}
