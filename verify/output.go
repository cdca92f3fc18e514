package verify

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// row is a record of the high-value topic. The amount is text as it stands there, since it may be anything.
type row struct{ store, amount string }

func rowOf(o order) row { return row{o.Store, strconv.FormatInt(o.Amount, 10)} }

func (r row) String() string { return r.store + " " + r.amount }

// rows is the content of the high-value topic: how often each row is there, and at which times.
type rows map[row]*digest

func (rs rows) add(_ kafka.TopicPartition, r *kafka.Record) {
	k := row{text(r.Key), text(r.Value)}
	d := rs[k]
	if d == nil {
		d = &digest{}
		rs[k] = d
	}
	d.add(fingerprint(nil, r.Timestamp))
}

// text shows null as what Kafka's console consumer prints for it.
func text(b []byte) string {
	if b == nil {
		return "null"
	}
	return string(b)
}

// series is what was written for one key of a topic that holds counts.
type series struct {
	partitions []int32 // more than one: the order of the values is not known
	last       int64
	lastTime   int64
	lastAt     place // where the last value stands
	milestones map[int64]*reached
	falls      int64 // values that were not above the one before
	firstFall  string
	bad        string // the last value, if it is no count
}

// milestone is a value of a key that must have been written on the way, or passed over in one commit with later ones.
type milestone struct {
	key   string
	value int64
	time  int64 // the timestamp that it must have, -1 if that is not known
}

// written is a value where it was written.
type written struct {
	value, time int64
	at          place
}

// reached is what is known of a milestone: where its value was first written, and the first higher one. Without them they are zero.
type reached struct{ self, higher written }

// seriesOf is the content of a topic of counts.
type seriesOf struct {
	keys map[string]*series
	// milestones are the values of interest of each key.
	milestones map[string][]int64
	// key and count read a record. The key of a record whose key cannot be read is shown as it stands.
	key   func([]byte) string
	count func([]byte) (int64, bool)
}

func (s *seriesOf) add(tp kafka.TopicPartition, r *kafka.Record) {
	key := s.key(r.Key)
	k := s.keys[key]
	first := k == nil
	if first {
		k = &series{milestones: map[int64]*reached{}}
		for _, v := range s.milestones[key] {
			k.milestones[v] = &reached{}
		}
		s.keys[key] = k
	}
	k.partitions = insert(k.partitions, tp.Partition)
	at := place{tp, r.Offset}
	v, ok := s.count(r.Value)
	if !ok {
		k.bad, k.lastAt = fmt.Sprintf("%q", text(r.Value)), at
		return
	}
	if !first && k.bad == "" && v <= k.last {
		k.falls++
		if k.firstFall == "" {
			k.firstFall = fmt.Sprintf("%d after %d at %s", v, k.last, at)
		}
	}
	k.last, k.lastTime, k.lastAt, k.bad = v, r.Timestamp, at, ""
	for milestone, m := range k.milestones {
		switch {
		case v == milestone && m.self.value == 0:
			m.self = written{v, r.Timestamp, at}
		case v > milestone && m.higher.value == 0:
			m.higher = written{v, r.Timestamp, at}
		}
	}
}

// decimalCount reads a count as the outputs hold it.
func decimalCount(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == string(b)
}

// longCount reads a count as the changelogs hold it: 8 bytes, big endian (Kafka's LongSerializer).
func longCount(b []byte) (int64, bool) {
	if len(b) != 8 {
		return 0, false
	}
	n := int64(binary.BigEndian.Uint64(b))
	return n, n > 0
}

// windowKey reads a key of a window changelog: the key, 8 bytes of window start, 4 bytes of sequence number (Kafka Streams'
// WindowKeySchema).
func windowKey(b []byte) string {
	n := len(b) - 12
	if n < 0 {
		return fmt.Sprintf("%q", b)
	}
	key := minuteKey(string(b[:n]), int64(binary.BigEndian.Uint64(b[n:])))
	if seq := binary.BigEndian.Uint32(b[n+8:]); seq != 0 {
		return fmt.Sprintf("%s with sequence number %d", key, seq)
	}
	return key
}

// insert adds a partition to a sorted set.
func insert(set []int32, p int32) []int32 {
	at, there := slices.BinarySearch(set, p)
	if there {
		return set
	}
	return slices.Insert(set, at, p)
}
