package args_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/args"
)

// FuzzArrange puts any command line in order: what comes out is in order already, and has no word more or less but for the --.
func FuzzArrange(f *testing.F) {
	for _, line := range []string{
		"", "phase 1 --yes", "phase 1 --dir x --fresh", "--dir=x phase 1", "send t k v --timestamp -1", "send --null -- t --yes", "send t k -",
		"counter a processing.guarantee=exactly_once_v2 --port 9", "counter a =", "counter a --x=y", "broker --dir x down --force", "help phase",
		"--help", "phase --help", "--dir --", "--dir -- --", "-- phase", "send -5 --null", "- -", "--", "--=", "-", "help -- --", "h h h",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		argv := strings.Split(line, " ")
		got, err := args.Arrange(app(), slices.Clone(argv))
		if err != nil {
			var usage *args.UsageError
			if !errors.As(err, &usage) || usage.Text == "" {
				t.Fatalf("%q: %#v", argv, err)
			}
			return
		}
		again, err := args.Arrange(app(), slices.Clone(got))
		if err != nil || !slices.Equal(got, again) {
			t.Fatalf("%q became %q, and that %q (%v)", argv, got, again, err)
		}
		words := func(all []string) []string {
			kept := slices.DeleteFunc(slices.Clone(all), func(w string) bool { return w == "--" })
			slices.Sort(kept)
			return kept
		}
		if !slices.Equal(words(argv), words(got)) {
			t.Fatalf("%q became %q", argv, got)
		}
	})
}
