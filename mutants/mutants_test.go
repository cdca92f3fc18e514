package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/process"
)

// Whoever changes a line that a mutant changes has to change the mutant too.
func TestEditsApply(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range engineMutants {
		if seen[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		seen[m.name] = true
		for file, source := range m.apply(t) {
			if _, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
		if _, known := scripts[m.script]; !known {
			t.Errorf("%s: no script %q", m.name, m.script)
		}
	}
}

// apply makes the edits, each of which has one place, and returns the sources by file.
func (m mutant) apply(t *testing.T) map[string][]byte {
	t.Helper()
	sources := map[string][]byte{}
	for _, e := range m.edits {
		source, read := sources[e.file]
		if !read {
			var err error
			if source, err = os.ReadFile(filepath.Join("..", e.file)); err != nil {
				t.Fatal(err)
			}
		}
		if n := bytes.Count(source, []byte(e.old)); n != 1 {
			t.Errorf("%s: %s holds this %d times instead of once:\n%s", m.name, e.file, n, e.old)
		}
		sources[e.file] = bytes.Replace(source, []byte(e.old), []byte(e.new), 1)
	}
	return sources
}

// patience bounds a step: a mutant may hang.
const patience = time.Minute

// TestEngineMutants takes minutes. LAB_TEST_MUTANTS=1 asks for it, as `make mutants` does.
func TestEngineMutants(t *testing.T) {
	if os.Getenv("LAB_TEST_MUTANTS") == "" {
		t.Skip("LAB_TEST_MUTANTS is not set")
	}
	healthy := filepath.Join(t.TempDir(), "lab")
	build(t, healthy, nil)
	caught := map[string][]mutant{} // by script
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nmutant\tcaught by\texplanation")
	for _, m := range engineMutants {
		t.Run(m.name, func(t *testing.T) {
			lab := filepath.Join(t.TempDir(), "lab")
			build(t, lab, m.apply(t))
			report, code := run(t, lab, scripts[m.script])
			found := report.find(m.phase, m.check, regexp.MustCompile(m.says))
			if code != 1 || report.Verdict != "FAIL" || found == "" {
				t.Fatalf("exit code %d, and phase %d does not fail at %q with %q:\n%s", code, m.phase, m.check, m.says, report.text())
			}
			fmt.Fprintf(w, "%s\tphase %d, %s\t%.160s\n", m.name, m.phase, m.check, found)
			caught[m.script] = append(caught[m.script], m)
		})
	}
	// Of the engine as it is, verify says none of it. At least once, the end of an instance may double orders, and fail the run for that.
	for name, mutants := range caught {
		t.Run("no mutant, "+name, func(t *testing.T) {
			report, _ := run(t, healthy, scripts[name])
			doubles := slices.ContainsFunc(scripts[name], func(step string) bool {
				return strings.HasPrefix(step, "ended a") || strings.HasPrefix(step, "suspend a")
			})
			if report.Verdict == "FAIL" && !doubles {
				t.Errorf("fails:\n%s", report.text())
			}
			for _, m := range mutants {
				if found := report.find(m.phase, m.check, regexp.MustCompile(m.says)); found != "" {
					t.Errorf("taken for the mutant %q: phase %d, %s: %s", m.name, m.phase, m.check, found)
				}
			}
		})
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log(table.String())
}

// build makes the program with some of its sources replaced.
func build(t *testing.T, program string, sources map[string][]byte) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	dir := t.TempDir()
	for file, source := range sources {
		replacement := filepath.Join(dir, filepath.Base(file))
		overlay.Replace[filepath.Join(root, filepath.FromSlash(file))] = replacement
		if err := os.WriteFile(replacement, source, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	replace := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(replace, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", replace, "-o", program, ".")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// workspace is where a script runs.
type workspace struct {
	t        *testing.T
	lab      string
	dir      string
	port     string
	counters map[string]*exec.Cmd
}

// run runs a script in a workspace of its own, with a broker of its own, and has it graded. The workspace is cleaned at the end.
func run(t *testing.T, lab string, script []string) (report, int) {
	t.Helper()
	w := &workspace{t: t, lab: lab, dir: t.TempDir(), port: freePort(t), counters: map[string]*exec.Cmd{}}
	t.Cleanup(func() {
		for _, c := range w.counters {
			w.act(c, process.ID.Kill)
			_ = c.Wait() // it was killed
		}
		if out, err := w.command(context.Background(), "clean").CombinedOutput(); err != nil {
			t.Errorf("clean: %v\n%s", err, out)
		}
	})
	for _, words := range script {
		w.step(words)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := w.command(ctx, "verify", "--json")
	out, err := cmd.Output()
	var r report
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		t.Fatalf("lab verify: %v, %v\n%s", err, jsonErr, out)
	}
	return r, cmd.ProcessState.ExitCode()
}

// command is one of lab's, with the settings of the workspace alone.
func (w *workspace) command(ctx context.Context, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.lab, words...)
	cmd.WaitDelay = time.Second
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LAB_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "LAB_DIR="+w.dir, "LAB_PORT="+w.port, "LAB_YES=1")
	return cmd
}

// step does what a line of a script says: see scripts.
func (w *workspace) step(line string) {
	w.t.Helper()
	words := strings.Fields(line)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var err error
	switch name := words[min(1, len(words)-1)]; words[0] {
	case "counter":
		cmd := w.command(context.Background(), words...)
		cmd.Stderr = w.t.Output()
		var stdout *os.File
		if stdout, err = os.Create(w.output(name)); err == nil {
			cmd.Stdout = stdout
			err = errors.Join(cmd.Start(), stdout.Close())
			w.counters[name] = cmd
		}
	case "stop":
		w.act(w.counters[name], process.ID.Terminate)
		w.ended(ctx, name)
	case "kill":
		w.act(w.counters[name], process.ID.Kill)
		w.ended(ctx, name)
	case "ended":
		w.ended(ctx, name)
	case "suspend":
		w.act(w.counters[name], process.ID.Suspend)
	case "resume":
		w.act(w.counters[name], process.ID.Resume)
	case "remove":
		err = os.RemoveAll(filepath.Join(w.dir, filepath.FromSlash(name)))
	case "settle":
		err = w.settle(ctx, name)
	case "counting":
		err = w.counting(ctx, name)
	default:
		out, failed := w.command(ctx, words...).CombinedOutput()
		if failed != nil && (words[0] != "phase" || ctx.Err() != nil) { // a phase may fail: it grades itself
			err = fmt.Errorf("%w\n%s", failed, out)
		}
	}
	if err != nil {
		w.t.Fatalf("%s: %v", line, err)
	}
}

// act does something to a counter that runs.
func (w *workspace) act(counter *exec.Cmd, do func(process.ID) error) {
	w.t.Helper()
	id, err := process.Of(counter.Process.Pid)
	if err == nil {
		err = do(id)
	}
	if err != nil {
		w.t.Logf("%s: %v", strings.Join(counter.Args[1:], " "), err) // it may have ended by itself
	}
}

// ended waits for the end of a counter, whatever it is: one that is told to crash does not end with 0.
func (w *workspace) ended(ctx context.Context, name string) {
	w.t.Helper()
	counter := w.counters[name]
	delete(w.counters, name)
	stop := context.AfterFunc(ctx, func() { w.act(counter, process.ID.Kill) })
	err := counter.Wait()
	if !stop() {
		w.t.Fatalf("counter %s did not end within %s: %v", name, patience, err)
	}
}

// output is what a counter has printed.
func (w *workspace) output(counter string) string { return filepath.Join(w.dir, counter+".out") }

// await polls until done.
func await(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it hangs: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

// settle waits until an application has committed all its input.
func (w *workspace) settle(ctx context.Context, application string) error {
	client, err := kafka.New(ctx, kafka.Config{Seeds: []string{net.JoinHostPort("127.0.0.1", w.port)}})
	if err != nil {
		return err
	}
	defer client.Close()
	return await(ctx, func() (bool, error) {
		lag, err := kafkatools.Lag(ctx, client, application, "orders.placed", "orders.status", application+"-orders-by-store-repartition")
		return err == nil && lag == 0, err
	})
}

// counting waits until a counter has counted an order of each store.
func (w *workspace) counting(ctx context.Context, counter string) error {
	return await(ctx, func() (bool, error) {
		out, err := os.ReadFile(w.output(counter))
		return bytes.Count(out, []byte("first record for store-")) == 6, err
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// report is what lab verify --json prints.
type report struct {
	Phases []struct {
		Phase  int
		Checks []struct {
			Name, Want, Got, Verdict string
			Details                  []string
		}
	}
	Reason, Summary, Verdict string
}

// find returns the first detail of a failed check that matches, "" if there is none.
func (r report) find(phase int, check string, says *regexp.Regexp) string {
	for _, p := range r.Phases {
		for _, c := range p.Checks {
			if p.Phase != phase || c.Name != check || c.Verdict != "FAIL" {
				continue
			}
			for _, d := range c.Details {
				if says.MatchString(d) {
					return d
				}
			}
		}
	}
	return ""
}

// text lists what did not pass.
func (r report) text() string {
	var b strings.Builder
	for _, p := range r.Phases {
		for _, c := range p.Checks {
			if c.Verdict != "PASS" {
				fmt.Fprintf(&b, "%s phase %d, %s: got %s, want %s\n\t%s\n", c.Verdict, p.Phase, c.Name, c.Got, c.Want, strings.Join(c.Details, "\n\t"))
			}
		}
	}
	return b.String() + r.Summary + "\n"
}
