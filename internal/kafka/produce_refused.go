package kafka

import (
	"errors"
	"slices"
)

// RefusedRecord is a record that its broker does not take for what it is: too large, with a timestamp out of range, or invalid.
type RefusedRecord struct {
	TopicPartition
	Record Record // its offset is not known
	Origin Origin // of the Message
	Err    error  // *Error with the broker's words
}

// leaveOut takes the records that were refused out of a batch and puts the rest in its place. A broker refuses a batch as a whole, and does
// not always say for which records: then the halves are sent one after the other, down to the single record. Nothing was written, and
// nothing behind the batch has a sequence yet, so the sequences go on from where it began.
func (p *Producer) leaveOut(part *producerPartition, b *producerBatch, o *produceOutcome) {
	e := p.produceError(part, b, o)
	var answer *Error
	if !errors.As(o.err, &answer) || len(e.Records) != int(b.count) {
		p.fail(p.classify(ActRejected, e))
		return
	}
	refused := make([]*Error, len(e.Records))
	known := false
	for _, r := range e.RecordErrors {
		if r.Index >= 0 && int(r.Index) < len(refused) {
			is := *answer
			if r.Message != "" {
				is.Message = r.Message
			}
			refused[r.Index], known = &is, true
		}
	}
	if len(refused) == 1 && !known {
		refused[0], known = answer, true
	}

	var rest [2][]int // indexes of the records that are sent again
	for i, r := range e.Records {
		switch {
		case refused[i] != nil:
			p.cfg.Refused(RefusedRecord{TopicPartition: part.tp, Record: r, Origin: b.origins[i], Err: refused[i]})
		case known || i < len(e.Records)/2:
			rest[0] = append(rest[0], i)
		default:
			rest[1] = append(rest[1], i)
		}
	}
	var instead []*producerBatch
	for _, indexes := range rest {
		if len(indexes) > 0 {
			instead = append(instead, p.rebuild(b, e.Records, indexes))
		}
	}
	part.sealed = slices.Replace(part.sealed, 0, 1, instead...)
	part.sequence = b.sequence
	part.tries, part.lastErr = 0, nil
	p.release(b)
}

// rebuild makes a batch of some records of b, which takes its place among the sealed ones.
func (p *Producer) rebuild(b *producerBatch, records []Record, indexes []int) *producerBatch {
	n := p.newBatch()
	n.seal, n.deadline = b.seal, b.deadline
	for _, i := range indexes {
		r := &records[i]
		n.append(r.Timestamp, r.Key, r.Value, r.Headers)
		n.origins = append(n.origins, b.origins[i])
	}
	n.bytes = n.size() - batchHeaderSize
	p.buffered += n.bytes
	return n
}
