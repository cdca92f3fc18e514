package store

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary run one of helpers as a process of its own, on the folder that helperDirEnv names.
const (
	helperEnv    = "LAB_STORE_TEST_HELPER"
	helperDirEnv = "LAB_STORE_TEST_DIR"
)

var helpers = map[string]func(dir string) error{
	"hold-lock":   helperHoldLock,
	"commit-loop": helperCommitLoop,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		if err := helpers[name](os.Getenv(helperDirEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// startHelper runs a helper and waits for its first line. The process is killed at the end of the test.
func startHelper(t *testing.T, name, dir string) (cmd *exec.Cmd, line string, lines *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(exe)
	cmd.Env = append(os.Environ(), helperEnv+"="+name, helperDirEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, cmd) })
	lines = bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("helper %s ended without a line", name)
	}
	return cmd, lines.Text(), lines
}

// kill is kill -9. Killing twice is harmless.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if cmd.ProcessState != nil {
		return
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed" is what was asked for
}

const (
	kvName  = "orders-per-store"
	winName = "orders-per-store-minute"
	// retention is size + grace of the lab: one minute and 30 s. Segments are one minute.
	retention = 90 * time.Second
)

func testSpecs() []Spec {
	return []Spec{
		{Name: kvName, Kind: KeyValueKind, Logged: true},
		{Name: winName, Kind: WindowKind, Retention: retention, Logged: true},
	}
}

func bootID(id string) func() (string, bool) {
	return func() (string, bool) { return id, id != "" }
}

func testOptions() Options { return Options{Strict: true, BootID: bootID("boot-1")} }

func mustOpen(t testing.TB, dir string, opt Options) *DB {
	t.Helper()
	db, err := Open(dir, testSpecs(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Abandon(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// flushed flushes both stores and renders the changes.
func flushed(t testing.TB, db *DB) []string {
	t.Helper()
	var got []string
	collect := func(c Change) error {
		got = append(got, renderChange(c))
		return nil
	}
	noError(t, db.KeyValue(kvName).Flush(collect))
	noError(t, db.Window(winName).Flush(collect))
	return got
}

func renderChange(c Change) string {
	s := fmt.Sprintf("%q=%q@%d", c.Key, c.Value, c.Timestamp)
	if c.Deleted {
		s = fmt.Sprintf("%q deleted@%d", c.Key, c.Timestamp)
	}
	for _, h := range c.Headers {
		s += fmt.Sprintf(" %s:%q", h.Key, h.Value)
	}
	return s
}

func mustCommit(t testing.TB, db *DB, next int64) {
	t.Helper()
	flushed(t, db)
	noError(t, db.Commit(Commit{
		Positions: map[string]Position{kvName: {Next: next}, winName: {Next: next}},
		At:        time.UnixMilli(next),
	}))
}

// rows renders what a reader of the key-value store sees.
func rows(t testing.TB, db *DB) []string {
	t.Helper()
	var got []string
	noError(t, db.KeyValue(kvName).Range(func(key, value []byte, ts int64) bool {
		got = append(got, fmt.Sprintf("%q=%q@%d", key, value, ts))
		return true
	}))
	return got
}

// windowRows renders what a reader of the window store sees.
func windowRows(t testing.TB, db *DB) []string {
	t.Helper()
	var got []string
	noError(t, db.Window(winName).Range(func(key []byte, start int64, value []byte, ts int64) bool {
		got = append(got, fmt.Sprintf("%q/%d=%q@%d", key, start, value, ts))
		return true
	}))
	return got
}
