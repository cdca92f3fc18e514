package streams

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPlaceStandbys(t *testing.T) {
	counting := []TaskID{{1, 0}, {1, 1}}
	for _, tc := range []struct {
		name     string
		hosts    []standbyHost
		replicas int
		want     map[string][]TaskID
		short    int
	}{
		{"none asked for", []standbyHost{{member: "a", active: counting}, {member: "b"}}, 0, map[string][]TaskID{}, 0},
		{"alone there is nowhere to go", []standbyHost{{member: "a", active: counting}}, 1, map[string][]TaskID{}, 2},
		{"each keeps the other's", []standbyHost{{member: "a", active: counting[:1]}, {member: "b", active: counting[1:]}}, 1,
			map[string][]TaskID{"a": {{1, 1}}, "b": {{1, 0}}}, 0},
		{"never in another thread of the same process", []standbyHost{
			{member: "a1", process: "a", active: counting[:1]}, {member: "a2", process: "a", active: counting[1:]},
		}, 1, map[string][]TaskID{}, 2},
		{"one per process, over its threads", []standbyHost{
			{member: "a", process: "a", active: counting}, {member: "b1", process: "b"}, {member: "b2", process: "b"},
		}, 2, map[string][]TaskID{"b1": {{1, 0}}, "b2": {{1, 1}}}, 2},
		{"where the state is", []standbyHost{
			{member: "a", active: counting[:1]}, {member: "b"}, {member: "c", sums: map[TaskID]int64{{1, 0}: 7}},
		}, 1, map[string][]TaskID{"c": {{1, 0}}}, 0},
		{"where the most of it is", []standbyHost{
			{member: "a", active: counting[:1]}, {member: "b", sums: map[TaskID]int64{{1, 0}: 8}}, {member: "c", sums: map[TaskID]int64{{1, 0}: 7}},
		}, 1, map[string][]TaskID{"b": {{1, 0}}}, 0},
		{"a copy that is kept stays, as advanced as another may be", []standbyHost{
			{member: "a", active: counting[:1]}, {member: "b", sums: map[TaskID]int64{{1, 0}: 8}}, {member: "c", standby: counting[:1]},
		}, 1, map[string][]TaskID{"c": {{1, 0}}}, 0},
		{"one of two copies makes room for balance", []standbyHost{
			{member: "a", active: counting}, {member: "b", standby: counting}, {member: "c"},
		}, 1, map[string][]TaskID{"b": {{1, 1}}, "c": {{1, 0}}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tasks []TaskID
			for _, h := range tc.hosts {
				tasks = append(tasks, h.active...)
			}
			got, short := placeStandbys(tasks, tc.hosts, tc.replicas)
			if diff := cmp.Diff(tc.want, got); diff != "" || short != tc.short {
				t.Errorf("%d are missing, want %d; placed (-want +got):\n%s", short, tc.short, diff)
			}
		})
	}
}

// Whatever the group looks like: each task has its standbys, each on a process of its own and none on the active task's; no standby could
// move to a process that would be the less loaded; the order of members does not matter; and once done, nothing moves.
func TestPlaceStandbysInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.IntRange(0, 3).Draw(t, "replicas")
		var tasks []TaskID
		for sub := range rapid.IntRange(1, 3).Draw(t, "sub-topologies") {
			for p := range rapid.IntRange(1, 6).Draw(t, "partitions") {
				tasks = append(tasks, TaskID{sub, int32(p)})
			}
		}
		var hosts []standbyHost
		processes := rapid.IntRange(1, 5).Draw(t, "processes")
		for p := range processes {
			for th := range rapid.IntRange(1, 3).Draw(t, "threads") {
				hosts = append(hosts, standbyHost{member: fmt.Sprintf("p%d-%d", p, th), process: fmt.Sprint("p", p), sums: map[TaskID]int64{}})
			}
		}
		owner := map[TaskID]string{}
		for _, task := range tasks {
			h := &hosts[rapid.IntRange(0, len(hosts)-1).Draw(t, "owner")]
			h.active = append(h.active, task)
			owner[task] = h.process
			for i := range hosts {
				if rapid.Bool().Draw(t, "stored") {
					hosts[i].sums[task] = rapid.Int64Range(0, 3).Draw(t, "sum")
				}
				if rapid.IntRange(0, 4).Draw(t, "kept") == 0 {
					hosts[i].standby = append(hosts[i].standby, task)
				}
			}
		}

		got, short := placeStandbys(tasks, hosts, replicas)
		on := map[TaskID][]string{}
		load, threads := map[string]int{}, map[string]int{}
		for _, h := range hosts {
			threads[h.process]++
			load[h.process] += len(got[h.member])
			for _, task := range got[h.member] {
				on[task] = append(on[task], h.process)
			}
		}
		for _, task := range tasks {
			slices.Sort(on[task])
			if len(slices.Compact(slices.Clone(on[task]))) != len(on[task]) || slices.Contains(on[task], owner[task]) {
				t.Fatalf("task %s of %s has standbys on %v", task, owner[task], on[task])
			}
			if want := min(replicas, processes-1); len(on[task]) != want {
				t.Fatalf("task %s has %d standbys, not %d", task, len(on[task]), want)
			}
			for _, p := range on[task] {
				for q := range threads {
					if q != owner[task] && !slices.Contains(on[task], q) && (load[q]+1)*threads[p] < load[p]*threads[q] {
						t.Fatalf("the standby of %s is on %s with %d standbys in %d threads, and might be on %s with %d in %d",
							task, p, load[p], threads[p], q, load[q], threads[q])
					}
				}
			}
		}
		if want := len(tasks) * max(0, replicas-processes+1); short != want {
			t.Fatalf("%d are missing, not %d", short, want)
		}
		for _, h := range hosts {
			for _, o := range hosts {
				if o.process == h.process && len(got[h.member])-len(got[o.member]) > 1 {
					t.Fatalf("of one process %s has %d standbys and %s %d", h.member, len(got[h.member]), o.member, len(got[o.member]))
				}
			}
		}

		shuffled := rapid.Permutation(hosts).Draw(t, "order")
		if again, _ := placeStandbys(tasks, shuffled, replicas); !cmp.Equal(got, again) {
			t.Fatalf("another order of members gives another placement (-first +second):\n%s", cmp.Diff(got, again))
		}
		for i := range hosts {
			hosts[i].standby = got[hosts[i].member]
		}
		if again, _ := placeStandbys(tasks, hosts, replicas); !cmp.Equal(got, again) {
			t.Fatalf("standbys moved without a reason (-first +second):\n%s", cmp.Diff(got, again))
		}
	})
}
