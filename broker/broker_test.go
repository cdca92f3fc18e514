package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/goleak"

	"github.com/windowed-order-counter/lab/internal/process"
)

// The test binary plays several parts, chosen by these variables and javaEnv: the process that serves, a lab command that starts a broker and
// ends, a serving process that fails at once, and java.
const (
	serveEnv = "LAB_BROKER_TEST_SERVE"
	upEnv    = "LAB_BROKER_TEST_UP"
	failEnv  = "LAB_BROKER_TEST_FAIL"
	// briefEnv bounds the life of a serving process.
	briefEnv = "LAB_BROKER_TEST_BRIEF"
)

const deadline = 20 * time.Second

func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(javaEnv) != "" && filepath.Base(os.Args[0]) == "java":
		err = playJava(os.Args[1:])
	case os.Getenv(failEnv) != "":
		err = errors.New("no broker today")
	case os.Getenv(serveEnv) != "":
		err = playServe(os.Args)
	case os.Getenv(upEnv) != "":
		err = playUp(os.Getenv(upEnv))
	default:
		goleak.VerifyTestMain(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// playServe reads the arguments that Up appends: --dir D --port N, or --dir D --node N.
func playServe(args []string) error {
	port, err := strconv.Atoi(args[4])
	if err != nil {
		return err
	}
	ctx := context.Background()
	if args[3] == "--node" {
		return ServeNode(ctx, ServeNodeConfig{Dir: args[2], Node: port})
	}
	if brief, err := time.ParseDuration(os.Getenv(briefEnv)); err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, brief)
		defer cancel()
	}
	return Serve(ctx, ServeConfig{Dir: args[2], Port: port, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}

func playUp(dir string) error {
	if err := os.Setenv(serveEnv, "1"); err != nil {
		return err
	}
	b, err := New(Config{Dir: dir, Port: freeNow(), Command: []string{os.Args[0]}})
	if err != nil {
		return err
	}
	_, err = b.Up(context.Background())
	return err
}

// freeNow returns a port that was free a moment ago.
func freeNow() int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// workspace returns the configuration of a fresh workspace whose broker process is this test binary, stopped at the end.
func workspace(t *testing.T) Config {
	t.Helper()
	t.Setenv(serveEnv, "1")
	dir := t.TempDir()
	cfg := Config{Dir: dir, Port: freeNow(), Command: []string{os.Args[0]}}
	t.Cleanup(func() {
		if err := open(t, Config{Dir: dir}).Down(context.Background(), true); err != nil && !errors.Is(err, ErrNotRunning) {
			t.Error(err)
		}
	})
	return cfg
}

func open(t *testing.T, cfg Config) Broker {
	t.Helper()
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func up(t *testing.T, cfg Config) Record {
	t.Helper()
	r, err := open(t, cfg).Up(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func down(t *testing.T, cfg Config) {
	t.Helper()
	if err := open(t, cfg).Down(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}

func same(a, b Record) bool { return reflect.DeepEqual(a, b) }

func running(t *testing.T, id process.ID) bool {
	t.Helper()
	r, err := id.Running()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLifecycle(t *testing.T) {
	cfg := workspace(t)
	var said []string
	cfg.Progress = func(line string) { said = append(said, line) }
	first := up(t, cfg)
	want := fmt.Sprintf("broker embedded on 127.0.0.1:%d, pid %d", cfg.Port, first.PID)
	if len(said) != 1 || said[0] != want {
		t.Errorf("said %q, want %q", said, want)
	}
	if first.Kind != Embedded || first.Port != cfg.Port || first.Asked != cfg.Port || time.Since(first.Started) > time.Minute {
		t.Errorf("record %+v", first)
	}
	if !running(t, first.ID) {
		t.Error("its process does not run")
	}
	if again := up(t, cfg); !same(again, first) {
		t.Errorf("a second Up gave %+v, want the same broker %+v", again, first)
	}
	if found, err := Find(t.Context(), Config{Dir: cfg.Dir}); err != nil || !same(found, first) {
		t.Errorf("Find = %+v, %v", found, err)
	}
	log, err := os.ReadFile(filepath.Join(cfg.Dir, ".lab", "broker.log"))
	if err != nil || !strings.Contains(string(log), "broker ready") {
		t.Errorf("log %q, %v", log, err)
	}

	down(t, cfg)
	if running(t, first.ID) {
		t.Error("its process runs after Down")
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, ".lab", "broker.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is there after Down: %v", err)
	}
	if err := open(t, cfg).Down(t.Context(), false); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a second Down = %v, want ErrNotRunning", err)
	}
	if _, err := Find(t.Context(), cfg); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Find = %v, want ErrNotRunning", err)
	}
}

// kafka-go's own clients are enough for a test of the broker; the lab's client is another package's.
func TestDataSurvivesARestart(t *testing.T) {
	cfg := workspace(t)
	const topic = "survivor"
	r := up(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	tr := &kafka.Transport{}
	defer tr.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(r.Bootstrap), Transport: tr}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
	})
	if err != nil || made.Errors[topic] != nil {
		t.Fatal(err, made)
	}
	w := &kafka.Writer{Addr: client.Addr, Topic: topic, Transport: tr, RequiredAcks: kafka.RequireAll, BatchSize: 1}
	// The lab's event times are long past or ahead; retention must not take them.
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := w.WriteMessages(ctx, kafka.Message{Key: []byte("k"), Value: []byte("kept"), Time: old}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tr.CloseIdleConnections()

	down(t, cfg)
	r = up(t, cfg)
	client.Addr = kafka.TCP(r.Bootstrap)
	got, err := client.Fetch(ctx, &kafka.FetchRequest{Topic: topic, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := got.Records.ReadRecord()
	if err != nil {
		t.Fatal(err)
	}
	value, err := io.ReadAll(rec.Value)
	if err != nil || string(value) != "kept" {
		t.Errorf("read %q, %v", value, err)
	}
	tr.CloseIdleConnections()
}

func TestTakenPort(t *testing.T) {
	cfg := workspace(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cfg.Port = ln.Addr().(*net.TCPAddr).Port
	var said string
	cfg.Progress = func(line string) { said = line }
	r := up(t, cfg)
	if r.Port == cfg.Port || r.Asked != cfg.Port {
		t.Errorf("port %d, asked %d; want another port than the taken %d", r.Port, r.Asked, cfg.Port)
	}
	if want := fmt.Sprintf("port %d is taken", cfg.Port); !strings.Contains(said, want) {
		t.Errorf("said %q, want it to hold %q", said, want)
	}
	if again := up(t, cfg); !same(again, r) {
		t.Errorf("the same command line gave %+v, want %+v", again, r)
	}
}

func TestTwoCommandsStartOneBroker(t *testing.T) {
	cfg := workspace(t)
	var wg sync.WaitGroup
	records, errs := make([]Record, 4), make([]error, 4)
	for i := range records {
		b := open(t, cfg)
		wg.Go(func() { records[i], errs[i] = b.Up(t.Context()) })
	}
	wg.Wait()
	for i := range records {
		if errs[i] != nil || !same(records[i], records[0]) {
			t.Errorf("Up %d gave %+v, %v; want %+v", i, records[i], errs[i], records[0])
		}
	}
	log, err := os.ReadFile(filepath.Join(cfg.Dir, ".lab", "broker.log"))
	if n := strings.Count(string(log), "broker ready"); err != nil || n != 1 {
		t.Errorf("%d brokers were started, %v", n, err)
	}
}

// A second serving process in one workspace would write into the first one's data.
func TestServeRefusesASecondOne(t *testing.T) {
	cfg := workspace(t)
	up(t, cfg)
	cmd := exec.Command(os.Args[0], "--dir", cfg.Dir, "--port", "0")
	cmd.Env = append(os.Environ(), briefEnv+"=200ms")
	// Had it served, it would have ended with its context and without an error.
	said, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "another broker serves") {
		t.Fatalf("%v: %s", err, said)
	}
	if _, err := Find(t.Context(), cfg); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

func TestKilledBrokerIsReplaced(t *testing.T) {
	cfg := workspace(t)
	first := up(t, cfg)
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := first.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), cfg); !errors.Is(err, ErrNotRunning) {
		t.Fatalf("Find = %v, want ErrNotRunning", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, ".lab", "broker.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale record stays: %v", err)
	}
	if second := up(t, cfg); second.ID == first.ID {
		t.Error("the dead broker was returned")
	}
}

// The pid of a killed broker may belong to anyone by now, here to the test itself: it must not be taken for the broker, nor signalled.
func TestRecycledPid(t *testing.T) {
	dir := t.TempDir()
	f := recordFile(t, dir)
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	self.Start += "0"
	stale := Record{Kind: Embedded, Bootstrap: "127.0.0.1:1", Port: 1, Asked: 1, ID: self}
	if err := stale.write(f); err != nil {
		t.Fatal(err)
	}
	if err := open(t, Config{Dir: dir}).Down(t.Context(), true); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Down = %v, want ErrNotRunning", err)
	}
	if _, err := os.Stat(f); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale record stays: %v", err)
	}
}

func TestDamagedRecord(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "half": `{"kind":"embedded","boot`, "no process": `{"kind":"embedded","bootstrap":"127.0.0.1:1"}`, "other kind": `{"kind":"zoo"}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := recordFile(t, dir)
			if err := os.WriteFile(f, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			b := open(t, Config{Dir: dir})
			_, statusErr := b.Status(t.Context())
			_, upErr := b.Up(t.Context())
			for what, err := range map[string]error{"Status": statusErr, "Up": upErr, "Down": b.Down(t.Context(), false)} {
				if !errors.Is(err, ErrDamagedRecord) || !strings.Contains(err.Error(), f) {
					t.Errorf("%s = %v, want ErrDamagedRecord naming %s", what, err, f)
				}
			}
		})
	}
}

func recordFile(t *testing.T, dir string) string {
	t.Helper()
	f, err := filesOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(f.record), 0o755); err != nil {
		t.Fatal(err)
	}
	return f.record
}

func TestEarlyDeathIsReportedWithTheLog(t *testing.T) {
	cfg := workspace(t)
	t.Setenv(failEnv, "1")
	_, err := open(t, cfg).Up(t.Context())
	if !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "no broker today") || !strings.Contains(err.Error(), "exit status 1") {
		t.Fatalf("Up = %v, want ErrExited with status and log", err)
	}
}

func TestBrokerThatNeverAnswersIsNotLeftBehind(t *testing.T) {
	cfg := workspace(t)
	ctx, giveUp := context.WithCancel(t.Context())
	deaf := errors.New("deaf")
	var probed Record
	cfg.Probe = func(context.Context, string) error {
		defer giveUp()
		var err error
		probed, err = readRecord(recordFile(t, cfg.Dir))
		return errors.Join(deaf, err)
	}
	if _, err := open(t, cfg).Up(ctx); !errors.Is(err, deaf) || !errors.Is(err, context.Canceled) {
		t.Fatalf("Up = %v, want the probe's error", err)
	}
	if probed.PID == 0 || running(t, probed.ID) {
		t.Errorf("probed %+v; its process was left behind", probed)
	}
}

func TestStartTimeout(t *testing.T) {
	cfg := workspace(t)
	cfg.StartTimeout = time.Nanosecond
	if _, err := open(t, cfg).Up(t.Context()); !errors.Is(err, ErrTimeout) {
		t.Fatalf("Up = %v, want ErrTimeout", err)
	}
}

func TestExisting(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bootstrap := ln.Addr().String()
	want := Record{Kind: Existing, Bootstrap: bootstrap}
	dir := t.TempDir()
	b := open(t, Config{Dir: dir, Bootstrap: bootstrap})
	if r, err := b.Up(t.Context()); err != nil || !same(r, want) {
		t.Errorf("Up = %+v, %v; want %+v", r, err, want)
	}
	if err := b.Down(t.Context(), true); !errors.Is(err, ErrNotOurs) {
		t.Errorf("Down = %v, want ErrNotOurs", err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Up(t.Context()); err == nil || !strings.Contains(err.Error(), bootstrap) {
		t.Errorf("Up = %v, want an error naming %s", err, bootstrap)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the workspace holds %v, %v; want nothing", entries, err)
	}
}

func TestUsage(t *testing.T) {
	cfg := workspace(t)
	live := up(t, cfg)
	for name, c := range map[string]struct {
		cfg  Config
		want error
	}{
		"docker":                {Config{Kind: Docker}, ErrContradiction},
		"jvm":                   {Config{Kind: JVM}, ErrContradiction},
		"jvm elsewhere":         {Config{Kind: JVM, Bootstrap: "k:9092"}, ErrContradiction},
		"three of what has one": {Config{Nodes: 3}, ErrContradiction},
		"two nodes":             {Config{Kind: JVM, Nodes: 2}, ErrNodes},
		"one node":              {Config{Nodes: 1}, nil},
		"unknown":               {Config{Kind: "zookeeper"}, ErrUnknownKind},
		"embedded elsewhere":    {Config{Kind: Embedded, Bootstrap: "k:9092"}, ErrContradiction},
		"existing nowhere":      {Config{Kind: Existing}, ErrContradiction},
		"a port too high":       {Config{Port: 70000}, ErrAddress},
		"a port below":          {Config{Port: -1}, ErrAddress},
		"a name without a port": {Config{Bootstrap: "kafka"}, ErrAddress},
		"a colon alone":         {Config{Bootstrap: ":"}, ErrAddress},
		"one of two":            {Config{Bootstrap: "k:9092,l"}, ErrAddress},
		"a port that is none":   {Config{Bootstrap: "k:http"}, ErrAddress},
		"an empty list":         {Config{Bootstrap: "k:9092,"}, ErrAddress},
		"version 6":             {Config{Bootstrap: "[::1]:9092, k:9092"}, nil},
		"another port":          {Config{Port: live.Port + 1}, ErrContradiction},
		"its port":              {Config{Port: live.Port}, nil},
		"its kind":              {Config{Kind: Embedded}, nil},
		"a cluster wins":        {Config{Bootstrap: "k:9092"}, nil},
		"existing, with a list": {Config{Kind: Existing, Bootstrap: "k:9092,l:9092"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Dir = cfg.Dir
			_, err := Find(t.Context(), c.cfg)
			if !errors.Is(err, c.want) || IsUsage(err) != (c.want != nil) {
				t.Errorf("Find = %v, want %v", err, c.want)
			}
		})
	}
}

// `lab phase 1 | tee x` ends when the phase ends: the broker it started must hold neither its stdout nor any descriptor that the
// command itself was given.
func TestStartingCommandReleasesItsPipes(t *testing.T) {
	cfg := workspace(t)
	stdout, stdoutW := pipe(t)
	extra, extraW := pipe(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), upEnv+"="+cfg.Dir)
	for i, kv := range cmd.Env {
		if strings.HasPrefix(kv, serveEnv+"=") {
			cmd.Env[i] = serveEnv + "="
		}
	}
	cmd.Stdout, cmd.Stderr = stdoutW, stdoutW
	cmd.ExtraFiles = []*os.File{extraW}
	if err := cmd.Run(); err != nil {
		out := errors.Join(stdoutW.Close(), err)
		said, _ := io.ReadAll(stdout)
		t.Fatalf("%v: %s", out, said)
	}
	for name, p := range map[string]struct{ r, w *os.File }{"stdout": {stdout, stdoutW}, "descriptor 3": {extra, extraW}} {
		if err := p.w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := p.r.SetReadDeadline(time.Now().Add(deadline)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(p.r); err != nil {
			t.Errorf("%s is still open in the broker: %v", name, err)
		}
	}
	if _, err := Find(t.Context(), Config{Dir: cfg.Dir}); err != nil {
		t.Errorf("the broker went with the command that started it: %v", err)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, w
}
