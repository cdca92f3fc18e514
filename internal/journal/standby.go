package journal

import (
	"fmt"
	"slices"
	"strings"
)

// Standbys is the tasks of which an instance keeps a warm copy, whenever they have changed. A task's partitions are the changelogs that are
// followed.
type Standbys struct {
	Standby []Task `json:"standby"`
}

// StandbyCaughtUp is a standby's store that has followed its changelog to the end, for the first time since it was assigned.
type StandbyCaughtUp struct {
	Task      string `json:"task"`
	Store     string `json:"store"`
	Partition string `json:"partition"`
	Position  int64  `json:"position"`
}

// Line is worded as that of the active tasks.
func (p *Standbys) Line(e *Event) string {
	tasks := make([]string, 0, len(p.Standby))
	for _, t := range p.Standby {
		tasks = append(tasks, t.ID+"=["+strings.Join(t.Partitions, ", ")+"]")
	}
	slices.Sort(tasks)
	return fmt.Sprintf("standby tasks %s {%s}", e.Instance, strings.Join(tasks, ", "))
}

// Line says where the copy is.
func (p *StandbyCaughtUp) Line(e *Event) string {
	return fmt.Sprintf("standby caught up instance=%s store=%s partition=%s position=%d", e.Instance, p.Store, p.Partition, p.Position)
}

func (p *Standbys) in(e *Event)        { e.Standbys = p }
func (p *StandbyCaughtUp) in(e *Event) { e.StandbyCaughtUp = p }
