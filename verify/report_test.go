package verify

import (
	"bytes"
	"strings"
	"testing"
)

// screen is a terminal of a test.
type screen struct {
	bytes.Buffer
	columns int
}

func (s *screen) Columns() int { return s.columns }

// On a terminal of 80 columns long cells were broken by the terminal, in the middle of words and under the verdicts.
func TestTableFitsTheTerminal(t *testing.T) {
	r := Report{Phases: []PhaseReport{
		{Phase: 2, Verdict: Fail, Checks: []Check{
			{Name: "input, feed 1", Want: "300 events", Got: "300 events", Verdict: Pass, Details: []string{"7 more orders after or beside it"}},
			{
				Name: "running counts of feed 1", Want: "store-17 50, store-18 40, store-19 50", Got: "store-17 49, store-18 40, store-19 50", Verdict: Fail,
				Details: []string{"store-17 has 49 of 50: order-counter-orders-by-store-repartition holds 49, no record of ord-1007"},
			},
			{Name: "café", Want: "x", Got: strings.Repeat("y", 70), Verdict: Unknown},
		}},
		{Phase: 5, Reason: "orders.placed has no ord-2006 of 2026-09-12T11:05:00Z, and that is why it is not judged"},
	}}
	const want = `
FAIL     phase 2
  PASS     input, feed 1             300 events
             7 more orders after or beside it
  FAIL     running counts of feed 1  store-17 49, store-18 40, store-19 50
                                want store-17 50, store-18 40, store-19 50
             store-17 has 49 of 50: order-counter-orders-by-store-repartition
             holds 49, no record of ord-1007
  UNKNOWN  café                      yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
                                     yyyyyyyyyyyyyyyyyyyyyyyyyyy
                                want x
NOT RUN  phase 5: orders.placed has no ord-2006 of 2026-09-12T11:05:00Z,
         and that is why it is not judged
FAIL phase 2: 1 of 3 checks: running counts of feed 1
`
	for _, tt := range []struct {
		columns int
		lines   int
		widest  int
	}{
		{80, 13, 80},
		{140, 10, 140},
		{0, 10, 109}, // a file
		{20, 23, 37 + leastRoom},
	} {
		s := &screen{columns: tt.columns}
		if err := r.WriteTable(s, false); err != nil {
			t.Fatal(err)
		}
		got := s.String()
		if tt.columns == 80 && got != want[1:] {
			t.Errorf("got\n%s", got)
		}
		widest := 0
		rows := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		for _, row := range rows[:len(rows)-1] { // the verdict is one line on any terminal
			widest = max(widest, len([]rune(row)))
		}
		if len(rows) != tt.lines || widest > tt.widest {
			t.Errorf("%d columns: %d lines of up to %d:\n%s", tt.columns, len(rows), widest, got)
		}
	}
}

// A store id may hold anything. One with an escape sequence cleared the screen, and one with a line break looked like another check.
func TestTableIsSafeToPrint(t *testing.T) {
	r := Report{Phases: []PhaseReport{{Phase: 1, Verdict: Fail, Checks: []Check{{
		Name: "counts", Want: "1\x1b[2J", Got: "0\n  PASS     all", Verdict: Fail, Details: []string{"store-\xff\u202e\x00 é 'q' \\ has 0 of 1"},
	}}}}, Reason: "a\tb"}
	var b bytes.Buffer
	if err := r.WriteTable(&b, false); err != nil {
		t.Fatal(err)
	}
	const want = `
FAIL     phase 1
  FAIL     counts  0\n  PASS     all
              want 1\x1b[2J
             store-\xff\u202e\x00 é 'q' \ has 0 of 1
a\tb
FAIL phase 1: 1 of 1 checks: counts
`
	if b.String() != want[1:] {
		t.Errorf("got\n%s", b.String())
	}
}

// A check that fails in three phases was named three times, in a line that then did not fit any terminal.
func TestSummaryNamesACheckOnce(t *testing.T) {
	var r Report
	for phase := 2; phase <= 4; phase++ {
		p := PhaseReport{Phase: phase}
		p.Add(Check{Name: "running counts", Verdict: Fail}, Check{Name: "at rest", Verdict: Pass}, Check{Name: "minutes", Verdict: Unknown})
		r.Phases = append(r.Phases, p)
	}
	if want := "FAIL phases 2, 3, 4: 3 of 9 checks: running counts"; r.Summary() != want {
		t.Errorf("%s, want %s", r.Summary(), want)
	}
}
