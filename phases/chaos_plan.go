package phases

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/windowed-order-counter/lab/topology"
)

// strikeKind is what befalls an instance.
type strikeKind string

const (
	strikeKill    strikeKind = "kill -9"
	strikePause   strikeKind = "pause"
	strikeRestart strikeKind = "clean restart"
	strikeCrash   strikeKind = "crash point"
)

// The bounds of what a plan draws. A round begins once the group is stable, so these are times in which it is at work.
const (
	leastSettle = 200 * time.Millisecond // before the first strike of a round
	mostSettle  = 1200 * time.Millisecond
	mostSpread  = 800 * time.Millisecond // between the first strike of a round and the others
	mostDown    = 2 * time.Second        // until an instance is started again
	// mostVictims is how many instances a round strikes. A group waits out the session of a dead member once for all that died together, so
	// several in a round are also what makes fifty kills last minutes instead of a quarter of an hour.
	mostVictims = 3
)

// planned is one strike of a plan.
type planned struct {
	kind   strikeKind
	victim int           // the instance's index
	after  time.Duration // since the group was stable
	down   time.Duration // until it is started again, or may go on
	point  string        // of a crash point
}

// plan is the strikes of a run by rounds, each with its strikes by time.
type plan [][]planned

// newPlan draws the plan of a seed. It depends on the seed, the numbers and the session timeout, and on nothing else, so that a run can be
// done again.
func newPlan(o ChaosOptions, seed uint64, session time.Duration) plan {
	rnd := rand.New(rand.NewPCG(seed, 0))
	var all []planned
	for kind, n := range map[strikeKind]int{strikeKill: o.Kills, strikePause: o.Pauses, strikeRestart: o.Restarts, strikeCrash: o.CrashPoints} {
		for range n {
			all = append(all, planned{kind: kind})
		}
	}
	slices.SortFunc(all, func(a, b planned) int { return cmp.Compare(a.kind, b.kind) })
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rnd.Int64N(int64(most-least)))
	}
	points := topology.CrashPoints(o.Guarantee)
	crashes := 0
	var p plan
	for len(all) > 0 {
		n := min(1+rnd.IntN(mostVictims), o.Instances, len(all))
		round := slices.Clone(all[:n])
		all = all[n:]
		settle := between(leastSettle, mostSettle)
		victims := rnd.Perm(o.Instances)
		for i := range round {
			s := &round[i]
			s.victim, s.after, s.down = victims[i], settle, between(0, mostDown)
			if i > 0 {
				s.after += between(0, mostSpread)
			}
			switch s.kind {
			case strikePause:
				// Half of the pauses end before the group gives the instance up, and half after that.
				if s.down = between(session/10, session*8/10); rnd.IntN(2) == 0 {
					s.down = session + between(session/10, session/2)
				}
			case strikeCrash:
				s.point = points[crashes%len(points)]
				crashes++
			case strikeKill, strikeRestart:
			}
		}
		slices.SortFunc(round, func(a, b planned) int { return cmp.Compare(a.after, b.after) })
		p = append(p, round)
	}
	return p
}
