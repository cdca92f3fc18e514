package phases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/topology"
	"github.com/windowed-order-counter/lab/verify"
)

// CrashPoints are the names of all points inside a commit at which phase 6 can crash its instances. At least once, a commit has not all of
// them.
func CrashPoints() []string { return topology.CrashPoints(exactlyOnce) }

const (
	// crashCommit is which of the commits of counts the instances crash in: something of both stages is committed by then.
	crashCommit = 2
	// crashTries is how often a crash is tried that strikes when nothing is at stake: how far the stages are apart is up to the machine.
	crashTries = 5
	// smallSteps makes an instance commit after every few orders. Else its first commit covers all of the lab's, and a crash in it is one at
	// the beginning.
	smallSteps = "max.poll.records=20 commit.interval.ms=1"
)

// pointRun is a run that crashes at a point of a commit.
type pointRun struct {
	*crashRun
	point  string
	crash  *journal.CrashPoint
	placed map[string]int64
}

// pointRuns are the runs for a point, one for each guarantee that has it. They are applications of their own beside those of the plain phase
// 6, whose topics stay what they are.
func (r *run) pointRuns(point string) []*pointRun {
	var runs []*pointRun
	for _, of := range []struct{ name, guarantee string }{{"crash-eos", exactlyOnce}, {"crash-alos", atLeastOnce}} {
		if slices.Contains(topology.CrashPoints(of.guarantee), point) {
			runs = append(runs, &pointRun{point: point, crashRun: &crashRun{
				run: r, name: of.name, guarantee: of.guarantee, application: topology.ApplicationID + "-" + of.name, suffix: "." + of.name,
				more: strings.Fields(smallSteps),
			}})
		}
	}
	return runs
}

// crashPointPhase is phase 6 with crashes at points that no signal from outside can hit. Each instance writes down what its crash will lead to
// before it dies, and that is compared with what it led to.
func crashPointPhase(points []string) phase {
	var runs []*pointRun
	return phase{
		number: 6, title: "crashes inside a commit",
		steps: func(r *run) []step {
			steps := []step{{"stop every instance", "Nothing else is to work beside the runs that follow.", r.stopInstances}}
			for _, point := range points {
				for _, p := range r.pointRuns(point) {
					runs = append(runs, p)
					steps = append(steps, step{
						fmt.Sprintf("crash at %s under %s, and start again", point, p.guarantee), whatCrashes(point, p.guarantee), p.do,
					})
				}
			}
			return append(steps, step{
				"save what was predicted and what was seen",
				"Exactly once, a crash changes no count wherever it strikes. At least once, where it strikes decides what is counted again.",
				func(context.Context) error { return r.saveCrashPoints(points, runs) },
			})
		},
		checks: func() []verify.Check {
			checks := make([]verify.Check, len(runs))
			for i, p := range runs {
				checks[i] = p.check()
			}
			return checks
		},
	}
}

// whatCrashes says what there is at a point.
func whatCrashes(point, guarantee string) string {
	switch {
	case point == topology.CrashCachesNotFlushed:
		return "Orders are in the repartition topic, and acknowledged. The counts are in the caches alone."
	case point == topology.CrashInTransaction:
		return "The counts of one task are in the open transaction, those of the other in its cache."
	case point == topology.CrashBeforeOffsetCommit && guarantee == atLeastOnce:
		return "Results and changelog are written, and the group does not know what they were made of."
	case point == topology.CrashBeforeOffsetCommit:
		return "Results and changelog are in the open transaction, the offsets are not."
	case point == topology.CrashAfterOffsetCommit && guarantee == atLeastOnce:
		return "All is committed. The local state alone does not know it yet."
	case point == topology.CrashAfterOffsetCommit:
		return "Results, changelog and offsets are in the transaction, which nobody has ended."
	default:
		return "The transaction is committed. The local state alone does not know it yet."
	}
}

// do crashes an instance at the point until something was at stake.
func (p *pointRun) do(ctx context.Context) error {
	for try := 1; ; try++ {
		if err := p.once(ctx); err != nil {
			return err
		}
		missing := p.notAtStake()
		if missing == "" || p.check().Verdict == verify.Fail || try == crashTries {
			return nil
		}
		p.Console.Printf("  %s, so this crash has proved nothing: once more", missing)
	}
}

// once crashes an instance at the point, starts it again and waits for its final counts.
func (p *pointRun) once(ctx context.Context) error {
	if err := p.reset(ctx); err != nil {
		return err
	}
	halted, err := p.halt(ctx, func(e *journal.Event) bool { return e.CrashPoint != nil }, p.crashProperties()...)
	if err != nil {
		return err
	}
	p.crash = halted.CrashPoint
	if p.crash.Error != "" {
		return fmt.Errorf("instance %s could not tell what its crash leads to: %s", p.name, p.crash.Error)
	}
	if err := p.restart(ctx); err != nil {
		return err
	}
	if err := p.count(ctx); err != nil {
		return err
	}
	p.placed, err = p.placedPerStore(ctx)
	if err == nil {
		p.Console.Printf("  counted more than once: predicted %d, seen %d", sum(p.predicted()), sum(p.observed()))
	}
	return err
}

// crashProperties are those of the first start in addition.
func (p *pointRun) crashProperties() []string {
	return []string{"lab.crash.at=" + p.point, fmt.Sprintf("lab.crash.commit=%d", crashCommit)}
}

// predicted is what the instance said of each store before it died.
func (p *pointRun) predicted() map[string]int64 {
	more := map[string]int64{}
	for i := range p.crash.Stores {
		more[p.crash.Stores[i].Store] = p.crash.Stores[i].Predicted()
	}
	return more
}

// observed is by how much each final count is above the orders placed.
func (p *pointRun) observed() map[string]int64 {
	more := p.lastCounts()
	for store, n := range p.placed {
		more[store] -= n
	}
	return more
}

// check compares both, store by store.
func (p *pointRun) check() verify.Check {
	predicted, observed := p.predicted(), p.observed()
	c := verify.Check{
		Name: fmt.Sprintf("%s: counted again after a crash at %s", p.name, p.point), Want: moreText(predicted), Got: moreText(observed),
		Verdict: verify.Pass,
	}
	if p.guarantee == exactlyOnce {
		c.Want = moreText(nil)
	}
	for _, store := range storesOf(predicted, observed) {
		switch {
		case p.guarantee == exactlyOnce && predicted[store] != 0:
			c.Verdict = verify.Fail
			c.Details = append(c.Details, fmt.Sprintf("%s: %d orders were to be counted again, which exactly once rules out", store, predicted[store]))
		case predicted[store] != observed[store]:
			c.Verdict = verify.Fail
			c.Details = append(c.Details, fmt.Sprintf("%s has %d orders and was counted to %d: %d more, and %d were predicted",
				store, p.placed[store], p.lastCounts()[store], observed[store], predicted[store]))
		}
	}
	if missing := p.notAtStake(); missing != "" && c.Verdict == verify.Pass {
		c.Verdict = verify.Unknown
		c.Details = append(c.Details, missing+", so the crash has proved nothing")
	}
	return c
}

// moreText lists what is not zero.
func moreText(more map[string]int64) string {
	var parts []string
	for _, store := range storesOf(more, nil) {
		if more[store] != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", store, more[store]))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// notAtStake says what was missing for the crash to be worth something: a crash that strikes when nothing is under way changes no count under
// any guarantee.
func (p *pointRun) notAtStake() string {
	var all journal.Excess
	for i := range p.crash.Stores {
		x := &p.crash.Stores[i]
		all.Orders, all.OrdersAgain = all.Orders+x.Orders, all.OrdersAgain+x.OrdersAgain
		all.Records, all.RecordsAgain = all.Records+x.Records, all.RecordsAgain+x.RecordsAgain
	}
	written, open := 0, 0 // changelogs of the counts
	for _, in := range p.crash.InFlight {
		switch {
		case in.Store != countsStore:
		case in.Position > in.Committed:
			written++
		default:
			open++
		}
	}
	again := p.guarantee == atLeastOnce
	switch committed := p.point == topology.CrashAfterEndTransaction || p.point == topology.CrashAfterOffsetCommit && again; {
	case committed && written == 0:
		return "no count was written in that commit"
	case committed:
		return ""
	case all.Orders == 0:
		return "no order was in flight"
	case all.Records == 0:
		return "no record that came to be counted was in flight"
	case again && all.OrdersAgain == 0:
		return "no order was in flight that had come to be counted"
	case again && p.point == topology.CrashBeforeOffsetCommit && all.RecordsAgain == 0:
		return "no count was in the changelog"
	case p.point == topology.CrashInTransaction && (written == 0 || open == 0):
		return fmt.Sprintf("the counts of %d tasks were in the transaction and those of %d not", written, open)
	}
	return ""
}

// countsStore is the store of the running counts.
const countsStore = "orders-per-store"

// crashPointsTitle is the title of the evidence's section.
const crashPointsTitle = "crash points"

// saveCrashPoints puts the section about the crash points at the end of the phase's evidence, in the place of an earlier one.
func (r *run) saveCrashPoints(points []string, runs []*pointRun) error {
	before, err := os.ReadFile(r.Workspace.Observation("phase-6.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if i := bytes.Index(before, []byte("# "+crashPointsTitle+"\n")); i >= 0 {
		before = before[:i]
	}
	if before = bytes.TrimRight(before, "\n"); len(before) > 0 {
		before = append(before, "\n\n"...)
	}
	return r.write("phase-6.txt", append(before, section(crashPointsTitle, crashPointsText(points, runs))...))
}

// crashPointsText is a table of points and guarantees, and what each of its cells is made of.
func crashPointsText(points []string, runs []*pointRun) []byte {
	const row = "%-22s %-24s %s\n"
	var b bytes.Buffer
	fmt.Fprintln(&b, "Orders counted more than once, all stores together: predicted before the crash / seen after the restart.")
	fmt.Fprintf(&b, row, "point", exactlyOnce, atLeastOnce)
	for _, point := range points {
		cell := func(guarantee string) string {
			i := slices.IndexFunc(runs, func(p *pointRun) bool { return p.point == point && p.guarantee == guarantee })
			if i < 0 {
				return "n/a: no transaction"
			}
			return fmt.Sprintf("%d / %d %s", sum(runs[i].predicted()), sum(runs[i].observed()), runs[i].check().Verdict)
		}
		fmt.Fprintf(&b, row, point, cell(exactlyOnce), cell(atLeastOnce))
	}
	for _, p := range runs {
		p.describe(&b)
	}
	return b.Bytes()
}

// describe tells what a cell of the table is made of.
func (p *pointRun) describe(b *bytes.Buffer) {
	last, observed := p.lastCounts(), p.observed()
	fmt.Fprintf(b, "\n%s under %s\n", p.point, p.guarantee)
	fmt.Fprintf(b, "settings: %s\nfirst start only: %s\n", strings.Join(p.properties(), " "), strings.Join(p.crashProperties(), " "))
	for _, in := range p.crash.InFlight {
		if in.Position > in.Committed {
			fmt.Fprintf(b, "in flight: %s from %d to %d\n", in.Partition, in.Committed, in.Position)
		}
	}
	excess := map[string]journal.Excess{}
	for _, x := range p.crash.Stores {
		excess[x.Store] = x
	}
	fmt.Fprintln(b, "store, placed, final count: predicted = orders sent again + records counted again, seen")
	for _, store := range storesOf(p.placed, observed) {
		x := excess[store]
		fmt.Fprintf(b, "%s %d %d: %d = %d + %d, %d\n",
			store, p.placed[store], last[store], x.Predicted(), x.OrdersAgain, x.RecordsAgain, observed[store])
	}
}
