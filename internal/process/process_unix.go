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
