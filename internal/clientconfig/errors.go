package clientconfig

import (
	"errors"
	"strings"
)

// Error says that a property, or the file that should hold some, cannot be used. It never holds the value of a secret.
type Error struct {
	Key    string // "" for a whole file
	Source string // a path, the environment as NAME, an argument; "" for one that is missing
	Reason string
	Err    error // may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Key == "" {
		b.WriteString("client properties " + e.Source + " ")
	} else {
		b.WriteString("property " + e.Key)
		if e.Source != "" {
			b.WriteString(" of " + e.Source)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Reason)
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns what went wrong below.
func (e *Error) Unwrap() error { return e.Err }

var errEscape = errors.New(`\u without four hexadecimal digits`)
