package streams

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// assignorName is the group's protocol name. Java's assignor is "stream", whose user data is Java's own: a member of ours must not be
// elected to speak it, so the name differs and the broker keeps both from one group at the same time (error 23).
const assignorName = "lab-streams"

// memberInfo is the user data of a member's subscription.
type memberInfo struct {
	Version   int      `json:"v"`
	ProcessID string   `json:"process"`
	Tasks     []string `json:"tasks,omitempty"` // tasks with state in the member's state folder
	// Offsets is how far the process's state files have followed their changelogs, see offsetSums, and Standbys the tasks that the member keeps
	// a copy of. Members of before there were standbys do not say.
	Offsets  map[string]int64 `json:"offsets,omitempty"`
	Standbys []string         `json:"standbys,omitempty"`
	// Exactly once: the member's own transactional ids, and those of all members of the last generation that it knows.
	Transactions []string `json:"txn,omitempty"`
	Known        []string `json:"known,omitempty"`
}

// assignmentInfo is the user data of an assignment: what each member carries into the next rebalance.
type assignmentInfo struct {
	Transactions []string `json:"txn,omitempty"`      // of all members
	Standbys     []string `json:"standbys,omitempty"` // of which the member has to keep a copy. The partitions are those of active tasks alone.
}

const memberInfoVersion = 1

// ProcessOf returns which process a member of a group belongs to, as the user data of its subscription tells: the process id of its state
// folder (store.ProcessIDIn). It is "" for a member of anything else.
func ProcessOf(userData []byte) string {
	m, err := decodeMemberInfo(userData)
	if err != nil {
		return ""
	}
	return m.ProcessID
}

// StandbysOf lists the tasks of which a member of a group keeps copies, as the user data of its assignment tells. There are none for a member
// of anything else.
func StandbysOf(userData []byte) []TaskID {
	var info assignmentInfo
	if err := json.Unmarshal(userData, &info); err != nil {
		return nil
	}
	return parseTaskIDs(info.Standbys)
}

func (m memberInfo) encode() ([]byte, error) {
	m.Version = memberInfoVersion
	return json.Marshal(m)
}

func decodeMemberInfo(b []byte) (memberInfo, error) {
	var m memberInfo
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("user data of the subscription: %w", err)
	}
	if m.Version != memberInfoVersion {
		return m, fmt.Errorf("user data of the subscription has version %d, this program knows %d", m.Version, memberInfoVersion)
	}
	return m, nil
}

// plannedTask is a task to be given to a member.
type plannedTask struct {
	id       TaskID
	stateful bool
}

// candidate is a member of the group, a stream thread, as the assignment sees it.
type candidate struct {
	id      string
	process string           // of which it is a thread
	owned   map[TaskID]bool  // owned before this rebalance
	stored  map[TaskID]bool  // has state on its disk
	sums    map[TaskID]int64 // how far that has got, see offsetSums
	standby []TaskID         // keeps copies of
}

// assignTasks gives each task to one member: first to processes, by the number of their threads, then to the threads of each. Both times
// stateful tasks are balanced by themselves first, and, within that, a task stays where it is, or goes where its state is, the most advanced
// first. So a task that has to leave its thread stays in the process while that has room for it. All threads of the group end up within one
// task of each other, stateful tasks alone too. The same input gives the same result.
func assignTasks(tasks []plannedTask, members []candidate) map[string][]TaskID {
	// By partition first, so that who has to give tasks away keeps some of each sub-topology.
	tasks = slices.SortedFunc(slices.Values(tasks), func(a, b plannedTask) int { return a.id.compareByPartition(b.id) })
	threads := map[string][]taker{} // by process
	for _, m := range members {
		threads[m.process] = append(threads[m.process], taker{id: m.id, weight: 1, owned: m.owned, stored: m.stored, sums: m.sums})
	}
	processes := make([]taker, 0, len(threads))
	for id, its := range threads {
		p := taker{id: id, weight: len(its), owned: map[TaskID]bool{}, stored: map[TaskID]bool{}, sums: map[TaskID]int64{}}
		for _, th := range its {
			maps.Copy(p.owned, th.owned)
			maps.Copy(p.stored, th.stored)
			maps.Copy(p.sums, th.sums)
		}
		processes = append(processes, p)
	}
	result := make(map[string][]TaskID, len(members))
	for process, share := range deal(tasks, processes) {
		for member, given := range deal(share, threads[process]) {
			for _, t := range given {
				result[member] = append(result[member], t.id)
			}
			slices.SortFunc(result[member], TaskID.compare)
		}
	}
	return result
}

// taker is who tasks are dealt to: a process, or a thread of one.
type taker struct {
	id     string
	weight int // takes tasks in proportion
	owned  map[TaskID]bool
	stored map[TaskID]bool
	sums   map[TaskID]int64
}

// deal gives each task to one taker. Their order does not matter, that of the tasks does.
func deal(tasks []plannedTask, takers []taker) map[string][]plannedTask {
	result := make(map[string][]plannedTask, len(takers))
	if len(takers) == 0 {
		return result
	}
	takers = slices.SortedFunc(slices.Values(takers), func(a, b taker) int { return cmp.Compare(a.id, b.id) })
	weights := 0
	for _, k := range takers {
		weights += k.weight
	}
	total := 0
	for _, stateful := range []bool{true, false} {
		var open []plannedTask
		for _, t := range tasks {
			if t.stateful == stateful {
				open = append(open, t)
			}
		}
		total += len(open)
		// Each taker may hold its share rounded down, and this many of them one more, where the share is no whole number.
		share := func(k taker) int { return total * k.weight / weights }
		extra := total
		for _, k := range takers {
			extra -= max(share(k), len(result[k.id]))
		}
		room := func(k taker) int {
			switch n := len(result[k.id]); {
			case n < share(k):
				return 2
			case n == share(k) && extra > 0 && total*k.weight%weights > 0:
				return 1
			default:
				return 0
			}
		}
		give := func(k taker, t plannedTask) {
			if room(k) == 1 {
				extra--
			}
			result[k.id] = append(result[k.id], t)
		}
		for _, wants := range []func(taker, TaskID) bool{
			func(k taker, t TaskID) bool { return k.owned[t] },
			func(k taker, t TaskID) bool { return k.stored[t] },
		} {
			open = slices.DeleteFunc(open, func(t plannedTask) bool {
				best := -1
				for i, k := range takers {
					if wants(k, t.id) && room(k) > 0 && (best < 0 || k.sums[t.id] > takers[best].sums[t.id]) {
						best = i
					}
				}
				if best < 0 {
					return false
				}
				give(takers[best], t)
				return true
			})
		}
		for _, t := range open {
			// The sub-topologies of an application differ in what they cost, so each is spread.
			alike := func(k taker) (n int) {
				for _, given := range result[k.id] {
					if given.id.Subtopology == t.id.Subtopology {
						n++
					}
				}
				return n
			}
			give(slices.MinFunc(takers, func(a, b taker) int {
				return cmp.Or(
					cmp.Compare(room(b), room(a)),
					cmp.Compare(len(result[a.id])*b.weight, len(result[b.id])*a.weight),
					cmp.Compare(alike(a)*b.weight, alike(b)*a.weight),
				)
			}), t)
		}
	}
	return result
}
