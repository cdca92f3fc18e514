package streams

import (
	"cmp"
	"slices"
)

// standbyHost is a member of the group as the placement of standbys sees it.
type standbyHost struct {
	member  string
	process string
	active  []TaskID         // given to the member by this assignment
	standby []TaskID         // what it kept a copy of until now
	sums    map[TaskID]int64 // how far its process has followed the changelogs of the tasks in its state folder, see memberInfo
}

// standbyProcess is the members of one process together. They share a state folder, so a standby is placed on the process; which of them it
// goes to does not matter.
type standbyProcess struct {
	id      string
	members []string
	active  map[TaskID]bool
	kept    map[TaskID]bool
	sums    map[TaskID]int64
	placed  []TaskID
}

// placeStandbys gives each task as many standbys as there are replicas asked for, each on another process, and none on that of the active
// task. A copy stays where it is, or is made where the task's state is, the most advanced first. Beyond that the load is balanced over the
// processes by their number of members: no copy is left on a process from which it could move to one that is then still less loaded. The
// same input gives the same result.
//
// short is how many standbys could not be placed because there are too few processes.
func placeStandbys(tasks []TaskID, hosts []standbyHost, replicas int) (byMember map[string][]TaskID, short int) {
	processes := processesOf(hosts)
	tasks = slices.SortedFunc(slices.Values(tasks), TaskID.compareByPartition)
	missing := make(map[TaskID]int, len(tasks))
	for _, t := range tasks {
		missing[t] = replicas
		candidates := slices.DeleteFunc(slices.Clone(processes), func(p *standbyProcess) bool {
			_, stored := p.sums[t]
			return !p.takes(t) || !stored && !p.kept[t]
		})
		slices.SortStableFunc(candidates, func(a, b *standbyProcess) int {
			return cmp.Or(compareBool(b.kept[t], a.kept[t]), cmp.Compare(b.sums[t], a.sums[t]), a.compareLoad(b))
		})
		for _, p := range candidates[:min(len(candidates), replicas)] {
			p.placed = append(p.placed, t)
			missing[t]--
		}
	}
	for _, t := range tasks {
		for ; missing[t] > 0; missing[t]-- {
			p := leastLoaded(processes, t)
			if p == nil {
				short += missing[t]
				break
			}
			p.placed = append(p.placed, t)
		}
	}
	for levelOne(processes) {
	}
	byMember = make(map[string][]TaskID, len(hosts))
	for _, p := range processes {
		slices.SortFunc(p.placed, TaskID.compare)
		for i, t := range p.placed {
			member := p.members[i%len(p.members)]
			byMember[member] = append(byMember[member], t)
		}
	}
	return byMember, short
}

// processesOf joins the members of each process, in the order of process ids. A member that tells no process, because it is of another
// version, is one by itself.
func processesOf(hosts []standbyHost) []*standbyProcess {
	byID := map[string]*standbyProcess{}
	for _, h := range hosts {
		id := cmp.Or(h.process, h.member)
		p := byID[id]
		if p == nil {
			p = &standbyProcess{id: id, active: map[TaskID]bool{}, kept: map[TaskID]bool{}, sums: map[TaskID]int64{}}
			byID[id] = p
		}
		p.members = append(p.members, h.member)
		for _, t := range h.active {
			p.active[t] = true
		}
		for _, t := range h.standby {
			p.kept[t] = true
		}
		for t, sum := range h.sums {
			p.sums[t] = max(p.sums[t], sum)
		}
	}
	list := make([]*standbyProcess, 0, len(byID))
	for _, p := range byID {
		slices.Sort(p.members)
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *standbyProcess) int { return cmp.Compare(a.id, b.id) })
	return list
}

// takes tells whether the process may have a standby of the task.
func (p *standbyProcess) takes(t TaskID) bool { return !p.active[t] && !slices.Contains(p.placed, t) }

// compareLoad compares standbys per member.
func (p *standbyProcess) compareLoad(o *standbyProcess) int {
	return cmp.Compare(len(p.placed)*len(o.members), len(o.placed)*len(p.members))
}

// leastLoaded is where a standby of the task goes that is nowhere yet; nil if it is everywhere. Among equals it is the process with the
// fewest copies of what the active task's process works on: should that one die, its tasks go to many.
func leastLoaded(processes []*standbyProcess, t TaskID) *standbyProcess {
	var owner *standbyProcess
	if i := slices.IndexFunc(processes, func(p *standbyProcess) bool { return p.active[t] }); i >= 0 {
		owner = processes[i]
	}
	copies := func(p *standbyProcess) (n int) {
		for _, other := range p.placed {
			if owner != nil && owner.active[other] {
				n++
			}
		}
		return n
	}
	var best *standbyProcess
	for _, p := range processes {
		if p.takes(t) && (best == nil || cmp.Or(p.compareLoad(best), cmp.Compare(copies(p), copies(best))) < 0) {
			best = p
		}
	}
	return best
}

// levelOne moves one standby from a process to one that is less loaded even with it, and tells whether there was one to move. Copies that
// have to be made anew anyway go first.
func levelOne(processes []*standbyProcess) bool {
	var from, to *standbyProcess
	at := -1
	for _, p := range processes {
		for _, q := range processes {
			if (len(q.placed)+1)*len(p.members) >= len(p.placed)*len(q.members) {
				continue
			}
			for i, t := range p.placed {
				if q.takes(t) && (at < 0 || compareBool(p.kept[t], from.kept[from.placed[at]]) < 0) {
					from, to, at = p, q, i
				}
			}
		}
	}
	if at < 0 {
		return false
	}
	to.placed = append(to.placed, from.placed[at])
	from.placed = slices.Delete(from.placed, at, at+1)
	return true
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
