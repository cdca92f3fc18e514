package verify

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// ChaosRun says what a run of `lab chaos` has done: an application with the lab's topology, on topics of its own, counted orders while its
// instances were killed.
type ChaosRun struct {
	ApplicationID string
	Prefix        string // of the names of its user topics
	Orders        int64  // that were published
	ExactlyOnce   bool
	// Replays are the ranges that may have been processed once more. Exactly once there must be none of them to explain anything with.
	Replays []Replay
}

// Replay is a range of orders.placed or of the repartition topic that was read by an owner which died before it had committed it, so that the
// next owner began with it again. At least once allows each record in it one more time in the results, for each range that it lies in.
type Replay struct {
	kafka.TopicPartition
	From, To int64
}

// ChaosReport is the grade of a run of `lab chaos`.
type ChaosReport struct {
	Tally
	Checks []Check
	Reason string // why it could not be judged
}

// Tally sums up differences, in records and counts.
type Tally struct {
	Lost       int64 `json:"lost"`
	Duplicated int64 `json:"duplicated"` // and not explained
	Again      int64 `json:"again"`      // explained by a replay
	Unknown    int64 `json:"unknown"`    // checks that the topics cannot answer
}

// Add adds another one.
func (t *Tally) Add(o Tally) {
	t.Lost, t.Duplicated, t.Again, t.Unknown = t.Lost+o.Lost, t.Duplicated+o.Duplicated, t.Again+o.Again, t.Unknown+o.Unknown
}

// Verdict is that of all checks together.
func (r ChaosReport) Verdict() Verdict {
	v := NotRun
	for _, c := range r.Checks {
		v = worse(v, c.Verdict)
	}
	return overall(v, r.Reason)
}

// Table shows the checks for people: under each what differs.
func (r ChaosReport) Table(color bool) string {
	var b bytes.Buffer
	PhaseReport{Checks: r.Checks}.writeChecks(&b, color, 0)
	return b.String()
}

// chaos grades a run. Other than for the phases, each order is kept in memory: a loss must not hide behind a duplicate of another order, and
// there are some hundred thousands.
type chaos struct {
	*grader
	run ChaosRun

	orders  map[string]*chaosOrder
	rows    map[uint64]*expected // high-value rows, by store, amount and time
	counts  map[string]*expected // by store, as the repartition topic has them
	minutes map[string]*expected // by minute key, likewise, without what came too late
	late    int64

	tally Tally
}

// chaosOrder is an order, and how often it came out.
type chaosOrder struct {
	order
	content        uint64   // of its record in the repartition topic
	again          int64    // how often it may have been processed once more
	routed, joined int64    // records in the repartition topic, and rows of the join
	statuses       []string // that were published of it
}

// expected is how often something has to be there, how often it may be there beyond that, and how often it is.
type expected struct {
	least, again, got int64
	latest            int64 // the timestamp of a count
	name              string
}

// Chaos grades a run. It has to be over: what is not committed makes the verdict Unknown.
func Chaos(ctx context.Context, client *kafka.Client, run ChaosRun) ChaosReport {
	return gradeChaos(ctx, &cluster{client: client, stall: stallTimeout}, run)
}

func gradeChaos(ctx context.Context, t topics, run ChaosRun) ChaosReport {
	c := &chaos{
		grader: &grader{topics: t, opt: Options{ApplicationID: run.ApplicationID}}, run: run,
		orders: map[string]*chaosOrder{}, rows: map[uint64]*expected{}, counts: map[string]*expected{}, minutes: map[string]*expected{},
	}
	if err := c.load(ctx); err != nil {
		return ChaosReport{Reason: reasonOf(err), Tally: Tally{Unknown: 1}}
	}
	r := ChaosReport{Checks: []Check{c.checkOrders(ctx)}}
	if r.Checks[0].Verdict == Pass {
		r.Checks = append(r.Checks,
			c.checkRepartitioned(ctx),
			c.checkCounts(ctx, "counts per store", topicCounts, suffixCountsChangelog, text, c.counts),
			c.checkCounts(ctx, "counts per store and minute", topicMinutes, suffixMinutesChangelog, windowKey, c.minutes),
			c.checkRows(ctx),
			c.checkJoins(ctx),
			c.checkStatuses(ctx),
		)
	}
	for _, check := range r.Checks {
		if check.Verdict == Unknown {
			c.tally.Unknown++
		}
	}
	r.Tally = c.tally
	if ctx.Err() != nil {
		r.Reason = reasonOf(context.Cause(ctx))
	}
	return r
}

// user is the full name of a topic that the application shares with others.
func (c *chaos) user(topic string) string { return c.run.Prefix + topic }

// load reads what is there. The order is that of the phases' grader: commits, ends of the results, end of the input.
func (c *chaos) load(ctx context.Context) error {
	var err error
	c.found, err = c.topics.Describe(ctx, func(name string) bool {
		return c.run.Prefix != "" && strings.HasPrefix(name, c.run.Prefix) || strings.HasPrefix(name, c.run.ApplicationID+"-")
	})
	if err != nil {
		return err
	}
	for _, topic := range []string{c.user(topicPlaced), c.user(topicStatus), c.internal(suffixRepartition)} {
		if _, ok := c.found[topic]; !ok {
			return &missingError{topic}
		}
	}
	if c.committed, err = c.topics.Committed(ctx, c.run.ApplicationID); err != nil {
		return err
	}
	c.bounds = map[kafka.TopicPartition]bounds{}
	var results []kafka.TopicPartition
	for name := range c.found {
		if name != c.user(topicPlaced) {
			results = append(results, c.partitions(name)...)
		}
	}
	for _, parts := range [][]kafka.TopicPartition{results, c.partitions(c.user(topicPlaced))} {
		found, err := c.topics.Bounds(ctx, parts)
		if err != nil {
			return err
		}
		for tp, b := range found {
			c.bounds[tp] = b
		}
	}
	c.lag = c.lagOn(c.committed, c.user(topicPlaced), c.user(topicStatus), c.internal(suffixRepartition))
	return nil
}

// again is in how many replays a record lies.
func (c *chaos) again(tp kafka.TopicPartition, offset int64) int64 {
	var n int64
	for _, r := range c.run.Replays {
		if r.TopicPartition == tp && r.From <= offset && offset < r.To {
			n++
		}
	}
	return n
}

// checkOrders reads the input. It has to be what was published, each order once, and wholly processed, with all results still there: else
// there is nothing to compare.
func (c *chaos) checkOrders(ctx context.Context) Check {
	const name = "orders published"
	want := fmt.Sprint(c.run.Orders)
	topic := c.user(topicPlaced)
	var f findings
	for _, needed := range []string{
		topic, c.internal(suffixRepartition), c.user(topicHighValue), c.user(topicJoined), c.user(topicCounts), c.user(topicMinutes),
	} {
		if gone := c.deleted(needed); gone != "" {
			f.unknown = append(f.unknown, gone)
		}
	}
	var got, placed int64
	err := c.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
		got++
		o, err := readOrder(r.Value)
		if err != nil {
			f.unknownf("%s: %v", place{tp, r.Offset}, err)
			return
		}
		if c.orders[o.ID] != nil {
			f.unknownf("%s is there more than once, at last %s", o.ID, place{tp, r.Offset})
			return
		}
		co := &chaosOrder{order: o, content: fingerprint(r.Value, o.OccurredAt), again: c.again(tp, r.Offset)}
		c.orders[o.ID] = co
		if o.Placed {
			placed++
		}
		if o.Placed && o.Amount >= highValue {
			key, name := highRow(o.Store, rowOf(o).amount, o.OccurredAt)
			e := entryOf(c.rows, key)
			e.least, e.again, e.name = e.least+1, e.again+co.again, name
		}
	})
	if err != nil {
		return unread(name, want, err)
	}
	err = c.read(ctx, c.user(topicStatus), func(tp kafka.TopicPartition, r *kafka.Record) {
		if o := c.orders[text(r.Key)]; o != nil {
			o.statuses = append(o.statuses, text(r.Value))
		} else {
			f.unknownf("%s: a status of %s, and there is no such order", place{tp, r.Offset}, text(r.Key))
		}
	})
	if err != nil {
		return unread(name, want, err)
	}
	if got != c.run.Orders {
		f.unknownf("%s holds %d records", topic, got)
	}
	if c.lag != "" {
		f.unknown = append(f.unknown, c.lag)
	}
	letters := c.internal("dead-letters")
	for _, tp := range c.partitions(letters) {
		if b := c.bounds[tp]; b.end > 0 {
			f.wrongf("%s is not empty, and no bad record was published", letters)
		}
	}
	return c.check(name, topic, want, fmt.Sprintf("%d, %d of them placed", got, placed), f)
}

func entryOf[K comparable](m map[K]*expected, key K) *expected {
	e := m[key]
	if e == nil {
		e = &expected{latest: -1}
		m[key] = e
	}
	return e
}

// highRow is a row of the high-value topic: by content, and in words.
func highRow(store, amount string, ms int64) (key uint64, name string) {
	name = fmt.Sprintf("%s %s at %d", store, amount, ms)
	return fingerprint([]byte(name), ms), name
}

// settle compares how often something is there with how often it has to be and may be, and notes a difference.
func (c *chaos) settle(f *findings, t *Tally, what string, e expected, at string) {
	most := e.least + e.again
	if c.run.ExactlyOnce {
		most = e.least
	}
	switch {
	case e.got < e.least:
		t.Lost += e.least - e.got
		f.shortf("lost: %s: %d of %d%s", what, e.got, e.least, at)
	case e.got > most && c.run.ExactlyOnce:
		t.Duplicated += e.got - most
		f.wrongf("duplicated: %s: %d instead of %d%s", what, e.got, e.least, at)
	case e.got > most:
		t.Duplicated += e.got - most
		t.Again += most - e.least
		f.wrongf("duplicated: %s: %d instead of %d%s, and replays explain %d more", what, e.got, e.least, at, e.again)
	default:
		t.Again += e.got - e.least
	}
}

// concluded makes a check of what was found, and adds it to the whole.
func (c *chaos) concluded(name, topic, what string, f findings, t Tally) Check {
	got := fmt.Sprintf("%s: lost %d, duplicated %d", what, t.Lost, t.Duplicated)
	want := "each once"
	if !c.run.ExactlyOnce {
		got += fmt.Sprintf(", again %d", t.Again)
		want = "none lost, and no more again than was replayed"
	}
	for _, list := range []*[]string{&f.wrong, &f.short} {
		slices.Sort(*list) // they come out of maps
	}
	c.tally.Add(t)
	return c.check(name, topic, want, got, f)
}

// checkRepartitioned compares the repartition topic with the placed orders one by one, and counts it: it alone says in which order a task
// counted them, and so which were too late for their minute.
func (c *chaos) checkRepartitioned(ctx context.Context) Check {
	const name = "orders by store"
	topic := c.internal(suffixRepartition)
	var f findings
	var t Tally
	var n int64
	rs := newRepartition()
	err := c.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
		n++
		store, at := text(r.Key), place{tp, r.Offset}
		o, err := readOrder(r.Value)
		co := c.orders[o.ID]
		if err != nil || co == nil || !co.Placed || co.content != fingerprint(r.Value, r.Timestamp) || co.Store != store {
			t.Duplicated++
			f.wrongf("%s: a record of %s that is no placed order of the input", at, store)
			return
		}
		co.routed++
		if text := c.misplaced(tp, r); text != "" {
			f.wrong = append(f.wrong, text)
		}
		again := c.again(tp, r.Offset)
		e := entryOf(c.counts, store)
		e.least, e.again, e.latest = e.least+1, e.again+again, max(e.latest, r.Timestamp)
		counted := rs.count(tp.Partition, store, r.Timestamp)
		if counted.value == 0 {
			c.late++
			return
		}
		e = entryOf(c.minutes, counted.key)
		e.least, e.again, e.latest = counted.value, e.again+again, counted.time
	})
	if err != nil {
		return unread(name, "the placed orders", err)
	}
	for id, o := range c.orders {
		if o.Placed {
			c.settle(&f, &t, id, expected{least: 1, again: o.again, got: o.routed}, "")
		}
	}
	if c.late > 0 {
		f.notef("%d came too late for their minute, as grace has it", c.late)
	}
	return c.concluded(name, topic, fmt.Sprintf("%d records", n), f, t)
}

// checkCounts compares the last counts, in the output and in the changelog, with what counting the repartition topic comes to.
func (c *chaos) checkCounts(
	ctx context.Context, name, output, changelog string, logKey func([]byte) string, want map[string]*expected,
) Check {
	topic, logTopic := c.user(output), c.internal(changelog)
	out, err := c.series(ctx, topic, text, decimalCount)
	if err != nil {
		return unread(name, "what was counted", err)
	}
	log, err := c.series(ctx, logTopic, logKey, longCount)
	if err != nil {
		return unread(name, "what was counted", err)
	}
	var f findings
	var t Tally
	all := map[string]bool{}
	for key := range want {
		all[key] = true
	}
	for _, s := range []*seriesOf{out, log} {
		for key := range s.keys {
			all[key] = true
		}
	}
	for key := range all {
		w, o, l := want[key], out.keys[key], log.keys[key]
		switch {
		case w == nil:
			t.Duplicated++
			f.wrongf("duplicated: %s is counted, and no order came to be counted there", key)
		case o == nil || l == nil:
			t.Lost += w.least
			f.shortf("lost: %s: not counted, want %d", key, w.least)
		case o.bad+l.bad != "":
			f.wrongf("%s: %s is no count (%s, %s)", key, joinNonEmpty(" and ", o.bad, l.bad), o.lastAt, l.lastAt)
		case len(o.partitions) > 1 || len(l.partitions) > 1:
			f.wrongf("%s is in partitions %s of %s and %s of %s", key, join(o.partitions), topic, join(l.partitions), logTopic)
		case o.partitions[0] != partitionOf([]byte(key), c.found[topic].partitions):
			f.wrongf("%s is in partition %d of %s, and by the hash of its key it belongs to another", key, o.partitions[0], topic)
		case o.last != l.last || o.lastTime != l.lastTime:
			f.wrongf("%s is %d at time %d (%s) and %d at time %d (%s)", key, o.last, o.lastTime, o.lastAt, l.last, l.lastTime, l.lastAt)
		default:
			c.settle(&f, &t, key, expected{least: w.least, again: w.again, got: o.last}, fmt.Sprintf(" (%s)", o.lastAt))
			if o.last == w.least && o.lastTime != w.latest {
				f.wrongf("%s: timestamp %d (%s), want %d, the largest occurredAt", key, o.lastTime, o.lastAt, w.latest)
			}
			if falls := o.falls + l.falls; falls > 0 && c.run.ExactlyOnce {
				f.wrongf("%s falls or repeats %d times: %s", key, falls, joinNonEmpty(", ", o.firstFall, l.firstFall))
			}
		}
	}
	return c.concluded(name, topic, fmt.Sprintf("%d keys", len(all)), f, t)
}

func (c *chaos) series(ctx context.Context, topic string, key func([]byte) string, count func([]byte) (int64, bool)) (*seriesOf, error) {
	s := &seriesOf{keys: map[string]*series{}, key: key, count: count}
	return s, c.read(ctx, topic, s.add)
}

// checkRows compares the high-value rows with the orders, by store, amount and time.
func (c *chaos) checkRows(ctx context.Context) Check {
	const name = "high-value rows"
	topic := c.user(topicHighValue)
	var f findings
	var t Tally
	var n int64
	err := c.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
		n++
		if text := c.misplaced(tp, r); text != "" {
			f.wrong = append(f.wrong, text)
		}
		key, name := highRow(text(r.Key), text(r.Value), r.Timestamp)
		e := entryOf(c.rows, key)
		e.got, e.name = e.got+1, name
	})
	if err != nil {
		return unread(name, "the high-value orders", err)
	}
	for _, e := range c.rows {
		c.settle(&f, &t, e.name, *e, "")
	}
	return c.concluded(name, topic, fmt.Sprintf("%d rows", n), f, t)
}

// checkJoins expects a row of each placed order that had a status before it was published, with any of the statuses that were published of it:
// which one was current when the order came depends on when it came.
func (c *chaos) checkJoins(ctx context.Context) Check {
	const name = "joined orders"
	topic := c.user(topicJoined)
	var f findings
	var t Tally
	var n int64
	err := c.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
		n++
		if text := c.misplaced(tp, r); text != "" {
			f.wrong = append(f.wrong, text)
		}
		co := c.orders[text(r.Key)]
		status, raw, ok := bytes.Cut(r.Value, []byte("|"))
		if co == nil || !ok || co.content != fingerprint(raw, r.Timestamp) || !slices.Contains(co.statuses, string(status)) {
			t.Duplicated++
			f.wrongf("%s: %q under %s is no order with one of its statuses", place{tp, r.Offset}, text(r.Value), text(r.Key))
			return
		}
		co.joined++
	})
	if err != nil {
		return unread(name, "the orders with a status", err)
	}
	for id, o := range c.orders {
		if o.Placed && len(o.statuses) > 0 {
			c.settle(&f, &t, id, expected{least: 1, again: o.again, got: o.joined}, "")
		} else if o.joined > 0 {
			t.Duplicated += o.joined
			f.wrongf("%s is joined, and has no status or was cancelled", id)
		}
	}
	return c.concluded(name, topic, fmt.Sprintf("%d rows", n), f, t)
}

// checkStatuses compares the last row of each order in the table's changelog with the last one published.
func (c *chaos) checkStatuses(ctx context.Context) Check {
	const name = "changelog of the statuses"
	topic := c.internal(suffixStatusChangelog)
	rows, log := table{}, table{}
	for from, to := range map[string]table{c.user(topicStatus): rows, topic: log} {
		if err := c.read(ctx, from, to.add); err != nil {
			return unread(name, "the last row of each order", err)
		}
	}
	var f findings
	var t Tally
	for _, key := range unionKeys(rows, log, strings.Compare) {
		switch r, l := rows[key], log[key]; {
		case r == nil:
			t.Duplicated++
			f.wrongf("%s is %s (%s), and no status of it was published", key, l.last, l.at)
		case l == nil:
			t.Lost++
			f.shortf("lost: %s is %s (%s)", key, r.last, r.at)
		case l.last != r.last || l.timestamp != r.timestamp:
			t.Lost++
			f.shortf("lost: %s is %s at time %d (%s), want %s at time %d (%s)", key, l.last, l.timestamp, l.at, r.last, r.timestamp, r.at)
		}
	}
	return c.concluded(name, topic, fmt.Sprintf("%d rows", len(rows)), f, t)
}
