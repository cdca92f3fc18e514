package instance

import (
	"maps"

	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/streams"
)

func (r *reporter) standbysAssigned(tasks []streams.Task) {
	p := &journal.Standbys{}
	followed := map[streams.TopicPartition]bool{}
	for _, t := range tasks {
		task := journal.Task{ID: t.ID.String()}
		for _, tp := range t.Partitions {
			task.Partitions = append(task.Partitions, tp.String())
			followed[tp] = true
		}
		p.Standby = append(p.Standby, task)
	}
	r.mu.Lock()
	r.standbys = p
	maps.DeleteFunc(r.caughtUp, func(tp streams.TopicPartition, _ bool) bool { return !followed[tp] })
	r.mu.Unlock()
	r.write(p)
}

// standbyUpdated tells of the first batch only that brings a store to the end of its changelog: there is one for each commit of the owner.
func (r *reporter) standbyUpdated(u streams.StandbyUpdate) {
	if u.Position < u.End {
		return
	}
	r.mu.Lock()
	known := r.caughtUp[u.Changelog]
	r.caughtUp[u.Changelog] = true
	r.mu.Unlock()
	if !known {
		r.write(&journal.StandbyCaughtUp{Task: u.Task.String(), Store: u.Store, Partition: u.Changelog.String(), Position: u.Position})
	}
}

// owned is the lines that tell what the instance works on and what it keeps copies of, as far as it knows.
func (r *reporter) owned() (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &journal.Event{Instance: r.instance}
	if r.tasks != nil {
		lines = append(lines, r.tasks.Line(e))
	}
	if r.standbys != nil && len(r.standbys.Standby) > 0 {
		lines = append(lines, r.standbys.Line(e))
	}
	return lines
}
