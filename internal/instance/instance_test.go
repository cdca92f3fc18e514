package instance_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/internal/instance"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

func TestConfigure(t *testing.T) {
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	plain, err := instance.Configure(w, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := plain.Streams
	if s.ApplicationID != "order-counter" || s.StateDir != filepath.Join(w.Dir(), "state", "a") || s.CommitInterval != time.Second {
		t.Errorf("application %s, state %s, commits every %s", s.ApplicationID, s.StateDir, s.CommitInterval)
	}
	// With a window's 90 s this makes the retention.ms=3153600090000 of the lab's window changelog.
	if want := 3153600000000 * time.Millisecond; s.WindowChangelogAdditionalRetention != want {
		t.Errorf("additional retention %s, want %s", s.WindowChangelogAdditionalRetention, want)
	}
	// The name sets the instance and its folder; nothing else follows from it.
	given, err := instance.Configure(w, "eos", []string{
		"application.id=x", "lab.output.suffix=.eos", "lab.topic.prefix=mine.", "commit.interval.ms=30000", "lab.crash.after.store17=20",
	})
	if err != nil {
		t.Fatal(err)
	}
	if given.Topics != (topology.Options{Prefix: "mine.", Suffix: ".eos"}) || given.CrashAt != 20 || given.Streams.ApplicationID != "x" || given.Streams.CommitInterval != 30*time.Second {
		t.Errorf("%+v", given)
	}
	if given.Streams.ProcessingGuarantee != streams.AtLeastOnce {
		t.Errorf("guarantee %s", given.Streams.ProcessingGuarantee)
	}
}

func TestConfigureNamesMistakes(t *testing.T) {
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "a.b", "-a"} {
		var usage *args.UsageError
		if _, err := instance.Configure(w, name, nil); !errors.As(err, &usage) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	var property *streams.PropertyError
	if _, err := instance.Configure(w, "a", []string{"comit.interval.ms=1"}); !errors.As(err, &property) || property.Nearest != "commit.interval.ms" {
		t.Errorf("misspelt property: %v", err)
	}
	for _, value := range []string{"", "0", "-1", "many", "1.5"} {
		var usage *args.UsageError
		if _, err := instance.Configure(w, "a", []string{"lab.crash.after.store17=" + value}); !errors.As(err, &usage) {
			t.Errorf("crash at %q: %v", value, err)
		}
	}
}
