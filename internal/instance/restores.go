package instance

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/streams"
)

func (r *reporter) restoreStart(s streams.RestoreStart) {
	if s.Reason != "" {
		r.print(fmt.Sprintf("local state of %s in task %s is not used: %s", s.Store, s.Task, s.Reason))
	}
	r.write(&journal.RestoreStart{Store: s.Store, Partition: s.Changelog.String(), From: s.From, To: s.To, Reason: s.Reason})
}

// restoreProgress goes to the journal and, on a terminal, into a bar: as lines it would be many.
func (r *reporter) restoreProgress(p streams.RestoreProgress) {
	r.journal.Write(&journal.RestoreProgress{
		Store: p.Store, Partition: p.Changelog.String(), Restored: p.Restored,
		Position: p.Position, To: p.To, Rate: p.Rate, ETA: p.ETA.Milliseconds(),
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bar.show(p)
}

func (r *reporter) restoreSuspended(p streams.RestoreProgress) {
	r.hideBar(p.Changelog)
	r.write(&journal.RestoreSuspended{Store: p.Store, Partition: p.Changelog.String(), Restored: p.Restored, Position: p.Position, To: p.To})
}

func (r *reporter) restoreEnd(s streams.RestoreEnd) {
	r.hideBar(s.Changelog)
	r.write(&journal.RestoreEnd{Store: s.Store, Partition: s.Changelog.String(), Restored: s.Restored})
}

func (r *reporter) hideBar(changelog streams.TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bar.remove(changelog)
}

// restoreBar shows the restores that take long as one progress bar at the bottom of a terminal. Its owner keeps calls apart.
type restoreBar struct {
	terminal io.Writer // nil: no bar
	bar      *progressbar.ProgressBar
	restores map[streams.TopicPartition]streams.RestoreProgress
}

func (b *restoreBar) show(p streams.RestoreProgress) {
	if b.terminal == nil {
		return
	}
	if b.restores == nil {
		b.restores = map[streams.TopicPartition]streams.RestoreProgress{}
	}
	b.restores[p.Changelog] = p
	b.draw()
}

func (b *restoreBar) remove(changelog streams.TopicPartition) {
	b.clear()
	b.bar = nil // the next one has another length
	delete(b.restores, changelog)
}

// clear makes room for a line. The bar comes back with the next progress.
func (b *restoreBar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear() // a terminal that has gone away stops nothing
	}
}

func (b *restoreBar) draw() {
	var done, all int64
	var rate float64
	var eta time.Duration
	for _, p := range b.restores {
		done, all = done+p.Position-p.From, all+p.To-p.From
		rate, eta = rate+p.Rate, max(eta, p.ETA)
	}
	if b.bar == nil {
		b.bar = progressbar.NewOptions64(all, progressbar.OptionSetWriter(b.terminal), progressbar.OptionSetWidth(30),
			// The engine's own figures are shown: the bar's would begin at its first drawing.
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionClearOnFinish())
	}
	b.bar.ChangeMax64(all)
	_ = b.bar.Set64(done)
	what := fmt.Sprintf("%d changelogs", len(b.restores))
	if len(b.restores) == 1 {
		what = slices.Collect(maps.Keys(b.restores))[0].String()
	}
	b.bar.Describe(fmt.Sprintf("restoring %s: %.0f records/s, %d to go, %s left", what, rate, all-done, eta.Round(time.Second)))
}
