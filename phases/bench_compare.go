package phases

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/windowed-order-counter/lab/verify"
)

// BenchComparison is the counter measured with two sets of properties in turn, so that what else the machine does meets both alike.
type BenchComparison struct {
	Records     int            `json:"records"`
	Stores      int            `json:"stores"`
	Properties  []string       `json:"properties"`
	Against     []string       `json:"against"`
	Runs        []BenchSide    `json:"runs"`
	AgainstRuns []BenchSide    `json:"against_runs"`
	Ratio       float64        `json:"ratio"` // of the median throughputs
	AtLeast     float64        `json:"at_least"`
	WrongStores int            `json:"wrong_stores"` // of all runs
	Verdict     verify.Verdict `json:"verdict"`
}

// BenchSide is one run of a comparison. On a busy machine the throughput says how much of it the run got, and the CPU time what it needed.
type BenchSide struct {
	RecordsS  float64 `json:"records_per_s"`
	CPUMicros float64 `json:"cpu_us_per_record"`
}

// CompareBench runs Bench as often as runs says with o's properties and with those of against, each time one after the other. It passes if all
// counts are right and the ratio of the median throughputs is not below atLeast.
func CompareBench(ctx context.Context, cfg Config, o BenchOptions, against []string, runs int, atLeast float64) (BenchComparison, error) {
	c := BenchComparison{Records: o.Records, Stores: o.Stores, Properties: o.Properties, Against: against, AtLeast: atLeast}
	for range runs {
		for _, side := range []struct {
			properties []string
			runs       *[]BenchSide
		}{{against, &c.AgainstRuns}, {o.Properties, &c.Runs}} {
			one := o
			one.Properties = side.properties
			result, err := Bench(ctx, quiet(cfg), one)
			if err != nil {
				return c, err
			}
			*side.runs = append(*side.runs, BenchSide{result.RecordsS, result.CPUMicros})
			c.WrongStores += result.WrongStores
			cfg.Console.Printf("%.0f records/s, %.2f µs a record, with %s", result.RecordsS, result.CPUMicros, named(side.properties))
		}
	}
	c.judge()
	return c, nil
}

func (c *BenchComparison) judge() {
	c.Ratio = median(c.Runs).RecordsS / median(c.AgainstRuns).RecordsS
	c.Verdict = verify.Pass
	if c.WrongStores > 0 || c.Ratio < c.AtLeast {
		c.Verdict = verify.Fail
	}
}

// median has the medians of both numbers, the lower ones of an even number of runs.
func median(runs []BenchSide) BenchSide {
	var recordsS, cpu []float64
	for _, r := range runs {
		recordsS, cpu = append(recordsS, r.RecordsS), append(cpu, r.CPUMicros)
	}
	slices.Sort(recordsS)
	slices.Sort(cpu)
	middle := (len(runs) - 1) / 2
	return BenchSide{recordsS[middle], cpu[middle]}
}

func named(properties []string) string {
	if len(properties) == 0 {
		return "the defaults"
	}
	return strings.Join(properties, " ")
}

// Write prints the comparison; the last line is the verdict. In JSON it is one object.
func (c BenchComparison) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeIndented(w, c)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "orders\t%d over %d stores, %d runs each\n", c.Records, c.Stores, len(c.Runs))
	for _, side := range []struct {
		runs       []BenchSide
		properties []string
	}{{c.Runs, c.Properties}, {c.AgainstRuns, c.Against}} {
		m := median(side.runs)
		fmt.Fprintf(t, "median\t%.0f records/s\t%.2f µs a record\t%s\n", m.RecordsS, m.CPUMicros, named(side.properties))
	}
	fmt.Fprintf(t, "wrong\t%d stores\n", c.WrongStores)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s ratio %.2f of the medians, at least %.2f is asked for\n", c.Verdict, c.Ratio, c.AtLeast)
	return err
}
