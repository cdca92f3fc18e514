package verify

import (
	"context"
	"fmt"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// author is who wrote a record: a producer, and the transaction that the record is part of.
type author struct {
	at       place
	producer int64 // -1: one without an id
	epoch    int16
	txn      *transaction // nil: none
}

// transaction is what one producer wrote to one partition up to a marker.
type transaction struct {
	first, marker int64             // offsets
	end           kafka.ControlType // None as long as it is open
}

// authors reads the log of a topic for who wrote the records that pick chooses, up to maxLedger of them, aborted ones included. It asks
// pick for each data record, those of one partition in their order.
func (g *grader) authors(
	ctx context.Context, topic string, pick func(kafka.TopicPartition, *kafka.Record) bool,
) (map[place]author, error) {
	type writer struct {
		kafka.TopicPartition
		producer int64
	}
	open := map[writer]*transaction{}
	found := map[place]author{}
	return found, g.logOf(ctx, topic, func(tp kafka.TopicPartition, r *kafka.Record) {
		w := writer{tp, r.ProducerID}
		if r.Control != kafka.ControlNone {
			if t := open[w]; t != nil {
				t.marker, t.end = r.Offset, r.Control
				delete(open, w)
			}
			return
		}
		if r.Transactional && open[w] == nil {
			open[w] = &transaction{first: r.Offset}
		}
		if at := (place{tp, r.Offset}); len(found) < maxLedger && pick(tp, r) {
			a := author{at: at, producer: r.ProducerID, epoch: r.ProducerEpoch}
			if r.Transactional {
				a.txn = open[w]
			}
			found[at] = a
		}
	})
}

// committed tells whether a reader of committed records sees the record.
func (a author) committed() bool { return a.txn == nil || a.txn.end == kafka.ControlCommit }

// same tells whether two records were written by one run of one producer: a transactional one goes on under its id with a new epoch.
func (a author) same(b author) bool { return a.producer == b.producer && a.epoch == b.epoch }

func (a author) String() string {
	if a.producer < 0 {
		return "a producer without an id"
	}
	if a.txn == nil {
		return fmt.Sprintf("producer %d", a.producer)
	}
	return fmt.Sprintf("producer %d epoch %d", a.producer, a.epoch)
}

// told is the author with the transaction.
func (a author) told() string { return joinNonEmpty(", in ", a.String(), a.span()) }

// span is where the transaction stands, and what became of it; "" if the record is of none.
func (a author) span() string {
	switch {
	case a.txn == nil:
		return ""
	case a.txn.end == kafka.ControlCommit:
		return fmt.Sprintf("a transaction of offsets %d to %d that was committed", a.txn.first, a.txn.marker)
	case a.txn.end == kafka.ControlAbort:
		return fmt.Sprintf("a transaction of offsets %d to %d that was aborted", a.txn.first, a.txn.marker)
	default:
		return fmt.Sprintf("a transaction from offset %d that is still open", a.txn.first)
	}
}

// tookAgain says how it can be that one writer wrote what another had written before.
func tookAgain(later, first author) string {
	switch {
	case later.producer < 0 || first.producer < 0:
		return "which instance that was, the log does not tell"
	case later.same(first):
		return "that instance processed it again, as after a rebalance before its offset was committed"
	case later.producer == first.producer:
		return "that instance was restarted, and processed it again"
	default:
		return "another instance, or one that was restarted, processed it again"
	}
}
