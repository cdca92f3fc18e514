package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// The topic of records that the application could not process, without the application id in front, and the headers in which they say where
// they came from and why (KIP-1034).
const (
	suffixDeadLetters = "dead-letters"

	headerKind      = "__streams.errors.exception"
	headerTopic     = "__streams.errors.topic"
	headerPartition = "__streams.errors.partition"
	headerOffset    = "__streams.errors.offset"

	// kindRefused is of an order that was processed, and whose results a broker did not take, or only some of them.
	kindRefused = "output refused by the broker"
)

// deadLetters are the records set aside, by where they came from: at least once, a record may have been set aside twice.
type deadLetters struct {
	kinds   map[place]string
	outputs int64    // results that no broker took, and that no single record is to blame for
	strange []string // records of the topic that are no dead letters
}

func newDeadLetters() *deadLetters { return &deadLetters{kinds: map[place]string{}} }

func (d *deadLetters) add(tp kafka.TopicPartition, r *kafka.Record) {
	values := map[string]string{}
	for _, h := range r.Headers { // the last of a name counts: the record may have brought the others
		values[h.Key] = string(h.Value)
	}
	partition, perr := strconv.ParseInt(values[headerPartition], 10, 32)
	offset, oerr := strconv.ParseInt(values[headerOffset], 10, 64)
	switch {
	case perr != nil || oerr != nil || values[headerTopic] == "":
		d.strange = append(d.strange, place{tp, r.Offset}.String())
	case offset < 0:
		d.outputs++
	default:
		d.kinds[place{kafka.TopicPartition{Topic: values[headerTopic], Partition: int32(partition)}, offset}] = values[headerKind]
	}
}

// readDeadLetters reads the dead letters, if there are any.
func (g *grader) readDeadLetters(ctx context.Context) (*deadLetters, error) {
	d := newDeadLetters()
	err := g.read(ctx, g.internal(suffixDeadLetters), d.add)
	var none *missingError
	if errors.As(err, &none) {
		err = nil
	}
	return d, err
}

// refusedOrder is an order some of whose results, if not all, no broker took.
type refusedOrder struct {
	order
	at    place
	value []byte
}

// settleRefused finds out which results of such orders are there, as a broker may take one and refuse the next: those are expected.
func (g *grader) settleRefused(ctx context.Context) error {
	if len(g.in.refused) == 0 {
		return nil
	}
	apart := map[place]bool{}
	var stores, high []string
	for _, o := range g.in.refused {
		apart[o.at] = true
		stores, high = append(stores, o.Store), append(high, rowOf(o.order).String())
	}
	counted, routed := newLedger(stores), newLedger(high)
	err := g.read(ctx, topicPlaced, func(tp kafka.TopicPartition, r *kafka.Record) {
		o, err := readOrder(r.Value)
		if err != nil || !o.Placed || apart[place{tp, r.Offset}] {
			return
		}
		from := source{o.ID, place{tp, r.Offset}, r.Timestamp}
		counted.order(o.Store, fingerprint(r.Value, o.OccurredAt), from)
		if o.Amount >= highValue {
			routed.order(rowOf(o).String(), fingerprint(nil, o.OccurredAt), from)
		}
	})
	if err != nil {
		return err
	}
	for topic, record := range map[string]func(kafka.TopicPartition, *kafka.Record){
		g.internal(suffixRepartition): func(tp kafka.TopicPartition, r *kafka.Record) {
			counted.record(text(r.Key), fingerprint(r.Value, r.Timestamp), place{tp, r.Offset})
		},
		g.output(topicHighValue): func(tp kafka.TopicPartition, r *kafka.Record) {
			routed.record(row{text(r.Key), text(r.Value)}.String(), fingerprint(nil, r.Timestamp), place{tp, r.Offset})
		},
	} {
		var none *missingError
		if err := g.read(ctx, topic, record); err != nil && !errors.As(err, &none) {
			return err
		}
	}
	uncounted, unrouted := map[place]bool{}, map[place]bool{}
	g.in.without = map[string]map[place]bool{g.internal(suffixRepartition): uncounted, g.output(topicHighValue): unrouted}
	for _, o := range g.in.refused {
		if !o.Placed {
			continue
		}
		if counted.takeExtra(o.Store, fingerprint(o.value, o.OccurredAt)) {
			g.in.count(o.order, o.value)
		} else {
			uncounted[o.at] = true
		}
		if o.Amount < highValue {
			continue
		}
		if routed.takeExtra(rowOf(o.order).String(), fingerprint(nil, o.OccurredAt)) {
			g.in.route(o.order)
		} else {
			unrouted[o.at] = true
		}
	}
	return nil
}

// takeExtra takes a record that no order asked for, if there is one of that content.
func (l *ledger) takeExtra(key string, content uint64) bool {
	e := l.entry(key, content)
	if e == nil || e.open >= 0 {
		return false
	}
	e.open++
	return true
}

// checkBadInput tells whether each record that is no order was set aside, and no order was. There is no such check if there is nothing to say.
func (g *grader) checkBadInput() []Check {
	in := g.in
	letters := in.letters
	if in.broken == 0 && len(letters.kinds) == 0 && letters.outputs == 0 && len(letters.strange) == 0 {
		return nil
	}
	var f findings
	for _, s := range in.lost {
		f.shortf("%s, and it is not among the dead letters", s)
	}
	if more := in.broken - in.setAside - int64(len(in.lost)); more > 0 {
		f.shortf("and %d more", more)
	}
	f.wrong = append(f.wrong, in.wrongly...)
	byKind := map[string]int64{}
	byTopic := map[string]int64{}
	for at, kind := range letters.kinds {
		byKind[kind]++
		byTopic[at.Topic]++
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", byKind[kind], kind))
	}
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		if topic != topicPlaced {
			f.notef("%d records of %s are among the dead letters", byTopic[topic], topic)
		}
	}
	if letters.outputs > 0 {
		f.notef("%d results that no broker took are among the dead letters", letters.outputs)
	}
	for _, s := range letters.strange[:min(len(letters.strange), maxSamples)] {
		f.notef("%s is no dead letter", s)
	}
	f.notes = append(f.notes, in.named...)
	if more := byTopic[topicPlaced] - int64(len(in.named)); more > 0 && len(in.named) == maxNamed {
		f.notef("%d more of %s: lab dump %s --decode", more, topicPlaced, g.internal(suffixDeadLetters))
	}
	got := strings.Join(kinds, ", ")
	if got == "" {
		got = "none"
	}
	want := fmt.Sprintf("%d records that are no orders, and no others but those whose results were refused", in.broken)
	return []Check{g.check("dead letters", topicPlaced, want, got, f)}
}
