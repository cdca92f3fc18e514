//go:build unix

package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// jvmWorkspace is workspace for nodes of Kafka.
func jvmWorkspace(t *testing.T) Config {
	t.Helper()
	cfg := workspace(t)
	cfg.Kind = JVM
	if os.Getenv(realJVM) != "" {
		return cfg
	}
	home := t.TempDir()
	t.Setenv("JAVA_HOME", home)
	t.Setenv(javaEnv, "1")
	if err := os.Mkdir(filepath.Join(home, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.Args[0], filepath.Join(home, "bin", "java")); err != nil {
		t.Fatal(err)
	}
	j := ownCache(t)
	writeAll(t, map[string]string{filepath.Join(j.dir, "pom.xml"): string(pom)})
	return cfg
}

// ownCache gives the test a cache folder of its own, which is empty.
func ownCache(t *testing.T) jars {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir) // macOS
	j, err := cachedJars()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func writeAll(t *testing.T, files map[string]string) {
	t.Helper()
	for path, content := range files {
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755))
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNodesLifecycle(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			cfg := jvmWorkspace(t)
			cfg.Nodes = nodes
			var said []string
			cfg.Progress = func(line string) { said = append(said, line) }
			first := up(t, cfg)
			if first.Kind != JVM || len(first.Nodes) != nodes || first.Asked != cfg.Port || len(strings.Split(first.Bootstrap, ",")) != nodes {
				t.Errorf("record %+v", first)
			}
			if (first.PID != 0) != (nodes == 1) {
				t.Errorf("pid %d for %d nodes", first.PID, nodes)
			}
			if last := said[len(said)-1]; !strings.HasPrefix(last, "broker jvm on "+first.Bootstrap+", pid") {
				t.Errorf("said %q", last)
			}
			// Whoever looks finds it without being told its kind.
			if found, err := Find(t.Context(), Config{Dir: cfg.Dir}); err != nil || !same(found, first) {
				t.Errorf("Find = %+v, %v; want %+v", found, err, first)
			}
			if again := up(t, cfg); !sameProcesses(again, first) {
				t.Errorf("a second Up gave %+v, want the same nodes %+v", again, first)
			}
			down(t, cfg)
			for _, n := range first.Nodes {
				if running(t, n.ID) {
					t.Errorf("node %d runs after Down", n.Number)
				}
			}
			if err := open(t, cfg).Down(t.Context(), false); !errors.Is(err, ErrNotRunning) {
				t.Errorf("a second Down = %v, want ErrNotRunning", err)
			}
			if kind, n, port, err := Kept(cfg.Dir); err != nil || kind != JVM || n != nodes || port != cfg.Port {
				t.Errorf("Kept = %s, %d nodes, port %d, %v", kind, n, port, err)
			}
			// Its data says what to start again, and where.
			again := up(t, Config{Dir: cfg.Dir, Command: cfg.Command})
			if again.Kind != JVM || again.Bootstrap != first.Bootstrap {
				t.Errorf("started again: %+v, want the cluster on %s", again, first.Bootstrap)
			}
		})
	}
}

func sameProcesses(a, b Record) bool {
	return slices.EqualFunc(a.Nodes, b.Nodes, func(x, y Node) bool { return x == y })
}

// A node that was killed comes back on its port with its data, and the others are left alone.
func TestKilledNodeIsStartedAgain(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			cfg := jvmWorkspace(t)
			cfg.Nodes = nodes
			first := up(t, cfg)
			f, err := filesOf(cfg.Dir)
			if err != nil {
				t.Fatal(err)
			}
			victim := first.Nodes[nodes-1]
			mark := filepath.Join(f.nodeFolder(victim.Number), dataFolder, "mark")
			writeAll(t, map[string]string{mark: "data"})
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			if err := errors.Join(victim.Kill(), victim.Wait(ctx)); err != nil {
				t.Fatal(err)
			}
			found, err := Find(t.Context(), Config{Dir: cfg.Dir})
			if nodes == 1 && !errors.Is(err, ErrNotRunning) {
				t.Errorf("Find = %v, want ErrNotRunning", err)
			}
			if nodes == 3 && (err != nil || found.Nodes[2].PID != 0 || found.Nodes[0].PID == 0 || found.Bootstrap != first.Bootstrap) {
				t.Errorf("Find = %+v, %v; want node 3 missing", found, err)
			}
			again := up(t, Config{Dir: cfg.Dir, Command: cfg.Command})
			for i, n := range again.Nodes {
				if n.Address != first.Nodes[i].Address || (n.ID == first.Nodes[i].ID) == (n.Number == victim.Number) {
					t.Errorf("node %d was %+v and is %+v", n.Number, first.Nodes[i], n)
				}
			}
			if _, err := os.Stat(mark); err != nil {
				t.Errorf("its data: %v", err)
			}
		})
	}
}

// The command that started the nodes was killed before it had written their record: the next one takes them over.
func TestNodesOfAKilledCommandAreAdopted(t *testing.T) {
	cfg := jvmWorkspace(t)
	first := up(t, cfg)
	if err := os.Remove(recordFile(t, cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	if again := up(t, cfg); !sameProcesses(again, first) {
		t.Errorf("Up = %+v, want the nodes that were there, %+v", again, first)
	}
}

func TestTwoCommandsStartOneCluster(t *testing.T) {
	cfg := jvmWorkspace(t)
	var wg sync.WaitGroup
	records, errs := make([]Record, 3), make([]error, 3)
	for i := range records {
		b := open(t, cfg)
		wg.Go(func() { records[i], errs[i] = b.Up(t.Context()) })
	}
	wg.Wait()
	for i := range records {
		if errs[i] != nil || !sameProcesses(records[i], records[0]) {
			t.Errorf("Up %d gave %+v, %v; want %+v", i, records[i], errs[i], records[0])
		}
	}
}

func TestEvictFindsNodesWithoutTheirRecord(t *testing.T) {
	cfg := jvmWorkspace(t)
	cfg.Nodes = 3
	r := up(t, cfg)
	if err := os.Remove(recordFile(t, cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	stopped, release, err := Evict(t.Context(), Config{Dir: cfg.Dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range r.Nodes {
		if running(t, n.ID) || !slices.Contains(stopped, n.ID) {
			t.Errorf("node %d, pid %d, is not among the stopped %v", n.Number, n.PID, stopped)
		}
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}

func TestTakenPortOfANode(t *testing.T) {
	cfg := jvmWorkspace(t)
	ln, err := net.Listen("tcp", loopback(cfg.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var said string
	cfg.Progress = func(line string) { said = line }
	r := up(t, cfg)
	if r.Port == cfg.Port || r.Asked != cfg.Port || !strings.Contains(said, fmt.Sprintf("port %d is taken", cfg.Port)) {
		t.Errorf("port %d, asked %d, said %q", r.Port, r.Asked, said)
	}
}

func TestDeadNodeIsReportedWithItsLog(t *testing.T) {
	cfg := jvmWorkspace(t)
	if os.Getenv(realJVM) != "" {
		t.Skip("Kafka itself starts")
	}
	t.Setenv(javaEnv, javaFailing)
	_, err := open(t, cfg).Up(t.Context())
	if !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "no Kafka today") {
		t.Fatalf("Up = %v, want ErrExited with the log", err)
	}
}

// A node that does not answer in time is not left behind.
func TestDeafNodeIsNotLeftBehind(t *testing.T) {
	cfg := jvmWorkspace(t)
	if os.Getenv(realJVM) != "" {
		t.Skip("Kafka itself may take longer than that to be there at all")
	}
	cfg.StartTimeout = 5 * time.Second
	deaf := errors.New("deaf")
	cfg.Probe = func(context.Context, string) error { return deaf }
	if _, err := open(t, cfg).Up(t.Context()); !errors.Is(err, deaf) || !errors.Is(err, ErrTimeout) {
		t.Fatalf("Up = %v, want ErrTimeout with the probe's error", err)
	}
	f, err := filesOf(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	lock, err := acquire(ctx, f.nodeLock(1)) // the kernel closes its files a moment after it has ended
	if err != nil {
		t.Fatalf("its lock: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}

// Data of one kind is of no use to another, and the cluster that there is has as many nodes as it has.
func TestAnotherKindOfData(t *testing.T) {
	cfg := jvmWorkspace(t)
	live := up(t, cfg)
	cases := map[string]Config{
		"embedded": {Kind: Embedded}, "docker": {Kind: Docker}, "three nodes": {Nodes: 3}, "another port": {Port: live.Port + 1},
	}
	for _, state := range []string{"while it runs", "after it was stopped"} {
		for name, c := range cases {
			if c.Port != 0 && state != "while it runs" {
				continue // it may be started elsewhere
			}
			t.Run(name+" "+state, func(t *testing.T) {
				c.Dir = cfg.Dir
				if _, err := open(t, c).Up(t.Context()); !errors.Is(err, ErrContradiction) || !IsUsage(err) {
					t.Errorf("Up = %v, want ErrContradiction", err)
				}
			})
		}
		if state == "while it runs" {
			down(t, cfg)
		}
	}
}

// A SIGTERM that comes before java is there must not be lost: whoever removes a workspace asks once.
func TestServeNodeThatWasAskedToStop(t *testing.T) {
	cfg := jvmWorkspace(t)
	up(t, cfg)
	down(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ServeNode(ctx, ServeNodeConfig{Dir: cfg.Dir, Node: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("ServeNode = %v", err)
	}
}

func TestServeNodeMakesNoWorkspace(t *testing.T) {
	dir := t.TempDir()
	if err := ServeNode(t.Context(), ServeNodeConfig{Dir: dir, Node: 1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ServeNode = %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("it made %v, %v", entries, err)
	}
}

// mvnScript writes a jar as Maven would, a little late, and counts how often it was asked.
const mvnScript = `#!/bin/sh
case $1 in -version) echo "Apache Maven %s (x)"; exit;; esac
for arg; do case $arg in -DoutputDirectory=*) to=${arg#*=};; esac; done
echo run >>"$to/../runs"
echo "Downloaded from central: https://example.org/a.jar"
%s
echo jar >"$to/a.jar"
`

func fakeMaven(t *testing.T, version, then string) {
	t.Helper()
	dir := t.TempDir()
	writeAll(t, map[string]string{filepath.Join(dir, "mvn"): fmt.Sprintf(mvnScript, version, then)})
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

// What a killed download has left is not taken for whole, and four commands at once fetch once.
func TestJarsAreFetchedWholeAndOnce(t *testing.T) {
	j := ownCache(t)
	fakeMaven(t, "3.8.7", "sleep 0.2")
	writeAll(t, map[string]string{
		filepath.Join(j.dir+".part", "torn.jar"): "half",
		filepath.Join(j.dir, "old.jar"):          "of another pom",
		filepath.Join(j.dir, "pom.xml"):          "<project/>",
	})
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = j.fetch(t.Context(), func(string) {}) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(j.dir, "*"))
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	if want := []string{"a.jar", "pom.xml"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("fetched %v, %v; want %v", found, err, want)
	}
	runs, err := os.ReadFile(filepath.Join(filepath.Dir(j.dir), "runs"))
	if err != nil || strings.Count(string(runs), "run") != 1 {
		t.Errorf("Maven ran %q, %v; want once", runs, err)
	}
}

func TestFailedFetchLeavesNothing(t *testing.T) {
	j := ownCache(t)
	fakeMaven(t, "3.8.7", `echo "[ERROR] Could not transfer artifact"; exit 1`)
	err := j.fetch(t.Context(), func(string) {})
	if err == nil || !strings.Contains(err.Error(), "Could not transfer artifact") || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("fetch = %v, want the end of what Maven said", err)
	}
	if left, err := filepath.Glob(j.dir + "*/*"); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// What is missing or too old is named, with the next step.
func TestMissingTools(t *testing.T) {
	java := func(version string) string {
		return fmt.Sprintf("#!/bin/sh\necho 'openjdk version \"%s\"' >&2\n", version)
	}
	maven := func(version string) string { return fmt.Sprintf("#!/bin/sh\necho 'Apache Maven %s (x)'\n", version) }
	for name, c := range map[string]struct {
		programs map[string]string
		want     []string
	}{
		"no Java":   {nil, []string{"there is no java", "install it"}},
		"Java 11":   {map[string]string{"java": java("11.0.2")}, []string{"Java 17 or later", "is 11.0.2"}},
		"Java 8":    {map[string]string{"java": java("1.8.0_372")}, []string{"Java 17 or later", "is 1.8.0"}},
		"no Maven":  {map[string]string{"java": java("21.0.1")}, []string{"Maven (mvn) is needed once", "install it"}},
		"old Maven": {map[string]string{"java": java("17"), "mvn": maven("3.6.1")}, []string{"Maven 3.6.3 or later", "is 3.6.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			ownCache(t)
			bin := t.TempDir()
			for program, text := range c.programs {
				writeAll(t, map[string]string{filepath.Join(bin, program): text})
			}
			t.Setenv("JAVA_HOME", "")
			t.Setenv("PATH", bin)
			_, err := open(t, Config{Dir: t.TempDir(), Kind: JVM}).Up(t.Context())
			if !errors.Is(err, ErrUnavailable) {
				t.Fatalf("Up = %v, want ErrUnavailable", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v: does not hold %q", err, want)
				}
			}
		})
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		have, least string
		older       bool
	}{
		{"17.0.15", "17", false}, {"17", "17", false}, {"21", "17", false}, {"11.0.2", "17", true}, {"1.8.0", "17", true},
		{"3.6.3", "3.6.3", false}, {"3.6.1", "3.6.3", true}, {"3.8.7", "3.6.3", false}, {"4.0", "3.6.3", false}, {"3.6", "3.6.3", true},
	} {
		if got := olderThan(c.have, c.least); got != c.older {
			t.Errorf("olderThan(%s, %s) = %t", c.have, c.least, got)
		}
	}
}
