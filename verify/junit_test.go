package verify

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func junitOf(t *testing.T, r Report) (junitReport, string) {
	t.Helper()
	raw, err := r.JUnit()
	if err != nil {
		t.Fatal(err)
	}
	var back junitReport
	if err := xml.Unmarshal(raw, &back); err != nil {
		t.Fatalf("%v:\n%s", err, raw)
	}
	return back, string(raw)
}

// Each check of the report is a case of its suite, with the verdict that it has there; phases that nobody asked for are there too.
func TestJUnitHoldsTheReport(t *testing.T) {
	wrong := golden(t)
	(*wrong.records(topicCounts, 2))[0].Value = []byte("51")
	delete(wrong.topics, topicHighValue)
	for name, tt := range map[string]struct {
		topics topics
		phases []int
		want   junitCounts // beside the checks
	}{
		"pass":          {golden(t), nil, junitCounts{Tests: 2, Skipped: 2}},
		"wrong":         {wrong, nil, junitCounts{Tests: 2, Skipped: 2}},
		"one phase":     {golden(t), []int{1}, junitCounts{Tests: 5, Skipped: 5}},
		"not run":       {golden(t), []int{5}, junitCounts{Tests: 6, Errors: 1, Skipped: 5}},
		"nothing there": {&memory{}, nil, junitCounts{Tests: 7, Errors: 1, Skipped: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := grade(t, tt.topics, Options{Phases: tt.phases})
			for _, p := range r.Phases {
				for _, c := range p.Checks {
					tt.want.Tests++
					switch c.Verdict {
					case Fail:
						tt.want.Failures++
					case Unknown:
						tt.want.Errors++
					}
				}
			}
			if len(r.Causes) > 0 {
				tt.want.Tests++
			}
			got, raw := junitOf(t, r)
			if diff := cmp.Diff(tt.want, got.junitCounts); diff != "" {
				t.Errorf("%s\n%s", diff, raw)
			}
			for _, cause := range r.Causes {
				if got.Suites[0].Name != "lab" || !strings.Contains(got.Suites[0].Cases[len(got.Suites[0].Cases)-1].Out, cause) {
					t.Errorf("no word of the cause %q\n%s", cause, raw)
				}
			}
			var sum junitCounts
			for _, s := range got.Suites {
				sum = junitCounts{sum.Tests + s.Tests, sum.Failures + s.Failures, sum.Errors + s.Errors, sum.Skipped + s.Skipped}
				if s.Tests != len(s.Cases) {
					t.Errorf("%s: %d tests, %d cases", s.Name, s.Tests, len(s.Cases))
				}
			}
			if sum != got.junitCounts {
				t.Errorf("the suites have %+v, the whole %+v", sum, got.junitCounts)
			}
			for _, p := range r.Phases {
				for _, c := range p.Checks {
					checkCase(t, got, p.Phase, c)
				}
			}
		})
	}
}

// checkCase looks for the one case of a check.
func checkCase(t *testing.T, got junitReport, number int, c Check) {
	t.Helper()
	i := slices.IndexFunc(got.Suites, func(s junitSuite) bool { return strings.HasSuffix(s.Name, string(rune('0'+number))) })
	var found []junitCase
	for _, k := range got.Suites[i].Cases {
		if k.Name == c.Name {
			found = append(found, k)
		}
	}
	if len(found) != 1 {
		t.Errorf("phase %d, %s: %d cases", number, c.Name, len(found))
		return
	}
	k := found[0]
	outcome := map[Verdict]*junitOutcome{Fail: k.Failure, Unknown: k.Error}[c.Verdict]
	text := k.Out
	if outcome != nil {
		text = outcome.Text
	}
	if (c.Verdict == Pass) != (k.Failure == nil && k.Error == nil) || !strings.Contains(text, strings.Join(c.Details, "\n")) ||
		outcome != nil && (outcome.Message != c.Got || !strings.Contains(text, "want "+c.Want+"\n")) {
		t.Errorf("phase %d, %+v came out as %+v", number, c, k)
	}
}

// Keys and values of a topic may be any bytes, and a CI system refuses a file that is no XML.
func TestJUnitIsXMLWhateverTheTopicsHold(t *testing.T) {
	for _, bytes := range []string{"\x00", "\x1b[2J", "\xff\xfe", "\ufffe", "]]>", "<&\"'>", "a\r\nb", "\xed\xa0\x80", strings.Repeat("x", 100_000)} {
		r := Report{Reason: bytes, Phases: []PhaseReport{{Phase: 1, Reason: bytes, Verdict: Fail, Checks: []Check{
			{Name: bytes, Want: bytes, Got: bytes, Details: []string{bytes}, Verdict: Fail},
			{Name: "p", Want: bytes, Got: bytes, Details: []string{bytes}, Verdict: Pass},
		}}}}
		if got, _ := junitOf(t, r); got.Tests != 9 || got.Failures != 2 {
			t.Errorf("%q: %+v", bytes[:min(9, len(bytes))], got.junitCounts)
		}
	}
}
