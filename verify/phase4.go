package verify

import "context"

// Phase 4: two orders of one id found the status that was current when each came, and one of another id found none. All of them are counted.
var phase4 = phase{
	number:     4,
	ran:        func(g *grader) (bool, string) { return g.in.sent(noStatusOrder) },
	milestones: func(_ *input, rs *repartition) []milestone { return rs.milestones(phase4Orders) },
	grade: func(ctx context.Context, g *grader) []Check {
		return g.gradeByHand(ctx, 4, phase4Orders, func() []Check {
			return []Check{g.checkJoined(ctx, joinsOfPhase4), g.checkJoinLog(ctx), g.checkStatusLog(ctx)}
		})
	},
}
