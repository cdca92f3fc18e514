package streams_test

import (
	"fmt"
	"log"
	"time"

	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/streams"
)

// clicksPerMinute counts the clicks of each user and minute, with a grace of ten seconds.
func clicksPerMinute() (*streams.Topology, error) {
	b, text := streams.NewBuilder(), streams.Text()
	perMinute := streams.Consume(b, "clicks", text, text).GroupByKey().
		WindowedBy(streams.Tumbling(time.Minute).Grace(10 * time.Second))
	counts := streams.CountWindows(perMinute, "per-minute").ToStream()
	counts.To("clicks-per-minute", streams.TimeWindowed(text, time.Minute), streams.Int64())
	return b.Build()
}

// Records go in one by one, and what comes out can be looked at in between.
func ExampleTestDriver() {
	topology, err := clicksPerMinute()
	if err != nil {
		log.Fatal(err)
	}
	driver, err := streams.NewTestDriver(topology, streams.DriverConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer driver.Close()
	clicks := streams.Input(driver, "clicks", streams.Text(), streams.Text())
	perMinute := streams.Output(driver, "clicks-per-minute", streams.TimeWindowed(streams.Text(), time.Minute), streams.Int64())

	for _, at := range []int64{1_000, 59_999, 60_000} {
		if err := clicks.PipeAt(at, "ada", "/home"); err != nil {
			log.Fatal(err)
		}
	}
	records, err := perMinute.Records()
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range records {
		fmt.Println(r.Key.StartTime(), r.Key.Key, r.Value, "at", r.Timestamp)
	}
	// Output:
	// 1970-01-01T00:00:00Z ada 1 at 1000
	// 1970-01-01T00:00:00Z ada 2 at 59999
	// 1970-01-01T00:01:00Z ada 1 at 60000
}

// A record that is too late for its window is in the late ledger, with the record that closed the window.
func ExampleTestDriver_Late() {
	topology, err := clicksPerMinute()
	if err != nil {
		log.Fatal(err)
	}
	driver, err := streams.NewTestDriver(topology, streams.DriverConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer driver.Close()
	clicks := streams.Input(driver, "clicks", streams.Text(), streams.Text())
	for _, at := range []int64{1_000, 69_999, 2_000, 70_000, 3_000} { // the first minute closes at 60 s and ten of grace
		if err := clicks.PipeAt(at, "ada", "/home"); err != nil {
			log.Fatal(err)
		}
	}
	for _, late := range driver.Late() {
		fmt.Println(late)
		fmt.Println("closed by offset", late.Mover.Offset, "of", late.Mover.Topic)
	}
	entries, err := streams.WindowEntries(driver, "per-minute", streams.Text(), streams.Int64())
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(e.Key.StartTime(), e.Value)
	}
	// Output:
	// Skipping record for expired window. topic=[clicks] partition=[0] offset=[4] timestamp=[3000] window=[0,60000) expiration=[60000] streamTime=[70000]
	// closed by offset 3 of clicks
	// 1970-01-01T00:00:00Z 2
	// 1970-01-01T00:01:00Z 2
}

// With a cache a commit sends the latest change of each key, to the changelog and then downstream.
func ExampleTestDriver_Commit() {
	topology, err := clicksPerMinute()
	if err != nil {
		log.Fatal(err)
	}
	driver, err := streams.NewTestDriver(topology, streams.DriverConfig{ManualCommit: true})
	if err != nil {
		log.Fatal(err)
	}
	defer driver.Close()
	clicks := streams.Input(driver, "clicks", streams.Text(), streams.Text())
	for at := range int64(5) {
		if err := clicks.PipeAt(at, "ada", "/home"); err != nil {
			log.Fatal(err)
		}
	}
	if err := driver.Commit(); err != nil {
		log.Fatal(err)
	}
	changelog, err := driver.Changelog("per-minute")
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range changelog {
		key, start, err := store.SplitWindowKey(r.Key)
		fmt.Printf("%s %d %x %v\n", key, start, r.Value, err)
	}
	// Output:
	// ada 0 0000000000000005 <nil>
}

// A restart keeps what is committed. Without its state the driver restores the stores from their changelogs.
func ExampleTestDriver_Restart() {
	topology, err := clicksPerMinute()
	if err != nil {
		log.Fatal(err)
	}
	driver, err := streams.NewTestDriver(topology, streams.DriverConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer driver.Close()
	clicks := streams.Input(driver, "clicks", streams.Text(), streams.Text())
	if err := clicks.PipeAt(30_000, "ada", "/home"); err != nil {
		log.Fatal(err)
	}
	if err := driver.Restart(streams.WithoutState()); err != nil {
		log.Fatal(err)
	}
	if err := clicks.PipeAt(31_000, "ada", "/home"); err != nil {
		log.Fatal(err)
	}
	entries, err := streams.WindowEntries(driver, "per-minute", streams.Text(), streams.Int64())
	fmt.Println(entries[0].Value, err)
	// Output:
	// 2 <nil>
}
