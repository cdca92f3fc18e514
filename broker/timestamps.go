package broker

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// timestampAfterMax is Kafka's default of message.timestamp.after.max.ms (KIP-937).
	timestampAfterMax = time.Hour
	// maxTimestampAt is where a record batch has its largest timestamp, after base offset, length, leader epoch, magic, CRC, attributes, last
	// offset delta and base timestamp.
	maxTimestampAt = 8 + 4 + 4 + 1 + 4 + 2 + 4 + 8
)

// refuseFutureTimestamps makes kfake refuse batches with a record more than an hour ahead of the clock, as Apache Kafka 4.3.1 does
// (LogValidator.validateTimestamp) and kfake does not. Without that, one order of the year 2100 would reach the counting task, and make all
// orders after it late.
//
// Each such partition of a request gets a fault of kfake's that answers this request alone. Unlike Kafka's, the answer does not list the
// records: a client finds them by halving its batch.
func refuseFutureTimestamps(c *kfake.Cluster, now func() time.Time) {
	var before *kfake.FaultHandle // of the last request, which may have failed for something else
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if before != nil {
			before.Remove()
			before = nil
		}
		if faults := futureFaults(r, now().Add(timestampAfterMax).UnixMilli()); len(faults) > 0 {
			before = c.Fault(faults...)
		}
		return nil, nil, false
	})
}

// futureFaults are the faults for those partitions of a Produce request that hold a timestamp beyond latest.
func futureFaults(r kmsg.Request, latest int64) []kfake.Fault {
	produce, ok := r.(*kmsg.ProduceRequest)
	if !ok {
		return nil
	}
	var faults []kfake.Fault
	for _, t := range produce.Topics {
		for _, p := range t.Partitions {
			if len(p.Records) < maxTimestampAt+8 {
				continue // kfake says what is wrong with it
			}
			ms := int64(binary.BigEndian.Uint64(p.Records[maxTimestampAt:]))
			if ms <= latest {
				continue
			}
			faults = append(faults, kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: t.Topic, TopicID: t.TopicID, Partitions: []int32{p.Partition},
				When: func(other kmsg.Request) bool { return other == r },
				Err: &kerr.Error{
					Message:     fmt.Sprintf("timestamp %d is out of range: at most %d, an hour ahead of the broker's clock", ms, latest),
					Code:        kerr.InvalidTimestamp.Code,
					Description: kerr.InvalidTimestamp.Description,
				},
			})
		}
	}
	return faults
}
