package console

import "os"

// Screen is a file that tells how wide it is, for text that is to fit.
type Screen struct{ *os.File }

// Columns is the width of a terminal, 0 of any other file.
func (s Screen) Columns() int { return columns(s.File) }
