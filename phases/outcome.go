package phases

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

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
	line, _, _ := strings.Cut(o.Err.Error(), "\n")
	return line
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
		Verdict verify.Verdict       `json:"verdict"`
	}{phases, o.reason(), o.Verdict()})
}
