// Package doctor looks at what the lab needs before it runs: which brokers this machine can have, its clock and disk, and on a cluster that is
// there the settings that would spoil a run. It changes nothing, and what it writes can be pasted anywhere: secrets are left out.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/verify"
)

// Level says how much a finding matters.
type Level string

// The levels. Only Fail and Unknown decide the verdict.
const (
	OK      Level = "ok"
	Warn    Level = "warn"    // a run passes, but not as one may expect
	Fail    Level = "fail"    // a run would not pass
	Unknown Level = "unknown" // it could not be found out
)

// Finding is what was found about one thing, with what to do about it if it is not OK.
type Finding struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	Next    string `json:"next,omitempty"`
}

// Report is all findings.
type Report struct {
	Findings []Finding      `json:"findings"`
	Verdict  verify.Verdict `json:"verdict"`
}

// Options are what is examined.
type Options struct {
	Workspace *workspace.Workspace
	Connect   connect.Options
	Version   string    // of the lab
	Now       time.Time // of this machine's clock
	// EarliestStart is when a run is possible from, as brokers refuse event times far ahead of their clock.
	EarliestStart time.Time
	// FirstEvent is the event time of the oldest result.
	FirstEvent time.Time
}

// Examine looks at everything that can be looked at. The error is ctx's end.
func Examine(ctx context.Context, o Options) (Report, error) {
	e := &examination{Options: o}
	e.machine()
	e.workspace()
	e.kinds(ctx)
	e.cluster(ctx)
	r := Report{Findings: e.findings, Verdict: verify.Pass}
	for _, f := range r.Findings {
		switch {
		case f.Level == Fail:
			r.Verdict = verify.Fail
		case f.Level == Unknown && r.Verdict == verify.Pass:
			r.Verdict = verify.Unknown
		}
	}
	return r, context.Cause(ctx)
}

// examination collects findings.
type examination struct {
	Options
	findings []Finding
}

func (e *examination) add(level Level, subject, next, format string, a ...any) {
	if level == OK {
		next = ""
	}
	e.findings = append(e.findings, Finding{Level: level, Subject: subject, Text: fmt.Sprintf(format, a...), Next: next})
}

const (
	// littleDisk is less than a run on Apache Kafka may take, and noDisk less than one on the embedded broker does.
	littleDisk = 1 << 30
	noDisk     = 100 << 20
)

// machine looks at versions, clock and disk.
func (e *examination) machine() {
	e.add(OK, "versions", "", "lab %s, %s, %s/%s, %d processors", e.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	level := OK
	if e.Now.Before(e.EarliestStart) {
		level = Fail
	}
	e.add(level, "clock", "set it: brokers refuse event times more than an hour ahead", "%s; the lab runs from %s on",
		e.Now.UTC().Format(time.RFC3339), e.EarliestStart.UTC().Format(time.RFC3339))
	dir := existingParent(e.Workspace.Dir())
	free, err := freeBytes(dir)
	switch {
	case err != nil:
		e.add(Unknown, "disk", "look at it with the system's own tools", "the space at %s: %v", dir, err)
		return
	case free < noDisk:
		level = Fail
	case free < littleDisk:
		level = Warn
	default:
		level = OK
	}
	e.add(level, "disk", "make room, or use another --dir", "%d MiB free at %s", free>>20, dir)
}

// existingParent is the folder itself, or the nearest one above it that is there.
func existingParent(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// workspace looks at what the workspace remembers.
func (e *examination) workspace() {
	progress, known, err := e.Workspace.Progress()
	var damaged *workspace.DamagedError
	switch {
	case errors.As(err, &damaged):
		e.add(Fail, "workspace", "`lab clean`", "%v", err)
	case err != nil:
		e.add(Unknown, "workspace", "see to its permissions", "%v", err)
	case !known:
		e.add(OK, "workspace", "", "%s: nothing has run here", e.Workspace.Dir())
	default:
		e.add(OK, "workspace", "", "%s: phases passed %v, on %s at %s", e.Workspace.Dir(), progress.Passed, progress.Broker, progress.Bootstrap)
	}
	instances, err := e.Workspace.Instances()
	for _, in := range instances {
		e.add(OK, "instance", "", "%s of %s runs, pid %d, %s", in.Name, in.Application, in.PID, in.Guarantee)
	}
	if err != nil {
		e.add(Warn, "instance", "`lab clean`", "%v", err)
	}
}

// kinds tells which brokers this machine can have. One that cannot be had matters only if it was asked for.
func (e *examination) kinds(ctx context.Context) {
	for _, kind := range []broker.Kind{broker.Embedded, broker.JVM, broker.Docker, broker.Existing} {
		subject := "broker " + string(kind)
		what, err := broker.Available(ctx, kind)
		switch {
		case err == nil:
			e.add(OK, subject, "", "%s", what)
		case e.Connect.Kind == string(kind):
			e.add(Fail, subject, "", "%v", err)
		default:
			e.add(Warn, subject, "only needed for this kind of broker", "%v", err)
		}
	}
}

// port tells whether a broker that the lab would start gets the port that it is to have.
func (e *examination) port(ctx context.Context) {
	port := e.Connect.Port
	if port == 0 {
		port = broker.DefaultPort
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		err = ln.Close()
	}
	if err != nil {
		e.add(Warn, "port", "the lab takes a free one and says which; --port names another", "%s is not to be had: %v", address, err)
		return
	}
	e.add(OK, "port", "", "%s is free", address)
}

// cluster connects to the broker that the flags choose and looks at what is there.
func (e *examination) cluster(ctx context.Context) {
	existing := e.Connect.Bootstrap != ""
	if client := e.Connect.Client; len(client.Given) > 0 {
		level := OK
		if !existing {
			level = Warn
		}
		e.add(level, "properties", "they are for --bootstrap: a broker that the lab starts speaks plain text", "%s", strings.Join(client.Given, " "))
		for _, note := range client.Notes {
			e.add(Warn, "properties", "", "%s", note)
		}
		if client.Mechanism == "PLAIN" && client.Security.TLS == nil {
			e.add(Warn, "properties", "use SASL_SSL, or SCRAM", "PLAIN without TLS sends the password in clear")
		}
	}
	conn, err := connect.Find(ctx, e.Connect)
	switch {
	case errors.Is(err, broker.ErrNotRunning):
		e.add(OK, "cluster", "", "none runs yet: `lab phase` starts one")
		e.port(ctx)
		return
	case err != nil:
		e.add(Fail, "cluster", "", "%v", err)
		return
	}
	defer conn.Close()
	e.brokers(ctx, conn)
	e.topics(ctx, conn)
}

// Write prints the report; the last line, or in JSON the last field, is the verdict.
func (r Report) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	count := map[Level]int{}
	for _, f := range r.Findings {
		count[f.Level]++
		text := strings.ReplaceAll(f.Text, "\n", "; ")
		if f.Next != "" {
			text += " -> " + f.Next
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Level, f.Subject, text)
	}
	fmt.Fprintf(t, "%s %d findings: %d fail, %d unknown, %d warn\n", r.Verdict, len(r.Findings), count[Fail], count[Unknown], count[Warn])
	return t.Flush()
}
