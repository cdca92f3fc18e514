package mutants

// mutant is a mistake in the engine or in its topology, and what verify has to say of a run with it.
type mutant struct {
	name   string
	edits  []edit
	script string // see scripts
	phase  int    // the check that has to fail
	check  string
	says   string // one of its details, as a regular expression
}

// edit replaces a piece of a source file that is there once.
type edit struct{ file, old, new string }

// scripts are what a run consists of: commands of lab, and lines about counters, which go on in the background.
//
//	counter NAME …   start one
//	stop NAME        tell it to stop, and wait for it; kill, suspend and resume are signals too
//	ended NAME       wait until it ends by itself
//	remove FOLDER    of the workspace
//	settle APP       wait until the application has committed all its input
//	counting NAME    wait until it has counted an order of each store
var scripts = map[string][]string{
	"two phases": {"phase 2"},
	"late orders": {
		"phase 2", "counter a",
		"send --order ord-2001 store-17 5000 2026-09-12T10:01:05Z", settled,
		"send --order ord-2002 store-17 5000 2026-09-12T10:00:30Z", settled,
		"send --order ord-2003 store-17 5000 2026-09-12T10:03:00Z", settled,
		"send --order ord-2004 store-17 5000 2026-09-12T10:00:45Z", settled,
		"stop a",
	},
	"late orders, with a restart": {
		"phase 2", "counter a",
		"send --order ord-2001 store-17 5000 2026-09-12T10:01:05Z", settled,
		"send --order ord-2002 store-17 5000 2026-09-12T10:00:30Z", settled,
		"send --order ord-2003 store-17 5000 2026-09-12T10:03:00Z", settled,
		"stop a", "counter a",
		"send --order ord-2004 store-17 5000 2026-09-12T10:00:45Z", settled,
		"stop a",
	},
	// The minute 10:02 is open for the third order, and closed for the last.
	"an order on the boundary": {
		"phase 2", "counter a",
		"send --order ord-3001 store-17 5000 2026-09-12T10:02:30Z", settled,
		"send --order ord-3002 store-17 5000 2026-09-12T10:03:29.999Z", settled,
		"send --order ord-3003 store-17 5000 2026-09-12T10:02:59Z", settled,
		"send --order ord-3004 store-17 5000 2026-09-12T10:03:30Z", settled,
		"send --order ord-3005 store-17 5000 2026-09-12T10:02:59Z", settled,
		"stop a",
	},
	"just dear": {
		"phase 1", "counter a", "send --order ord-3001 store-17 100000 2026-09-12T10:00:59Z", settled, "stop a",
	},
	"joins": {
		"phase 2", "counter a",
		"send orders.status ord-1042 PAID", settled,
		"send --order ord-1042 store-17 5000 2026-09-12T10:03:30Z", settled,
		"send orders.status ord-1042 SHIPPED", settled,
		"send --order ord-1042 store-17 5000 2026-09-12T10:03:40Z", settled,
		"send --order ord-2005 store-17 5000 2026-09-12T10:03:50Z", settled,
		"stop a",
	},
	"a restart": {"phase 2", "feed 2026-09-12T11:00:00Z", "counter a", settled, "stop a"},
	"state deleted": {
		"phase 2", "counter a", "feed 2026-09-12T11:00:00Z", settled, "stop a",
		"remove state/a", "counter a", "feed 2026-09-12T12:00:00Z", settled, "stop a",
	},
	"a crash in a commit": {
		"broker up", "topics --create", "feed 2026-09-12T10:00:00Z",
		"counter a session.timeout.ms=6000 lab.crash.at=caches-not-flushed lab.crash.commit=1", "ended a",
		"counter a", settled, "stop a",
	},
	"a stop with work in hand": {
		"phase 2", "counter a commit.idle.ms=-1 commit.interval.ms=3600000", "feed 2026-09-12T11:00:00Z", "counting a", "stop a",
		"counter a", settled, "stop a",
	},
	// The orders of phases 3 and 4 come at once. Another one counts what a suspended one has counted.
	"a suspended owner": {
		"phase 2",
		"send --order ord-2001 store-17 5000 2026-09-12T10:01:05Z", "send --order ord-2002 store-17 5000 2026-09-12T10:00:30Z",
		"send --order ord-2003 store-17 5000 2026-09-12T10:03:00Z", "send --order ord-2004 store-17 5000 2026-09-12T10:00:45Z",
		"send --order ord-1042 store-17 5000 2026-09-12T10:03:30Z", "send --order ord-1042 store-17 5000 2026-09-12T10:03:40Z",
		"send --order ord-2005 store-17 5000 2026-09-12T10:03:50Z", "feed 2026-09-12T11:00:00Z",
		"counter a session.timeout.ms=6000 commit.idle.ms=-1 commit.interval.ms=3600000", "counting a", "suspend a",
		"counter b", settled, "resume a", "stop a", "send --order ord-2006 store-17 5000 2026-09-12T11:05:00Z", settled, "stop b",
	},
	"exactly once, a crash while counting": {
		"phase 2", exactlyOnce + " lab.crash.after.store17=20", "ended eos", exactlyOnce, "settle order-counter-eos", "stop eos",
	},
	"exactly once, a crash before the offsets": {
		"phase 2", exactlyOnce + " lab.crash.at=before-offset-commit lab.crash.commit=1", "ended eos",
		exactlyOnce, "settle order-counter-eos", "stop eos",
	},
	"exactly once, a crash after the transaction": {
		"phase 2", exactlyOnce + " lab.crash.at=after-end-transaction lab.crash.commit=1", "ended eos", "feed 2026-09-12T11:00:00Z",
		exactlyOnce, "settle order-counter-eos", "stop eos",
	},
}

const (
	settled     = "settle order-counter"
	exactlyOnce = "counter eos application.id=order-counter-eos processing.guarantee=exactly_once_v2 lab.output.suffix=.eos" +
		" session.timeout.ms=6000 commit.idle.ms=-1"
)

var engineMutants = []mutant{
	{
		"counts begin at one", []edit{{
			"streams/grouped.go", "func(_ K, _ V, _ bool, old int64, _ bool) (int64, bool) { return old + 1, true }",
			"func(_ K, _ V, _ bool, old int64, _ bool) (int64, bool) { return max(old, 1) + 1, true }",
		}},
		"two phases", 2, "running counts", `^store-17 has 51 of 50: .* holds each of its 50 orders once, so they were not counted once each`,
	},
	{
		"windows begin a millisecond late", []edit{{
			"streams/grouped.go", "return max(0, ts-size+advance) / advance * advance", "return max(0, ts-size+advance)/advance*advance + 1",
		}},
		"two phases", 2, "minute counts of feed 1", `^store-17\|2026-09-12T10:00:00Z was never counted, want 50`,
	},
	{
		"a window takes the moment of its end", []edit{{
			"streams/grouped.go", "if start+a.size <= expiration {", "if start+a.size < expiration {",
		}},
		"an order on the boundary", 2, "changelog of the minute counts",
		`^store-17\|2026-09-12T10:02:00Z has 3, and 2 of its orders came in time, 1 too late`,
	},
	{
		"a late record is judged by its own time", []edit{{
			"streams/grouped.go", "expiration := a.streamTime - a.grace", "expiration := r.Timestamp - a.grace",
		}},
		"an order on the boundary", 2, "changelog of the minute counts",
		`^store-17\|2026-09-12T10:02:00Z has 3, and 2 of its orders came in time, 1 too late`,
	},
	{
		"no grace", []edit{{
			"streams/grouped.go", "expiration := a.streamTime - a.grace", "expiration := a.streamTime",
		}},
		"late orders", 3, "changelog of the minute counts",
		`^store-17\|2026-09-12T10:00:00Z has 50 of the 51 orders that came in time \(1 came too late\)`,
	},
	{
		"stream time is forgotten at a restart", []edit{{
			"streams/task.go", "	c.restore(at)\n", "	c.restore(min(at, noTime))\n",
		}},
		"late orders, with a restart", 3, "late order ord-2004", `^store-17\|2026-09-12T10:00:00Z has 1 of 51 in analytics.orders-per-store-minute$`,
	},
	{
		"a count has the time of its last order", []edit{{
			"streams/grouped.go", "ts = max(ts, r.Timestamp) // without", "ts = r.Timestamp // without",
		}},
		"late orders", 3, "running counts", `^store-17: timestamp 1789207245000 \(.*\), want 1789207380000, the largest occurredAt$`,
	},
	{
		"the table keeps its first row", []edit{{
			"streams/table.go", "if err := st.Put(key, value, r.Timestamp, r.Headers); err != nil {",
			"if ok {\n				done(ctx, r)\n				return\n			}\n			if err := st.Put(key, value, r.Timestamp, r.Headers); err != nil {",
		}},
		"joins", 4, "joined orders", `^missing: SHIPPED of ord-1042, which occurred at 2026-09-12T10:03:40Z`,
	},
	{
		"the table has its rows under another key", []edit{{
			"streams/table.go", "			_, old, ok, err := st.Get(key)\n", "			key = append(key, '!')\n			_, old, ok, err := st.Get(key)\n",
		}},
		"joins", 4, "joined orders", `^missing: PAID of ord-1042, which occurred at 2026-09-12T10:03:30Z`,
	},
	{
		"dear is above the limit", []edit{{
			"topology/topology.go", "o.Amount >= HighValue", "o.Amount > HighValue",
		}},
		"just dear", 1, "high-value rows", `^missing: store-17 100000 is there 0 of 1 times; no record of ord-3001 \(orders.placed partition \d offset \d+\)`,
	},
	{
		"dear orders go out under their id", []edit{{
			"topology/topology.go", "return o.StoreID, strconv.FormatInt(o.Amount, 10)", "return o.OrderID, strconv.FormatInt(o.Amount, 10)",
		}},
		"two phases", 1, "high-value rows", `^extra: ord-\d+ \d+ is there 1 times, and no such order was placed`,
	},
	{
		"cancelled orders are counted", []edit{{
			"topology/topology.go", "return o.Status == feed.Placed", "return o.Status == feed.Placed || o.Status == feed.Cancelled",
		}},
		"two phases", 2, "repartition records", `^store-18 has 50 of 40 records .*; order-counter-orders-by-store-repartition partition \d offset \d+ is of no order`,
	},
	{
		"the repartition topic is partitioned by time", []edit{{
			"streams/task.go", "partition = kafka.PartitionFor(chosenBy, partitions)",
			"if partition = kafka.PartitionFor(chosenBy, partitions); internal {\n				partition = int32(ts/1000) % partitions\n			}",
		}},
		"two phases", 2, "one partition a store", `^store-17 is in partitions 0 and 1 of the repartition topic: no task sees all of its orders$`,
	},
	{
		"the repartition topic is partitioned by another hash", []edit{{
			"streams/task.go", "partition = kafka.PartitionFor(chosenBy, partitions)",
			"if partition = kafka.PartitionFor(chosenBy, partitions); internal {\n				partition = partitions - 1 - partition\n			}",
		}},
		"two phases", 2, "one partition a store", `^store-17 is in partition 0 of the repartition topic, and by the hash of its key it belongs to 1$`,
	},
	{
		"minutes have no changelog", []edit{{
			"streams/task.go", "	return func(key, value []byte, ts int64) error {\n",
			"	return func(key, value []byte, ts int64) error {\n		if storeName == \"orders-per-store-minute\" {\n			return nil\n		}\n",
		}},
		"two phases", 2, "changelog of the minute counts",
		`^store-17\|2026-09-12T10:00:00Z is 50 in analytics.orders-per-store-minute and has no entry in `,
	},
	{
		"the changelog has the time of another record", []edit{{
			"streams/table.go", "if err := log(c.Key, c.Value, c.Timestamp); err != nil {", "if err := log(c.Key, c.Value, c.Timestamp-200); err != nil {",
		}},
		"two phases", 2, "changelog of the counts", `^store-17: timestamp \d+ \(order-counter-orders-per-store-changelog partition \d offset \d+\), want \d+, the largest occurredAt$`,
	},
	{
		"the window changelog is kept for as long as the windows", []edit{{
			"streams/internal_topics.go", "s.Retention.Milliseconds() + a.cfg.WindowChangelogAdditionalRetention.Milliseconds()", "s.Retention.Milliseconds()",
		}},
		"two phases", 2, "orders-per-store-minute-changelog", `has retention.ms=90000, want 3153600090000$`,
	},
	{
		"the repartition topic is compacted", []edit{{
			"streams/internal_topics.go", `	{Name: "cleanup.policy", Value: "delete"},`, `	{Name: "cleanup.policy", Value: "compact"},`,
		}},
		"two phases", 2, "orders-by-store-repartition", `has cleanup.policy=compact, want delete$`,
	},
	{
		"a restart goes on one record too far", []edit{{
			"streams/thread_assign.go", "q.position, q.committed, q.epoch = o.Offset, o.Offset, o.LeaderEpoch",
			`q.position, q.committed, q.epoch = o.Offset, o.Offset, o.LeaderEpoch
				if !a.repartition[q.tp.Topic] {
					q.position++
				}`,
		}},
		"a restart", 2, "repartition records", `^store-\d+ has \d+ of \d+ records; no record of ord-\d+ \(orders.placed partition \d offset \d+\)`,
	},
	{
		"a restore leaves out the last record", []edit{{
			"streams/task_restore.go", "if rec.Offset >= r.to {", "if rec.Offset >= r.to-1 {",
		}},
		"state deleted", 2, "running counts", `^store-\d+ has \d+ of \d+: .* holds each of its \d+ orders once, so they were not counted once each`,
	},
	{
		"a restore begins too late", []edit{{
			"streams/task_restore.go", "r := &restore{task: t, log: log, from: b.start, to: b.end,",
			"r := &restore{task: t, log: log, from: max(b.start, b.end-1), to: b.end,",
		}},
		"state deleted", 2, "running counts", `^store-\d+ has 50 of 150: .* holds each of its 150 orders once, so they were not counted once each`,
	},
	{
		"offsets are committed before the results", []edit{{
			"streams/thread_commit.go", "	start := time.Now()\n	if err := th.reach(ctx, StageCachesNotFlushed); err != nil {",
			`	start := time.Now()
	early := map[kafka.TopicPartition]kafka.Offset{}
	for _, t := range th.tasks {
		t.offsets(early)
	}
	if err := th.commitOffsets(ctx, early); err != nil {
		return err
	}
	if err := th.reach(ctx, StageCachesNotFlushed); err != nil {`,
		}},
		"a crash in a commit", 2, "running counts", `^store-17 has \d+ of 50: .* holds each of its 50 orders once, so they were not counted once each`,
	},
	{
		"the last commit does not flush the caches", []edit{{
			"streams/thread_commit.go", "		records += t.processed\n", `		records += t.processed
		if reason == CommitStop {
			continue
		}
`,
		}},
		"a stop with work in hand", 2, "running counts", `^store-17 has \d+ of 100: .* holds each of its 100 orders once, so they were not counted once each`,
	},
	{
		"a task goes on after it was taken away", []edit{{
			"streams/thread_commit.go", "silent > th.app.cfg.SessionTimeout {", "silent > 1000*th.app.cfg.SessionTimeout {",
		}, {
			"streams/thread.go", "lost := th.member.Lost()\n", "var lost error\n",
		}},
		"a suspended owner", 5, "owners of the counts", `^changelog written by two owners: store-17 falls or repeats`,
	},
	{
		"aborted records are counted", []edit{{
			"streams/thread.go", "		return kafka.ReadCommitted\n	}\n	return kafka.ReadUncommitted\n", "		return kafka.ReadUncommitted\n	}\n	return kafka.ReadUncommitted\n",
		}},
		"exactly once, a crash while counting", 6, "eos: final counts", `^store-\d+ has \d+ of \d+: .* holds each of its \d+ orders once, so they were not counted once each`,
	},
	{
		"aborted counts are restored", []edit{{
			"streams/thread_restore.go", "			return kafka.ReadCommitted\n", "			return kafka.ReadUncommitted\n",
		}},
		"exactly once, a crash before the offsets", 6, "eos: final counts", `^store-17 has \d+ of 50: .* holds each of its 50 orders once, so they were not counted once each`,
	},
	{
		"offsets are not in the transaction", []edit{{
			"streams/guarantee_exactly_once.go", "err := th.producer.SendOffsets(ctx, offsets, th.member.Meta())", "var err error",
		}, {
			"streams/guarantee_exactly_once.go", "	return th.reach(ctx, StageAfterEndTransaction)\n",
			"	if err := th.reach(ctx, StageAfterEndTransaction); err != nil {\n		return err\n	}\n	return th.commitOffsets(ctx, offsets)\n",
		}},
		"exactly once, a crash after the transaction", 6, "eos: final counts",
		`^store-17 has 150 of 100: .* holds each of its 100 orders once, so they were not counted once each`,
	},
}
