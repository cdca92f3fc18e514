package kafkatools

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// WriteTransactions prints the state of each transactional id in the layout of kafka-transactions list.
func WriteTransactions(ctx context.Context, client *kafka.Client, w io.Writer) error {
	list, err := client.ListTransactions(ctx)
	if err != nil {
		return err
	}
	return writeListings(w, list)
}

func writeListings(w io.Writer, list []kafka.TransactionListing) error {
	rows := [][]string{{"TransactionalId", "Coordinator", "ProducerId", "TransactionState"}}
	for _, t := range list {
		rows = append(rows, []string{t.ID, strconv.Itoa(int(t.Coordinator)), strconv.FormatInt(t.ProducerID, 10), t.State})
	}
	return writeTable(w, rows)
}

// WriteTransaction prints one transactional id in the layout of kafka-transactions describe.
func WriteTransaction(ctx context.Context, client *kafka.Client, id string, w io.Writer) error {
	d, err := client.DescribeTransaction(ctx, id)
	if err != nil {
		return err
	}
	coordinator, err := client.Coordinator(ctx, kafka.TxnCoordinator(id))
	if err != nil {
		return err
	}
	return writeDescription(w, d, coordinator, time.Now())
}

func writeDescription(w io.Writer, d kafka.TransactionDescription, coordinator int32, now time.Time) error {
	started, spent := "None", "None"
	if !d.Started.IsZero() {
		started = strconv.FormatInt(d.Started.UnixMilli(), 10)
		spent = strconv.FormatInt(now.Sub(d.Started).Milliseconds(), 10)
	}
	partitions := make([]string, len(d.Partitions))
	for i, tp := range d.Partitions {
		partitions[i] = tp.String()
	}
	return writeTable(w, [][]string{
		{
			"CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
			"CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
		},
		{
			strconv.Itoa(int(coordinator)), d.ID, strconv.FormatInt(d.ProducerID, 10), strconv.Itoa(int(d.ProducerEpoch)), d.State,
			strconv.FormatInt(d.Timeout.Milliseconds(), 10), started, spent, strings.Join(partitions, ","),
		},
	})
}

// writeTable prints rows as org.apache.kafka.tools.ToolsUtils does: each cell as wide as the widest of its column, and a tab after it.
func writeTable(w io.Writer, rows [][]string) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	out := bufio.NewWriter(w)
	for _, row := range rows {
		for i, cell := range row {
			fmt.Fprintf(out, "%-*s\t", widths[i], cell)
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// Part is what one transaction did in one partition, as its marker there tells. Its records need not lie side by side: those of other
// producers may be among them.
type Part struct {
	kafka.TopicPartition
	ProducerID  int64
	Epoch       int16 // of the marker
	Outcome     string
	First, Last int64 // offsets; -1 if there is no record, or if compaction has removed them all
	Records     int64
	Marker      int64     // its offset; -1 while the transaction is open
	Ended       time.Time // zero while it is open
}

// History reads what transactions did in some topics from their records and markers, by producer id and time. Coordinators know the last
// transaction of an id only; the markers stay as long as the log.
func History(ctx context.Context, client *kafka.Client, topics ...string) ([]Part, error) {
	type key struct {
		kafka.TopicPartition
		producer int64
	}
	var parts []Part
	open := map[key]*Part{}
	for _, topic := range topics {
		err := Read(ctx, client, ReadConfig{Topic: topic, Control: true}, func(partition int32, r *kafka.Record) error {
			if !r.Transactional {
				return nil
			}
			k := key{kafka.TopicPartition{Topic: topic, Partition: partition}, r.ProducerID}
			p := open[k]
			if p == nil {
				p = &Part{
					TopicPartition: k.TopicPartition, ProducerID: r.ProducerID, Epoch: r.ProducerEpoch, Outcome: "OPEN", First: -1, Last: -1, Marker: -1,
				}
				open[k] = p
			}
			if r.Control == kafka.ControlNone {
				if p.Records == 0 {
					p.First = r.Offset
				}
				p.Last, p.Records = r.Offset, p.Records+1
				return nil
			}
			p.Outcome = markerNames[r.Control]
			p.Epoch, p.Marker, p.Ended = r.ProducerEpoch, r.Offset, time.UnixMilli(r.Timestamp)
			parts = append(parts, *p)
			delete(open, k)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, p := range open {
		parts = append(parts, *p)
	}
	slices.SortFunc(parts, func(a, b Part) int {
		// An open transaction comes after those that have ended.
		return cmp.Or(cmp.Compare(a.ProducerID, b.ProducerID), cmp.Compare(min(b.Marker, 0), min(a.Marker, 0)), a.Ended.Compare(b.Ended),
			cmp.Compare(a.Epoch, b.Epoch), a.Compare(b.TopicPartition), cmp.Compare(a.Marker, b.Marker))
	})
	return parts, nil
}

// markerNames are the kinds of markers as Kafka's log dump names them.
var markerNames = map[kafka.ControlType]string{kafka.ControlCommit: "COMMIT", kafka.ControlAbort: "ABORT"}

// WriteHistory prints a history.
func WriteHistory(w io.Writer, parts []Part) error {
	rows := [][]string{{"ProducerId", "ProducerEpoch", "Outcome", "Ended", "TopicPartition", "FirstOffset", "LastOffset", "Records", "Marker"}}
	number := func(n int64) string {
		if n < 0 {
			return "-"
		}
		return strconv.FormatInt(n, 10)
	}
	for _, p := range parts {
		ended := "-"
		if !p.Ended.IsZero() {
			ended = p.Ended.UTC().Format("2006-01-02T15:04:05.000Z")
		}
		rows = append(rows, []string{
			strconv.FormatInt(p.ProducerID, 10), strconv.Itoa(int(p.Epoch)), p.Outcome, ended, p.String(),
			number(p.First), number(p.Last), strconv.FormatInt(p.Records, 10), number(p.Marker),
		})
	}
	return writeTable(w, rows)
}

// fate is what became of a record's transaction, for a record that readers of committed ones do not get.
type fate string

const (
	aborted fate = "ABORTED"
	open    fate = "OPEN"
)

// marked is a producer in a partition.
type marked struct {
	partition int32
	producer  int64
}

// markers are the transaction markers of a topic, in the order of their offsets.
type markers map[marked][]marker

type marker struct {
	offset int64
	kind   kafka.ControlType
}

func readMarkers(ctx context.Context, client *kafka.Client, topic string) (markers, error) {
	found := markers{}
	err := Read(ctx, client, ReadConfig{Topic: topic, Control: true}, func(partition int32, r *kafka.Record) error {
		if r.Control != kafka.ControlNone {
			k := marked{partition, r.ProducerID}
			found[k] = append(found[k], marker{r.Offset, r.Control})
		}
		return nil
	})
	return found, err
}

// fate looks for the marker that ended a record's transaction: the next one of its producer. "" is a record that everybody gets.
func (m markers) fate(partition int32, r *kafka.Record) fate {
	if !r.Transactional {
		return ""
	}
	list := m[marked{partition, r.ProducerID}]
	i, _ := slices.BinarySearchFunc(list, r.Offset, func(m marker, offset int64) int { return cmp.Compare(m.offset, offset) })
	switch {
	case i == len(list):
		return open
	case list[i].kind == kafka.ControlAbort:
		return aborted
	default:
		return ""
	}
}
