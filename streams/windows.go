package streams

import (
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
// end. Size and grace together are the store's retention.
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
