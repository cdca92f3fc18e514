package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/windowed-order-counter/lab/internal/console"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/phases"
)

// TestMain lets scripts run this program by its name. Its children and its broker are copies of the test binary under that name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lab": main})
}

// TestScripts runs the real program through testdata/script, each script in an empty folder of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"waitfor":   waitFor,
			"lines":     countLines,
			"sorted":    equalSorted,
			"holds":     holds,
			"nofewer":   noFewer,
			"noorphans": noOrphans,
			"zip":       zipFiles,
			"forge":     forge,
			"conforms":  conforms,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "pty":
				return runtime.GOOS == "linux" || runtime.GOOS == "darwin", nil
			case "hup": // under nohup nobody below hears of it
				return !signal.Ignored(syscall.SIGHUP), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

func setup(env *testscript.Env) error {
	// Nothing of the developer's own environment decides where a script goes.
	for _, name := range []string{"DIR", "BROKER", "BOOTSTRAP", "CONFIG", "PORT", "YES", "JSON", "NO_COLOR", "SESSION_TIMEOUT"} {
		env.Setenv("LAB_"+name, "")
	}
	// The race detector's runtime sleeps for a second at the end of each process by default, and scripts start many.
	env.Setenv("GORACE", "atexit_sleep_ms=0")
	golden, err := filepath.Abs("testdata/golden")
	if err != nil {
		return err
	}
	env.Setenv("GOLDEN", golden)
	// A script that fails in its middle leaves no broker behind.
	dir := env.WorkDir
	env.Defer(func() {
		if err := cleanAll(dir); err != nil {
			env.T().Log("cleaning up:", err)
		}
	})
	return nil
}

// cleanAll cleans every workspace below a folder.
func cleanAll(dir string) error {
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() != ".lab" {
			return err
		}
		found = append(found, filepath.Dir(path))
		return fs.SkipDir
	})
	errs := []error{err}
	for _, dir := range found {
		w, err := workspace.Open(dir)
		if err != nil {
			return err
		}
		errs = append(errs, cleanOne(w))
	}
	return errors.Join(errs...)
}

// cleanOne cleans a workspace. A phase that was killed a moment ago may still hold its lock.
func cleanOne(w *workspace.Workspace) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := phases.Config{Workspace: w, Console: console.New(console.Config{Out: io.Discard})}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := phases.Clean(ctx, cfg)
		var busy *workspace.BusyError
		if !errors.As(err, &busy) || ctx.Err() != nil {
			return err
		}
		<-ticker.C
	}
}

// waitFor waits until a file, which a pattern may name, holds a match: waitfor FILE REGEXP.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitfor FILE REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	deadline := time.Now().Add(30 * time.Second)
	for ticker := time.NewTicker(10 * time.Millisecond); ; <-ticker.C {
		files, err := filepath.Glob(ts.MkAbs(args[0]))
		ts.Check(err)
		for _, file := range files {
			if content, err := os.ReadFile(file); err == nil && want.Match(content) {
				ticker.Stop()
				return
			}
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not get to hold %s", args[0], args[1])
		}
	}
}

// countLines compares the number of lines in a file: lines FILE N.
func countLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines FILE N")
	}
	if n := strings.Count(ts.ReadFile(args[0]), "\n"); fmt.Sprint(n) != args[1] {
		ts.Fatalf("%s has %d lines, not %s", args[0], n, args[1])
	}
}

// multiset counts the lines of a file.
func multiset(ts *testscript.TestScript, name string) map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(ts.ReadFile(name)) {
		count[line]++
	}
	return count
}

// equalSorted compares two files whose lines may stand in any order: sorted FILE WANT.
func equalSorted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sorted FILE WANT")
	}
	got, want := multiset(ts, args[0]), multiset(ts, args[1])
	if !maps.Equal(got, want) {
		ts.Fatalf("%s and %s differ by more than order: %v, %v", args[0], args[1], got, want)
	}
}

// holds checks that a file has all the lines of another, each at least as often: holds FILE WANT.
func holds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: holds FILE WANT")
	}
	got := multiset(ts, args[0])
	for line, n := range multiset(ts, args[1]) {
		if got[line] < n {
			ts.Fatalf("%s has %d times, not %d: %s", args[0], got[line], n, line)
		}
	}
}

// noFewer checks that each key of a file of key TAB count has at least that count in another: nofewer FILE WANT.
func noFewer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: nofewer FILE WANT")
	}
	counts := func(name string) map[string]int {
		all := map[string]int{}
		for line := range strings.Lines(ts.ReadFile(name)) {
			key, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
			n, err := strconv.Atoi(text)
			ts.Check(err)
			all[key] = n
		}
		return all
	}
	got := counts(args[0])
	for key, n := range counts(args[1]) {
		if got[key] < n {
			ts.Fatalf("%s has %d for %s, fewer than %d", args[0], got[key], key, n)
		}
	}
}

// zipFiles puts files into a new zip: zip FILE NAME…
func zipFiles(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: zip FILE NAME…")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	w := zip.NewWriter(f)
	for _, name := range args[1:] {
		e, err := w.Create(name)
		ts.Check(err)
		_, err = io.WriteString(e, ts.ReadFile(name))
		ts.Check(err)
	}
	ts.Check(errors.Join(w.Close(), f.Close()))
}

// forge replaces a text in a gzipped file: forge FILE OLD NEW.
func forge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: forge FILE OLD NEW")
	}
	r, err := gzip.NewReader(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	content, err := io.ReadAll(r)
	ts.Check(err)
	if !bytes.Contains(content, []byte(args[1])) {
		ts.Fatalf("%s does not hold %s", args[0], args[1])
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err = w.Write(bytes.ReplaceAll(content, []byte(args[1]), []byte(args[2])))
	ts.Check(errors.Join(err, w.Close(), os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o644)))
}

// noOrphans checks that no process works for a workspace but its broker: noorphans DIR. It needs /proc, and passes without.
func noOrphans(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: noorphans DIR")
	}
	dir := ts.MkAbs(args[0])
	var orphans []string
	deadline := time.Now().Add(15 * time.Second) // an instance of a killed phase stops by itself, but first it commits
	for ticker := time.NewTicker(20 * time.Millisecond); time.Now().Before(deadline); <-ticker.C {
		orphans = nil
		commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
		ts.Check(err)
		for _, file := range commands {
			raw, err := os.ReadFile(file) // it may have ended meanwhile
			words := strings.Split(string(raw), "\x00")
			if err == nil && strings.Contains(string(raw), "\x00"+dir+"\x00") && !strings.Contains(strings.Join(words, " "), "broker serve") {
				orphans = append(orphans, strings.Join(words, " "))
			}
		}
		if len(orphans) == 0 {
			ticker.Stop()
			return
		}
	}
	ts.Fatalf("still running: %q", orphans)
}
