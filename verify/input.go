package verify

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// input is the oracle: what the application has to make of orders.placed, computed in one pass.
type input struct {
	records int64 // data records in orders.placed
	orders  int64 // of them, those that are orders
	broken  int64 // the others

	letters  *deadLetters
	setAside int64                     // of the broken ones, those among the dead letters
	lost     []string                  // up to maxSamples of those that are not
	wrongly  []string                  // orders among the dead letters for a reason that the oracle does not see
	refused  []refusedOrder            // orders whose results no broker took, or not all
	without  map[string]map[place]bool // of them, by topic, those that it holds no result of
	named    []string                  // up to maxNamed records among the dead letters

	keyed     int64  // records with a key
	misplaced int64  // of them, those in another partition than Kafka's own clients choose
	astray    string // the first of those

	stores map[string]*storeInput
	feeds  map[int64]*feedInput // by base
	byHand map[order][]place    // where the orders of phases 3 to 5 stand
}

// storeInput is what is expected of one store.
type storeInput struct {
	placed  digest                 // placed orders, as records of the repartition topic
	latest  int64                  // the largest occurredAt of them: the timestamp of the count
	high    map[int64]*digest      // high-value orders by amount, as records of the high-value topic
	minutes map[int64]*minuteInput // by start of the minute
}

// minuteInput is what is expected at most of one store in one minute: late orders may have been left out.
type minuteInput struct {
	placed int64
	latest int64
}

// feedInput is a feed found in the input.
type feedInput struct {
	base    int64
	seen    [feedSize]int32 // how often each event is there
	ends    map[int32]int64 // by partition: the offset after the last of them, not counting repetitions
	differs []string        // events of the feed that are there with other contents
	again   []string        // up to maxSamples events that are there once more
}

// have is the number of different events that are there.
func (f *feedInput) have() int {
	n := 0
	for _, times := range f.seen {
		if times > 0 {
			n++
		}
	}
	return n
}

// twice is the number of events that are there more than once.
func (f *feedInput) twice() int {
	n := 0
	for _, times := range f.seen {
		if times > 1 {
			n++
		}
	}
	return n
}

func newInput(letters *deadLetters) *input {
	return &input{letters: letters, stores: map[string]*storeInput{}, feeds: map[int64]*feedInput{}, byHand: map[order][]place{}}
}

// maxSamples bounds what is listed by name, maxNamed how many dead letters are.
const (
	maxSamples = 3
	maxNamed   = 8
)

func (in *input) add(tp kafka.TopicPartition, r *kafka.Record) {
	in.records++
	at := place{tp, r.Offset}
	if r.Key != nil {
		in.keyed++
		if p := partitionOf(r.Key, labPartitions); p != tp.Partition {
			if in.misplaced++; in.misplaced == 1 {
				in.astray = fmt.Sprintf("%s (%s), which belongs to partition %d", text(r.Key), at, p)
			}
		}
	}
	kind, buried := in.letters.kinds[at]
	if buried && len(in.named) < maxNamed {
		in.named = append(in.named, fmt.Sprintf("%s: %s", at, kind))
	}
	o, err := readOrder(r.Value)
	if err != nil {
		in.broken++
		if buried {
			in.setAside++
		} else if len(in.lost) < maxSamples {
			in.lost = append(in.lost, fmt.Sprintf("%s: %v", at, err))
		}
		return
	}
	in.orders++
	in.addToFeed(tp, r.Offset, o)
	if isByHand(o) {
		in.byHand[o] = append(in.byHand[o], place{tp, r.Offset})
	}
	if buried && kind == kindRefused {
		in.refused = append(in.refused, refusedOrder{o, at, bytes.Clone(r.Value)})
		return
	}
	if buried && len(in.wrongly) < maxSamples {
		in.wrongly = append(in.wrongly, fmt.Sprintf("%s is an order (%s), and it is among the dead letters: %s", at, o.ID, kind))
	}
	if o.Placed {
		in.count(o, r.Value)
		in.route(o)
	}
}

// store finds or makes what is expected of a store.
func (in *input) store(name string) *storeInput {
	s := in.stores[name]
	if s == nil {
		s = &storeInput{latest: -1, high: map[int64]*digest{}, minutes: map[int64]*minuteInput{}}
		in.stores[name] = s
	}
	return s
}

// placedStores are the stores with an order to be counted.
func (in *input) placedStores() []string {
	var stores []string
	for store, s := range in.stores {
		if s.placed.n > 0 {
			stores = append(stores, store)
		}
	}
	slices.Sort(stores)
	return stores
}

// route expects an order in the high-value topic, if it belongs there.
func (in *input) route(o order) {
	if o.Amount < highValue {
		return
	}
	s := in.store(o.Store)
	d := s.high[o.Amount]
	if d == nil {
		d = &digest{}
		s.high[o.Amount] = d
	}
	d.add(fingerprint(nil, o.OccurredAt))
}

// count expects an order in the counts of its store.
func (in *input) count(o order, value []byte) {
	s := in.store(o.Store)
	s.placed.add(fingerprint(value, o.OccurredAt))
	s.latest = max(s.latest, o.OccurredAt)
	start := floorMinute(o.OccurredAt)
	m := s.minutes[start]
	if m == nil {
		m = &minuteInput{latest: -1}
		s.minutes[start] = m
	}
	m.placed++
	m.latest = max(m.latest, o.OccurredAt)
}

// maxFeeds bounds the feeds that are told apart, which take a kilobyte each. A run has two.
const maxFeeds = 1000

// addToFeed finds the feed that an order is an event of: the one whose base lies as many steps before it as its id says. Where that is no
// minute boundary, the order was sent by hand under an id of the feed.
func (in *input) addToFeed(tp kafka.TopicPartition, offset int64, o order) {
	i := feedIndex(o.ID)
	if i < 0 {
		return
	}
	base := o.OccurredAt - feedStep*int64(i)
	if base < 0 || base%minute != 0 {
		return
	}
	f := in.feeds[base]
	if f == nil {
		if len(in.feeds) == maxFeeds {
			return
		}
		f = &feedInput{base: base, ends: map[int32]int64{}}
		in.feeds[base] = f
	}
	if want := feedEvent(base, i); o != want {
		if len(f.differs) < maxSamples {
			f.differs = append(f.differs, fmt.Sprintf("%s (%s) is %+v, the feed has %+v", o.ID, place{tp, offset}, o, want))
		}
		return
	}
	if f.seen[i] == 0 {
		f.ends[tp.Partition] = max(f.ends[tp.Partition], offset+1)
	} else if len(f.again) < maxSamples {
		f.again = append(f.again, fmt.Sprintf("%s (%s)", o.ID, place{tp, offset}))
	}
	f.seen[i]++
}

// feed1 is the first feed: the earliest complete one, or the earliest at all. nil: there is none.
func (in *input) feed1() *feedInput {
	bases := slices.Sorted(maps.Keys(in.feeds))
	for _, base := range bases {
		if in.feeds[base].have() == feedSize {
			return in.feeds[base]
		}
	}
	if len(bases) == 0 {
		return nil
	}
	return in.feeds[bases[0]]
}

// counts are the placed events of a feed per store.
func (f *feedInput) counts() map[string]int64 {
	counts := map[string]int64{}
	for i := range feedSize {
		if o := feedEvent(f.base, i); o.Placed {
			counts[o.Store]++
		}
	}
	return counts
}

// minuteCounts are the same per store and minute.
func (f *feedInput) minuteCounts() map[string]int64 {
	counts := map[string]int64{}
	for i := range feedSize {
		if o := feedEvent(f.base, i); o.Placed {
			counts[minuteKey(o.Store, floorMinute(o.OccurredAt))]++
		}
	}
	return counts
}

// highRows are the high-value events of a feed, counted by row.
func (f *feedInput) highRows() map[row]int64 {
	rows := map[row]int64{}
	for i := range feedSize {
		if o := feedEvent(f.base, i); o.Placed && o.Amount >= highValue {
			rows[rowOf(o)]++
		}
	}
	return rows
}

// missing names events that are not there.
func (f *feedInput) missing() string {
	var ids []string
	for i, times := range f.seen {
		if times == 0 {
			ids = append(ids, feedEvent(f.base, i).ID)
		}
	}
	return someOf(ids)
}

// someOf lists at most maxSamples names.
func someOf(names []string) string {
	if len(names) <= maxSamples {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxSamples], ", "), len(names)-maxSamples)
}

// place is where a record stands.
type place struct {
	kafka.TopicPartition
	offset int64
}

func (p place) String() string {
	return fmt.Sprintf("%s partition %d offset %d", p.Topic, p.Partition, p.offset)
}

func (p place) compare(o place) int {
	return cmp.Or(p.Compare(o.TopicPartition), cmp.Compare(p.offset, o.offset))
}
