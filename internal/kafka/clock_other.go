//go:build !linux

package kafka

import "time"

// SuspendClock is the wall clock where the platform has no clock that only goes forward and counts the time in which the machine was
// suspended. Go's monotonic clock stands still then, but a session at the coordinator goes on.
func SuspendClock() time.Time { return time.Now().Round(0) }
