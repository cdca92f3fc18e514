// Command wordcount counts the words of the lines in one topic and writes each word's count to another. It is a module of
// its own: what a program needs that imports the engine.
//
//	wordcount -bootstrap localhost:9092 -input lines -output counts -state ./state
package main

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/windowed-order-counter/lab/streams"
)

func main() {
	cfg := streams.DefaultConfig()
	bootstrap := flag.String("bootstrap", "localhost:9092", "host:port of one or more brokers, comma-separated")
	input := flag.String("input", "lines", "topic with lines of text")
	output := flag.String("output", "counts", "topic for the counts")
	flag.StringVar(&cfg.ApplicationID, "application", "wordcount", "application id: instances with the same one share the work")
	flag.StringVar(&cfg.StateDir, "state", "state", "folder for the counts' local state")
	flag.Parse()
	cfg.Bootstrap = strings.Split(*bootstrap, ",")
	cfg.CommitInterval = time.Second
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg.Listener.StateChanged = func(s streams.StateChange) { fmt.Println(s.To) }

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *input, *output, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "wordcount:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, input, output string, cfg streams.Config) error {
	topology, err := wordCount(input, output)
	if err != nil {
		return err
	}
	fmt.Print(topology.Describe())
	app, err := streams.NewApp(topology, cfg)
	if err != nil {
		return err
	}
	return app.Run(ctx)
}

func wordCount(input, output string) (*streams.Topology, error) {
	b, text := streams.NewBuilder(), streams.Text()
	lines := streams.Consume(b, input, text, text)
	words := streams.FlatMapValues(lines, func(line string) iter.Seq[string] { return strings.FieldsSeq(strings.ToLower(line)) })
	byWord := streams.GroupBy(words.WithSerdes(text, text), func(_, word string) string { return word }, text)
	counts := streams.Count(byWord, "counts").ToStream()
	streams.MapValues(counts, func(n int64) string { return strconv.FormatInt(n, 10) }).To(output, text, text)
	return b.Build()
}
