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
	const state, threads, startTime = 0, 17, 19 // fields 3, 20 and 22 of proc(5), counted from the first one after the name
	if len(fields) <= startTime {
		return "", fmt.Errorf("unexpected /proc/%d/stat", pid)
	}
	// A process whose first thread has ended runs on while it has others; one that becomes another program by exec is seen like that too, if it
	// is not that thread which calls it.
	if s := fields[state][0]; s == 'X' || s == 'Z' && alone(fields[threads]) {
		return "", ErrGone
	}
	return string(fields[startTime]), nil
}

// alone tells whether a number of threads leaves only the first one: 1, and 0 for a process that is being removed.
func alone(threads []byte) bool { return string(threads) == "1" || string(threads) == "0" }
