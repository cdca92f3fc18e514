package args_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/windowed-order-counter/lab/internal/args"
)

func app() *cli.App {
	return &cli.App{
		Name: "lab",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir"}, &cli.BoolFlag{Name: "yes"}, &cli.IntFlag{Name: "port"},
		},
		Commands: []*cli.Command{
			{Name: "phase", Flags: []cli.Flag{&cli.BoolFlag{Name: "fresh"}}},
			{Name: "counter"},
			{Name: "send", Flags: []cli.Flag{&cli.Int64Flag{Name: "timestamp"}, &cli.BoolFlag{Name: "null"}}},
			{Name: "broker", Subcommands: []*cli.Command{
				{Name: "up"},
				{Name: "down", Flags: []cli.Flag{&cli.BoolFlag{Name: "force"}}},
				{Name: "serve", Hidden: true},
			}},
		},
	}
}

func TestArrange(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"phase 1", "phase -- 1"},
		{"phase 1 --yes", "--yes phase -- 1"},
		{"phase 1 --dir x --fresh", "--dir x phase --fresh -- 1"},
		{"phase --dir=x 1", "--dir=x phase -- 1"},
		{"--dir x phase 1", "--dir x phase -- 1"},
		{"send t k v --timestamp -1", "send --timestamp -1 -- t k v"},
		{"send t -5 --null", "send --null -- t -5"},
		{"send --null -- t --yes", "send --null -- t --yes"},
		{"send t k -", "send -- t k -"},
		{"counter a processing.guarantee=exactly_once_v2 --port 9", "--port 9 counter -- a processing.guarantee=exactly_once_v2"},
		{"broker --dir x down --force", "--dir x broker down --force"},
		{"broker serve", "broker serve"},
		{"phase phase", "phase -- phase"},
		{"--help", "--help"},
		{"phase --help", "phase --help"},
		{"help phase", "help -- phase"},
		{"phase 6 --help", "phase --help"},
		{"--yes send t k -h", "--yes send -h"},
		{"send -- t --help", "send -- t --help"},
	}
	for _, tt := range tests {
		got, err := args.Arrange(app(), strings.Fields(tt.in))
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		if diff := cmp.Diff(strings.Fields(tt.want), got, equateEmpty); diff != "" {
			t.Errorf("%q: %s", tt.in, diff)
		}
	}
}

var equateEmpty = cmp.Transformer("join", func(s []string) string { return strings.Join(s, " ") })

func TestMistakesAreNamed(t *testing.T) {
	tests := []struct{ in, want string }{
		{"phse 1", `unknown command "phse"; did you mean "phase"?`},
		{"frobnicate", `unknown command "frobnicate": phase, counter, send, broker`},
		{"help phse", `unknown command "phse"; did you mean "phase"?`},
		{"broker dwon", `unknown command broker "dwon"; did you mean "down"?`},
		{"broker serv", `unknown command broker "serv": up, down`}, // hidden commands are not offered
		{"phase 1 --frsh", `unknown flag "--frsh"; did you mean "--fresh"?`},
		{"phase 1 --yess", `unknown flag "--yess"; did you mean "--yes"?`},
		{"send t k v --fresh", `unknown flag "--fresh": --dir, --yes, --port, --timestamp, --null`},
		{"phase 1 --dir", "flag --dir needs a value"},
	}
	for _, tt := range tests {
		_, err := args.Arrange(app(), strings.Fields(tt.in))
		var usage *args.UsageError
		if !errors.As(err, &usage) || err.Error() != tt.want {
			t.Errorf("%q: got %v, want %s", tt.in, err, tt.want)
		}
	}
}
