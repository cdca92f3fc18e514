package verify

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// maxLedger bounds the records that are looked at one by one to explain differences. Beyond it, differences stay without names.
const maxLedger = 200_000

// Repeat is a record that came to be processed more than once: one of orders.placed, or of the repartition topic.
type Repeat struct {
	kafka.TopicPartition
	Offset int64
	SentAt time.Time // zero where the record does not tell
}

// ledger pairs the orders of some keys with the records of an output topic, to name those without a partner.
type ledger struct {
	keys    map[string]map[uint64]*entry
	size    int
	authors map[place]author // of the records named
}

// entry is one content: how many orders ask for it, less how many records hold it.
type entry struct {
	open   int64
	orders []source // up to maxSamples of them
	first  *place   // the first record
	extra  []place  // up to maxSamples records that came when none was open
	unseen []place  // records of the log, while an order has none that is committed
}

// source is an order where it stands in the input.
type source struct {
	id     string
	at     place
	sentAt int64
}

func (s source) String() string { return fmt.Sprintf("%s (%s)", s.id, s.at) }

func newLedger(keys []string) *ledger {
	l := &ledger{keys: map[string]map[uint64]*entry{}}
	for _, k := range keys {
		l.keys[k] = map[uint64]*entry{}
	}
	return l
}

// entry finds or makes the entry of a content; nil if the key is of no interest or there are too many.
func (l *ledger) entry(key string, content uint64) *entry {
	entries, ok := l.keys[key]
	if !ok {
		return nil
	}
	e := entries[content]
	if e == nil && l.size < maxLedger {
		l.size++
		e = &entry{}
		entries[content] = e
	}
	return e
}

func (l *ledger) order(key string, content uint64, s source) {
	if e := l.entry(key, content); e != nil {
		e.open++
		if len(e.orders) < maxSamples {
			e.orders = append(e.orders, s)
		}
	}
}

func (l *ledger) record(key string, content uint64, at place) {
	e := l.entry(key, content)
	if e == nil {
		return
	}
	e.open--
	if e.first == nil {
		e.first = &at
	}
	if e.open < 0 && len(e.extra) < maxSamples {
		e.extra = append(e.extra, at)
	}
}

// leftover is an order without a record, or a record too many.
type leftover struct {
	*entry
	at    place
	order source
}

// explanation names what has no partner under key, and who wrote it; "" if all have one or there were too many to look at.
func (l *ledger) explanation(key string) string {
	if l.size >= maxLedger {
		return ""
	}
	var missing, aborted, extra []leftover
	again := map[string]int{}
	for _, e := range l.keys[key] {
		for _, s := range e.orders[:min(max(int(e.open), 0), len(e.orders))] {
			missing = append(missing, leftover{e, s.at, s})
		}
		for _, at := range e.unseen {
			if !l.authors[at].committed() {
				aborted = append(aborted, leftover{e, at, e.orders[0]})
			}
		}
		for _, at := range e.extra {
			extra = append(extra, leftover{entry: e, at: at})
			a, known := l.authors[at]
			if first, both := l.authors[*e.first]; known && both && len(e.orders) > 0 {
				again[doubled(a, first)]++
			}
		}
	}
	parts := []string{
		someOfThose(missing, func(x leftover) string { return x.order.String() }),
		someOfThose(aborted, func(x leftover) string {
			return fmt.Sprintf("that of %s (%s) was written by %s", x.order.id, x.at, l.authors[x.at].told())
		}),
		someOfThose(extra, l.tooMany),
	}
	if parts[0] != "" {
		parts[0] = "no record of " + parts[0]
	}
	return joinNonEmpty("; ", append(parts, mostOf(again)...)...)
}

// someOfThose words the first few, in the order of their places.
func someOfThose(list []leftover, word func(leftover) string) string {
	slices.SortFunc(list, func(a, b leftover) int { return a.at.compare(b.at) })
	names := make([]string, 0, maxSamples)
	for _, x := range list[:min(len(list), maxSamples)] {
		names = append(names, word(x))
	}
	text := strings.Join(names, ", ")
	if more := len(list) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// tooMany words a record that no order asks for.
func (l *ledger) tooMany(x leftover) string {
	if len(x.orders) == 0 {
		text := fmt.Sprintf("%s is of no order", x.at)
		if a, known := l.authors[x.at]; known {
			text += ", written by " + a.told()
		}
		return text
	}
	before := x.first.String()
	if x.at.TopicPartition == x.first.TopicPartition {
		before = fmt.Sprintf("offset %d", x.first.offset)
	}
	return fmt.Sprintf("%s repeats %s, already at %s", x.at, x.orders[0], before)
}

// doubled says who wrote a record that repeats another one.
func doubled(a, first author) string {
	return fmt.Sprintf("written by %s after %s had written it first: %s", a.told(), first, tookAgain(a, first))
}

// mostOf lists up to maxSamples sentences, the most frequent ones first.
func mostOf(times map[string]int) []string {
	list := slices.SortedFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), strings.Compare(a, b))
	})
	return list[:min(len(list), maxSamples)]
}

// repeats are the orders of a key that have too many records.
func (l *ledger) repeats(key string) []Repeat {
	var list []Repeat
	for _, e := range l.keys[key] {
		if len(e.extra) > 0 && len(e.orders) > 0 && len(list) < maxDetails {
			s := e.orders[0]
			list = append(list, Repeat{s.at.TopicPartition, s.at.offset, time.UnixMilli(s.sentAt)})
		}
	}
	return list
}

// ordersInto reads the orders that a topic has to hold into a ledger, under the key and content that pick gives them.
func (g *grader) ordersInto(ctx context.Context, l *ledger, topic string, pick func(o order, value []byte) (key string, content uint64)) error {
	return g.read(ctx, topicPlaced, func(tp kafka.TopicPartition, r *kafka.Record) {
		at := place{tp, r.Offset}
		if o, err := readOrder(r.Value); err == nil && o.Placed && !g.in.without[topic][at] {
			if key, content := pick(o, r.Value); l.keys[key] != nil {
				l.order(key, content, source{o.ID, at, r.Timestamp})
			}
		}
	})
}

// recordsInto pairs the records of a topic with the orders in a ledger, and finds out who wrote those that are named: in one pass more, and
// only if something is left over.
func (g *grader) recordsInto(ctx context.Context, l *ledger, topic string, content func(r *kafka.Record) (string, uint64)) error {
	err := g.read(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
		key, hash := content(r)
		l.record(key, hash, place{tp, r.Offset})
	})
	if err != nil {
		return err
	}
	named := map[place]bool{}
	leftOver := false
	for key, entries := range l.keys {
		for _, e := range entries {
			leftOver = leftOver || e.open != 0
			for _, at := range e.extra {
				named[at], named[*e.first] = true, true
			}
		}
		g.noteRepeats(key, l.repeats(key))
	}
	if !leftOver {
		return nil
	}
	l.authors, err = g.authors(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) bool {
		at := place{tp, r.Offset}
		key, hash := content(r)
		if e := l.keys[key][hash]; e != nil && e.open > 0 {
			e.unseen = append(e.unseen, at)
			return true
		}
		return named[at]
	})
	return err
}

func (g *grader) noteRepeats(key string, repeats []Repeat) {
	if g.repeats == nil {
		g.repeats = map[string][]Repeat{}
	}
	g.repeats[key] = repeats
}

// paired makes the ledger of some keys of a topic with fill, which reads all orders, unless a check of another phase has had it made.
func (g *grader) paired(topic string, keys []string, fill func(l *ledger) error) (*ledger, error) {
	if len(keys) == 0 {
		return newLedger(nil), nil
	}
	name := strings.Join(append([]string{topic}, keys...), "\x00")
	if l := g.ledgers[name]; l != nil {
		return l, nil
	}
	l := newLedger(keys)
	if err := fill(l); err != nil {
		return nil, err
	}
	if g.ledgers == nil {
		g.ledgers = map[string]*ledger{}
	}
	g.ledgers[name] = l
	return l, nil
}

// pairHighValue pairs high-value orders with the records of some rows, by time.
func (g *grader) pairHighValue(ctx context.Context, differ []row) (*ledger, error) {
	keys := make([]string, len(differ))
	for i, r := range differ {
		keys[i] = r.String()
	}
	topic := g.output(topicHighValue)
	return g.paired(topic, keys, func(l *ledger) error {
		err := g.ordersInto(ctx, l, topic, func(o order, _ []byte) (string, uint64) {
			if o.Amount < highValue {
				return "", 0
			}
			return rowOf(o).String(), fingerprint(nil, o.OccurredAt)
		})
		if err != nil {
			return err
		}
		return g.recordsInto(ctx, l, topic, func(r *kafka.Record) (string, uint64) {
			return row{text(r.Key), text(r.Value)}.String(), fingerprint(nil, r.Timestamp)
		})
	})
}

// pairRepartition pairs the placed orders of some stores with the records of the repartition topic.
func (g *grader) pairRepartition(ctx context.Context, stores []string) (*ledger, error) {
	topic := g.internal(suffixRepartition)
	return g.paired(topic, stores, func(l *ledger) error {
		err := g.ordersInto(ctx, l, topic, func(o order, value []byte) (string, uint64) { return o.Store, fingerprint(value, o.OccurredAt) })
		if err != nil {
			return err
		}
		return g.recordsInto(ctx, l, topic, func(r *kafka.Record) (string, uint64) {
			return text(r.Key), fingerprint(r.Value, r.Timestamp)
		})
	})
}

// explain words a difference: with the step at which a count went wrong, and with what the caller of Run has to add.
func (g *grader) explain(ctx context.Context, d Difference, text string) string {
	m := g.misstep(ctx, d.Topic, d.Key)
	text = joinNonEmpty("; ", text, m.text)
	if g.opt.Explain == nil {
		return text
	}
	return joinNonEmpty("; ", text, g.opt.Explain(d, append(g.repeats[d.Key], m.repeats...)))
}
