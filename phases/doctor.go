package phases

import (
	"context"
	"time"

	"github.com/windowed-order-counter/lab/internal/doctor"
)

// Doctor looks at what a run needs, and changes nothing.
func Doctor(ctx context.Context, cfg Config, version string) (doctor.Report, error) {
	return doctor.Examine(ctx, doctor.Options{
		Workspace: cfg.Workspace, Connect: cfg.Connect, Version: version, Now: time.Now(), EarliestStart: earliestStart(), FirstEvent: firstBase,
	})
}
