package broker

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

// never is a hundred years in milliseconds: long enough to mean never, and short enough for kfake to turn into a time.Duration.
const never = 100 * 365 * 24 * 60 * 60 * 1000

// EmbeddedConfigs returns the broker configs of every embedded broker, the background one and those of tests.
//
//   - log.retention.ms: kfake applies retention to compacted topics too, and the lab's event times lie in the past, so anything but
//     -1 deletes results.
//   - log.cleaner.backoff.ms: kfake's compaction ignores open transactions, so its tick is put off for ever.
//   - group.initial.rebalance.delay.ms: kfake never delays the first rebalance. It is set so that a DescribeConfigs tells the truth.
func EmbeddedConfigs() map[string]string {
	return map[string]string{
		"log.retention.ms":                 "-1",
		"log.cleaner.backoff.ms":           strconv.FormatInt(never, 10),
		"group.initial.rebalance.delay.ms": "0",
	}
}

// logger passes kfake's log on. What kfake calls information is a line per group or transaction step, so it is debug here.
type logger struct{ to *slog.Logger }

func (l logger) Logf(level kfake.LogLevel, format string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case kfake.LogLevelError:
		to = slog.LevelError
	case kfake.LogLevelWarn:
		to = slog.LevelWarn
	case kfake.LogLevelNone, kfake.LogLevelInfo, kfake.LogLevelDebug:
	}
	if l.to.Enabled(context.Background(), to) {
		l.to.Log(context.Background(), to, fmt.Sprintf(format, args...), "from", "kfake")
	}
}
