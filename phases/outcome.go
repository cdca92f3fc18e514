package phases

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/atomicfile"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/verify"
)

// Outcome is what a judging command has to say: grades, and what kept it from more of them.
type Outcome struct {
	Report verify.Report
	Err    error
}

// Verdict is the outcome in a word. What was interrupted or had no broker to look at is not known; any other error is a failure.
func (o Outcome) Verdict() verify.Verdict {
	switch {
	case o.Err == nil:
		return o.Report.Verdict()
	case errors.Is(o.Err, ErrInterrupted), errors.Is(o.Err, ErrDeclined), connect.IsGone(o.Err):
		return verify.Unknown
	default:
		return verify.Fail
	}
}

// reason is why there is an error, in one line.
func (o Outcome) reason() string {
	var step *StepError
	if errors.As(o.Err, &step) && step.Interrupted() {
		if step.Step == 0 {
			return fmt.Sprintf("interrupted before phase %d: %s", step.Phase, step.What)
		}
		return fmt.Sprintf("interrupted at step %d of phase %d: %s", step.Step, step.Phase, step.What)
	}
	if errors.Is(o.Err, ErrInterrupted) {
		return ErrInterrupted.Error()
	}
	if errors.Is(o.Err, broker.ErrNotRunning) {
		return oneLine(o.Err.Error() + " " + NotRunningCure)
	}
	return oneLine(o.Err.Error())
}

// NotRunningCure is what helps against broker.ErrNotRunning.
const NotRunningCure = "here: `lab broker up` starts one, --bootstrap names another"

// longestReason is how much of an error fits a line with a verdict, in bytes. What is in the middle is left out, as the cause often comes last.
const longestReason = 600

// oneLine puts the lines of an error one after another.
func oneLine(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case b.Len() == 0:
		case strings.HasSuffix(b.String(), ":"):
			b.WriteString(" ")
		default:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	text = b.String()
	if len(text) <= longestReason {
		return text
	}
	half := longestReason / 2
	return strings.ToValidUTF8(text[:half], "") + " … " + strings.ToValidUTF8(text[len(text)-half:], "")
}

// ToldInFull reports whether the line with the verdict says all that there is to say of an error.
func (o Outcome) ToldInFull() bool {
	return o.Err != nil && strings.HasPrefix(o.reason(), o.Err.Error())
}

// Write prints the outcome; the last line, or in JSON the last field, is the verdict.
func (o Outcome) Write(w io.Writer, asJSON, color bool) error {
	if asJSON {
		return o.writeJSON(w)
	}
	if o.Err == nil {
		return o.Report.WriteTable(w, color)
	}
	if len(o.Report.Phases) > 0 {
		if err := o.Report.WriteTable(w, color); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s %s\n", o.Verdict(), o.reason())
	return err
}

// WriteJUnit replaces a file with the outcome as JUnit XML. What ended a command is a check of the phase that it ended.
func (o Outcome) WriteJUnit(path string) error {
	report := o.Report
	if o.Err != nil {
		ended := verify.PhaseReport{}
		ended.Add(verify.Check{Name: "run", Want: "done", Got: o.reason(), Verdict: o.Verdict()})
		var step *StepError
		if errors.As(o.Err, &step) {
			ended.Phase = step.Phase
		}
		report.Phases = append(slices.Clone(report.Phases), ended)
	}
	xml, err := report.JUnit()
	if err != nil {
		return err
	}
	return atomicfile.Write(path, xml, 0o644)
}

// writeIndented writes one JSON object for people and programs.
func writeIndented(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func (o Outcome) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	if o.Err == nil {
		return encoder.Encode(o.Report)
	}
	phases := o.Report.Phases
	if phases == nil {
		phases = []verify.PhaseReport{}
	}
	return encoder.Encode(struct {
		Phases  []verify.PhaseReport `json:"phases"`
		Reason  string               `json:"reason"`
		Causes  []string             `json:"causes,omitempty"`
		Verdict verify.Verdict       `json:"verdict"`
	}{phases, o.reason(), o.Report.Causes, o.Verdict()})
}
