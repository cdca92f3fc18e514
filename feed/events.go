package feed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// EventCount is the number of events in one feed.
const EventCount = 300

// interval lies between two events of a feed. All of them fit into the minute that starts at the base.
const interval = 200 * time.Millisecond

// lastBase keeps the time of each event within what RFC 3339 can write.
var lastBase = time.Date(9999, time.December, 31, 23, 59, 0, 0, time.UTC)

// BaseError is a base that a feed cannot start at.
type BaseError struct {
	Given   string
	Nearest time.Time // the nearest minute boundary; zero if the text is no instant at all
	Err     error
}

func (e *BaseError) Error() string {
	if e.Nearest.IsZero() {
		return fmt.Sprintf("base %q: %v", e.Given, e.Err)
	}
	return fmt.Sprintf("base %s: %v; the nearest is %s (%d)", e.Given, e.Err, e.Nearest.Format(time.RFC3339), e.Nearest.UnixMilli())
}

func (e *BaseError) Unwrap() error { return e.Err }

// The faults of a base.
var (
	ErrNotInstant  = errors.New("neither an RFC 3339 instant such as 2026-09-12T10:00:00Z nor milliseconds since the epoch")
	ErrOffBoundary = errors.New("not on a minute boundary, so the feed's events would fall into two windows")
	ErrBaseRange   = errors.New("outside the years 1970 to 9999")
)

// ParseBase reads the instant that a feed starts at: RFC 3339 or milliseconds since the epoch. The error is a *BaseError.
func ParseBase(text string) (time.Time, error) {
	var base time.Time
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		base = time.UnixMilli(ms)
	} else if base, err = time.Parse(time.RFC3339, text); err != nil {
		return time.Time{}, &BaseError{Given: text, Err: ErrNotInstant}
	}
	base = base.UTC()
	if err := checkBase(text, base); err != nil {
		return time.Time{}, err
	}
	return base, nil
}

func checkBase(given string, base time.Time) error {
	if base.UnixMilli() < 0 || base.After(lastBase) {
		return &BaseError{Given: given, Err: ErrBaseRange}
	}
	if nearest := base.Round(time.Minute); !nearest.Equal(base) {
		return &BaseError{Given: given, Nearest: nearest, Err: ErrOffBoundary}
	}
	return nil
}

// Events returns the 300 events of the feed that starts at base: the same each time but for the time. Event i is ord-(1000+i) of one of six
// stores, each tenth is cancelled, amounts go round seven values, and 200 ms lie between two events. 270 are placed, 115 of these of
// 100000 and more.
func Events(base time.Time) []Order {
	events := make([]Order, EventCount)
	for i := range events {
		status := Placed
		if i%10 == 9 {
			status = Cancelled
		}
		events[i] = Order{
			OrderID:    "ord-" + strconv.Itoa(1000+i),
			StoreID:    "store-" + strconv.Itoa(17+i%6),
			Status:     status,
			Amount:     5000 + int64(i%7)*25000,
			OccurredAt: base.Add(time.Duration(i) * interval).UnixMilli(),
		}
	}
	return events
}

// Publish sends the feed that starts at base to orders.placed and returns when the brokers have all of it. Where it fails, any part of the
// feed may have arrived. progress, if not nil, is told how many events have been handed to the producer.
func Publish(ctx context.Context, client *kafka.Client, base time.Time, progress func(sent int)) (err error) {
	if err := checkBase(base.Format(time.RFC3339Nano), base); err != nil {
		return err
	}
	producer, err := client.NewProducer(ctx, kafka.ProducerConfig{})
	if err != nil {
		return fmt.Errorf("feed: %w", err)
	}
	defer func() {
		if closeErr := producer.Close(ctx); err == nil && closeErr != nil {
			err = fmt.Errorf("feed: %w", closeErr)
		}
	}()
	for i, event := range Events(base) {
		if err := producer.Send(ctx, event.Message(time.Now())); err != nil {
			return fmt.Errorf("feed: send %s: %w", event.OrderID, err)
		}
		if progress != nil {
			progress(i + 1)
		}
	}
	if err := producer.Flush(ctx); err != nil {
		return fmt.Errorf("feed: %w", err)
	}
	return nil
}
