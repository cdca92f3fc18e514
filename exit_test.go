package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/windowed-order-counter/lab/phases"
	"github.com/windowed-order-counter/lab/verify"
)

// A phase that was interrupted by the closing of its terminal ended with 1, as the verdict could not be written any more.
func TestExitCodeIsTheVerdicts(t *testing.T) {
	deadTerminal := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EIO}
	closedPipe := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
	for name, tt := range map[string]struct {
		verdict verify.Verdict
		err     error
		written error
		want    int
	}{
		"pass":                            {verify.Pass, nil, nil, exitPass},
		"pass, reader gone":               {verify.Pass, nil, closedPipe, exitPass},
		"pass that nobody can see":        {verify.Pass, nil, deadTerminal, exitFail},
		"fail":                            {verify.Fail, errors.New("x"), nil, exitFail},
		"fail, reader gone":               {verify.Fail, nil, closedPipe, exitFail},
		"unknown":                         {verify.Unknown, nil, nil, exitUnknown},
		"interrupted by the terminal":     {verify.Unknown, phases.ErrInterrupted, deadTerminal, exitUnknown},
		"interrupted with a closed pipe":  {verify.Unknown, phases.ErrInterrupted, closedPipe, exitUnknown},
		"unknown on a terminal that died": {verify.Unknown, nil, deadTerminal, exitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			nowhere, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer nowhere.Close()
			l := &lab{stdout: nowhere, stderr: nowhere}
			if got := l.exitCode(t.Context(), judged(tt.verdict, tt.err, false, tt.written)); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
		})
	}
}
