package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
)

// App runs a topology as one instance of an application: any number of instances with the same application id share its tasks.
type App struct {
	topology  *Topology
	cfg       Config
	log       *slog.Logger
	observers map[string]*Observer

	userSources []string        // topics that the application reads and does not create
	userSinks   []string        // topics that it writes and does not create
	repartition map[string]bool // full names of the repartition topics

	client *kafka.Client
	state  *store.StateDir
	locks  taskLocks
	sums   offsetSums

	standbys *standbys

	// mu keeps the listener's calls apart and guards what follows.
	mu      sync.Mutex
	current State
	threads []threadStatus // by index, less one
}

// NewApp checks the configuration and ties it to the topology. It does not talk to a broker.
func NewApp(t *Topology, cfg Config) (*App, error) {
	if cfg.ClientID == "" {
		cfg.ClientID = cfg.ApplicationID
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	observers, err := t.observersByNode(cfg.Observers)
	if err != nil {
		return nil, err
	}
	a := &App{
		topology: t, cfg: cfg, log: cfg.Logger, observers: observers, repartition: map[string]bool{},
		current: StateCreated, threads: make([]threadStatus, cfg.Threads),
	}
	for _, r := range t.repartitions {
		a.repartition[a.decorate(r.name)] = true
	}
	for _, sub := range t.subs {
		for _, s := range sub.sources {
			if !s.repartition {
				a.userSources = append(a.userSources, s.topics...)
			}
		}
		for _, topic := range sub.sinks {
			if !a.isRepartition(topic) {
				a.userSinks = append(a.userSinks, topic)
			}
		}
	}
	return a, nil
}

// stopTimeout bounds a clean stop; what is not done by then is left to the next start, which loses nothing.
const stopTimeout = 10 * time.Second

// Run processes until ctx ends, then stops cleanly: commit, state files synced, group left. It returns nil after a clean stop, and
// otherwise the error that ended the work. Run may be called once.
func (a *App) Run(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return nil //nolint:nilerr // told to stop before the start: that is a clean stop
	}
	a.state, err = store.OpenStateDir(filepath.Join(a.cfg.StateDir, a.cfg.ApplicationID))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.state.Close()) }()

	if err := a.sums.load(a.state); err != nil {
		a.log.Warn("not all state files can be read; tasks may move without need", "error", err)
	}

	a.setState(StateRebalancing)
	err = a.run(ctx)
	if err != nil {
		a.setState(StatePendingError)
		a.setState(StateError)
		return err
	}
	a.setState(StateNotRunning)
	return nil
}

func (a *App) run(ctx context.Context) error {
	client, err := kafka.New(ctx, kafka.Config{
		Seeds: a.cfg.Bootstrap, ClientID: a.cfg.ClientID, Security: kafka.Security{TLS: a.cfg.TLS, SASL: a.cfg.SASL},
		RetryTimeout: a.cfg.RetryTimeout, Logger: a.log,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer client.Close()
	a.client = client
	if err := a.awaitTopics(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := a.endFormerTransactions(ctx); err != nil {
		return err
	}
	return a.besideStandbys(ctx, a.runThreads)
}

// runThreads runs the stream threads until ctx ends or one of them fails, which stops the others: cleanly, so that they commit.
func (a *App) runThreads(ctx context.Context) error {
	stop, stopThreads := context.WithCancel(ctx)
	defer stopThreads()
	// A clean stop still has to talk to the broker, so the work's context outlives stop by stopTimeout.
	work, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	done := make(chan struct{})
	var watch sync.WaitGroup
	defer watch.Wait()
	defer close(done)
	watch.Go(func() {
		select {
		case <-stop.Done():
		case <-done:
			return
		}
		if ctx.Err() != nil {
			a.setState(StatePendingShutdown)
		}
		deadline := time.NewTimer(stopTimeout)
		defer deadline.Stop()
		select {
		case <-deadline.C:
			abort(fmt.Errorf("the clean stop took longer than %s and was given up; the next start goes on from the last commit", stopTimeout))
		case <-done:
		}
	})

	errs := make([]error, a.cfg.Threads)
	var threads sync.WaitGroup
	for i := range errs {
		threads.Go(func() {
			err := newThread(a, i+1).run(stop, work)
			if err == nil {
				return
			}
			if len(errs) > 1 {
				err = fmt.Errorf("stream thread %d: %w", i+1, err)
			}
			errs[i] = err
			a.setState(StatePendingError)
			stopThreads()
		})
	}
	threads.Wait()
	return errors.Join(errs...)
}

// awaitTopics waits a while for source and sink topics that do not exist, since they may be under creation, and then names them.
func (a *App) awaitTopics(ctx context.Context) error {
	names := slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.userSources, a.userSinks))))
	if len(names) == 0 {
		return nil
	}
	deadline := time.Now().Add(a.cfg.SourceTopicTimeout)
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for said := false; ; said = true {
		found, err := a.client.Topics(ctx, names...)
		if err != nil {
			return fmt.Errorf("source topics: %w", err)
		}
		missing := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return found[n] != nil })
		if len(missing) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return &MissingTopicError{Topics: missing}
		}
		if !said {
			a.waiting(fmt.Sprintf("topics %v do not exist yet", missing))
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
