package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/windowed-order-counter/lab/internal/atomicfile"
)

// state.mark says whether the Bolt file beside it can be trusted. Commits are not synced, so after the machine (not only
// the process) went down, pages of the file may be missing or torn, and opening such a file can panic.
//
//	state.mark            Bolt file
//	clean                 synced and closed, or each commit synced (no boot id): open it
//	open <this boot>      the process died, the page cache did not: open it
//	open <other boot>     the machine went down: delete it unread
//	missing, other text   unknown: delete it unread
//
// "open" is durable before the first commit that is not synced, "clean" is written after the sync at the end.
const (
	markFile     = "state.mark"
	markClean    = "clean"
	markOpen     = "open "
	maxMarkBytes = 4096
)

// readMark returns the mark's text, "" if there is none.
func readMark(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if len(b) > maxMarkBytes {
		b = b[:maxMarkBytes]
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}

func writeMark(path, text string) error { return atomicfile.Write(path, []byte(text+"\n"), fileMode) }

func openMark(bootID string) string { return markOpen + bootID }

// distrust says why a Bolt file with this mark must not be opened, "" if it may.
func distrust(mark, bootID string, known bool) string {
	boot, open := strings.CutPrefix(mark, markOpen)
	switch {
	case mark == markClean, open && known && boot == bootID:
		return ""
	case mark == "":
		return markFile + " is missing"
	case open && known:
		return "the machine was restarted while the file was open, and its commits were not synced"
	case open:
		return "the file was not closed, and this system has no boot id to tell a killed process from a lost machine"
	}
	return fmt.Sprintf("%s says %q", markFile, mark)
}
