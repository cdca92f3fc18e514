//go:build unix

package process

import (
	"os"
	"runtime"
	"syscall"
)

// PeakMemory is the largest resident set that an ended process had, in bytes; 0 if the system does not tell.
func PeakMemory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	peak := int64(usage.Maxrss) //nolint:unconvert // it is an int32 on some systems
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return peak // in bytes already
	}
	return peak << 10
}
