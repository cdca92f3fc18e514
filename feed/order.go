package feed

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Status is what became of an order when it was placed.
type Status uint8

// The statuses of an order. The zero value is none of them, so that an Order nobody filled in cannot pass as placed.
const (
	Placed Status = iota + 1
	Cancelled
)

func (s Status) String() string {
	switch s {
	case Placed:
		return "PLACED"
	case Cancelled:
		return "CANCELLED"
	default:
		return fmt.Sprintf("Status(%d)", uint8(s))
	}
}

// Order is one event of orders.placed.
type Order struct {
	OrderID    string // also the record's key
	StoreID    string
	Status     Status
	Amount     int64 // of the lab's currency, in its smallest unit; may be negative
	OccurredAt int64 // when the customer ordered: milliseconds since the epoch, never negative
}

// AppendOrder appends the JSON form of o to dst: the five fields in their fixed order, without white space. These are the bytes that the
// lab's other programs write, so a repartition topic holds the same bytes whoever wrote it.
func AppendOrder(dst []byte, o Order) []byte {
	dst = append(dst, `{"orderId":`...)
	dst = appendString(dst, o.OrderID)
	dst = append(dst, `,"storeId":`...)
	dst = appendString(dst, o.StoreID)
	dst = append(dst, `,"status":"`...)
	dst = append(dst, o.Status.String()...)
	dst = append(dst, `","amount":`...)
	dst = strconv.AppendInt(dst, o.Amount, 10)
	dst = append(dst, `,"occurredAt":`...)
	dst = strconv.AppendInt(dst, o.OccurredAt, 10)
	return append(dst, '}')
}

// appendString writes s as a JSON string with no more escapes than JSON asks for. Bytes that are not UTF-8 become U+FFFD: the result is
// always valid.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
		i++
	}
	return append(dst, '"')
}

// Message is the record of o in orders.placed, partitioned by its key. at is the record's own time: when it is published, not when the
// customer ordered, which is what OccurredAt and the lab's extractor are for.
func (o Order) Message(at time.Time) kafka.Message {
	return message(OrdersPlaced, o.OrderID, AppendOrder(nil, o), at)
}

// StatusRow is one row of the status table. Unlike Order.Status it is free text, as the lab joins it to an order and never reads it.
type StatusRow struct {
	OrderID string
	Status  string
}

// Message is the record of r in orders.status, partitioned by its key, so that it meets the order in the join.
func (r StatusRow) Message(at time.Time) kafka.Message {
	return message(OrdersStatus, r.OrderID, []byte(r.Status), at)
}

func message(topic, key string, value []byte, at time.Time) kafka.Message {
	return kafka.Message{Topic: topic, Partition: kafka.AnyPartition, Timestamp: at.UnixMilli(), Key: []byte(key), Value: value}
}
