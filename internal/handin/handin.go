// Package handin grades recordings of runs that others hand in, many at once and without a broker. What is handed in is hostile until it
// was read: nothing of it is written to disk, everything has a bound, and what is refused is UNKNOWN with a line that says why.
//
// File map: find.go (from paths to hand-ins), open.go (from a hand-in to the bytes of its recording), handin.go (grading, and which runs
// are the same), table.go (the outcome for people and programs).
package handin

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/verify"
)

// Result is the grade of a hand-in.
type Result struct {
	HandIn
	Report verify.Report
	// Info says where the recording comes from. It is zero if there is none.
	Info verify.RecordingInfo
	// SameRunAs names another hand-in with the same run, "" if there is none.
	SameRunAs string

	fingerprint string
}

// Results are in the order of the hand-ins.
type Results []Result

// The largest recording takes some hundred MiB to grade, so one of those that are large is in memory at a time. A full run has 55 KiB.
const (
	atOnce = 8
	large  = 512 << 10
)

// timeout bounds the grading of one hand-in. A full run takes 0.1 s, and half a million records 3 s.
const timeout = 30 * time.Second

// Grade grades hand-ins. Whatever they hold, it comes back.
func Grade(ctx context.Context, handIns []HandIn, opt verify.Options) Results {
	results := make(Results, len(handIns))
	slots := make(chan struct{}, min(runtime.GOMAXPROCS(0), atOnce))
	var one sync.Mutex
	var all sync.WaitGroup
	for i, h := range handIns {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = grade(ctx, h, opt, &one)
		})
	}
	all.Wait()
	results.markSame()
	return results
}

// grade grades a hand-in. Who grades a large one has the lock.
func grade(ctx context.Context, h HandIn, opt verify.Options, one *sync.Mutex) (r Result) {
	r.HandIn = h
	// One hand-in that finds a fault of the oracle does not take the others with it.
	defer func() {
		if fault := recover(); fault != nil {
			r.Report = verify.Report{Reason: fmt.Sprintf("verify cannot grade this: %v", fault)}
		}
	}()
	refuse := func(err error) Result {
		r.Report = verify.Report{Reason: fmt.Sprintf("%s: %v", h.Path, err)}
		return r
	}
	if ctx.Err() != nil {
		return refuse(context.Cause(ctx))
	}
	data, err := load(h)
	if err != nil {
		return refuse(err)
	}
	if len(data) > large {
		one.Lock()
		defer one.Unlock()
	}
	recording, err := verify.ReadRecording(bytes.NewReader(data))
	if err != nil {
		return refuse(err)
	}
	r.Info, r.fingerprint = recording.RecordingInfo, recording.Fingerprint()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if r.Report, err = recording.Grade(ctx, opt); err != nil {
		return refuse(err)
	}
	shorten(&r.Report)
	return r
}

// maxText bounds each text of a report in bytes. Reports of all hand-ins are kept, and a key of a hostile one may have millions.
const maxText = 4096

func shorten(r *verify.Report) {
	cut := func(texts ...*string) {
		for _, t := range texts {
			if len(*t) > maxText {
				*t = strings.ToValidUTF8(strings.Clone((*t)[:maxText]), "") + "…"
			}
		}
	}
	cut(&r.Reason)
	for i := range r.Causes {
		cut(&r.Causes[i])
	}
	for i := range r.Phases {
		cut(&r.Phases[i].Reason)
		for j := range r.Phases[i].Checks {
			c := &r.Phases[i].Checks[j]
			cut(&c.Name, &c.Want, &c.Got)
			for k := range c.Details {
				cut(&c.Details[k])
			}
		}
	}
}

// markSame marks the hand-ins of one run: one topic of orders on one cluster, or the same orders at the same offsets, sent at the same
// milliseconds, whatever the file says about itself.
func (rs Results) markSame() {
	same := func(a, b Result) bool {
		return a.fingerprint != "" && a.fingerprint == b.fingerprint ||
			a.Info.Run != "" && a.Info.Run == b.Info.Run && a.Info.Cluster == b.Info.Cluster
	}
	for i := range rs {
		for j := range rs {
			if i != j && same(rs[i], rs[j]) {
				rs[i].SameRunAs = rs[j].Name
				break
			}
		}
	}
}

// Verdict is that of all together: one FAIL fails all, one UNKNOWN leaves all unknown.
func (rs Results) Verdict() verify.Verdict {
	worst := verify.Unknown
	if len(rs) > 0 {
		worst = verify.Pass
	}
	for _, r := range rs {
		worst = max(worst, r.Report.Verdict())
	}
	return worst
}
