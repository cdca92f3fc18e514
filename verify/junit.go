package verify

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// The elements of a JUnit report, as CI systems read it.
type (
	junitReport struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		junitCounts
		Suites []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name string `xml:"name,attr"`
		junitCounts
		Cases []junitCase `xml:"testcase"`
	}
	junitCounts struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitOutcome `xml:"failure"`
		Error   *junitOutcome `xml:"error"`
		Skipped *junitOutcome `xml:"skipped"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitOutcome struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit gives the report as JUnit XML: a test suite for each phase, a test case for each check. FAIL is a failure and UNKNOWN an error,
// with what was wanted, what was found and the details; likely causes are the output of a case of their own. Phases that were not run, or
// are not in the report, are skipped. What XML has no place for, such as control characters and broken UTF-8, comes out as U+FFFD.
func (r Report) JUnit() ([]byte, error) {
	out := junitReport{Name: "lab"}
	var whole []Check
	if r.Reason != "" {
		whole = append(whole, Check{Name: "run", Want: "a verdict", Got: r.Reason, Verdict: Unknown})
	}
	if len(r.Causes) > 0 {
		whole = append(whole, Check{Name: "likely causes", Details: r.Causes, Verdict: Pass})
	}
	if len(whole) > 0 {
		out.add("lab", whole)
	}
	phases := slices.Clone(r.Phases)
	for _, number := range Phases() {
		if !slices.ContainsFunc(phases, func(p PhaseReport) bool { return p.Phase == number }) {
			phases = append(phases, PhaseReport{Phase: number, Reason: "not graded here"})
		}
	}
	slices.SortStableFunc(phases, func(a, b PhaseReport) int { return a.Phase - b.Phase })
	for _, p := range phases {
		checks := p.Checks
		if p.Reason != "" || len(checks) == 0 {
			checks = append([]Check{{Name: "run", Want: "the phase has been run", Got: p.Reason, Verdict: p.Verdict}}, checks...)
		}
		name := "lab" // of no phase
		if p.Phase > 0 {
			name = fmt.Sprintf("phase %d", p.Phase)
		}
		out.add(name, checks)
	}
	raw, err := xml.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("JUnit XML: %w", err)
	}
	return append([]byte(xml.Header), append(raw, '\n')...), nil
}

// add makes a suite of some checks.
func (j *junitReport) add(name string, checks []Check) {
	s := junitSuite{Name: name}
	for _, c := range checks {
		t := junitCase{Class: name, Name: c.Name}
		details := strings.Join(c.Details, "\n")
		o := &junitOutcome{c.Got, joinNonEmpty("\n", fmt.Sprintf("want %s\ngot  %s", c.Want, c.Got), details)}
		s.Tests++
		switch c.Verdict {
		case Pass:
			t.Out = details
		case Fail:
			s.Failures++
			t.Failure = o
		case Unknown:
			s.Errors++
			t.Error = o
		case NotRun:
			s.Skipped++
			t.Skipped = &junitOutcome{Message: c.Got}
		}
		s.Cases = append(s.Cases, t)
	}
	j.Tests += s.Tests
	j.Failures += s.Failures
	j.Errors += s.Errors
	j.Skipped += s.Skipped
	j.Suites = append(j.Suites, s)
}
