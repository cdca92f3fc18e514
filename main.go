// Command lab runs a Kafka Streams lab without a JVM: see README.md, or `lab help`.
//
// This file is the command tree: flags and arguments on one side, calls and exit codes on the other.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/internal/clientconfig"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/console"
	"github.com/windowed-order-counter/lab/internal/handin"
	"github.com/windowed-order-counter/lab/internal/instance"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/phases"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/verify"
)

// The exit codes. There are no others.
const (
	exitPass    = 0
	exitFail    = 1  // a check or a command failed
	exitUnknown = 2  // it could not be judged
	exitUsage   = 64 // sysexits.h EX_USAGE
)

// version is set by the linker for releases.
var version = "devel"

func main() { os.Exit(run(os.Args[1:])) }

func run(argv []string) int {
	ctx, stop := untilSignal()
	defer stop()
	l := &lab{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	app := l.app()
	argv, err := args.Arrange(app, argv)
	if err == nil {
		err = app.RunContext(ctx, append([]string{app.Name}, argv...))
	}
	return l.exitCode(ctx, err)
}

// untilSignal returns a context that ends with the first Ctrl-C, SIGTERM or closed terminal. The second one ends the program at once: its
// children notice, as their input ends.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	// A reader that has gone away is an error of that write, and no end of the program in the middle of things. Nobody reads this channel:
	// being told is what turns the signal off, for this process and not for its children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		<-signals
		cancel(phases.ErrInterrupted)
		<-signals
		os.Exit(exitFail)
	}()
	return ctx, func() { signal.Stop(signals) }
}

// gradeError is a verdict other than PASS. The verdict has been printed; what led to it may have to be.
type gradeError struct {
	verdict verify.Verdict
	err     error
	told    bool // the line with the verdict says it all
}

func (e *gradeError) Error() string { return fmt.Sprintf("%s: %v", e.verdict, e.err) }

// isUsage tells the mistakes of a command line from what went wrong while doing what it says.
func isUsage(err error) bool {
	var usage *args.UsageError
	var property *streams.PropertyError
	var base *feed.BaseError
	var phase *verify.PhaseError
	var client *clientconfig.Error
	return errors.As(err, &usage) || errors.As(err, &property) || errors.As(err, &client) || errors.As(err, &base) || errors.As(err, &phase) || broker.IsUsage(err)
}

// exitCode maps an error to the exit code and says what is wrong.
func (l *lab) exitCode(ctx context.Context, err error) int {
	var grade *gradeError
	switch {
	case err == nil:
		return exitPass
	case errors.As(err, &grade):
		if grade.err != nil && !grade.told && !errors.Is(grade.err, phases.ErrInterrupted) && !errors.Is(grade.err, syscall.EPIPE) {
			fmt.Fprintf(l.stderr, "lab: %v\n", grade.err)
		}
		if grade.verdict == verify.Fail {
			return exitFail
		}
		return exitUnknown
	case isUsage(err):
		fmt.Fprintf(l.stderr, "lab: %v\n", err)
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintln(l.stderr, "lab: interrupted")
		return exitFail
	case errors.Is(err, syscall.EPIPE): // the reader has enough
		return exitFail
	case errors.Is(err, broker.ErrNotRunning):
		fmt.Fprintf(l.stderr, "lab: %v %s\n", err, phases.NotRunningCure)
		return exitFail
	default:
		fmt.Fprintf(l.stderr, "lab: %v\n", err)
		return exitFail
	}
}

// lab is the program with its standard streams.
type lab struct {
	stdin          *os.File
	stdout, stderr *os.File
}

func (l *lab) app() *cli.App {
	env := func(name string) []string { return []string{"LAB_" + name} }
	return &cli.App{
		Name:  "lab",
		Usage: "a Kafka Streams lab in one program, without a JVM",
		Description: "An application counts order events per store, in all and per minute of event time, routes the dear ones to a topic of\n" +
			"their own and joins orders with a status table. Phases run it step by step against a broker that the lab starts by\n" +
			"itself, write what was seen to observations/, and are graded from the topics alone.\n\n" +
			"   lab phase all          all phases, with a pause before each step\n" +
			"   lab phase all --yes    without pauses\n" +
			"   lab status             what runs, and how far it has come\n" +
			"   lab clean              stop everything and remove it, but for the observations\n\n" +
			"Global flags may stand before or after a command's arguments. Exit codes: 0 pass, 1 a check or command failed,\n" +
			"2 could not be judged, 64 usage error.",
		Version:         version,
		HideHelpCommand: false,
		// A path or a property may hold a comma.
		DisableSliceFlagSeparator: true,
		Writer:                    l.stdout,
		ErrWriter:                 l.stderr,
		ExitErrHandler:            func(*cli.Context, error) {}, // exitCode does it
		OnUsageError:              usageError,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: ".", EnvVars: env("DIR"), Usage: "the workspace: `FOLDER` of observations/, state/ and .lab/"},
			&cli.StringFlag{Name: "broker", EnvVars: env("BROKER"), DefaultText: "embedded", Usage: "`KIND` of broker: embedded, jvm, docker or existing"},
			&cli.StringFlag{Name: "bootstrap", EnvVars: env("BOOTSTRAP"), Usage: "use the existing cluster at `HOST:PORT,…`"},
			&cli.StringFlag{
				Name: "config", EnvVars: []string{connect.ConfigVariable}, Usage: "Kafka client properties of that cluster: TLS and SASL, from `FILE`",
			},
			&cli.IntFlag{
				Name: "port", EnvVars: env("PORT"), DefaultText: "9092, or a free one if taken", Usage: "`PORT` of a broker that the lab starts",
			},
			&cli.IntFlag{Name: "nodes", EnvVars: env("NODES"), DefaultText: "1", Usage: "`N` nodes of --broker jvm, 1 or 3"},
			option("yes", "no pauses; implied when stdin is no terminal", "LAB_YES"),
			option("json", "output for programs: phase, verify, bench, chaos, dump, status, doctor", "LAB_JSON"),
			option("no-color", "no colours; implied by NO_COLOR and when stdout is no terminal", "LAB_NO_COLOR"),
		},
		Commands: []*cli.Command{
			{
				Name: "phase", ArgsUsage: "1…6|all", Category: "A run of the lab", OnUsageError: usageError, Action: l.phase,
				Usage:       "run a phase, and missing earlier ones before it; grade it",
				Description: "A phase that has passed is only graded again; an interrupted one goes on where it stopped.",
				Flags: []cli.Flag{
					junit(),
					option("fresh", "clean first, and run all phases up to this one again"),
					&cli.DurationFlag{
						Name: "session-timeout", Value: phases.SessionTimeout, EnvVars: env("SESSION_TIMEOUT"),
						Usage: "how long the group waits for a silent instance that the phase started; Kafka's own default is 45s",
					},
					&cli.StringFlag{
						Name: "crash-point",
						Usage: "phase 6 only: crash at `POINT` of a commit too, under both guarantees, and compare the excess with the predicted one: " +
							strings.Join(phases.CrashPoints(), ", ") + ", several with commas between, or all",
					},
				},
			},
			{
				Name: "verify", ArgsUsage: "[1…6|all] | --from PATH… [1…6|all]", Category: "A run of the lab", OnUsageError: usageError, Action: l.verify,
				Usage: "grade phases from the topics alone, by an oracle that shares no code with the engine",
				Description: "With --from it grades recordings of runs that were handed in, observations/run.jsonl.gz, without a broker: a file, a folder or a zip\n" +
					"with one, or a folder of such hand-ins. all then asks for all phases: one that was not run is UNKNOWN.",
				Flags: []cli.Flag{
					junit(),
					&cli.StringSliceFlag{Name: "from", Usage: "grade the hand-in at `PATH`, or those in it; may be repeated, and more paths may follow"},
					option("csv", "with --from: a line for each hand-in, for a spreadsheet"),
				},
			},
			{
				Name: "status", Category: "A run of the lab", OnUsageError: usageError, Action: l.status,
				Usage: "show the broker, the instances, the group's lag, the counts, late records and dead letters",
			},
			{
				Name: "doctor", Category: "A run of the lab", OnUsageError: usageError, Action: l.doctor,
				Usage: "look at what a run needs: brokers, ports, disk, clock, and the settings of a cluster that is there",
			},
			{
				Name: "clean", Category: "A run of the lab", OnUsageError: usageError, Action: l.clean,
				Usage: "stop everything and delete broker data and state, keep observations/, and prove that nothing is left",
			},
			{
				Name: "bench", ArgsUsage: "[key=value …]", Category: "A run of the lab", OnUsageError: usageError, Action: l.bench,
				Usage: "measure how fast a counter counts waiting orders, on a broker of its own",
				Flags: []cli.Flag{
					&cli.IntFlag{Name: "records", Value: 1_000_000, Usage: "publish `N` orders"},
					&cli.IntFlag{Name: "stores", Value: 10_000, Usage: "over `K` stores"},
					&cli.BoolFlag{Name: "keep", Usage: "leave the broker, its topics and the state in .lab/bench"},
					&cli.StringSliceFlag{Name: "against", Usage: "compare with a counter of this `key=value`; may be repeated"},
					&cli.IntFlag{Name: "runs", Value: 5, Usage: "with --against: `N` runs of either, in turn"},
					&cli.Float64Flag{Name: "at-least", Usage: "with --against: fail if the ratio of the median throughputs is below `R`"},
				},
			},
			{
				Name: "chaos", ArgsUsage: "[key=value …]", Category: "A run of the lab", OnUsageError: usageError, Action: l.chaos,
				Usage: "kill instances at seeded random moments while orders flow in, and grade what was counted",
				Description: "Each run has topics, an application and state of its own. What passes is removed; a run that does not is kept, and ends the\n" +
					"command. Properties are for the counters. observations/chaos.txt has all strikes with what they hit.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "guarantee", Value: string(streams.ExactlyOnce), Usage: "processing `GUARANTEE`: exactly_once_v2 or at_least_once"},
					&cli.IntFlag{Name: "records", Value: 50_000, Usage: "publish `N` orders"},
					&cli.IntFlag{Name: "instances", Value: 3, Usage: "run `N` instances"},
					&cli.IntFlag{Name: "kills", Value: 5, Usage: "kill -9 `K` times"},
					&cli.IntFlag{Name: "pauses", Usage: "suspend `K` times, half of them for longer than the session"},
					&cli.IntFlag{Name: "restarts", Usage: "stop cleanly and start again `K` times"},
					&cli.IntFlag{Name: "crash-points", Usage: "crash `K` times at named points of a commit, in turn"},
					&cli.Uint64Flag{Name: "seed", DefaultText: "a random one", Usage: "draw orders and strikes from `SEED`"},
					&cli.IntFlag{Name: "repeat", Value: 1, Usage: "`R` runs, with seeds that follow one another"},
					&cli.IntFlag{Name: "rate", DefaultText: "as long as the strikes last", Usage: "publish `N` orders a second"},
					&cli.IntFlag{Name: "threads", Value: 1, Usage: "`N` stream threads an instance"},
					&cli.IntFlag{Name: "standby", Usage: "`N` standby replicas of each store"},
					option("static", "static membership: an instance that comes back within its session finds its tasks"),
					option("keep", "leave topics, journals and state of runs that pass too"),
				},
			},
			{
				Name: "counter", ArgsUsage: "NAME [key=value …]", Category: "Its parts", OnUsageError: usageError, Action: l.counter,
				Usage: "run one instance of the application in the foreground",
				Description: "Properties have Kafka Streams' names. Of the lab's own, lab.output.suffix=.x is appended to the names of the output topics,\n" +
					"lab.topic.prefix=x. is what the names of all its user topics begin with, and\n" +
					"lab.crash.after.store17=N kills the instance, as kill -9 does, before it counts its N-th order of store-17.\n" +
					"lab.crash.at=POINT kills it inside the first commit in which it has counted, or the N-th with lab.crash.commit=N, at one of these points:\n" +
					"   " + strings.Join(phases.CrashPoints(), ", ") + "\n" +
					"Kafka Streams' properties:\n" +
					"   " + strings.Join(streams.PropertyNames(), "\n   "),
				Flags: []cli.Flag{
					option("leave", "a clean stop leaves the group also with group.instance.id, whose tasks otherwise wait for a restart within the session"),
					&cli.BoolFlag{Name: phases.StopAtEOF, Hidden: true},
				},
			},
			{
				Name: "feed", ArgsUsage: "BASE", Category: "Its parts", OnUsageError: usageError, Action: l.feed,
				Usage: "publish the 300 orders, from a base on a minute boundary: 2026-09-12T10:00:00Z or epoch ms",
			},
			{
				Name: "send", ArgsUsage: "TOPIC KEY VALUE | --order ID STORE AMOUNT AT", Category: "Kafka's tools", OnUsageError: usageError,
				Usage: "send one record", Action: l.send,
				Flags: []cli.Flag{
					option("null", "a tombstone: TOPIC KEY and no value"),
					&cli.StringFlag{Name: "timestamp", Usage: "the record's `TIME`: RFC 3339 or epoch ms (default: now)"},
					option("order", "a PLACED order to orders.placed, which occurred AT an RFC 3339 instant or epoch ms"),
				},
			},
			{
				Name: "dump", ArgsUsage: "TOPIC", Category: "Kafka's tools", OnUsageError: usageError, Action: l.dump,
				Usage: "print a topic's records, one partition after another",
				Flags: []cli.Flag{
					option("from-beginning", "what is there, then stop (default)"),
					option("follow", "go on with what comes"),
					option("tail", "only what comes; says ready on stderr once it is listening"),
					option("print-key", "key TAB value"),
					option("last", "the last value of each key, by key"),
					option("decode", "internal topics: window keys, counts, dead letters in clear; transaction markers, and which records are aborted"),
					&cli.StringFlag{Name: "isolation", Value: "read_uncommitted", Usage: "isolation `LEVEL`: read_uncommitted or read_committed"},
				},
			},
			{
				Name: "topics", ArgsUsage: "[NAME…]", Category: "Kafka's tools", OnUsageError: usageError, Action: l.topics,
				Usage: "list the topics, or describe some",
				Flags: []cli.Flag{option("create", "create the lab's topics that are missing")},
			},
			{
				Name: "groups", ArgsUsage: "[ID]", Category: "Kafka's tools", OnUsageError: usageError, Action: l.groups,
				Usage: "list the consumer groups, or describe one",
				Flags: []cli.Flag{option("state", "the broker that coordinates group ID, its state and number of members, in place of its offsets")},
			},
			{
				Name: "transactions", ArgsUsage: "[ID | --history [TOPIC…]]", Category: "Kafka's tools", OnUsageError: usageError, Action: l.transactions,
				Usage: "list the transactional ids with their states, describe one, or show what ended transactions did",
				Flags: []cli.Flag{option("history", "transactions by producer id, from the markers in the lab's topics or in those named")},
			},
			{
				Name: "broker", ArgsUsage: "up|down|status", Category: "Its parts", OnUsageError: usageError, Action: needsSubcommand,
				Usage: "start, stop or show the background broker",
				Subcommands: []*cli.Command{
					{Name: "up", Usage: "start it, unless it runs", OnUsageError: usageError, Action: l.brokerUp},
					{
						Name: "down", Usage: "stop it; its data stays", OnUsageError: usageError, Action: l.brokerDown,
						Flags: []cli.Flag{option("force", "kill it if it does not stop, which can tear transactions")},
					},
					{Name: "status", Usage: "show where it answers", OnUsageError: usageError, Action: l.brokerStatus},
					{
						Name: "serve", Hidden: true, OnUsageError: usageError, Action: l.brokerServe,
						Flags: []cli.Flag{&cli.IntFlag{Name: "node"}},
					},
				},
			},
			{Name: "version", Category: "A run of the lab", Usage: "print the version", OnUsageError: usageError, Action: l.version},
		},
	}
}

// option is a flag without a value.
func option(name, usage string, env ...string) *cli.BoolFlag {
	return &cli.BoolFlag{Name: name, Usage: usage, EnvVars: env, DisableDefaultText: true}
}

func junit() *cli.StringFlag {
	return &cli.StringFlag{Name: "junit", Usage: "write the checks as JUnit XML to `FILE`, whatever the verdict"}
}

func usageError(_ *cli.Context, err error, _ bool) error { return args.Errorf("%v", err) }

func needsSubcommand(c *cli.Context) error {
	return args.Errorf("%s needs one of: %s", c.Command.Name, c.Command.ArgsUsage)
}

// positional returns a command's arguments if there are as many as it takes. most < 0 sets no limit.
func positional(c *cli.Context, least, most int) ([]string, error) {
	if n := c.NArg(); n < least || most >= 0 && n > most {
		return nil, args.Errorf("usage: %s", strings.TrimSpace(c.Command.HelpName+" "+c.Command.ArgsUsage))
	}
	return c.Args().Slice(), nil
}

// config gathers the global flags, and properties that say how to reach a cluster. Text for people goes to stderr when stdout is for
// programs.
func (l *lab) config(c *cli.Context, properties ...string) (phases.Config, error) {
	w, err := workspace.Open(c.String("dir"))
	if err != nil {
		return phases.Config{}, err
	}
	out := l.stdout
	if c.Bool("json") {
		out = l.stderr
	}
	logger := slog.New(slog.NewTextHandler(l.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	talk := console.New(console.Config{
		In: l.stdin, Out: out, Interactive: !c.Bool("yes") && console.IsTerminal(l.stdin), Color: l.color(c, out),
	})
	client, err := clientconfig.Read(clientconfig.Sources{File: c.String("config"), Environment: os.Environ(), Arguments: properties})
	if err != nil {
		return phases.Config{}, err
	}
	for _, note := range client.Notes {
		fmt.Fprintf(l.stderr, "lab: %s\n", note)
	}
	at := connect.Options{
		Dir: w.Dir(), Kind: c.String("broker"), Bootstrap: c.String("bootstrap"), Port: c.Int("port"), Nodes: c.Int("nodes"), Client: client,
		Progress: func(line string) { fmt.Fprintln(l.stderr, line) }, Logger: logger,
	}
	if at.Bootstrap == "" && (at.Kind == "" || at.Kind == string(broker.Existing)) {
		at.Bootstrap = client.Bootstrap
	}
	// A choice that makes no sense is told before anything is begun.
	if _, err := at.Choose(); err != nil {
		return phases.Config{}, err
	}
	return phases.Config{
		Workspace: w, Console: talk, Logger: logger, Connect: at, Version: version,
		Warn: func(line string) { fmt.Fprintf(l.stderr, "lab: warning: %s\n", line) },
	}, nil
}

// color follows no-color.org: a NO_COLOR that is not empty means none, whatever it says.
func (l *lab) color(c *cli.Context, out *os.File) bool {
	return !c.Bool("no-color") && os.Getenv("NO_COLOR") == "" && console.IsTerminal(out)
}

// phaseNumbers reads 1, 2 … or all.
func phaseNumbers(word string) ([]int, error) {
	known := phases.Numbers()
	if word == "all" {
		return known, nil
	}
	n, err := strconv.Atoi(word)
	if err != nil || !slices.Contains(known, n) {
		return nil, args.Errorf("no phase %q: there are %s and all", word, strings.Trim(fmt.Sprint(known), "[]"))
	}
	return []int{n}, nil
}

// The bounds of a session timeout are those of a broker with Kafka's defaults (group.min.session.timeout.ms, group.max.session.timeout.ms).
const (
	minSession = 6 * time.Second
	maxSession = 30 * time.Minute
)

func (l *lab) phase(c *cli.Context) error {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	wanted, err := phaseNumbers(words[0])
	if err != nil {
		return err
	}
	cfg, err := l.config(c)
	if err != nil {
		return err
	}
	if cfg.SessionTimeout = c.Duration("session-timeout"); cfg.SessionTimeout < minSession || cfg.SessionTimeout > maxSession {
		return args.Errorf("--session-timeout %s: brokers accept %s to %s", cfg.SessionTimeout, minSession, maxSession)
	}
	if c.IsSet("crash-point") {
		if cfg.CrashPoints, err = crashPoints(c.String("crash-point"), wanted); err != nil {
			return err
		}
	}
	if c.Bool("fresh") {
		if cfg, err = phases.Fresh(c.Context, cfg); err != nil {
			return l.judge(c, phases.Outcome{Err: err})
		}
	}
	report, err := phases.Run(c.Context, cfg, wanted)
	return l.judge(c, phases.Outcome{Report: report, Err: err})
}

// crashPoints reads the names of crash points, which are phase 6's.
func crashPoints(words string, wanted []int) ([]string, error) {
	if !slices.Equal(wanted, []int{6}) {
		return nil, args.Errorf("--crash-point belongs to phase 6")
	}
	known := phases.CrashPoints()
	if words == "all" {
		return known, nil
	}
	points := strings.Split(words, ",")
	for _, p := range points {
		if !slices.Contains(known, p) {
			return nil, args.Unknown("crash point", p, known)
		}
	}
	return points, nil
}

// judge prints the outcome of a command that judges. A usage error is for exitCode alone.
func (l *lab) judge(c *cli.Context, o phases.Outcome) error {
	if isUsage(o.Err) {
		return o.Err
	}
	if c.Err() != nil && o.Err != nil && !errors.Is(o.Err, phases.ErrInterrupted) {
		o.Err = errors.Join(phases.ErrInterrupted, o.Err)
	}
	written := toReader(o.Write(console.Screen{File: l.stdout}, c.Bool("json"), l.color(c, l.stdout)))
	if file := c.String("junit"); file != "" {
		written = errors.Join(written, o.WriteJUnit(file))
	}
	return judged(o.Verdict(), o.Err, o.ToldInFull(), written)
}

// toReader leaves out that the reader of stdout has enough.
func toReader(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// judged is the error for a verdict, whether it could be written or not: a terminal that is gone does not change what was found.
func judged(verdict verify.Verdict, err error, told bool, written error) error {
	written = toReader(written)
	if verdict == verify.Pass {
		return written
	}
	return &gradeError{verdict: verdict, err: errors.Join(err, written), told: told && written == nil}
}

func (l *lab) verify(c *cli.Context) error {
	if c.IsSet("from") {
		return l.verifyHandIns(c)
	}
	if c.Bool("csv") {
		return args.Errorf("verify: --csv needs --from")
	}
	words, err := positional(c, 0, 1)
	if err != nil {
		return err
	}
	var wanted []int // none: those that have been run
	if len(words) == 1 && words[0] != "all" {
		if wanted, err = phaseNumbers(words[0]); err != nil {
			return err
		}
	}
	cfg, err := l.config(c)
	if err != nil {
		return err
	}
	conn, err := connect.Find(c.Context, cfg.Connect)
	if err != nil {
		return l.judge(c, phases.Outcome{Err: err})
	}
	defer conn.Close()
	report, err := verify.Run(c.Context, conn.Client, verify.Options{Phases: wanted, State: cfg.Workspace.State(), Explain: cfg.Explain()})
	cfg.Record(c.Context, conn)
	return l.judge(c, phases.Outcome{Report: report, Err: err})
}

// verifyHandIns grades recordings. A word that is no phase is one more path, as a shell makes them of a pattern.
func (l *lab) verifyHandIns(c *cli.Context) error {
	paths := c.StringSlice("from")
	var opt verify.Options
	for _, word := range c.Args().Slice() {
		if _, err := strconv.Atoi(word); err != nil && word != "all" {
			paths = append(paths, word)
			continue
		}
		wanted, err := phaseNumbers(word)
		if err != nil {
			return err
		}
		opt.Phases = append(opt.Phases, wanted...)
	}
	handIns, err := handin.Find(paths)
	if err != nil {
		return err
	}
	if c.String("junit") != "" && (len(handIns) > 1 || c.Bool("csv")) || c.Bool("csv") && c.Bool("json") {
		return args.Errorf("verify: --csv, --json and --junit exclude each other, and --junit takes one hand-in")
	}
	results := handin.Grade(c.Context, handIns, opt)
	switch {
	case c.Bool("csv"):
		err = results.WriteCSV(l.stdout)
		fmt.Fprintln(l.stderr, results.Summary())
	case len(results) == 1:
		return l.judge(c, phases.Outcome{Report: results[0].Report})
	case c.Bool("json"):
		err = json.NewEncoder(l.stdout).Encode(results)
	default:
		err = results.Write(l.stdout, l.color(c, l.stdout))
	}
	return judged(results.Verdict(), nil, true, err)
}

func (l *lab) status(c *cli.Context) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	cfg, err := l.config(c)
	if err != nil {
		return err
	}
	s, err := phases.GetStatus(c.Context, cfg)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return json.NewEncoder(l.stdout).Encode(s)
	}
	return s.Write(l.stdout)
}

func (l *lab) doctor(c *cli.Context) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	cfg, err := l.config(c)
	if err != nil {
		return err
	}
	report, err := phases.Doctor(c.Context, cfg, version)
	if err != nil {
		return err
	}
	return judged(report.Verdict, nil, true, report.Write(l.stdout, c.Bool("json")))
}

func (l *lab) clean(c *cli.Context) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	cfg, err := l.config(c)
	if err != nil {
		return err
	}
	return phases.Clean(c.Context, cfg)
}

func (l *lab) bench(c *cli.Context) error {
	properties, err := positional(c, 0, -1)
	if err != nil {
		return err
	}
	o := phases.BenchOptions{Records: c.Int("records"), Stores: c.Int("stores"), Properties: properties, Keep: c.Bool("keep")}
	if o.Records < 1 || o.Stores < 1 {
		return args.Errorf("bench: --records and --stores are at least 1")
	}
	if c.Int("runs") < 1 || c.Bool("keep") && c.IsSet("against") {
		return args.Errorf("bench: --runs is at least 1, and --keep does not go with --against")
	}
	if !c.IsSet("against") && (c.IsSet("at-least") || c.IsSet("runs")) {
		return args.Errorf("bench: --at-least and --runs need --against")
	}
	if console.IsTerminal(l.stderr) {
		o.Progress = l.stderr
	}
	cfg, err := l.config(c)
	if err != nil {
		return err
	}
	if against := c.StringSlice("against"); len(against) > 0 {
		comparison, err := phases.CompareBench(c.Context, cfg, o, against, c.Int("runs"), c.Float64("at-least"))
		if err != nil {
			return l.judge(c, phases.Outcome{Err: err})
		}
		return judged(comparison.Verdict, nil, true, comparison.Write(l.stdout, c.Bool("json")))
	}
	result, err := phases.Bench(c.Context, cfg, o)
	if err != nil {
		return l.judge(c, phases.Outcome{Err: err})
	}
	return judged(result.Verdict, nil, true, result.Write(l.stdout, c.Bool("json")))
}

func (l *lab) chaos(c *cli.Context) error {
	properties, err := positional(c, 0, -1)
	if err != nil {
		return err
	}
	o := phases.ChaosOptions{
		Guarantee: c.String("guarantee"), Records: c.Int("records"), Instances: c.Int("instances"), Kills: c.Int("kills"),
		Pauses: c.Int("pauses"), Restarts: c.Int("restarts"), CrashPoints: c.Int("crash-points"), Seed: c.Uint64("seed"), Repeat: c.Int("repeat"),
		Rate: c.Int("rate"), Static: c.Bool("static"), Threads: c.Int("threads"), Standby: c.Int("standby"), Keep: c.Bool("keep"),
		Properties: properties,
	}
	if !c.IsSet("seed") {
		o.Seed = phases.RandomSeed()
	}
	if err := o.Check(); err != nil {
		return err
	}
	if console.IsTerminal(l.stderr) {
		o.Progress = l.stderr
	}
	cfg, err := l.config(c)
	if err != nil {
		return err
	}
	result, err := phases.Chaos(c.Context, cfg, o)
	if isUsage(err) || len(result.Runs) == 0 {
		return l.judge(c, phases.Outcome{Err: err})
	}
	return judged(result.Verdict(), err, true, result.Write(l.stdout, c.Bool("json"), l.color(c, l.stdout)))
}

func (l *lab) counter(c *cli.Context) error {
	words, err := positional(c, 1, -1)
	if err != nil {
		return err
	}
	var security, properties []string
	for _, pair := range words[1:] {
		if clientconfig.IsOurs(pair) {
			security = append(security, pair)
		} else {
			properties = append(properties, pair)
		}
	}
	cfg, err := l.config(c, security...)
	if err != nil {
		return err
	}
	counter, err := instance.Configure(cfg.Workspace, words[0], properties)
	if err != nil {
		return err
	}
	if len(counter.Streams.Bootstrap) > 0 {
		cfg.Connect.Bootstrap = strings.Join(counter.Streams.Bootstrap, ",")
	}
	opt := instance.Options{Out: l.stdout, Logger: cfg.Logger}
	if console.IsTerminal(l.stderr) {
		opt.Terminal = l.stderr
	}
	counter.Streams.LeaveGroup = c.Bool("leave")
	if c.Bool(phases.StopAtEOF) {
		opt.Parent = l.stdin
	}
	conn, err := connect.Up(c.Context, cfg.Connect)
	if c.Err() != nil {
		return nil // it was told to stop before it began, which is a clean stop too
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	return instance.Run(c.Context, conn, counter, opt)
}

func (l *lab) feed(c *cli.Context) error {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	base, err := feed.ParseBase(words[0])
	if err != nil {
		return err
	}
	cfg, err := l.config(c)
	if err != nil {
		return err
	}
	return phases.Feed(c.Context, cfg, base)
}

// withBroker calls do with a client of the broker that runs.
func (l *lab) withBroker(c *cli.Context, do func(cfg phases.Config, conn *connect.Conn) error) error {
	cfg, err := l.config(c)
	if err != nil {
		return err
	}
	conn, err := connect.Find(c.Context, cfg.Connect)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(cfg, conn)
}

func (l *lab) send(c *cli.Context) error {
	m, err := message(c)
	if err != nil {
		return err
	}
	return l.withBroker(c, func(_ phases.Config, conn *connect.Conn) error {
		return kafkatools.Send(c.Context, conn.Client, m)
	})
}

// message reads the arguments of send.
func message(c *cli.Context) (kafka.Message, error) {
	at := time.Now()
	if text := c.String("timestamp"); text != "" {
		var err error
		if at, err = instant(text); err != nil {
			return kafka.Message{}, err
		}
	}
	switch {
	case c.Bool("order") && c.Bool("null"):
		return kafka.Message{}, args.Errorf("--order and --null exclude each other")
	case c.Bool("order"):
		words := c.Args().Slice()
		if len(words) != 4 {
			return kafka.Message{}, args.Errorf("usage: lab send --order ID STORE AMOUNT AT")
		}
		amount, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return kafka.Message{}, args.Errorf("AMOUNT %q is no whole number", words[2])
		}
		occurred, err := instant(words[3])
		if err != nil {
			return kafka.Message{}, err
		}
		o := feed.Order{OrderID: words[0], StoreID: words[1], Status: feed.Placed, Amount: amount, OccurredAt: occurred.UnixMilli()}
		return o.Message(at), nil
	}
	want := 3
	if c.Bool("null") {
		want = 2
	}
	words, err := positional(c, want, want)
	if err != nil {
		return kafka.Message{}, err
	}
	m := kafka.Message{Topic: words[0], Partition: kafka.AnyPartition, Timestamp: at.UnixMilli(), Key: []byte(words[1])}
	if !c.Bool("null") {
		m.Value = []byte(words[2])
	}
	return m, nil
}

// instant reads RFC 3339 or milliseconds since the epoch.
func instant(text string) (time.Time, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, args.Errorf("%q is neither an RFC 3339 instant such as 2026-09-12T10:00:00Z nor milliseconds since the epoch", text)
	}
	return t, nil
}

func (l *lab) dump(c *cli.Context) error {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	read := kafkatools.ReadConfig{
		Topic: words[0], Tail: c.Bool("tail"), Follow: c.Bool("follow") || c.Bool("tail"),
		Ready: func() { fmt.Fprintln(l.stderr, "ready") },
	}
	switch level := c.String("isolation"); level {
	case "read_uncommitted":
		read.Isolation = kafka.ReadUncommitted
	case "read_committed":
		read.Isolation = kafka.ReadCommitted
	default:
		return args.Unknown("isolation level", level, []string{"read_uncommitted", "read_committed"})
	}
	switch {
	case read.Tail && c.Bool("from-beginning"):
		return args.Errorf("--tail and --from-beginning exclude each other")
	case read.Follow && c.Bool("last"):
		return args.Errorf("--last needs an end: it excludes --follow and --tail")
	}
	return l.withBroker(c, func(_ phases.Config, conn *connect.Conn) error {
		return kafkatools.Dump(c.Context, conn.Client, kafkatools.DumpConfig{
			ReadConfig: read, PrintKey: c.Bool("print-key"), JSON: c.Bool("json"), Last: c.Bool("last"), Decode: c.Bool("decode"),
		}, l.stdout)
	})
}

func (l *lab) topics(c *cli.Context) error {
	if c.Bool("create") && c.NArg() > 0 {
		return args.Errorf("topics --create creates all of the lab's topics that are missing, and takes no NAME")
	}
	return l.withBroker(c, func(cfg phases.Config, conn *connect.Conn) error {
		if c.Bool("create") {
			if _, err := provision.Create(c.Context, conn, cfg.Workspace, ""); err != nil {
				return err
			}
		}
		if c.NArg() > 0 {
			return kafkatools.DescribeTopics(c.Context, conn.Client, c.Args().Slice(), l.stdout)
		}
		names, err := kafkatools.TopicNames(c.Context, conn.Client)
		return errors.Join(err, list(l.stdout, names))
	})
}

func (l *lab) groups(c *cli.Context) error {
	words, err := positional(c, 0, 1)
	if err != nil {
		return err
	}
	state := c.Bool("state")
	if state && len(words) == 0 {
		return args.Errorf("groups --state needs the ID of a group")
	}
	return l.withBroker(c, func(_ phases.Config, conn *connect.Conn) error {
		switch {
		case state:
			return kafkatools.WriteGroupState(c.Context, conn.Client, words[0], l.stdout)
		case len(words) == 1:
			return kafkatools.WriteGroup(c.Context, conn.Client, words[0], l.stdout, l.stderr)
		}
		groups, err := conn.ListGroups(c.Context)
		ids := make([]string, len(groups))
		for i, g := range groups {
			ids[i] = g.ID
		}
		return errors.Join(err, list(l.stdout, ids))
	})
}

func (l *lab) transactions(c *cli.Context) error {
	history := c.Bool("history")
	most := 1
	if history {
		most = -1
	}
	words, err := positional(c, 0, most)
	if err != nil {
		return err
	}
	return l.withBroker(c, func(_ phases.Config, conn *connect.Conn) error {
		switch {
		case !history && len(words) == 1:
			return kafkatools.WriteTransaction(c.Context, conn.Client, words[0], l.stdout)
		case !history:
			return kafkatools.WriteTransactions(c.Context, conn.Client, l.stdout)
		case len(words) == 0:
			all, err := kafkatools.TopicNames(c.Context, conn.Client)
			if err != nil {
				return err
			}
			words = slices.DeleteFunc(all, func(name string) bool { return !provision.IsOurs(name) })
		}
		parts, err := kafkatools.History(c.Context, conn.Client, words...)
		if err != nil {
			return err
		}
		return kafkatools.WriteHistory(l.stdout, parts)
	})
}

func list(w io.Writer, words []string) error {
	if len(words) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, strings.Join(words, "\n"))
	return err
}

// broker returns the broker that the global flags choose.
func (l *lab) broker(c *cli.Context) (broker.Broker, error) {
	if _, err := positional(c, 0, 0); err != nil {
		return nil, err
	}
	cfg, err := l.config(c)
	if err != nil {
		return nil, err
	}
	return cfg.Connect.Choose()
}

func (l *lab) brokerUp(c *cli.Context) error {
	b, err := l.broker(c)
	if err != nil {
		return err
	}
	r, err := b.Up(c.Context)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(l.stdout, r.Bootstrap)
	return err
}

func (l *lab) brokerDown(c *cli.Context) error {
	b, err := l.broker(c)
	if err != nil {
		return err
	}
	return b.Down(c.Context, c.Bool("force"))
}

func (l *lab) brokerStatus(c *cli.Context) error {
	b, err := l.broker(c)
	if err != nil {
		return err
	}
	r, err := b.Status(c.Context)
	if err != nil {
		return err
	}
	lines := []string{r.String()}
	if len(r.Nodes) > 1 {
		for _, n := range r.Nodes {
			lines = append(lines, "  "+n.String())
		}
	}
	return list(l.stdout, lines)
}

// brokerServe is the background process itself.
func (l *lab) brokerServe(c *cli.Context) error {
	if n := c.Int("node"); n != 0 {
		return broker.ServeNode(c.Context, broker.ServeNodeConfig{Dir: c.String("dir"), Node: n})
	}
	log := slog.New(slog.NewTextHandler(l.stderr, nil))
	return broker.Serve(c.Context, broker.ServeConfig{Dir: c.String("dir"), Port: c.Int("port"), Log: log})
}

func (l *lab) version(c *cli.Context) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	cli.ShowVersion(c)
	return nil
}
