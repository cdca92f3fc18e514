package streams

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Windows are windows of event time of one size, aligned to the epoch: [start, start+size).
type Windows struct{ size, advance, grace time.Duration }

// Tumbling windows follow each other without a gap: each timestamp lies in one.
func Tumbling(size time.Duration) Windows { return Windows{size: size, advance: size} }

// Hopping windows start every advance and overlap: a timestamp lies in up to size/advance of them.
func Hopping(size, advance time.Duration) Windows { return Windows{size: size, advance: advance} }

// Grace is how long a window still takes records after its end, in stream time. Without it a window closes at its
// end. Size and grace together are the store's retention, unless WithRetention says more.
func (w Windows) Grace(d time.Duration) Windows {
	w.grace = d
	return w
}

func (w Windows) validate() error {
	switch {
	case w.size%time.Millisecond != 0 || w.advance%time.Millisecond != 0 || w.grace%time.Millisecond != 0:
		return fmt.Errorf("windows of %v every %v with grace %v: whole milliseconds are needed", w.size, w.advance, w.grace)
	case w.size <= 0:
		return fmt.Errorf("window size %v: must be above zero", w.size)
	case w.advance <= 0 || w.advance > w.size:
		return fmt.Errorf("windows of %v every %v: the advance must be above zero and at most the size", w.size, w.advance)
	case w.grace < 0:
		return fmt.Errorf("window grace %v: must not be negative", w.grace)
	}
	return nil
}

// WindowOption sets something about a windowed aggregation: WithName or WithRetention.
type WindowOption interface{ applyWindow(*windowOptions) }

type windowOptions struct {
	name      string
	retention *time.Duration
}

func (n Name) applyWindow(o *windowOptions) { o.name = string(n) }

type retention time.Duration

func (r retention) applyWindow(o *windowOptions) { o.retention = (*time.Duration)(&r) }

// WithRetention keeps each window in the store for at least d of stream time after its start, and not only for size plus
// grace, which is the least. The changelog topic's retention.ms follows (Java's Materialized.withRetention). It takes no
// later records: that is what the grace is for.
func WithRetention(d time.Duration) WindowOption { return retention(d) }

// keep is the retention of a store for these windows. The error is nearly in Kafka Streams' words.
func (w Windows) keep(store string, asked *time.Duration) (time.Duration, error) {
	least := w.size + w.grace
	switch {
	case asked == nil:
		return least, nil
	case *asked < least:
		return least, fmt.Errorf("the retention period of the window store %s must be no smaller than its window size plus the grace period. "+
			"Got size=[%d], grace=[%d], retention=[%d]", store, w.size.Milliseconds(), w.grace.Milliseconds(), asked.Milliseconds())
	case *asked%time.Millisecond != 0:
		return least, fmt.Errorf("a retention of %v: whole milliseconds are needed", *asked)
	}
	return *asked, nil
}

const windowStartLen = 8

// TimeWindowed is Java's TimeWindowedSerde, for a topic whose keys are windowed: the key's bytes, then the window's start
// as eight bytes, big endian. The end is not written; it is the start plus size. A sink with this serde chooses the partition
// by the key alone, so that all windows of a key are together (Kafka Streams 4.3.1, WindowedStreamPartitioner).
func TimeWindowed[K any](keys Serde[K], size time.Duration) Serde[Windowed[K]] {
	if !keys.known() {
		return Serde[Windowed[K]]{}
	}
	return Serde[Windowed[K]]{
		Append: func(dst []byte, w Windowed[K]) ([]byte, error) {
			dst, err := keys.Append(dst, w.Key)
			if err != nil {
				return nil, err
			}
			return binary.BigEndian.AppendUint64(dst, uint64(w.Start)), nil
		},
		Decode: func(b []byte) (Windowed[K], error) {
			n := len(b) - windowStartLen
			if n < 0 {
				return Windowed[K]{}, fmt.Errorf("a windowed key has at least %d bytes, not %d", windowStartLen, len(b))
			}
			start := int64(binary.BigEndian.Uint64(b[n:]))
			if start < 0 {
				return Windowed[K]{}, errNegativeStart
			}
			key, err := keys.Decode(b[:n:n])
			return Windowed[K]{Key: key, Start: start, End: start + size.Milliseconds()}, err
		},
		partitionBy: func(b []byte) []byte { return b[:len(b)-windowStartLen] },
	}
}

var errNegativeStart = errors.New("a windowed key has a negative start")
