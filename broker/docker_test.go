//go:build unix

package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// realDocker names the variable that runs the tests of a container's life with the Docker daemon of this machine and the image that it has.
const realDocker = "LAB_TEST_DOCKER"

// fakeDaemon is as much of Docker's API as is asked before a container is made: it answers pings, has the image, and lists containers.
// A list is chosen by the filter, name=value. Any other request fails the test.
func fakeDaemon(t *testing.T, lists map[string][]map[string]any) (host string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "d"))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			var filters map[string][]string
			if err := json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters); err != nil {
				t.Errorf("filters %q: %v", r.URL.Query().Get("filters"), err)
			}
			list := []map[string]any{}
			for name, values := range filters {
				list = append(list, lists[name+"="+values[0]]...)
			}
			if err := json.NewEncoder(w).Encode(list); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("asked to %s %s", r.Method, r.URL)
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	t.Cleanup(func() {
		srv.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return "unix://" + filepath.Join(dir, "d")
}

// Four things can be wrong, each with a cure of its own.
func TestDockerThatIsNotThere(t *testing.T) {
	noDocker, docker := t.TempDir(), t.TempDir()
	writeAll(t, map[string]string{filepath.Join(docker, "docker"): "#!/bin/sh\n"})
	dead := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false) // as a daemon that was killed
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "s")
	for name, c := range map[string]struct {
		at   daemonAddress
		path string
		want error
		says string
	}{
		"no program":           {daemonAddress{host: "unix://" + missing}, noDocker, ErrNoDocker, "install Docker"},
		"no daemon":            {daemonAddress{host: "unix://" + missing}, docker, ErrNoDaemon, "systemctl start docker"},
		"a daemon that died":   {daemonAddress{host: "unix://" + dead}, docker, ErrNoDaemon, dead},
		"a host without one":   {daemonAddress{host: fmt.Sprintf("tcp://127.0.0.1:%d", freeNow()), fromEnv: true}, docker, ErrDockerHost, "DOCKER_HOST=tcp://127.0.0.1:"},
		"a socket without one": {daemonAddress{host: "unix://" + missing, fromEnv: true}, noDocker, ErrDockerHost, "DOCKER_HOST=unix://" + missing},
		"another machine":      {daemonAddress{host: "tcp://docker.example:2375", fromEnv: true}, docker, ErrDockerHost, "another machine"},
		"a scheme that is none": {
			daemonAddress{host: "ssh://me@docker.example", fromEnv: true}, docker, ErrDockerHost, `not "ssh"`,
		},
		"no address": {daemonAddress{host: "://", fromEnv: true}, docker, ErrDockerHost, "DOCKER_HOST=://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			_, err := c.at.connect(t.Context())
			checkDockerError(t, err, c.want, c.says)
		})
	}
	// A test may run as root, to whom no socket is closed.
	t.Run("no permission", func(t *testing.T) {
		err := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
		for _, fromEnv := range []bool{false, true} {
			checkDockerError(t, daemonAddress{host: "unix:///var/run/docker.sock", fromEnv: fromEnv}.explain(err), ErrDockerPermission, "usermod -aG docker")
		}
	})
}

// checkDockerError wants an error that is one of the four, and none of the others.
func checkDockerError(t *testing.T, err, want error, says string) {
	t.Helper()
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v: want ErrUnavailable that says %q", err, says)
	}
	for _, one := range []error{ErrNoDocker, ErrNoDaemon, ErrDockerPermission, ErrDockerHost} {
		if errors.Is(err, one) != errors.Is(want, one) {
			t.Errorf("%v: errors.Is(%v) = %t", err, one, errors.Is(err, one))
		}
	}
}

// The daemon is where Docker's own program finds it.
func TestFindDaemon(t *testing.T) {
	bin := t.TempDir()
	writeAll(t, map[string]string{filepath.Join(bin, "docker"): "#!/bin/sh\necho unix:///home/me/docker.sock\n"})
	t.Setenv("PATH", bin+":/bin")
	t.Setenv(dockerHostEnv, "tcp://h:1")
	if got := findDaemon(t.Context()); got.String() != "DOCKER_HOST=tcp://h:1" {
		t.Errorf("with the variable: %s", got)
	}
	t.Setenv(dockerHostEnv, "")
	if got := findDaemon(t.Context()); got.String() != "unix:///home/me/docker.sock" {
		t.Errorf("with a context: %s", got)
	}
	t.Setenv("PATH", t.TempDir())
	if got := findDaemon(t.Context()); got.String() != "unix:///var/run/docker.sock" {
		t.Errorf("with neither: %s", got)
	}
}

func container(id, name string, labels map[string]string) map[string]any {
	return map[string]any{"Id": id, "Names": []string{"/" + name}, "Image": "some/image:1", "State": "running", "Labels": labels}
}

// A container of the name that is not this workspace's is named, and nothing is done: the daemon would report any other request.
func TestForeignContainer(t *testing.T) {
	const id = "0123456789abcdef0123"
	for name, c := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"not the lab's":     {nil, "which the lab did not make"},
		"another workspace": {map[string]string{workspaceLabel: "/elsewhere"}, "of the workspace /elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(dockerHostEnv, fakeDaemon(t, map[string][]map[string]any{"name=^/kafka-local$": {container(id, "kafka-local", c.labels)}}))
			_, err := open(t, Config{Dir: t.TempDir(), Kind: Docker}).Up(t.Context())
			if !errors.Is(err, ErrNameTaken) {
				t.Fatalf("Up = %v, want ErrNameTaken", err)
			}
			for _, want := range []string{"kafka-local", id[:12], "some/image:1", c.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v: does not name %q", err, want)
				}
			}
		})
	}
}

// The workspace's folder was removed by hand and its container was not.
func TestContainerOfAnEarlierLife(t *testing.T) {
	dir := t.TempDir()
	mine := map[string]string{workspaceLabel: dir}
	t.Setenv(dockerHostEnv, fakeDaemon(t, map[string][]map[string]any{"label=" + workspaceLabel + "=" + dir: {container("0123", "kafka-local", mine)}}))
	if _, err := open(t, Config{Dir: dir, Kind: Docker}).Up(t.Context()); !errors.Is(err, ErrNameTaken) || !strings.Contains(err.Error(), "lab clean") {
		t.Errorf("Up = %v, want ErrNameTaken with the way out", err)
	}
	list, asked, err := Containers(t.Context(), Config{Dir: dir})
	if err != nil || !asked || len(list) != 1 || list[0] != (Container{ID: "0123", Name: "kafka-local", Image: "some/image:1"}) {
		t.Errorf("Containers = %v, %t, %v", list, asked, err)
	}
}

// A taken port is named with the container that has it, and another one is used.
func TestTakenPortOfAContainer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().(*net.TCPAddr).Port
	at := daemonAddress{host: fakeDaemon(t, map[string][]map[string]any{fmt.Sprintf("publish=%d", taken): {container("0123456789abcdef", "theirs", nil)}})}
	pool, err := at.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var said string
	port, err := choosePort(t.Context(), pool, taken, func(line string) { said = line })
	if err != nil || port == taken || port == 0 {
		t.Errorf("choosePort = %d, %v", port, err)
	}
	if !strings.Contains(said, "container theirs (0123456789ab") || !strings.Contains(said, fmt.Sprint(taken)) {
		t.Errorf("said %q", said)
	}
	if port, err = choosePort(t.Context(), pool, freeNow(), nil); err != nil || port == 0 {
		t.Errorf("a free one: %d, %v", port, err)
	}
}

// Without Docker there are no containers, unless one was recorded: then nobody knows.
func TestContainersWithoutDocker(t *testing.T) {
	t.Setenv(dockerHostEnv, "unix://"+filepath.Join(t.TempDir(), "none"))
	dir := t.TempDir()
	if list, asked, err := Containers(t.Context(), Config{Dir: dir}); err != nil || asked || len(list) != 0 {
		t.Errorf("Containers = %v, %t, %v", list, asked, err)
	}
	f, err := filesOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeLayout(f.docker, dockerLayout{Name: containerName, Port: 1, Asked: 1, ID: "0123"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Containers(t.Context(), Config{Dir: dir}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Containers = %v, want ErrUnavailable", err)
	}
	if err := RemoveContainers(t.Context(), Config{Dir: dir}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("RemoveContainers = %v, want ErrUnavailable", err)
	}
}

// The daemon's account of a pull ends in an error that is no error of the request.
func TestPullThatFails(t *testing.T) {
	account := `{"status":"Pulling"}
{"id":"a","status":"Downloading","progressDetail":{"current":1048576,"total":4194304}}
{"error":"manifest unknown"}
`
	if err := pullProgress(strings.NewReader(account), func(string) {}); err == nil || err.Error() != "manifest unknown" {
		t.Errorf("pullProgress = %v", err)
	}
	if err := pullProgress(strings.NewReader(`{"status":`), func(string) {}); err == nil {
		t.Error("half an account is no error")
	}
}

// The whole life on a real daemon: made, found, stopped, started again with the same data, killed, and removed.
func TestContainerLifecycle(t *testing.T) {
	if os.Getenv(realDocker) == "" {
		t.Skipf("%s is not set", realDocker)
	}
	dir := t.TempDir()
	cfg := Config{Dir: dir, Kind: Docker, Port: freeNow()}
	t.Cleanup(func() {
		if err := RemoveContainers(context.Background(), cfg); err != nil {
			t.Error(err)
		}
	})
	first := up(t, cfg)
	if first.Container == nil || first.Container.Name != containerName || first.Port != cfg.Port || first.Bootstrap != fmt.Sprintf("localhost:%d", cfg.Port) {
		t.Fatalf("record %+v", first)
	}
	if found, err := Find(t.Context(), Config{Dir: dir}); err != nil || !same(found, first) {
		t.Errorf("Find = %+v, %v; want %+v", found, err, first)
	}
	if _, err := open(t, Config{Dir: t.TempDir(), Kind: Docker}).Up(t.Context()); !errors.Is(err, ErrNameTaken) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Up of another workspace = %v, want ErrNameTaken naming this one", err)
	}
	down(t, cfg)
	if _, err := Find(t.Context(), Config{Dir: dir}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Find = %v, want ErrNotRunning", err)
	}
	again := up(t, Config{Dir: dir})
	if again.Container == nil || *again.Container != *first.Container || again.Bootstrap != first.Bootstrap {
		t.Errorf("started again: %+v, want %+v", again, first)
	}
	if list, asked, err := Containers(t.Context(), cfg); err != nil || !asked || len(list) != 1 {
		t.Errorf("Containers = %v, %t, %v", list, asked, err)
	}
	if err := RemoveContainers(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if list, asked, err := Containers(t.Context(), cfg); err != nil || !asked || len(list) != 0 {
		t.Errorf("Containers = %v, %t, %v; want none", list, asked, err)
	}
}
