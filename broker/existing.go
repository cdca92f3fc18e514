package broker

import (
	"context"
	"fmt"
)

// existing is a cluster that someone else runs: found, never started and never stopped.
type existing struct{ cfg Config }

// Up returns once the cluster has answered.
func (e existing) Up(ctx context.Context) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.StartTimeout)
	defer cancel()
	if err := e.cfg.Probe(ctx, e.cfg.Bootstrap); err != nil {
		return Record{}, err // it names the address, and what is wrong: that nobody is there, or that we do not come together
	}
	return e.record(), nil
}

// Status returns the cluster's address unasked: the request that follows tells better than a probe whether it answers.
func (e existing) Status(context.Context) (Record, error) { return e.record(), nil }

// Down refuses.
func (e existing) Down(context.Context, bool) error {
	return fmt.Errorf("the broker on %s: %w", e.cfg.Bootstrap, ErrNotOurs)
}

func (e existing) record() Record { return Record{Kind: Existing, Bootstrap: e.cfg.Bootstrap} }
