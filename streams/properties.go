package streams

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/xrash/smetrics"
)

// PropertyError is a configuration property that cannot be used.
type PropertyError struct {
	Key     string
	Unknown bool
	Nearest string // the known property whose name is most like an unknown one; "" if none is
	Reason  string
}

func (e *PropertyError) Error() string {
	if !e.Unknown {
		return fmt.Sprintf("property %s: %s", e.Key, e.Reason)
	}
	if e.Nearest != "" {
		return fmt.Sprintf("unknown property %q: did you mean %s?", e.Key, e.Nearest)
	}
	return fmt.Sprintf("unknown property %q", e.Key)
}

// property ties a Kafka Streams property name to its field.
type property struct {
	key string
	get func(*Config) string
	set func(*Config, string) error
}

// properties is the one list of property names, in the order in which they are printed.
var properties = []property{
	text("application.id", func(c *Config) *string { return &c.ApplicationID }),
	{
		"bootstrap.servers",
		func(c *Config) string { return strings.Join(c.Bootstrap, ",") },
		func(c *Config, v string) error {
			c.Bootstrap = strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })
			return nil
		},
	},
	text("client.id", func(c *Config) *string { return &c.ClientID }),
	text("group.instance.id", func(c *Config) *string { return &c.GroupInstanceID }),
	number("num.stream.threads", 32, func(c *Config) *int { return &c.Threads }),
	number("num.standby.replicas", 32, func(c *Config) *int { return &c.StandbyReplicas }),
	text("state.dir", func(c *Config) *string { return &c.StateDir }),
	text("processing.guarantee", func(c *Config) *Guarantee { return &c.ProcessingGuarantee }),
	millis("commit.interval.ms", func(c *Config) *time.Duration { return &c.CommitInterval }),
	millis("transaction.timeout.ms", func(c *Config) *time.Duration { return &c.TransactionTimeout }),
	millis("commit.idle.ms", func(c *Config) *time.Duration { return &c.CommitIdle }),
	number("statestore.cache.max.bytes", 64, func(c *Config) *int64 { return &c.CacheMaxBytes }),
	number("buffered.records.per.partition", 32, func(c *Config) *int { return &c.BufferedRecords }),
	number("max.poll.records", 32, func(c *Config) *int { return &c.MaxPollRecords }),
	number("replication.factor", 16, func(c *Config) *int16 { return &c.ReplicationFactor }),
	text("auto.offset.reset", func(c *Config) *OffsetReset { return &c.AutoOffsetReset }),
	text("deserialization.exception.handler", func(c *Config) *ErrorHandler { return &c.ErrorHandler }),
	millis("session.timeout.ms", func(c *Config) *time.Duration { return &c.SessionTimeout }),
	millis("heartbeat.interval.ms", func(c *Config) *time.Duration { return &c.HeartbeatInterval }),
	millis("max.poll.interval.ms", func(c *Config) *time.Duration { return &c.RebalanceTimeout }),
	millis("repartition.purge.interval.ms", func(c *Config) *time.Duration { return &c.RepartitionPurgeInterval }),
	millis("windowstore.changelog.additional.retention.ms", func(c *Config) *time.Duration { return &c.WindowChangelogAdditionalRetention }),
	truth("task.time.alignment", func(c *Config) *bool { return &c.TaskTimeAlignment }),
	millis("task.time.alignment.max.wait.ms", func(c *Config) *time.Duration { return &c.TaskTimeAlignmentMaxWait }),
	truth("window.stream.time.restore", func(c *Config) *bool { return &c.WindowStreamTimeRestore }),
	millis("retry.timeout.ms", func(c *Config) *time.Duration { return &c.RetryTimeout }),
	millis("source.topic.timeout.ms", func(c *Config) *time.Duration { return &c.SourceTopicTimeout }),
}

func text[T ~string](key string, field func(*Config) *T) property {
	return property{
		key,
		func(c *Config) string { return string(*field(c)) },
		func(c *Config, v string) error { *field(c) = T(v); return nil },
	}
}

func number[T ~int | ~int16 | ~int64](key string, bits int, field func(*Config) *T) property {
	return property{
		key,
		func(c *Config) string { return strconv.FormatInt(int64(*field(c)), 10) },
		func(c *Config, v string) error {
			n, err := strconv.ParseInt(v, 10, bits)
			if err != nil {
				return fmt.Errorf("%q is not a whole number of that size", v)
			}
			*field(c) = T(n)
			return nil
		},
	}
}

// maxMillis is the longest time.Duration. Kafka's own properties go further; what lies beyond is as good as for ever.
const maxMillis = math.MaxInt64 / int64(time.Millisecond)

func millis(key string, field func(*Config) *time.Duration) property {
	return property{
		key,
		func(c *Config) string { return strconv.FormatInt(field(c).Milliseconds(), 10) },
		func(c *Config, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return fmt.Errorf("%q is not a whole number of milliseconds", v)
			}
			*field(c) = time.Duration(max(-maxMillis, min(n, maxMillis))) * time.Millisecond
			return nil
		},
	}
}

func truth(key string, field func(*Config) *bool) property {
	return property{
		key,
		func(c *Config) string { return strconv.FormatBool(*field(c)) },
		func(c *Config, v string) error {
			b, err := strconv.ParseBool(v)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", v)
			}
			*field(c) = b
			return nil
		},
	}
}

// ParseProperties sets key=value pairs over base, later ones over earlier ones. It returns *PropertyError for a pair that it cannot use.
// Whether the whole makes sense is NewApp's to say.
func ParseProperties(base Config, pairs []string) (Config, error) {
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return base, &PropertyError{Key: pair, Reason: "write it as key=value"}
		}
		p := findProperty(key)
		if p == nil {
			return base, &PropertyError{Key: key, Unknown: true, Nearest: nearestProperty(key)}
		}
		if err := p.set(&base, value); err != nil {
			return base, &PropertyError{Key: key, Reason: err.Error()}
		}
	}
	return base, nil
}

// Properties gives each known property as key=value, in a fixed order: what a run used, fit to be printed or parsed again.
func (c Config) Properties() []string {
	out := make([]string, len(properties))
	for i, p := range properties {
		out[i] = p.key + "=" + p.get(&c)
	}
	return out
}

// PropertyNames lists the known property names.
func PropertyNames() []string {
	out := make([]string, len(properties))
	for i, p := range properties {
		out[i] = p.key
	}
	return out
}

func findProperty(key string) *property {
	for i := range properties {
		if properties[i].key == key {
			return &properties[i]
		}
	}
	return nil
}

// nearestProperty is the known name with the smallest edit distance, unless that is more than half of the name.
func nearestProperty(key string) string {
	best, bestDistance := "", len(key)/2+1
	for _, p := range properties {
		if d := smetrics.WagnerFischer(strings.ToLower(key), p.key, 1, 1, 1); d < bestDistance {
			best, bestDistance = p.key, d
		}
	}
	return best
}
