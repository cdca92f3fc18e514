package streams

import (
	"cmp"
	"encoding/json"
	"fmt"
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
	// Exactly once: the member's own transactional ids, and those of all members of the last generation that it knows.
	Transactions []string `json:"txn,omitempty"`
	Known        []string `json:"known,omitempty"`
}

// assignmentInfo is the user data of an assignment: what each member carries into the next rebalance.
type assignmentInfo struct {
	Transactions []string `json:"txn,omitempty"` // of all members
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

// candidate is a member of the group as the assignment sees it.
type candidate struct {
	id     string
	owned  map[TaskID]bool // owned before this rebalance
	stored map[TaskID]bool // has state on its disk
}

// assignTasks gives each task to one member: balanced to within one task, stateful tasks balanced by themselves first, and, within that, a
// task stays with its owner, or goes to a member that has its state. The same input gives the same result.
func assignTasks(tasks []plannedTask, members []candidate) map[string][]TaskID {
	members = slices.SortedFunc(slices.Values(members), func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	// By partition first, so that a member that has to give tasks away keeps some of each sub-topology.
	tasks = slices.SortedFunc(slices.Values(tasks), func(a, b plannedTask) int {
		return cmp.Or(cmp.Compare(a.id.Partition, b.id.Partition), cmp.Compare(a.id.Subtopology, b.id.Subtopology))
	})
	result := make(map[string][]TaskID, len(members))
	if len(members) == 0 {
		return result
	}
	total := 0
	for _, stateful := range []bool{true, false} {
		var open []TaskID
		for _, t := range tasks {
			if t.stateful == stateful {
				open = append(open, t.id)
			}
		}
		total += len(open)
		// Each member may hold base tasks, and this many of them one more.
		base, extra := total/len(members), total%len(members)
		give := func(m candidate, t TaskID) bool {
			switch n := len(result[m.id]); {
			case n < base:
			case n == base && extra > 0:
				extra--
			default:
				return false
			}
			result[m.id] = append(result[m.id], t)
			return true
		}
		for _, wants := range []func(candidate, TaskID) bool{
			func(m candidate, t TaskID) bool { return m.owned[t] },
			func(m candidate, t TaskID) bool { return m.stored[t] },
		} {
			open = slices.DeleteFunc(open, func(t TaskID) bool {
				return slices.ContainsFunc(members, func(m candidate) bool { return wants(m, t) && give(m, t) })
			})
		}
		for _, t := range open {
			m := slices.MinFunc(members, func(a, b candidate) int { return cmp.Compare(len(result[a.id]), len(result[b.id])) })
			result[m.id] = append(result[m.id], t)
		}
	}
	for _, ids := range result {
		slices.SortFunc(ids, TaskID.compare)
	}
	return result
}
