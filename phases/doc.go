// Package phases runs the lab: a phase is a row of steps, each with what it does and why, that start counters as child processes, publish
// orders, wait for what must come of them, and write what was seen to observations/. At its end a phase is graded by package verify, which
// looks at the topics and not at what happened here.
//
// File map: run.go (which phases run, and how one is begun, gone on with and ended), phase1.go to phase6.go (the steps), counter.go (child
// processes), feed.go and orders.go (publishing, all at once and one by one), watch.go (waiting for what comes of it), explain.go (crashes
// that explain a count), evidence.go (files), status.go, late.go and clean.go (the commands of that name).
package phases
