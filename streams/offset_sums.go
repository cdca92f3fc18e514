package streams

import (
	"errors"
	"fmt"
	"sync"

	"github.com/windowed-order-counter/lab/store"
)

// offsetSums knows how far the stores in the state folder have followed their changelogs, as one number for each task: the sum of their
// positions (Kafka Streams 4.3.1, TaskManager.getTaskOffsetSums). Members report it, so that a task goes to where the least is to restore.
// It is a hint: whether a file can be used at all is found out when the task begins.
type offsetSums struct {
	mu  sync.Mutex
	sum map[TaskID]int64
}

// load reads the sums of the state files, none of which may be open.
func (o *offsetSums) load(dir *store.StateDir) error {
	names, err := dir.Tasks()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		id, ok := parseTaskID(name)
		if !ok {
			continue
		}
		positions, err := store.PositionsIn(dir.TaskDir(name))
		if err != nil {
			errs = append(errs, fmt.Errorf("task %s: %w", id, err))
		}
		o.set(id, positions)
	}
	return errors.Join(errs...)
}

// note takes the sum of a task from its open file.
func (o *offsetSums) note(id TaskID, db *store.DB) { o.set(id, db.Positions()) }

func (o *offsetSums) set(id TaskID, positions map[string]store.Position) {
	sum := int64(0)
	for _, p := range positions {
		sum += p.Next
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sum == nil {
		o.sum = map[TaskID]int64{}
	}
	o.sum[id] = sum
}

// byName is the sum of each task that has a folder, by the task's text.
func (o *offsetSums) byName() map[string]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[string]int64, len(o.sum))
	for id, sum := range o.sum {
		out[id.String()] = sum
	}
	return out
}

// parseTaskID reads the text of a TaskID.
func parseTaskID(text string) (id TaskID, ok bool) {
	_, err := fmt.Sscanf(text, "%d_%d", &id.Subtopology, &id.Partition)
	return id, err == nil && id.Subtopology >= 0 && id.Partition >= 0 && id.String() == text
}

// parseTaskIDs passes over what is no TaskID: members of other versions may say anything.
func parseTaskIDs(texts []string) (ids []TaskID) {
	for _, text := range texts {
		if id, ok := parseTaskID(text); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func formatTaskIDs(ids []TaskID) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return texts
}
