package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// maxLedger bounds the records that are looked at one by one to explain differences. Beyond it, differences stay without names.
const maxLedger = 200_000

// ledger pairs the orders of some keys with the records of an output topic, to name those without a partner.
type ledger struct {
	keys map[string]map[uint64]*entry
	size int
}

// entry is one content: how many orders ask for it, less how many records hold it.
type entry struct {
	open   int64
	orders []string // up to maxSamples of them
	extra  []string // the records that came when none was open
}

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

func (l *ledger) order(key string, content uint64, id string, at place) {
	if e := l.entry(key, content); e != nil {
		e.open++
		if len(e.orders) < maxSamples {
			e.orders = append(e.orders, fmt.Sprintf("%s (%s)", id, at))
		}
	}
}

func (l *ledger) record(key string, content uint64, at place) {
	e := l.entry(key, content)
	if e == nil {
		return
	}
	e.open--
	if e.open < 0 && len(e.extra) < maxSamples {
		what := fmt.Sprintf("%s is of no order", at)
		if len(e.orders) > 0 {
			what = fmt.Sprintf("%s repeats %s", at, e.orders[0])
		}
		e.extra = append(e.extra, what)
	}
}

// explanation names what has no partner under key; "" if all have one or there were too many to look at.
func (l *ledger) explanation(key string) string {
	if l.size >= maxLedger {
		return ""
	}
	var missing, extra []string
	for _, e := range l.keys[key] {
		if e.open > 0 {
			missing = append(missing, e.orders[:min(int(e.open), len(e.orders))]...)
		}
		extra = append(extra, e.extra...)
	}
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, "no record of "+someOf(slices.Sorted(slices.Values(missing))))
	}
	if len(extra) > 0 {
		parts = append(parts, someOf(slices.Sorted(slices.Values(extra))))
	}
	return strings.Join(parts, "; ")
}

// ordersInto reads the placed orders into a ledger, under the key and content that pick gives them.
func (g *grader) ordersInto(ctx context.Context, l *ledger, pick func(o order, value []byte) (key string, content uint64)) error {
	return g.read(ctx, topicPlaced, func(tp kafka.TopicPartition, r *kafka.Record) {
		if o, err := readOrder(r.Value); err == nil && o.Placed {
			if key, content := pick(o, r.Value); l.keys[key] != nil {
				l.order(key, content, o.ID, place{tp, r.Offset})
			}
		}
	})
}

// pairHighValue pairs high-value orders with the records of some rows, by time.
func (g *grader) pairHighValue(ctx context.Context, differ []row) (*ledger, error) {
	keys := make([]string, len(differ))
	for i, r := range differ {
		keys[i] = r.String()
	}
	l := newLedger(keys)
	if len(keys) == 0 {
		return l, nil
	}
	err := g.ordersInto(ctx, l, func(o order, _ []byte) (string, uint64) {
		if o.Amount < highValue {
			return "", 0
		}
		return rowOf(o).String(), fingerprint(nil, o.OccurredAt)
	})
	if err != nil {
		return nil, err
	}
	return l, g.read(ctx, g.output(topicHighValue), func(tp kafka.TopicPartition, r *kafka.Record) {
		l.record(row{text(r.Key), text(r.Value)}.String(), fingerprint(nil, r.Timestamp), place{tp, r.Offset})
	})
}

// pairRepartition pairs the placed orders of some stores with the records of the repartition topic.
func (g *grader) pairRepartition(ctx context.Context, stores []string) (*ledger, error) {
	l := newLedger(stores)
	if len(stores) == 0 {
		return l, nil
	}
	err := g.ordersInto(ctx, l, func(o order, value []byte) (string, uint64) { return o.Store, fingerprint(value, o.OccurredAt) })
	if err != nil {
		return nil, err
	}
	return l, g.read(ctx, g.internal(suffixRepartition), func(tp kafka.TopicPartition, r *kafka.Record) {
		l.record(text(r.Key), fingerprint(r.Value, r.Timestamp), place{tp, r.Offset})
	})
}
