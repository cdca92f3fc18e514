package handin

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/windowed-order-counter/lab/internal/args"
)

// HandIn is what somebody hands in: a recording, a zip that holds one, or a folder.
type HandIn struct {
	Name string // for people
	Path string
}

// suffix is what the name of a recording ends with, and own is what `lab` calls it.
const suffix, own = ".jsonl.gz", "run.jsonl.gz"

// Find lists the hand-ins of paths, in their order. A folder that has a recording directly in it or in its observations/ is a hand-in; of
// any other folder each child that may be one is. The error is an *args.UsageError.
func Find(paths []string) ([]HandIn, error) {
	var found []HandIn
	for _, path := range paths {
		path = filepath.Clean(path)
		info, err := os.Stat(path)
		if err != nil {
			return nil, args.Errorf("--from %s: %v", path, reason(err))
		}
		var children []fs.DirEntry
		if info.IsDir() && !holdsRecording(path) && !holdsRecording(filepath.Join(path, "observations")) {
			if children, err = os.ReadDir(path); err != nil {
				return nil, args.Errorf("--from %s: %v", path, reason(err))
			}
		}
		before := len(found)
		for _, child := range children {
			if mayBe(child) {
				found = append(found, HandIn{nameOf(child.Name()), filepath.Join(path, child.Name())})
			}
		}
		if len(found) == before { // opening it says what is missing
			found = append(found, HandIn{nameOf(path), path})
		}
		if len(paths) > 1 && len(children) > 0 {
			for i := range found[before:] {
				found[before+i].Name = filepath.Base(path) + "/" + found[before+i].Name
			}
		}
	}
	seen := map[string]int{}
	for _, h := range found {
		seen[h.Name]++
	}
	for i, h := range found {
		if seen[h.Name] > 1 {
			found[i].Name = h.Path
		}
	}
	return found, nil
}

// reason leaves out the path, which is named already.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// holdsRecording tells a folder that somebody hands in from one of hand-ins, whose files have the names of those people.
func holdsRecording(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, own))
	return err == nil // if there is another error, opening it says which
}

// isRecording goes by the name. Files that begin with a dot are those that macOS adds to a zip.
func isRecording(name string) bool {
	return strings.HasSuffix(name, suffix) && !strings.HasPrefix(name, ".")
}

func isZip(name string) bool {
	return strings.EqualFold(filepath.Ext(name), ".zip") && !strings.HasPrefix(name, ".")
}

func mayBe(child fs.DirEntry) bool {
	name := child.Name()
	if strings.HasPrefix(name, ".") || name == "__MACOSX" {
		return false
	}
	return child.IsDir() || child.Type()&fs.ModeSymlink != 0 || isZip(name) || isRecording(name)
}

// nameOf is a hand-in's name: the file's without its extensions, or that of the folder where the lab itself has written it.
func nameOf(path string) string {
	name := filepath.Base(path)
	if abs, err := filepath.Abs(path); err == nil && (name == own || name == "." || name == "..") {
		if name == own {
			abs = filepath.Dir(abs)
		}
		if filepath.Base(abs) == "observations" {
			abs = filepath.Dir(abs)
		}
		return filepath.Base(abs)
	}
	if isZip(name) {
		return strings.TrimSuffix(name, filepath.Ext(name))
	}
	return strings.TrimSuffix(name, suffix)
}
