//go:build !linux && !darwin

package store

// systemBootID reports that this system has no boot id that a process could read, so commits are synced.
func systemBootID() (string, bool) { return "", false }
