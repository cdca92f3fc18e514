package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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
	Reason string   // why nothing could be judged
	Causes []string // likely ones of what is not PASS, each with what was seen and what to do
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
	checks, open, reason := 0, 0, r.Reason
	var names []string // of the open ones, which may be in several phases
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
			if c.Verdict != r.Verdict() {
				continue
			}
			if open++; !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
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
	case open > 0:
		return fmt.Sprintf("%s: %d of %d checks: %s", line, open, checks, strings.Join(names, ", "))
	case reason != "":
		return line + ": " + reason
	default:
		return line + ": nothing to judge"
	}
}

// MarshalJSON gives one object whose last field is the verdict: docs/verify.schema.json.
func (r Report) MarshalJSON() ([]byte, error) {
	if r.Phases == nil {
		r.Phases = []PhaseReport{}
	}
	return json.Marshal(struct {
		Phases  []PhaseReport `json:"phases"`
		Reason  string        `json:"reason,omitempty"`
		Causes  []string      `json:"causes,omitempty"`
		Summary string        `json:"summary"`
		Verdict Verdict       `json:"verdict"`
	}{r.Phases, r.Reason, r.Causes, r.Summary(), r.Verdict()})
}

// The columns of the table: a verdict, its check, what was found.
const (
	phaseColumn  = 9
	checkColumn  = 11
	detailColumn = 13
	// leastRoom is what a column gets at least, also where the terminal is too narrow for it.
	leastRoom = 24
)

// WriteTable writes the report for people: a table for each phase, under each check what differs, and at last the summary. A writer that
// says how many columns it has, as console.Screen does, gets long cells in several lines, each under the first. Else a cell is one line.
func (r Report) WriteTable(w io.Writer, color bool) error {
	var b bytes.Buffer
	width := 0
	if screen, ok := w.(interface{ Columns() int }); ok {
		width = screen.Columns()
	}
	for _, p := range r.Phases {
		title := fmt.Sprintf("phase %d", p.Phase)
		if p.Reason != "" {
			title += ": " + p.Reason
		}
		fmt.Fprintf(&b, "%s  %s\n", Paint(p.Verdict, color), fold(title, phaseColumn, width))
		p.writeChecks(&b, color, width)
	}
	if r.Reason != "" && len(r.Phases) > 0 {
		fmt.Fprintf(&b, "%s\n", fold(r.Reason, 0, width))
	}
	for _, cause := range r.Causes {
		fmt.Fprintf(&b, "likely cause: %s\n", fold(cause, len("likely cause: "), width))
	}
	fmt.Fprintln(&b, Printable(r.Summary()))
	_, err := b.WriteTo(w)
	return err
}

// writeChecks says what was wanted only where it is not what was found, right under that.
func (p PhaseReport) writeChecks(b *bytes.Buffer, color bool, width int) {
	longest := 0
	for _, c := range p.Checks {
		longest = max(longest, utf8.RuneCountInString(c.Name))
	}
	column := checkColumn + longest + 2
	for _, c := range p.Checks {
		fmt.Fprintf(b, "  %s  %-*s  %s\n", Paint(c.Verdict, color), longest, c.Name, fold(c.Got, column, width))
		if c.Verdict != Pass {
			fmt.Fprintf(b, "%*s%s\n", column, "want ", fold(c.Want, column, width))
		}
		for _, d := range c.Details {
			fmt.Fprintf(b, "%*s%s\n", detailColumn, "", fold(d, detailColumn, width))
		}
	}
}

// fold breaks a text that begins in some column into lines of a terminal, between words where it can. Width 0 is no terminal.
func fold(text string, column, width int) string {
	text = Printable(text)
	if width == 0 {
		return text
	}
	room := max(width-column, leastRoom)
	var lines []string
	rest := []rune(text)
	for len(rest) > room {
		end := lineEnd(rest, room)
		lines, rest = append(lines, string(rest[:end])), rest[end:]
		if rest[0] == ' ' {
			rest = rest[1:]
		}
	}
	return strings.Join(append(lines, string(rest)), "\n"+strings.Repeat(" ", column))
}

// lineEnd is where the first line of a longer text ends: between items of a list if they fill half of it, else between words, else anywhere.
func lineEnd(text []rune, room int) int {
	for end := room; end > room/2; end-- {
		if text[end] == ' ' && (text[end-1] == ',' || text[end-1] == ';') {
			return end
		}
	}
	for end := room; end > 0; end-- {
		if text[end] == ' ' {
			return end
		}
	}
	return room
}

// Printable shows what a terminal would obey, or cannot show, as Go's escapes: keys and values in a report may hold anything.
func Printable(text string) string {
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// Paint pads the verdict to the widest one, and colours it if wanted.
func Paint(v Verdict, color bool) string {
	word := fmt.Sprintf("%-7s", v)
	if !color {
		return word
	}
	sgr := [...]string{NotRun: "2", Pass: "32", Unknown: "33", Fail: "31"}[v]
	return "\x1b[" + sgr + "m" + word + "\x1b[0m"
}
