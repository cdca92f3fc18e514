package kafka

import (
	"time"

	"golang.org/x/sys/unix"
)

// SuspendClock is a clock that only goes forward and counts the time in which the machine was suspended, unlike Go's monotonic clock. A
// session at the coordinator goes on while we sleep. Its zero is the boot: only differences mean something.
func SuspendClock() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Now().Round(0)
	}
	return time.Unix(ts.Unix())
}
