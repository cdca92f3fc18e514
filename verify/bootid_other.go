//go:build !linux && !darwin

package verify

// bootID would identify this boot of the machine. Nothing does here, so no state file is left marked open either.
func bootID() string { return "" }
