// Package atomicfile replaces a small file as a whole: after a crash it holds the old content or the new one, never a part.
package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Write replaces path with data, with that mode. The data is on disk before the name points at it, and the name is on disk before Write returns.
func Write(path string, data []byte, mode fs.FileMode) error {
	folder := filepath.Dir(path)
	tmp, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(tmp.Name())))
	}
	if err := syncFolder(folder); err != nil {
		return fmt.Errorf("writing %s: syncing its folder: %w", path, err)
	}
	return nil
}

// WriteJSON replaces path with v as indented JSON, readable for all.
func WriteJSON(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return Write(path, append(raw, '\n'), 0o644)
}

// syncFolder makes a rename durable. Windows cannot open a folder for that, and journals the rename by itself.
func syncFolder(folder string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
