//go:build unix

package broker

import (
	"os"
	"syscall"
	"testing"
)

func TestTerminalSignalsAreIgnored(t *testing.T) {
	cfg := workspace(t)
	r := up(t, cfg)
	p, err := os.FindProcess(r.PID)
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if err := p.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	// A signal is delivered before the process returns to its own code, so a request that is answered now came after all of them.
	if err := dial(t.Context(), r.Bootstrap); err != nil {
		t.Fatal(err)
	}
	if found, err := Find(t.Context(), cfg); err != nil || !same(found, r) {
		t.Errorf("Find = %+v, %v; want the broker to run on", found, err)
	}
	sid, err := syscall.Getpgid(r.PID)
	if err != nil || sid != r.PID {
		t.Errorf("process group %d, %v; want a group of its own", sid, err)
	}
}
