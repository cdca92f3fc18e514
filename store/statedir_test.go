package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/windowed-order-counter/lab/internal/filelock"
)

// helperHoldLock locks the folder, says so, and waits to be killed.
func helperHoldLock(dir string) error {
	if _, err := OpenStateDir(dir); err != nil {
		return err
	}
	fmt.Println("locked")
	select {}
}

func TestStateDirLockOfAnotherProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "a", "order-counter")
	holder, _, _ := startHelper(t, "hold-lock", dir)

	_, err := OpenStateDir(dir)
	var locked *LockedError
	if !errors.As(err, &locked) {
		t.Fatalf("OpenStateDir = %v", err)
	}
	if locked.PID != holder.Process.Pid || locked.Path != dir {
		t.Errorf("%+v, want pid %d", locked, holder.Process.Pid)
	}
	if want := fmt.Sprintf("process %d", holder.Process.Pid); !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not name %s", err, want)
	}

	kill(t, holder)
	d, err := OpenStateDir(dir)
	noError(t, err)
	noError(t, d.Close())
}

func TestStateDirLockInProcess(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenStateDir(dir)
	noError(t, err)
	var locked *LockedError
	if _, err := OpenStateDir(dir); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("second OpenStateDir = %v", err)
	}
	noError(t, d.Close())
	noError(t, d.Close())
	d, err = OpenStateDir(dir)
	noError(t, err)
	noError(t, d.Close())
}

// What earlier processes left in the lock file does not matter, least of all a process that died before it wrote its pid.
func TestStateDirLeftOverLock(t *testing.T) {
	for _, left := range []string{"", "4294967296999\n", "12345\nlonger than ours", "rubbish", "-7"} {
		dir := t.TempDir()
		path := filepath.Join(dir, lockFile)
		noError(t, os.WriteFile(path, []byte(left), fileMode))

		f, err := os.OpenFile(path, os.O_RDWR, 0)
		noError(t, err)
		if free, err := filelock.TryFile(f); err != nil || !free {
			t.Fatal(free, err)
		}
		var locked *LockedError
		if _, err := OpenStateDir(dir); !errors.As(err, &locked) {
			t.Errorf("%q: OpenStateDir = %v", left, err)
		} else if strings.Contains(left, "rubbish") && (locked.PID != 0 || !strings.Contains(err.Error(), "another process")) {
			t.Errorf("%q: %v", left, err)
		}
		noError(t, f.Close())

		d, err := OpenStateDir(dir)
		noError(t, err)
		if got, want := readFile(t, path), fmt.Sprintf("%d\n", os.Getpid()); got != want {
			t.Errorf("lock holds %q, not %q", got, want)
		}
		noError(t, d.Close())
	}
}

func TestProcessID(t *testing.T) {
	dir := t.TempDir()
	ids := map[string]bool{}
	for range 3 {
		d, err := OpenStateDir(dir)
		noError(t, err)
		if !processIDForm.MatchString(d.ProcessID()) {
			t.Errorf("process id %q is no UUID", d.ProcessID())
		}
		ids[d.ProcessID()] = true
		noError(t, d.Close())
	}
	if len(ids) != 1 {
		t.Errorf("process ids %v", ids)
	}
	other, err := OpenStateDir(t.TempDir())
	noError(t, err)
	if ids[other.ProcessID()] {
		t.Error("two folders have the same process id")
	}
	noError(t, other.Close())

	path := filepath.Join(dir, processIDFile)
	noError(t, os.WriteFile(path, []byte("torn"), fileMode))
	if _, err := OpenStateDir(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("damaged process id: %v", err)
	}
	noError(t, os.Remove(path)) // the cure that the error names; the failed open holds no lock
	d, err := OpenStateDir(dir)
	noError(t, err)
	noError(t, d.Close())
}

// The number of threads only ever grows: a start with fewer learns how many there were.
func TestTransactionalThreads(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct{ today, want int }{{0, 0}, {2, 2}, {4, 4}, {1, 4}, {0, 4}, {5, 5}} {
		d, err := OpenStateDir(dir)
		noError(t, err)
		got, err := d.RaiseTransactionalThreads(step.today)
		noError(t, err)
		if got != step.want {
			t.Errorf("with %d threads: the highest ever is %d, want %d", step.today, got, step.want)
		}
		noError(t, d.Close())
	}
	d, err := OpenStateDir(dir)
	noError(t, err)
	defer func() { noError(t, d.Close()) }()
	path := filepath.Join(dir, threadsFile)
	for _, torn := range []string{"", "many", "0", "-3"} {
		noError(t, os.WriteFile(path, []byte(torn), fileMode))
		if _, err := d.RaiseTransactionalThreads(2); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("a file with %q: %v", torn, err)
		}
	}
	noError(t, os.Remove(path)) // the cure that the error names
	if got, err := d.RaiseTransactionalThreads(2); err != nil || got != 2 {
		t.Errorf("after the cure %d, %v", got, err)
	}
}

func TestTasks(t *testing.T) {
	d, err := OpenStateDir(filepath.Join(t.TempDir(), "app"))
	noError(t, err)
	for _, task := range []string{"1_1", "0_0", "1_10"} {
		db := mustOpen(t, d.TaskDir(task), testOptions())
		noError(t, db.Close())
	}
	noError(t, os.Mkdir(d.TaskDir("global"), dirMode))
	noError(t, os.WriteFile(d.TaskDir("2_0"), nil, fileMode))
	tasks, err := d.Tasks()
	noError(t, err)
	if diff := cmp.Diff([]string{"0_0", "1_1", "1_10"}, tasks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	noError(t, d.Close())
}
