package streams

import (
	"slices"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// assignStandbys is the leader's choice of who keeps copies of which tasks, after it has dealt the tasks out.
func (a *App) assignStandbys(p *plan, members []candidate, active map[string][]TaskID) map[string][]TaskID {
	var tasks []TaskID
	for _, t := range p.tasks {
		if slices.ContainsFunc(a.topology.subs[t.id.Subtopology].stores, hasChangelog) {
			tasks = append(tasks, t.id)
		}
	}
	hosts := make([]standbyHost, len(members))
	for i, m := range members {
		hosts[i] = standbyHost{member: m.id, process: m.process, active: active[m.id], standby: m.standby, sums: m.sums}
	}
	placed, short := placeStandbys(tasks, hosts, a.cfg.StandbyReplicas)
	if short > 0 {
		a.log.Warn("too few processes for num.standby.replicas: start more of them", "standbys missing", short, "of", len(tasks)*a.cfg.StandbyReplicas)
	}
	return placed
}

// hasChangelog tells whether a standby has something to follow for a store. A table that reuses its source topic has no changelog: it is
// restored from that topic when its task comes, also where there is a standby (docs/limits.md).
func hasChangelog(s *storeSpec) bool { return s.Logged && s.sourceTopic == "" }

// inputsOf is the input partitions of a task, given how many each topic has.
func (a *App) inputsOf(id TaskID, partitions func(topic string) int32) (tps []kafka.TopicPartition) {
	for _, s := range a.topology.subs[id.Subtopology].sources {
		for _, topic := range s.topics {
			if full := a.fullName(topic); id.Partition < partitions(full) {
				tps = append(tps, kafka.TopicPartition{Topic: full, Partition: id.Partition})
			}
		}
	}
	return tps
}

// standbySpecs is the thread's standbys with what they follow, by the topics of this assignment.
func (th *thread) standbySpecs() []standbySpec {
	a := th.app
	partitions := func(topic string) int32 { return int32(len(th.topics[topic].Partitions)) }
	specs := make([]standbySpec, 0, len(th.standbys))
	for _, id := range th.standbys {
		if id.Subtopology >= len(a.topology.subs) {
			continue // the leader runs another topology
		}
		spec := standbySpec{id: id, sub: a.topology.subs[id.Subtopology], inputs: a.inputsOf(id, partitions)}
		for _, s := range spec.sub.stores {
			if !hasChangelog(s) {
				continue
			}
			topic := a.changelogTopic(s)
			if id.Partition >= partitions(topic) {
				continue
			}
			spec.changelogs = append(spec.changelogs, standbyChangelog{
				store: s.Name, tp: kafka.TopicPartition{Topic: topic, Partition: id.Partition},
				topicID: th.topics[topic].ID, retention: th.tombstoneRetention[topic],
			})
		}
		specs = append(specs, spec)
	}
	return specs
}

// startStandbys makes the thread's standbys those of the assignment. Demoted tasks, which are committed, go on as standbys.
func (th *thread) startStandbys(demoted []*task) error {
	handed := make(map[TaskID]*store.DB, len(demoted))
	for _, t := range demoted {
		if err := th.saveRestores(t); err != nil {
			return err
		}
	}
	for _, t := range demoted {
		th.detach(t)
		handed[t.id] = t.db
	}
	th.tasks = slices.DeleteFunc(th.tasks, func(t *task) bool { return slices.Contains(demoted, t) })
	return th.app.standbys.assign(th.index, th.standbySpecs(), handed)
}
