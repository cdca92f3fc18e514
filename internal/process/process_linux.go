package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// startToken reads the start time in clock ticks since boot: field 22 of /proc/PID/stat, proc_pid_stat(5).
func startToken(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return "", ErrGone
	}
	if err != nil {
		return "", err
	}
	// Field 2 is the name in parentheses, and a name may hold spaces and parentheses itself.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, startTime = 0, 19 // fields 3 and 22 of proc(5), counted from the first one after the name
	if len(fields) <= startTime {
		return "", fmt.Errorf("unexpected /proc/%d/stat", pid)
	}
	if s := fields[state][0]; s == 'Z' || s == 'X' {
		return "", ErrGone
	}
	return string(fields[startTime]), nil
}
