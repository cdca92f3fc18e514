package console_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/console"
)

func TestStepWaitsForEnter(t *testing.T) {
	in, enter := io.Pipe()
	defer enter.Close()
	var out strings.Builder
	c := console.New(console.Config{In: in, Out: &out, Interactive: true})
	done := make(chan error)
	go func() { done <- c.Step(t.Context(), "start the broker", "records need a log") }()
	if _, err := io.WriteString(enter, "\n"); err != nil { // returns once it has been read
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := "→ start the broker\n  records need a log\n  [Enter] "; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestStepEndsWithItsContext(t *testing.T) {
	in, enter := io.Pipe()
	defer enter.Close()
	c := console.New(console.Config{In: in, Out: io.Discard, Interactive: true})
	gone := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := c.Step(ctx, "", ""); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

// Ctrl-D, or a terminal that was closed, must not run the rest of a phase at once.
func TestStepDoesNotTakeTheEndOfInputForEnter(t *testing.T) {
	c := console.New(console.Config{In: strings.NewReader(""), Out: io.Discard, Interactive: true})
	if err := c.Step(t.Context(), "", ""); !errors.Is(err, console.ErrEnded) {
		t.Errorf("got %v", err)
	}
}

func TestConfirm(t *testing.T) {
	tests := map[string]struct {
		input string
		yes   bool
		err   error
	}{
		"yes":                 {"y\n", true, nil},
		"in full":             {" YES \n", true, nil},
		"no":                  {"n\n", false, nil},
		"no clear answer":     {"\nmaybe\nno\n", false, nil},
		"the input has ended": {"\n", false, console.ErrEnded},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			c := console.New(console.Config{In: strings.NewReader(tt.input), Out: &out, Interactive: true})
			yes, err := c.Confirm(t.Context(), "kill it?")
			if yes != tt.yes || !errors.Is(err, tt.err) {
				t.Errorf("%t, %v", yes, err)
			}
			if !strings.HasPrefix(out.String(), "  kill it? [y/n] ") {
				t.Errorf("asked %q", out.String())
			}
		})
	}
}

// Without a person nothing waits: an unattended run must not hang.
func TestNotInteractive(t *testing.T) {
	var out strings.Builder
	c := console.New(console.Config{In: unread{}, Out: &out})
	if err := c.Step(t.Context(), "what", "why"); err != nil {
		t.Error(err)
	}
	if yes, err := c.Confirm(t.Context(), "really?"); !yes || err != nil {
		t.Errorf("%t, %v", yes, err)
	}
	if strings.Contains(out.String(), "Enter") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
}

// unread fails the test's process if it is read.
type unread struct{}

func (unread) Read([]byte) (int, error) { panic("input was read") }

func TestColorOnlyIfAsked(t *testing.T) {
	var out strings.Builder
	console.New(console.Config{Out: &out, Color: true}).Title("phase %d", 1)
	if want := "\x1b[1mphase 1\x1b[0m\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestNullDeviceIsNoTerminal(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if console.IsTerminal(f) {
		t.Error("the null device passes for a terminal")
	}
}
