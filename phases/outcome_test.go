package phases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/console"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/verify"
)

// What ended a command is a case of the phase that it ended, beside the checks of those before.
func TestOutcomeAsJUnit(t *testing.T) {
	report := verify.Report{Phases: []verify.PhaseReport{{Phase: 1, Checks: []verify.Check{{Name: "counts", Verdict: verify.Pass}}, Verdict: verify.Pass}}}
	tests := map[string]struct {
		err  error
		want []string
	}{
		"pass": {nil, []string{`<testsuites name="lab" tests="6" failures="0" errors="0" skipped="5">`}},
		"failed step": {stepError(t.Context(), 2, 3, "count", errors.New("disk <full>")), []string{
			`<testsuites name="lab" tests="6" failures="1" errors="0" skipped="4">`, `<testsuite name="phase 2" tests="1" failures="1"`,
			`<failure message="phase 2, step 3 (count): disk &lt;full&gt;">`,
		}},
		"no broker": {broker.ErrNotRunning, []string{
			`<testsuites name="lab" tests="7" failures="0" errors="1" skipped="5">`, `<testsuite name="lab" tests="1" failures="0" errors="1"`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "junit.xml")
			if err := (Outcome{report, tt.err}).WriteJUnit(path); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(string(raw), want) {
					t.Errorf("does not say %s:\n%s", want, raw)
				}
			}
		})
	}
	if err := (Outcome{}).WriteJUnit(filepath.Join(t.TempDir(), "no", "folder.xml")); err == nil {
		t.Error("a file in no folder was written")
	}
}

func TestOutcome(t *testing.T) {
	stopped, stop := context.WithCancelCause(t.Context())
	stop(ErrInterrupted)
	boom := errors.New("disk full\nat some length")
	passed := verify.Report{Phases: []verify.PhaseReport{{Phase: 1, Checks: []verify.Check{}, Verdict: verify.Pass}}}
	tests := map[string]struct {
		outcome Outcome
		verdict verify.Verdict
		last    string
	}{
		"pass": {Outcome{Report: passed}, verify.Pass, "PASS phase 1: 0 checks"},
		"interrupted in a step": {
			Outcome{Err: stepError(stopped, 1, 4, "wait", context.Canceled)},
			verify.Unknown, "UNKNOWN interrupted at step 4 of phase 1: wait",
		},
		"interrupted after a phase": {
			Outcome{Report: passed, Err: stepError(stopped, 2, 1, "wait", context.Canceled)},
			verify.Unknown, "UNKNOWN interrupted at step 1 of phase 2: wait",
		},
		"end of input": {
			Outcome{Err: stepError(t.Context(), 1, 0, "connect", console.ErrEnded)},
			verify.Unknown, "UNKNOWN interrupted before phase 1: connect",
		},
		"no broker": {Outcome{Err: broker.ErrNotRunning}, verify.Unknown, "UNKNOWN no broker is running here: `lab broker up` starts one"},
		"broker gone": {
			Outcome{Err: stepError(t.Context(), 1, 3, "feed", &kafka.NetworkError{Node: -1, Err: errors.New("refused")})},
			verify.Unknown, "UNKNOWN phase 1, step 3 (feed): ",
		},
		"failed": {Outcome{Err: stepError(t.Context(), 1, 3, "feed", boom)}, verify.Fail, "FAIL phase 1, step 3 (feed): disk full; at some length"},
		// The cause was in the second line, which was cut off.
		"the end of a log": {
			Outcome{Err: stepError(t.Context(), 1, 0, "connect", errors.New("the end of broker.log:\nlevel=ERROR\n\nlisten: invalid port"))},
			verify.Fail, "FAIL phase 1 (connect): the end of broker.log: level=ERROR; listen: invalid port",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.outcome.Verdict(); got != tt.verdict {
				t.Errorf("verdict %s, want %s", got, tt.verdict)
			}
			var text, object strings.Builder
			if err := errors.Join(tt.outcome.Write(&text, false, false), tt.outcome.Write(&object, true, false)); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, tt.last) {
				t.Errorf("last line %q, want %q", last, tt.last)
			}
			if want := fmt.Sprintf(`"verdict":"%s"}`+"\n", tt.verdict); !strings.HasSuffix(object.String(), want) || strings.Count(object.String(), "\n") != 1 {
				t.Errorf("JSON %q does not end with %q", object.String(), want)
			}
		})
	}
}

// A broker refuses event times that lie more than an hour ahead of its clock, and the lab's begin at 10:00.
func TestClock(t *testing.T) {
	if err := checkClock(firstBase.Add(-time.Hour)); err != nil {
		t.Errorf("an hour before the first order: %v", err)
	}
	if err := checkClock(firstBase.Add(-time.Hour - time.Second)); err == nil {
		t.Error("more than an hour before the first order: no error")
	}
}

func TestLongReason(t *testing.T) {
	long := "it failed: " + strings.Repeat("noise ", 1000) + "the cause"
	got := oneLine(long)
	if !strings.HasPrefix(got, "it failed: ") || !strings.HasSuffix(got, "the cause") || len(got) > longestReason+10 {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	if o := (Outcome{Err: errors.New(long)}); o.ToldInFull() {
		t.Error("a shortened reason is told in full")
	}
	if o := (Outcome{Err: errors.New("short")}); !o.ToldInFull() {
		t.Error("a short reason is not told in full")
	}
}
