package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Verdict is the outcome of a check, a phase or a report.
type Verdict uint8

// The verdicts.
const (
	NotRun  Verdict = iota // the phase has not been run
	Pass                   // the topics say what the oracle says
	Unknown                // the topics cannot tell
	Fail                   // the topics contradict the oracle
)

func (v Verdict) String() string {
	return [...]string{NotRun: "NOT RUN", Pass: "PASS", Unknown: "UNKNOWN", Fail: "FAIL"}[v]
}

// MarshalText gives the verdict's word, in JSON too.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// worse is the verdict of two together: one FAIL fails all, one UNKNOWN leaves all unknown, and what was not run does not matter.
func worse(a, b Verdict) Verdict { return max(a, b) }

// Check is one comparison.
type Check struct {
	Name    string   `json:"name"`
	Want    string   `json:"want"`
	Got     string   `json:"got"`
	Verdict Verdict  `json:"verdict"`
	Details []string `json:"details,omitempty"` // differences with their explanation, and notes
}

// PhaseReport is the grade of one phase.
type PhaseReport struct {
	Phase   int     `json:"phase"`
	Reason  string  `json:"reason,omitempty"` // why it was not judged, or not wholly
	Checks  []Check `json:"checks"`
	Verdict Verdict `json:"verdict"`
}

// Add adds checks that somebody else has made.
func (p *PhaseReport) Add(checks ...Check) {
	p.Checks = append(p.Checks, checks...)
	for _, c := range checks {
		p.Verdict = worse(p.Verdict, c.Verdict)
	}
}

// Report is the grade of a run.
type Report struct {
	Phases []PhaseReport
	Reason string // why nothing could be judged
}

// Verdict is that of all phases together. Where no phase was judged, it is Unknown.
func (r Report) Verdict() Verdict {
	v := NotRun
	for _, p := range r.Phases {
		v = worse(v, p.Verdict)
	}
	return overall(v, r.Reason)
}

// overall is the verdict of a whole from the worst of its parts. If nothing was judged, or not all for some reason, it is Unknown at best.
func overall(worst Verdict, reason string) Verdict {
	if worst == NotRun || reason != "" {
		return worse(worst, Unknown)
	}
	return worst
}

// ExitCode is that of a command whose outcome is the report: 0 pass, 1 fail, 2 unknown.
func (r Report) ExitCode() int {
	switch r.Verdict() {
	case Pass:
		return 0
	case Fail:
		return 1
	default:
		return 2
	}
}

// Summary is the verdict in one line.
func (r Report) Summary() string {
	var judged []string
	checks, reason := 0, r.Reason
	var open []string
	for _, p := range r.Phases {
		if p.Verdict == NotRun {
			continue
		}
		judged = append(judged, strconv.Itoa(p.Phase))
		checks += len(p.Checks)
		if reason == "" {
			reason = p.Reason
		}
		for _, c := range p.Checks {
			if c.Verdict == r.Verdict() {
				open = append(open, c.Name)
			}
		}
	}
	line := r.Verdict().String()
	switch len(judged) {
	case 0:
	case 1:
		line += " phase " + judged[0]
	default:
		line += " phases " + strings.Join(judged, ", ")
	}
	switch {
	case r.Verdict() == Pass:
		return fmt.Sprintf("%s: %d checks", line, checks)
	case len(open) > 0:
		return fmt.Sprintf("%s: %d of %d checks: %s", line, len(open), checks, strings.Join(open, ", "))
	case reason != "":
		return line + ": " + reason
	default:
		return line + ": nothing to judge"
	}
}

// MarshalJSON gives one object whose last field is the verdict.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Phases  []PhaseReport `json:"phases"`
		Reason  string        `json:"reason,omitempty"`
		Summary string        `json:"summary"`
		Verdict Verdict       `json:"verdict"`
	}{r.Phases, r.Reason, r.Summary(), r.Verdict()})
}

// WriteTable writes the report for people: a table for each phase, under each check what differs, and at last the summary.
func (r Report) WriteTable(w io.Writer, color bool) error {
	var b bytes.Buffer
	for _, p := range r.Phases {
		fmt.Fprintf(&b, "%s  phase %d", paint(p.Verdict, color), p.Phase)
		if p.Reason != "" {
			fmt.Fprintf(&b, ": %s", p.Reason)
		}
		b.WriteByte('\n')
		if err := p.writeChecks(&b, color); err != nil {
			return err
		}
	}
	if r.Reason != "" && len(r.Phases) > 0 {
		fmt.Fprintf(&b, "%s\n", r.Reason)
	}
	fmt.Fprintln(&b, r.Summary())
	_, err := b.WriteTo(w)
	return err
}

// writeChecks aligns the checks first and puts the verdicts in front after that, since escape sequences would count as text. What was wanted
// is only said where it is not what was found.
func (p PhaseReport) writeChecks(b *bytes.Buffer, color bool) error {
	var plain bytes.Buffer
	table := tabwriter.NewWriter(&plain, 0, 0, 2, ' ', 0)
	for _, c := range p.Checks {
		fmt.Fprintf(table, "%s\t%s\n", c.Name, c.Got)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	lines := strings.Split(plain.String(), "\n")
	for i, c := range p.Checks {
		fmt.Fprintf(b, "  %s  %s\n", paint(c.Verdict, color), lines[i])
		if c.Verdict != Pass {
			fmt.Fprintf(b, "             want %s\n", c.Want)
		}
		for _, d := range c.Details {
			fmt.Fprintf(b, "             %s\n", d)
		}
	}
	return nil
}

// paint pads the verdict to the widest one.
func paint(v Verdict, color bool) string {
	word := fmt.Sprintf("%-7s", v)
	if !color {
		return word
	}
	sgr := [...]string{NotRun: "2", Pass: "32", Unknown: "33", Fail: "31"}[v]
	return "\x1b[" + sgr + "m" + word + "\x1b[0m"
}
