package handin

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/windowed-order-counter/lab/verify"
)

// Summary is the verdict in one line.
func (rs Results) Summary() string {
	count := map[verify.Verdict]int{}
	same := 0
	for _, r := range rs {
		count[r.Report.Verdict()]++
		if r.SameRunAs != "" {
			same++
		}
	}
	verdict := rs.Verdict()
	line := fmt.Sprintf("%s %d of %d hand-ins", verdict, count[verdict], len(rs))
	for _, other := range []verify.Verdict{verify.Fail, verify.Unknown, verify.Pass} {
		if other != verdict && count[other] > 0 {
			line += fmt.Sprintf(", %s %d", other, count[other])
		}
	}
	if same > 0 {
		line += fmt.Sprintf("; %d are the same run as another", same)
	}
	return line
}

// Write prints a row for each hand-in, and the summary as the last line.
func (rs Results) Write(w io.Writer, color bool) error {
	widest := len("hand-in")
	for _, r := range rs {
		widest = max(widest, utf8.RuneCountInString(verify.Printable(r.Name)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s  %-7s", widest, "hand-in", "verdict")
	for _, n := range verify.Phases() {
		fmt.Fprintf(&b, "  phase %d", n)
	}
	b.WriteByte('\n')
	for _, r := range rs {
		cells := []string{fmt.Sprintf("%-*s", widest, verify.Printable(r.Name)), paint(r.Report.Verdict(), color)}
		for _, n := range verify.Phases() {
			cells = append(cells, paint(r.phase(n), color))
		}
		text := r.differs()
		if r.SameRunAs != "" {
			text = strings.TrimPrefix(text+"; same run as "+verify.Printable(r.SameRunAs), "; ")
		}
		b.WriteString(strings.TrimRight(strings.Join(append(cells, text), "  "), " ") + "\n")
	}
	fmt.Fprintln(&b, rs.Summary())
	_, err := io.WriteString(w, b.String())
	return err
}

// paint pads a verdict to the widest one. A phase that was not run is a dash.
func paint(v verify.Verdict, color bool) string {
	if v == verify.NotRun {
		return fmt.Sprintf("%-7s", "-")
	}
	return verify.Paint(v, color)
}

func (r Result) phase(n int) verify.Verdict {
	for _, p := range r.Report.Phases {
		if p.Phase == n {
			return p.Verdict
		}
	}
	return verify.NotRun
}

// maxNames bounds the checks that a row names.
const maxNames = 3

// differs names the checks that make the verdict what it is, or says why there are none.
func (r Result) differs() string {
	names := r.checks()
	if more := len(names) - maxNames; more > 0 {
		names = append(names[:maxNames:maxNames], fmt.Sprintf("%d more", more))
	}
	if len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return r.reason()
}

func (r Result) checks() []string {
	var names []string
	verdict := r.Report.Verdict()
	for _, p := range r.Report.Phases {
		for _, c := range p.Checks {
			if verdict != verify.Pass && c.Verdict == verdict && !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

func (r Result) reason() string {
	if r.Report.Reason != "" {
		return verify.Printable(r.Report.Reason)
	}
	for _, p := range r.Report.Phases {
		if p.Verdict == verify.Unknown && p.Reason != "" {
			return verify.Printable(p.Reason)
		}
	}
	if r.Report.Verdict() == verify.Unknown && len(r.checks()) == 0 {
		return "no phase was run"
	}
	return ""
}

// WriteCSV writes a header and a line for each hand-in, for a spreadsheet.
func (rs Results) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	head := []string{"hand-in", "verdict"}
	for _, n := range verify.Phases() {
		head = append(head, fmt.Sprintf("phase %d", n))
	}
	rows := [][]string{append(head, "checks", "same run as", "reason", "path", "recorded", "lab", "cluster", "run")}
	for _, r := range rs {
		row := []string{r.Name, r.Report.Verdict().String()}
		for _, n := range verify.Phases() {
			row = append(row, r.phase(n).String())
		}
		recorded := ""
		if !r.Info.Written.IsZero() {
			recorded = r.Info.Written.UTC().Format(time.RFC3339)
		}
		row = append(row, strings.Join(r.checks(), ", "), r.SameRunAs, r.reason(), r.Path, recorded, r.Info.Lab, r.Info.Cluster, r.Info.Run)
		for i := range row {
			row[i] = cell(row[i])
		}
		rows = append(rows, row)
	}
	return out.WriteAll(rows)
}

// cell keeps a spreadsheet from taking a text for a formula: one that begins like a formula gets an apostrophe in front.
func cell(text string) string {
	text = verify.Printable(text)
	if text != "" && strings.ContainsRune("=+-@", rune(text[0])) {
		return "'" + text
	}
	return text
}

// MarshalJSON gives one object with all reports, whose last field is the verdict.
func (rs Results) MarshalJSON() ([]byte, error) {
	type one struct {
		Name      string                `json:"name"`
		Path      string                `json:"path"`
		Recording *verify.RecordingInfo `json:"recording,omitempty"`
		SameRunAs string                `json:"same_run_as,omitempty"`
		Report    verify.Report         `json:"report"`
	}
	all := struct {
		HandIns []one          `json:"hand_ins"`
		Summary string         `json:"summary"`
		Verdict verify.Verdict `json:"verdict"`
	}{[]one{}, rs.Summary(), rs.Verdict()}
	for _, r := range rs {
		o := one{Name: r.Name, Path: r.Path, SameRunAs: r.SameRunAs, Report: r.Report}
		if r.Info.Format != "" {
			o.Recording = &r.Info
		}
		all.HandIns = append(all.HandIns, o)
	}
	return json.Marshal(all)
}
