package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB of sys/proc.h

func startToken(pid int) (string, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	// EIO is how SysctlKinfoProc reports an empty answer.
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.ESRCH) {
		return "", ErrGone
	}
	if err != nil {
		return "", err
	}
	if info.Proc.P_stat == zombie {
		return "", ErrGone
	}
	t := info.Proc.P_starttime
	return fmt.Sprintf("%d.%06d", t.Sec, t.Usec), nil
}
