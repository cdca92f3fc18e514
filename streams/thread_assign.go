package streams

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// assign is the leader's part of a rebalance: internal topics first, then tasks to members. A failure here is the leader's own: it ends its
// thread, and the group elects another.
func (a *App) assign(ctx context.Context, members []kafka.Subscription) (map[string]kafka.MemberAssignment, error) {
	topics, err := a.client.Topics(ctx, a.userSources...)
	if err != nil {
		return nil, err
	}
	p, err := a.plan(topics)
	if err != nil {
		return nil, err
	}
	working := slices.ContainsFunc(members, func(m kafka.Subscription) bool { return len(m.Owned) > 0 })
	if err := a.makeReady(ctx, p, working); err != nil {
		return nil, err
	}
	candidates, infos := make([]candidate, len(members)), make([]memberInfo, len(members))
	for i, m := range members {
		c := candidate{id: m.MemberID, owned: map[TaskID]bool{}, stored: map[TaskID]bool{}, sums: map[TaskID]int64{}}
		info, err := decodeMemberInfo(m.UserData)
		if err != nil {
			a.log.Warn("a member's state is not considered in the assignment", "member", m.MemberID, "error", err)
		}
		infos[i] = info
		c.process = cmp.Or(info.ProcessID, m.MemberID) // a member of another version is a process by itself
		c.standby = parseTaskIDs(info.Standbys)
		for _, id := range parseTaskIDs(info.Tasks) {
			c.stored[id] = true
			c.sums[id] = info.Offsets[id.String()]
		}
		for _, id := range a.tasksOf(m.Owned) {
			c.owned[id] = true
		}
		candidates[i] = c
	}
	transactions := a.endDeadTransactions(ctx, infos)
	out := make(map[string]kafka.MemberAssignment, len(members))
	tasks := assignTasks(p.tasks, candidates)
	standbys := a.assignStandbys(p, candidates, tasks)
	for _, member := range members {
		var tps []kafka.TopicPartition
		for _, id := range tasks[member.MemberID] {
			tps = append(tps, a.inputsOf(id, func(topic string) int32 { return p.counts[topic] })...)
		}
		slices.SortFunc(tps, kafka.TopicPartition.Compare)
		userData, err := json.Marshal(assignmentInfo{Transactions: transactions, Standbys: formatTaskIDs(standbys[member.MemberID])})
		if err != nil {
			return nil, err
		}
		out[member.MemberID] = kafka.MemberAssignment{Partitions: tps, UserData: userData}
	}
	return out, nil
}

// tasksOf is the tasks that own the partitions. A topic is a source of one sub-topology only.
func (a *App) tasksOf(tps []kafka.TopicPartition) []TaskID {
	set := map[TaskID]bool{}
	for _, tp := range tps {
		for _, sub := range a.topology.subs {
			for _, s := range sub.sources {
				if slices.ContainsFunc(s.topics, func(topic string) bool { return a.fullName(topic) == tp.Topic }) {
					set[TaskID{sub.id, tp.Partition}] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(set), TaskID.compare)
}

// assigned makes the thread's tasks those of the session. A task goes on in place, with its store open, only if it was committed before the
// join and no generation lies between: else another member may have written its changelog meanwhile, and it starts from the last commit.
func (th *thread) assigned(ctx context.Context, s kafka.Session) error {
	want := th.app.tasksOf(s.Partitions)
	committed := th.inPlace
	keep := committed && s.Generation == th.generation+1
	th.generation, th.inPlace = s.Generation, false

	var kept, demoted, gone []*task
	for _, t := range th.tasks {
		switch {
		case keep && slices.Contains(want, t.id):
			kept = append(kept, t)
		case committed && slices.Contains(th.standbys, t.id):
			demoted = append(demoted, t)
		default:
			gone = append(gone, t)
		}
	}
	if err := th.closeTasks(gone); err != nil {
		return err
	}
	if err := th.learnTopics(ctx); err != nil {
		return err
	}
	if err := th.checkChangelogs(kept); err != nil {
		return err
	}
	th.resumeRestores()
	var fresh []*task
	for _, id := range want {
		if slices.ContainsFunc(kept, func(t *task) bool { return t.id == id }) {
			continue
		}
		t, err := th.openTask(ctx, id)
		if errors.Is(err, errRebalancing) {
			// What has no position yet cannot be kept, nor what is not this thread's any more.
			if cerr := th.closeTasks(slices.Concat(fresh, demoted)); cerr != nil {
				return cerr
			}
			return err
		}
		if err != nil {
			return err
		}
		th.tasks = append(th.tasks, t)
		fresh = append(fresh, t)
	}
	// After the new tasks, or the standbys that become some of them would be closed.
	if err := th.startStandbys(demoted); err != nil {
		return err
	}
	slices.SortFunc(th.tasks, func(a, b *task) int { return a.id.compare(b.id) })
	th.regroup()
	th.reportTasks()
	if len(fresh) == 0 {
		return nil
	}
	if err := th.position(ctx, fresh); err != nil {
		return err
	}
	if err := th.startRestores(ctx, fresh); err != nil {
		return err
	}
	return th.restoreStep()
}

// checkChangelogs refuses to go on with a changelog that was deleted and made again meanwhile: what the tasks have written is gone with it.
func (th *thread) checkChangelogs(kept []*task) error {
	for _, t := range kept {
		for _, log := range t.changelogs {
			if log.id != th.topics[log.tp.Topic].ID {
				return &LocalStateError{
					Task: t.id, Store: log.store, Path: th.app.state.TaskDir(t.id.String()),
					Reason: fmt.Sprintf("changelog topic %s was deleted and created again while the application ran", log.tp.Topic),
				}
			}
		}
	}
	return nil
}

func (th *thread) reportTasks() {
	tasks := make([]Task, len(th.tasks))
	for i, t := range th.tasks {
		tasks[i] = t.describe()
	}
	th.app.threadAssigned(th.index, tasks)
}

// regroup sorts the tasks by sub-topology. Those that write a repartition topic are worked through in time order.
func (th *thread) regroup() {
	th.groups = nil
	for _, t := range th.tasks {
		if n := len(th.groups); n == 0 || th.groups[n-1].sub != t.sub {
			th.groups = append(th.groups, &group{sub: t.sub, aligned: th.app.cfg.TaskTimeAlignment && slices.ContainsFunc(t.sub.sinks, th.app.isRepartition)})
		}
		g := th.groups[len(th.groups)-1]
		g.tasks = append(g.tasks, t)
	}
}

// learnTopics reads the partition counts and topic ids of all topics that tasks may touch. Internal ones exist by now: the leader made them
// before it handed out the assignment.
func (th *thread) learnTopics(ctx context.Context) error {
	a := th.app
	names := slices.Concat(a.userSources, a.userSinks)
	for _, r := range a.topology.repartitions {
		names = append(names, a.decorate(r.name))
	}
	for _, sub := range a.topology.subs {
		for _, s := range sub.stores {
			if s.Logged {
				names = append(names, a.changelogTopic(s))
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	topics, err := a.client.Topics(ctx, names...)
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range names {
		if topics[name] == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return &MissingTopicError{Topics: missing}
	}
	th.topics = topics
	p, err := a.plan(topics)
	if err != nil {
		return err
	}
	th.tombstoneRetention, err = a.readRetention(ctx, p)
	return err
}

// position finds where each input partition of the tasks goes on: at the group's committed offset, or where auto.offset.reset says.
func (th *thread) position(ctx context.Context, tasks []*task) error {
	a := th.app
	var tps []kafka.TopicPartition
	for _, t := range tasks {
		tps = append(tps, t.partitions()...)
	}
	committed, err := a.client.CommittedOffsets(ctx, a.cfg.ApplicationID, tps)
	if err != nil {
		return fmt.Errorf("committed offsets of group %s: %w", a.cfg.ApplicationID, err)
	}
	starts, err := a.client.ListOffsets(ctx, tps, kafka.EarliestOffset, kafka.ReadUncommitted)
	if err != nil {
		return fmt.Errorf("start of the input partitions: %w", err)
	}
	for _, t := range tasks {
		for _, q := range t.queues {
			start := starts[q.tp]
			o, ok := committed[q.tp]
			switch {
			case ok && o.Offset < start:
				return fmt.Errorf("group %s is at offset %d of %s, but the partition starts at %d: records that it never read are gone. "+
					"Reset the group's offset if that loss is accepted", a.cfg.ApplicationID, o.Offset, q.tp, start)
			case ok:
				t.hadOffsets = true
				q.position, q.committed, q.epoch = o.Offset, o.Offset, o.LeaderEpoch
				time, known := decodeOffsetMetadata(o.Metadata)
				if !known {
					th.log.Warn("Unsupported offset metadata found: the partition time starts anew", "partition", q.tp.String(), "metadata", o.Metadata)
				}
				q.partitionTime = time
			case a.cfg.AutoOffsetReset == ResetNone:
				return fmt.Errorf("group %s has no committed offset for %s, and auto.offset.reset=none forbids to choose one", a.cfg.ApplicationID, q.tp)
			default:
				// Nothing is to be committed before something was read.
				q.position, q.committed = start, start
			}
		}
	}
	return nil
}

// closeTasks lets go of tasks whose work is committed.
func (th *thread) closeTasks(tasks []*task) error {
	var errs []error
	for _, t := range tasks {
		if err := th.saveRestores(t); err != nil {
			errs = append(errs, err)
		}
		th.detach(t)
		if err := t.db.Close(); err != nil {
			errs = append(errs, fmt.Errorf("task %s: %w", t.id, err))
		}
		th.app.locks.unlock(t.id)
	}
	th.tasks = slices.DeleteFunc(th.tasks, func(t *task) bool { return slices.Contains(tasks, t) })
	th.regroup()
	return errors.Join(errs...)
}

// dropTasks lets go of all tasks without what was not committed.
func (th *thread) dropTasks() error {
	var errs []error
	for _, t := range th.tasks {
		th.detach(t)
		if err := t.db.Abandon(); err != nil {
			errs = append(errs, fmt.Errorf("task %s: %w", t.id, err))
		}
		th.app.locks.unlock(t.id)
	}
	th.tasks, th.processed = nil, 0
	th.regroup()
	return errors.Join(errs...)
}

func (th *thread) detach(t *task) {
	th.app.sums.note(t.id, t.db)
	for _, q := range t.queues {
		delete(th.queues, q.tp)
		delete(th.purgeable, q.tp)
		t.reportMisplaced(q)
	}
	th.fetcher.Remove(t.partitions()...)
	for _, r := range th.restores {
		if r.task == t {
			th.suspendRestore(r)
		}
	}
}
