package handin

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/windowed-order-counter/lab/verify"
)

// The bounds of a hand-in. Nothing of it is ever written to disk.
const (
	maxFile      = verify.MaxFileBytes
	maxDirectory = 8 << 20 // of a zip's list of entries
	maxEntries   = 100_000 // of a zip or a folder
	maxCopies    = 8       // of a recording in one hand-in
)

// candidate is a file that may be the recording.
type candidate struct {
	name string
	mode fs.FileMode
	open func() (io.ReadCloser, error)
}

// load returns the recording of a hand-in, still compressed. The error says in one line which file is refused, and why.
func load(h HandIn) ([]byte, error) {
	info, err := os.Stat(h.Path)
	switch {
	case err != nil:
		return nil, reason(err)
	case info.IsDir():
		return loadFolder(h.Path)
	case !info.Mode().IsRegular():
		return nil, errors.New("it is neither a file nor a folder")
	case isZip(h.Path):
		return loadZipFile(h.Path, func() (*os.File, error) { return os.Open(h.Path) })
	}
	f, err := os.Open(h.Path)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	return readBounded(f)
}

// loadFolder looks for a recording anywhere in a folder, and does not leave it by a link. One that holds a zip in place of a recording is
// how some course systems keep what was handed in.
func loadFolder(folder string) ([]byte, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, reason(err)
	}
	defer root.Close()
	var found []candidate
	var zips []string
	entries := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch entries++; {
		case err != nil:
			return fmt.Errorf("%s: %w", verify.Printable(name), reason(err))
		case entries > maxEntries:
			return fmt.Errorf("it has more than %d files", maxEntries)
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir // .git, .lab
		case isRecording(d.Name()) && !d.IsDir():
			found = append(found, candidate{name, d.Type(), func() (io.ReadCloser, error) { return root.Open(name) }})
		case isZip(d.Name()) && d.Type().IsRegular():
			zips = append(zips, name)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0 && len(zips) == 1:
		data, err := loadZipFile(zips[0], func() (*os.File, error) { return root.Open(zips[0]) })
		if err != nil {
			err = fmt.Errorf("%s: %w", verify.Printable(zips[0]), err)
		}
		return data, err
	}
	return choose(found)
}

func loadZipFile(name string, open func() (*os.File, error)) ([]byte, error) {
	f, err := open()
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", verify.Printable(name))
	}
	return loadZip(f, info.Size())
}

// loadZip looks for a recording anywhere in a zip.
func loadZip(r io.ReaderAt, size int64) ([]byte, error) {
	directory := &boundedReaderAt{r, maxDirectory}
	z, err := zip.NewReader(directory, size)
	switch {
	case errors.Is(err, errDirectory):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("no zip: %w", err)
	case len(z.File) > maxEntries:
		return nil, fmt.Errorf("it has more than %d files", maxEntries)
	}
	directory.left = -1
	var found []candidate
	var nested string
	for _, f := range z.File {
		name := strings.ReplaceAll(f.Name, `\`, "/")
		base := path.Base(name)
		switch {
		case strings.HasPrefix(name, "/") || strings.HasPrefix(name[min(1, len(name)):], ":") || slices.Contains(strings.Split(name, "/"), ".."):
			return nil, fmt.Errorf("%s: a name that leads out of the zip", verify.Printable(f.Name))
		case strings.HasSuffix(name, "/") || !isRecording(base):
			if isZip(base) {
				nested = f.Name
			}
			continue
		case !utf8.ValidString(f.Name) || f.NonUTF8 && !isASCII(f.Name):
			return nil, fmt.Errorf("%s: a name that is not UTF-8: hand in the file itself", verify.Printable(f.Name))
		case f.Flags&0x1 != 0:
			return nil, fmt.Errorf("%s is encrypted", verify.Printable(f.Name))
		case f.UncompressedSize64 > maxFile:
			return nil, fmt.Errorf("%s: %w", verify.Printable(f.Name), errTooLarge)
		}
		found = append(found, candidate{f.Name, f.Mode(), f.Open})
	}
	if len(found) == 0 && nested != "" {
		return nil, fmt.Errorf("no recording (*%s) in it; %s is not looked into: hand it in by itself", suffix, verify.Printable(nested))
	}
	return choose(found)
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// errDirectory says that a zip's list of entries is no honest one.
var errDirectory = fmt.Errorf("no zip of a hand-in: its list of files is larger than %d MiB", maxDirectory>>20)

// boundedReaderAt reads so many bytes; any number if left is below 0.
type boundedReaderAt struct {
	io.ReaderAt
	left int
}

func (b *boundedReaderAt) ReadAt(p []byte, at int64) (int, error) {
	if b.left < 0 {
		return b.ReaderAt.ReadAt(p, at)
	}
	if b.left -= len(p); b.left < 0 {
		b.left = 0
		return 0, errDirectory
	}
	return b.ReaderAt.ReadAt(p, at)
}

// choose reads the one recording that there is. Copies of it are allowed.
func choose(found []candidate) ([]byte, error) {
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no recording (*%s) in it: `lab verify` writes observations/%s", suffix, own)
	case len(found) > maxCopies:
		return nil, fmt.Errorf("%d recordings in it, such as %s and %s", len(found), verify.Printable(found[0].name), verify.Printable(found[1].name))
	}
	var first []byte
	for i, c := range found {
		data, err := c.read()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", verify.Printable(c.name), err)
		}
		if i == 0 {
			first = data
		} else if !bytes.Equal(first, data) {
			return nil, fmt.Errorf("two recordings that are not the same: %s and %s", verify.Printable(found[0].name), verify.Printable(c.name))
		}
	}
	return first, nil
}

func (c candidate) read() ([]byte, error) {
	if !c.mode.IsRegular() {
		return nil, errors.New("it is no file but a link or the like")
	}
	r, err := c.open()
	if err != nil {
		return nil, reason(err)
	}
	defer r.Close()
	return readBounded(r)
}

var errTooLarge = fmt.Errorf("larger than %d MiB, which no recording is", maxFile>>20)

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLarge
	}
	return data, err
}
