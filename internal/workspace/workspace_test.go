package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/internal/filelock"
	"github.com/windowed-order-counter/lab/internal/process"
	"github.com/windowed-order-counter/lab/internal/workspace"
)

func open(t *testing.T) *workspace.Workspace {
	t.Helper()
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func instance(t *testing.T, name string) workspace.Instance {
	t.Helper()
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	return workspace.Instance{ID: self, Application: "order-counter", Name: name, Bootstrap: "127.0.0.1:9092", Started: time.Unix(1, 0).UTC()}
}

func TestProgressRoundTrip(t *testing.T) {
	w := open(t)
	if _, ok, err := w.Progress(); ok || err != nil {
		t.Fatalf("empty workspace: ok=%v err=%v", ok, err)
	}
	want := workspace.Progress{ClusterID: "c", Bootstrap: "b", OrdersID: "o", Started: time.Unix(5, 0).UTC()}
	want.Pass(2)
	want.Pass(1)
	want.Pass(2)
	if err := w.SaveProgress(want); err != nil {
		t.Fatal(err)
	}
	got, ok, err := w.Progress()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{1, 2}, got.Passed); diff != "" {
		t.Error(diff)
	}
}

func TestDamagedProgressNamesTheFile(t *testing.T) {
	w := open(t)
	path := filepath.Join(w.Lab(), "run.json")
	if err := errors.Join(os.MkdirAll(w.Lab(), 0o755), os.WriteFile(path, []byte("{"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Progress(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error does not name %s: %v", path, err)
	}
}

func TestOneInstanceOfAName(t *testing.T) {
	w := open(t)
	a := instance(t, "a")
	if err := w.AddInstance(a); err != nil {
		t.Fatal(err)
	}
	var running *workspace.RunningError
	if err := w.AddInstance(a); !errors.As(err, &running) || running.Instance.PID != a.PID {
		t.Errorf("second a: want RunningError naming %d, got %v", a.PID, err)
	}
	if err := w.AddInstance(instance(t, "b")); err != nil {
		t.Errorf("b beside a: %v", err)
	}
	if err := w.RemoveInstance(a); err != nil {
		t.Fatal(err)
	}
	live, err := w.Instances()
	if err != nil {
		t.Fatal(err)
	}
	if len(live) != 1 || live[0].Name != "b" {
		t.Errorf("after a ended: %+v", live)
	}
}

// A killed instance leaves its record behind: it must neither count as running nor stand in the way.
func TestRecordOfAKilledInstance(t *testing.T) {
	w := open(t)
	dead := instance(t, "a")
	dead.Start += "0" // a recycled pid
	if err := w.AddInstance(dead); err != nil {
		t.Fatal(err)
	}
	if live, err := w.Instances(); err != nil || len(live) != 0 {
		t.Errorf("live: %+v, %v", live, err)
	}
	if err := w.AddInstance(instance(t, "a")); err != nil {
		t.Errorf("a new a: %v", err)
	}
	// The dead one's own clean-up, come late, must not take the new record away.
	if err := w.RemoveInstance(dead); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := w.Instance("order-counter", "a"); !ok || err != nil {
		t.Errorf("the new a is not listed: %v", err)
	}
}

func TestOnePhaseAtATime(t *testing.T) {
	w := open(t)
	lock, err := w.LockPhase()
	if err != nil {
		t.Fatal(err)
	}
	var busy *workspace.BusyError
	if _, err := w.LockPhase(); !errors.As(err, &busy) || busy.PID != os.Getpid() {
		t.Errorf("want BusyError naming %d, got %v", os.Getpid(), err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestRemoveKeepsTheEvidence(t *testing.T) {
	w := open(t)
	for _, path := range []string{w.Observation("phase-1.txt"), filepath.Join(w.InstanceState("a"), "x"), w.Log("a")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Remove(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{w.State(), w.Lab()} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if _, err := os.Stat(w.Observation("phase-1.txt")); err != nil {
		t.Error(err)
	}
}

// One empty record made every command fail that looked at the others.
func TestDamagedInstanceRecord(t *testing.T) {
	w := open(t)
	if err := w.AddInstance(instance(t, "a")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.Lab(), "run", "order-counter.b.json")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	live, err := w.Instances()
	var damaged *workspace.DamagedError
	if !errors.As(err, &damaged) || damaged.Path != path || !strings.Contains(err.Error(), "lab clean") {
		t.Errorf("error %v", err)
	}
	if len(live) != 1 || live[0].Name != "a" {
		t.Errorf("the others: %+v", live)
	}
	b := instance(t, "b")
	if err := w.AddInstance(b); err != nil {
		t.Errorf("a new b: %v", err)
	}
	if live, err := w.Instances(); err != nil || len(live) != 2 {
		t.Errorf("%+v, %v", live, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := w.RemoveInstance(b); err != nil {
		t.Errorf("b ends: %v", err)
	}
}

// Who holds a state folder is at work, whatever became of its record.
func TestAtWork(t *testing.T) {
	w := open(t)
	path := filepath.Join(w.InstanceState("a"), "order-counter", "lock")
	lock, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.AtWork(); err != nil || len(got) != 1 || got[0] != self {
		t.Errorf("%v, %v; want %v", got, err, self)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if got, err := w.AtWork(); err != nil || len(got) != 0 {
		t.Errorf("after it has ended: %v, %v", got, err)
	}
}
