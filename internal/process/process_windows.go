package process

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/windows"
)

// OwnGroup makes cmd start in a process group of its own, so that the console's Ctrl-C does not reach it. Its
// parent decides when it stops.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// Detach makes cmd start without a console: it outlives the command that started it. The caller gives it stdio that is nobody else's.
func Detach(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
	return nil
}

func startToken(pid int) (string, error) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE, false, uint32(pid))
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return "", ErrGone
	}
	if err != nil {
		return "", err
	}
	defer windows.CloseHandle(h) //nolint:errcheck // nothing depends on it
	// A process that has ended stays openable while someone holds a handle; its handle is signalled then.
	if event, err := windows.WaitForSingleObject(h, 0); err == nil && event == windows.WAIT_OBJECT_0 {
		return "", ErrGone
	}
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return "", err
	}
	return strconv.FormatInt(created.Nanoseconds(), 10), nil
}

// terminate sends Ctrl-Break to the process group that OwnGroup made. It works within one console only.
func terminate(p *os.Process) error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.Pid))
}

// CanSuspend tells whether this system can suspend a process.
const CanSuspend = false

// Suspend is errors.ErrUnsupported: Windows has no signal for it.
func (id ID) Suspend() error { return errors.ErrUnsupported }

// Resume is errors.ErrUnsupported.
func (id ID) Resume() error { return errors.ErrUnsupported }
