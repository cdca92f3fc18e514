// Package args puts a command line into the order that urfave/cli wants and names its mistakes.
//
// The library stops reading flags at the first positional argument, but `lab phase 1 --yes` should work as well as `lab --yes phase 1`.
package args

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// UsageError is a mistake in the command line: one line that says what is wrong.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

// Errorf returns a *UsageError.
func Errorf(format string, args ...any) error { return &UsageError{Text: fmt.Sprintf(format, args...)} }

// fewWords is up to how many known words a mistake lists.
const fewWords = 5

// Unknown returns a *UsageError for a word that is not among the known ones, with the nearest of those if one is near, and with all of them if
// they are few.
func Unknown(what, word string, known []string) error {
	if near := Nearest(word, known); near != "" {
		return Errorf("unknown %s %q; did you mean %q?", what, word, near)
	}
	if len(known) <= fewWords {
		return Errorf("unknown %s %q: %s", what, word, strings.Join(known, ", "))
	}
	return Errorf("unknown %s %q", what, word)
}

// Nearest returns the known word with the fewest edits to word, or "" if even that one is no likely slip of the finger.
func Nearest(word string, known []string) string {
	best, bestCost := "", max(2, len(word)/3)+1
	for _, k := range known {
		if cost := smetrics.WagnerFischer(strings.ToLower(word), k, 1, 1, 1); cost < bestCost {
			best, bestCost = k, cost
		}
	}
	return best
}

// Arrange reorders argv (without the program's name): global flags, command, the command's flags, `--`, positional arguments. Flags may
// stand anywhere in argv; all after a `--` is positional, and so is a negative number. The error is a *UsageError.
func Arrange(app *cli.App, argv []string) ([]string, error) {
	var global, path, local, positional []string
	commands, flags := app.Commands, app.Flags
	help := false // asked for, of a command
	for i := 0; i < len(argv); i++ {
		word := argv[i]
		if word == "--" {
			positional = append(positional, argv[i+1:]...)
			break
		}
		if strings.HasPrefix(word, "-") && word != "-" && !number(word) {
			f, own, err := find(word, app.Flags, flags, len(path) > 0)
			if err != nil {
				return nil, err
			}
			part := []string{word}
			if f != nil && takesValue(f) && !strings.Contains(word, "=") {
				i++
				if i == len(argv) {
					return nil, Errorf("flag %s needs a value", word)
				}
				part = append(part, argv[i])
			}
			help = help || f == nil && own
			if own {
				local = append(local, part...)
			} else {
				global = append(global, part...)
			}
			continue
		}
		if len(commands) == 0 || len(positional) > 0 {
			positional = append(positional, word)
			continue
		}
		// `lab help COMMAND` is the library's.
		if word == "help" || word == "h" {
			if of := argv[i+1:]; len(of) > 0 && !strings.HasPrefix(of[0], "-") && !isCommand(of[0], commands) {
				return nil, unknownCommand(of[0], path, commands)
			}
			path = append(path, word)
			commands, flags = nil, nil
			continue
		}
		if !isCommand(word, commands) {
			return nil, unknownCommand(word, path, commands)
		}
		at := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(word) })
		path, flags, commands = append(path, word), commands[at].Flags, commands[at].Subcommands
	}
	out := slices.Concat(global, path, local)
	if len(positional) > 0 && !help { // the library would take the first one for the command to help with
		out = append(append(out, "--"), positional...)
	}
	return out, nil
}

func isCommand(word string, commands []*cli.Command) bool {
	return slices.ContainsFunc(commands, func(c *cli.Command) bool { return c.HasName(word) })
}

func unknownCommand(word string, path []string, commands []*cli.Command) error {
	return Unknown(strings.Join(append([]string{"command"}, path...), " "), word, names(commands))
}

// find returns the flag that a word names and whether it is the command's own. Help is everyone's and the version the program's, and neither
// is a flag of the tree.
func find(word string, global, own []cli.Flag, inCommand bool) (f cli.Flag, local bool, err error) {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	if name == "help" || name == "h" {
		return nil, inCommand, nil
	}
	if name == "version" || name == "v" {
		return nil, false, nil
	}
	is := func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }
	if inCommand {
		if at := slices.IndexFunc(own, is); at >= 0 {
			return own[at], true, nil
		}
	}
	if at := slices.IndexFunc(global, is); at >= 0 {
		return global[at], false, nil
	}
	known := flagNames(global)
	if inCommand {
		known = append(known, flagNames(own)...)
	}
	return nil, false, Unknown("flag", "--"+name, known)
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// number reports whether a word that begins with a dash is a negative number.
func number(word string) bool {
	return len(word) > 1 && word[1] >= '0' && word[1] <= '9'
}

func names(commands []*cli.Command) []string {
	var all []string
	for _, c := range commands {
		if !c.Hidden {
			all = append(all, c.Names()...)
		}
	}
	return all
}

func flagNames(flags []cli.Flag) []string {
	var all []string
	for _, f := range flags {
		for _, n := range f.Names() {
			all = append(all, "--"+n)
		}
	}
	return all
}
