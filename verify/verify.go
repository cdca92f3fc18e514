package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Options say what to grade.
type Options struct {
	// Phases to grade. A phase asked for that was not run is Unknown. None: those whose orders are there; the others are reported as not run.
	Phases []int
	// ApplicationID of the application under test. Default order-counter.
	ApplicationID string
	// State is the folder with the instances' state folders, to be compared with the changelogs. "": none. It is only read.
	State string
	// Explain, if set, may add to a difference what the topics do not tell, from a journal for instance. It cannot change a verdict. "" adds
	// nothing. It is told which records came to be processed more than once, as far as that is known.
	Explain func(d Difference, again []Repeat) string
}

// Difference is a key of a topic whose content is not what the oracle expects.
type Difference struct {
	Topic, Key string
	Want, Got  int64 // a count, or a number of records
}

// PhaseError is a phase that this version cannot grade.
type PhaseError struct{ Phase int }

func (e *PhaseError) Error() string {
	return fmt.Sprintf("phase %d cannot be graded: there are the phases %s", e.Phase, strings.Trim(fmt.Sprint(Phases()), "[]"))
}

// phase is one phase of the lab.
type phase struct {
	number int
	// ran tells from what is there whether the phase has been run, and else what is missing.
	ran func(g *grader) (bool, string)
	// milestones are values of the running counts and of the minute counts that must have been written on the way.
	milestones func(in *input, rs *repartition) []milestone
	grade      func(ctx context.Context, g *grader) []Check
}

// phases are all that can be graded.
var phases = []phase{phase1, phase2, phase3, phase4, phase5, phase6}

// Phases lists the phases that can be graded.
func Phases() []int {
	numbers := make([]int, len(phases))
	for i, p := range phases {
		numbers[i] = p.number
	}
	return numbers
}

// Run grades a run of the lab on a cluster. What cannot be read or judged is Unknown in the report and no error: the error is a *PhaseError.
func Run(ctx context.Context, client *kafka.Client, opt Options) (Report, error) {
	return run(ctx, &cluster{client: client, stall: stallTimeout}, opt)
}

func run(ctx context.Context, t topics, opt Options) (Report, error) {
	if opt.ApplicationID == "" {
		opt.ApplicationID = defaultApplicationID
	}
	for _, n := range opt.Phases {
		if !slices.Contains(Phases(), n) {
			return Report{}, &PhaseError{Phase: n}
		}
	}
	asked := func(n int) bool { return slices.Contains(opt.Phases, n) }

	g := &grader{topics: t, opt: opt, phases: phases}
	if err := g.load(ctx); err != nil {
		r := Report{Reason: reasonOf(err)}
		for _, p := range phases {
			if asked(p.number) {
				r.Phases = append(r.Phases, PhaseReport{Phase: p.number, Reason: r.Reason, Checks: []Check{}, Verdict: Unknown})
			}
		}
		r.Causes = g.findCauses(ctx, r)
		return r, nil
	}
	var r Report
	for _, p := range phases {
		if len(opt.Phases) > 0 && !asked(p.number) {
			continue
		}
		one := PhaseReport{Phase: p.number, Checks: []Check{}}
		if ran, missing := p.ran(g); !ran {
			one.Reason = missing
			if asked(p.number) {
				one.Verdict = Unknown
			}
		} else {
			one.Checks = p.grade(ctx, g)
			for _, c := range one.Checks {
				one.Verdict = worse(one.Verdict, c.Verdict)
			}
		}
		r.Phases = append(r.Phases, one)
	}
	if ctx.Err() != nil {
		r.Reason = reasonOf(context.Cause(ctx))
	}
	r.Causes = g.findCauses(ctx, r)
	return r, nil
}

// reasonOf words an error that kept something from being judged.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		return "no time left"
	default:
		return err.Error()
	}
}
