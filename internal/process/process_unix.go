//go:build unix

package process

import (
	"os"
	"os/exec"
	"syscall"
)

// OwnGroup makes cmd start in a process group of its own, so that the terminal's Ctrl-C does not reach it.
// Its parent decides when it stops.
func OwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Detach makes cmd start in a session of its own: it outlives the command and the terminal that started it. The caller gives it stdio that
// is nobody else's.
func Detach(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return nil
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// CanSuspend tells whether this system can suspend a process.
const CanSuspend = true

// Suspend keeps the process from running until Resume, without its being told (SIGSTOP). It is ErrGone if the process is gone.
func (id ID) Suspend() error {
	return id.act(func(p *os.Process) error { return p.Signal(syscall.SIGSTOP) })
}

// Resume lets a suspended process go on (SIGCONT).
func (id ID) Resume() error {
	return id.act(func(p *os.Process) error { return p.Signal(syscall.SIGCONT) })
}
