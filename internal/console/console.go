// Package console is the lab's conversation with a person: steps with a pause before each, and colour where it can be seen.
package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Config says who listens.
type Config struct {
	In  io.Reader
	Out io.Writer // the text
	// Interactive waits for Enter before each step. Otherwise nothing waits.
	Interactive bool
	Color       bool
}

// Console is safe for concurrent use.
type Console struct {
	cfg   Config
	lines func() <-chan string

	mu sync.Mutex
}

// New returns a console.
func New(cfg Config) *Console {
	return &Console{
		cfg: cfg,
		// One goroutine reads input from the first pause to the end of the process, as a read of a terminal cannot be cancelled. It is the
		// only one in the program that nobody waits for.
		lines: sync.OnceValue(func() <-chan string {
			lines := make(chan string)
			go func() {
				defer close(lines)
				for s := bufio.NewScanner(cfg.In); s.Scan(); {
					lines <- s.Text()
				}
			}()
			return lines
		}),
	}
}

// Printf writes one line.
func (c *Console) Printf(format string, args ...any) { c.print("", fmt.Sprintf(format, args...)) }

// Title writes a heading.
func (c *Console) Title(format string, args ...any) {
	c.print(bold, fmt.Sprintf(format, args...))
}

// Warnf writes one line that asks for attention.
func (c *Console) Warnf(format string, args ...any) {
	c.print(yellow, "warning: "+fmt.Sprintf(format, args...))
}

// Step announces what comes next and why, and waits for Enter. It is ErrEnded if nobody can press it any more.
func (c *Console) Step(ctx context.Context, what, why string) error {
	c.print(cyan, "→ "+what)
	c.print("", "  "+why)
	if !c.cfg.Interactive {
		return ctx.Err()
	}
	c.prompt("  [Enter] ")
	_, err := c.answer(ctx)
	if err != nil {
		c.prompt("\n") // what comes next begins a line
	}
	return err
}

// Confirm asks a question whose answer is yes or no. Who wants no pauses has said yes to everything.
func (c *Console) Confirm(ctx context.Context, question string) (bool, error) {
	if !c.cfg.Interactive {
		return true, ctx.Err()
	}
	for {
		c.prompt("  " + question + " [y/n] ")
		line, err := c.answer(ctx)
		if err != nil {
			c.prompt("\n")
			return false, err
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		case "n", "no":
			return false, nil
		}
	}
}

// ErrEnded says that the input has ended: nobody is there any more to press Enter.
var ErrEnded = errors.New("the input has ended")

// answer waits for a line.
func (c *Console) answer(ctx context.Context) (string, error) {
	select {
	case line, ok := <-c.lines():
		if !ok {
			return "", ErrEnded
		}
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// The colours, as ECMA-48 select graphic rendition.
const (
	bold   = "\x1b[1m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
	reset  = "\x1b[0m"
)

func (c *Console) print(color, text string) {
	if c.cfg.Color && color != "" {
		text = color + text + reset
	}
	c.prompt(text + "\n")
}

// prompt writes text. A reader that has gone away is no error here: the command's own output will meet it.
func (c *Console) prompt(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.cfg.Out, text)
}
