package phases

import (
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/verify"
)

// One run that met a busy machine decides nothing, wrong counts decide all.
func TestBenchComparison(t *testing.T) {
	for name, tc := range map[string]struct {
		recordsS, againstS []float64
		wrong              int
		want               verify.Verdict
		says               string
	}{
		"good":      {[]float64{800, 90, 850}, []float64{1000, 1000, 100}, 0, verify.Pass, "PASS ratio 0.80 of the medians, at least 0.80 is asked for\n"},
		"too slow":  {[]float64{700, 790, 850}, []float64{1000, 1000, 2000}, 0, verify.Fail, "FAIL ratio 0.79 of the medians"},
		"not right": {[]float64{1000}, []float64{1000}, 1, verify.Fail, "wrong   1 stores\nFAIL ratio 1.00"},
		"even":      {[]float64{1000, 800}, []float64{2000, 1000}, 0, verify.Pass, "median  800 records/s   1.00 µs a record  exactly_once_v2\nmedian  1000 records/s  0.50 µs a record  the defaults\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := BenchComparison{Runs: sides(tc.recordsS), AgainstRuns: sides(tc.againstS), WrongStores: tc.wrong, AtLeast: 0.8, Properties: []string{"exactly_once_v2"}}
			c.judge()
			var out strings.Builder
			if err := c.Write(&out, false); err != nil {
				t.Fatal(err)
			}
			if c.Verdict != tc.want || !strings.Contains(out.String(), tc.says) {
				t.Errorf("%s, want %s and %q:\n%s", c.Verdict, tc.want, tc.says, out.String())
			}
		})
	}
}

func sides(recordsS []float64) []BenchSide {
	var out []BenchSide
	for _, r := range recordsS {
		out = append(out, BenchSide{RecordsS: r, CPUMicros: 1000 / r})
	}
	return out
}
