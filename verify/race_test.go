//go:build race

package verify

// raceEnabled leaves out what has no second goroutine and takes minutes with the race detector.
const raceEnabled = true
