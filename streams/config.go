package streams

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// Guarantee is the processing guarantee of an application.
type Guarantee string

const (
	// AtLeastOnce replays, after a crash, what was processed since the last commit.
	AtLeastOnce Guarantee = "at_least_once"
	// ExactlyOnce commits results, state and offsets of a thread in one transaction. It needs brokers of 2.5 or newer.
	ExactlyOnce Guarantee = "exactly_once_v2"
)

// OffsetReset says where to start in a partition for which the group has no committed offset.
type OffsetReset string

// ResetEarliest starts at the log start; ResetNone stops the application.
const (
	ResetEarliest OffsetReset = "earliest"
	ResetNone     OffsetReset = "none"
)

// Config is what an application needs beside its topology. Start from DefaultConfig: zero durations and sizes are refused, not replaced.
// The property names in the comments are those of ParseProperties.
type Config struct {
	// ApplicationID (application.id) is the group id, the prefix of the internal topics and the name of the state folder.
	ApplicationID string
	// ClientID (client.id) is what brokers show and log. Default: the application id.
	ClientID string
	// Bootstrap (bootstrap.servers) is host:port of one or more brokers.
	Bootstrap []string
	TLS       *tls.Config    // nil: plain text
	SASL      sasl.Mechanism // nil: no authentication
	// Threads (num.stream.threads) is how many stream threads share the tasks of this instance. Each is a member of the group with a producer
	// of its own. User functions, serdes, extractors and observers are called by all of them at the same time; processors and stores are each
	// a task's own. More threads than tasks have nothing to do.
	Threads int
	// StandbyReplicas (num.standby.replicas) is how many warm copies of each task's stores other processes keep, so that one of them can take
	// the task over without a restore. The setting of the group's leader counts, so give all instances the same.
	StandbyReplicas int
	// GroupInstanceID (group.instance.id) makes the threads static members of the group, as <id>-<thread> (KIP-345): after a clean stop, or a
	// crash, their tasks wait for them for SessionTimeout, and a restart within that time is no rebalance for the others. Each instance needs
	// an id of its own. "": a clean stop gives the tasks to the others at once.
	GroupInstanceID string
	// LeaveGroup lets a clean stop of static members leave the group, as those of an instance that does not come back should.
	LeaveGroup bool
	// StateDir (state.dir) holds a folder per application id. One process at a time may use an application's folder.
	StateDir string
	// ProcessingGuarantee (processing.guarantee).
	ProcessingGuarantee Guarantee
	// CommitInterval (commit.interval.ms) is the longest time between two commits while records flow. 0 takes the guarantee's own: 30 s at
	// least once, 100 ms exactly once, where it is also the delay with which results become visible.
	CommitInterval time.Duration
	// TransactionTimeout (transaction.timeout.ms) is how long the broker lets a transaction stay open before it aborts it. Exactly once only.
	TransactionTimeout time.Duration
	// CommitIdle (commit.idle.ms) commits this long after the input has drained, if anything was processed since the last commit, so that
	// results of a lone record need not wait for CommitInterval. Negative: off.
	CommitIdle time.Duration
	// CacheMaxBytes (statestore.cache.max.bytes) is the size of the write-back cache above the stores, divided equally among the threads. A
	// cache over its part commits early. With 0 there is none: each change of a table goes to its changelog and downstream at once, so each
	// input has an output of its own.
	CacheMaxBytes int64
	// BufferedRecords (buffered.records.per.partition) is how many records wait in a partition's queue before it is not fetched any more.
	BufferedRecords int
	// MaxPollRecords (max.poll.records) is how many records a sub-topology may process in one go, before the others, commits and fetch answers
	// have their turn.
	MaxPollRecords int
	// ReplicationFactor (replication.factor) of internal topics; -1 leaves it to the broker.
	ReplicationFactor int16
	// AutoOffsetReset (auto.offset.reset). Only for a partition without committed offset: an offset that has become out of range stops the
	// application, it is never reset silently.
	AutoOffsetReset OffsetReset
	// ErrorHandler (deserialization.exception.handler) for input records that cannot be processed.
	ErrorHandler ErrorHandler
	// SessionTimeout (session.timeout.ms) is how long a silent member keeps its tasks. The broker has bounds: 6 s to 30 min by default.
	SessionTimeout time.Duration
	// HeartbeatInterval (heartbeat.interval.ms).
	HeartbeatInterval time.Duration
	// RebalanceTimeout (max.poll.interval.ms) is how long a member may take to commit and rejoin when the group rebalances.
	RebalanceTimeout time.Duration
	// RepartitionPurgeInterval (repartition.purge.interval.ms) is how often records that are read and committed are deleted from
	// repartition topics.
	RepartitionPurgeInterval time.Duration
	// WindowChangelogAdditionalRetention (windowstore.changelog.additional.retention.ms) is added to a window store's retention for its
	// changelog topic.
	WindowChangelogAdditionalRetention time.Duration
	// TaskTimeAlignment (task.time.alignment) lets one thread work through the tasks of a sub-topology in time order where that sub-topology
	// writes a repartition topic, so that a catch-up does not make records late downstream. Java Kafka Streams does not do this.
	TaskTimeAlignment bool
	// TaskTimeAlignmentMaxWait (task.time.alignment.max.wait.ms) is how long the others wait for a task of which it is not known whether
	// it has records.
	TaskTimeAlignmentMaxWait time.Duration
	// WindowStreamTimeRestore (window.stream.time.restore) keeps the stream time of windowed aggregations over restarts, so that a record
	// that was late before is late after. false is Java's way: stream time starts at -1.
	WindowStreamTimeRestore bool
	// RetryTimeout (retry.timeout.ms) is how long a broker may be out of reach before the application gives up.
	RetryTimeout time.Duration
	// SourceTopicTimeout (source.topic.timeout.ms) is how long to wait at start for a missing source topic.
	SourceTopicTimeout time.Duration

	Logger    *slog.Logger // default: discard
	Listener  Listener     // what the application reports; see there
	Observers []*Observer  // hooks around processors
	Failpoint *Failpoint   // for tests of applications: a hook inside commits
}

// DefaultConfig is Java Kafka Streams' configuration where it has one. ApplicationID, Bootstrap and StateDir have no default.
func DefaultConfig() Config {
	return Config{
		Threads:                            1,
		ProcessingGuarantee:                AtLeastOnce,
		TransactionTimeout:                 10 * time.Second,
		CommitIdle:                         5 * time.Millisecond,
		CacheMaxBytes:                      10 << 20,
		BufferedRecords:                    4000,
		MaxPollRecords:                     1000,
		ReplicationFactor:                  -1,
		AutoOffsetReset:                    ResetEarliest,
		ErrorHandler:                       DeadLetters,
		SessionTimeout:                     45 * time.Second,
		HeartbeatInterval:                  3 * time.Second,
		RebalanceTimeout:                   5 * time.Minute,
		RepartitionPurgeInterval:           30 * time.Second,
		WindowChangelogAdditionalRetention: 24 * time.Hour,
		TaskTimeAlignment:                  true,
		TaskTimeAlignmentMaxWait:           5 * time.Second,
		WindowStreamTimeRestore:            true,
		RetryTimeout:                       time.Minute,
		SourceTopicTimeout:                 10 * time.Second,
	}
}

// overlayBytes bounds the changes of one thread that wait for a commit. They are in memory also where no cache holds back their output.
func (c *Config) overlayBytes() int64 {
	if c.CacheMaxBytes == 0 {
		return DefaultConfig().CacheMaxBytes / int64(c.Threads)
	}
	return c.CacheMaxBytes / int64(c.Threads)
}

// applicationID is what may stand in a topic name, since internal topics begin with it.
var applicationID = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,200}$`)

// groupInstanceID is what brokers take, with room for the number of a thread.
var groupInstanceID = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,240}$`)

// validate is called once, by NewApp.
func (c *Config) validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, &PropertyError{Key: key, Reason: fmt.Sprintf(format, args...)})
	}
	if !applicationID.MatchString(c.ApplicationID) || c.ApplicationID == "." || c.ApplicationID == ".." {
		bad("application.id", "%q: up to 200 letters, digits, dots, dashes and underscores, since topics are named after it", c.ApplicationID)
	}
	if len(c.Bootstrap) == 0 {
		bad("bootstrap.servers", "no broker address given")
	}
	if c.Threads < 1 {
		bad("num.stream.threads", "%d: at least 1", c.Threads)
	}
	if c.StandbyReplicas < 0 {
		bad("num.standby.replicas", "%d: at least 0", c.StandbyReplicas)
	}
	if c.GroupInstanceID != "" && !groupInstanceID.MatchString(c.GroupInstanceID) {
		bad("group.instance.id", "%q: up to 240 letters, digits, dots, dashes and underscores", c.GroupInstanceID)
	}
	if c.StateDir == "" {
		bad("state.dir", "no folder given")
	}
	switch c.ProcessingGuarantee {
	case AtLeastOnce:
		if c.CommitInterval == 0 {
			c.CommitInterval = 30 * time.Second
		}
	case ExactlyOnce:
		if c.CommitInterval == 0 {
			c.CommitInterval = 100 * time.Millisecond
		}
		if c.CommitInterval > c.TransactionTimeout {
			bad("commit.interval.ms", "%d ms: transactions would be aborted at transaction.timeout.ms (%d) before they are committed",
				c.CommitInterval.Milliseconds(), c.TransactionTimeout.Milliseconds())
		}
	default:
		bad("processing.guarantee", "%q: %s or %s", c.ProcessingGuarantee, AtLeastOnce, ExactlyOnce)
	}
	switch c.AutoOffsetReset {
	case ResetEarliest, ResetNone:
	default:
		bad("auto.offset.reset", "%q: %s or %s", c.AutoOffsetReset, ResetEarliest, ResetNone)
	}
	switch c.ErrorHandler {
	case DeadLetters, FailOnError:
	default:
		bad("deserialization.exception.handler", "%q: %s or %s", c.ErrorHandler, DeadLetters, FailOnError)
	}
	for _, d := range []struct {
		key string
		d   time.Duration
	}{
		{"commit.interval.ms", c.CommitInterval},
		{"transaction.timeout.ms", c.TransactionTimeout},
		{"session.timeout.ms", c.SessionTimeout},
		{"heartbeat.interval.ms", c.HeartbeatInterval},
		{"max.poll.interval.ms", c.RebalanceTimeout},
		{"repartition.purge.interval.ms", c.RepartitionPurgeInterval},
		{"task.time.alignment.max.wait.ms", c.TaskTimeAlignmentMaxWait},
		{"retry.timeout.ms", c.RetryTimeout},
		{"source.topic.timeout.ms", c.SourceTopicTimeout},
	} {
		if d.d < time.Millisecond {
			bad(d.key, "%d ms: at least 1", d.d.Milliseconds())
		}
	}
	if c.HeartbeatInterval*2 > c.SessionTimeout {
		bad("heartbeat.interval.ms", "%d ms: at most half of session.timeout.ms (%d), or one lost beat ends the session",
			c.HeartbeatInterval.Milliseconds(), c.SessionTimeout.Milliseconds())
	}
	if c.WindowChangelogAdditionalRetention < 0 {
		bad("windowstore.changelog.additional.retention.ms", "negative")
	}
	if c.CacheMaxBytes < 0 {
		bad("statestore.cache.max.bytes", "negative")
	}
	if c.BufferedRecords < 1 {
		bad("buffered.records.per.partition", "%d: at least 1", c.BufferedRecords)
	}
	if c.MaxPollRecords < 1 {
		bad("max.poll.records", "%d: at least 1", c.MaxPollRecords)
	}
	if c.ReplicationFactor == 0 || c.ReplicationFactor < -1 {
		bad("replication.factor", "%d: -1 (the broker's default) or at least 1", c.ReplicationFactor)
	}
	errs = append(errs, c.Failpoint.validate(c.ProcessingGuarantee))
	return errors.Join(errs...)
}
