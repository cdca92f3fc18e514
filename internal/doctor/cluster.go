package doctor

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/topology"
)

// brokers looks at the brokers themselves.
func (e *examination) brokers(ctx context.Context, conn *connect.Conn) {
	brokers, _, cluster, err := conn.Brokers(ctx)
	if err != nil {
		e.add(Unknown, "cluster", "", "%v", err)
		return
	}
	e.add(OK, "cluster", "", "%s on %s, %s: cluster %s of %d brokers",
		conn.Broker.Kind, conn.Bootstrap(), conn.Security.Protocol(), cluster, len(brokers))
	version, err := conn.TransactionVersion(ctx)
	switch {
	case err != nil:
		e.add(Unknown, "transactions", "", "%v", err)
	default:
		e.add(OK, "transactions", "", "transaction.version %d", version)
	}
	delay, err := conn.InitialRebalanceDelay(ctx)
	switch {
	case errors.Is(err, kafka.ClusterAuthorizationFailed):
		e.add(Warn, "rebalance", "Kafka's default is 3 s at each start into an empty group",
			"group.initial.rebalance.delay.ms is not told to this principal: %v", err)
	case err != nil:
		e.add(Unknown, "rebalance", "", "%v", err)
	case delay > 0:
		e.add(Warn, "rebalance", "set it to 0 on a cluster of one's own, or be patient",
			"each start into an empty group waits %s (group.initial.rebalance.delay.ms)", delay)
	default:
		e.add(OK, "rebalance", "", "the first member of a group does not wait (group.initial.rebalance.delay.ms=0)")
	}
}

// topics looks at the lab's topics that are there, and whose they are.
func (e *examination) topics(ctx context.Context, conn *connect.Conn) {
	var foreign *provision.ForeignError
	switch _, err := provision.Check(ctx, conn, e.Workspace); {
	case errors.As(err, &foreign):
		e.add(Fail, "topics", "", "%v", err)
	case err != nil:
		e.add(Unknown, "topics", "", "%v", err)
	}
	specs := provision.Topics("")
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	found, err := conn.Topics(ctx, names...)
	if err != nil {
		e.add(Unknown, "topics", "", "%v", err)
		return
	}
	names = slices.DeleteFunc(names, func(name string) bool { return found[name] == nil })
	if len(names) == 0 {
		e.add(OK, "topics", "", "none of the lab's is there yet")
		return
	}
	configs, err := conn.TopicConfigs(ctx, names...)
	if err != nil {
		e.add(Unknown, "topics", "", "%v", err)
		return
	}
	spoilt := false
	for _, s := range specs {
		if found[s.Name] == nil {
			continue
		}
		for _, f := range e.spoils(s, len(found[s.Name].Partitions), configs[s.Name]) {
			e.findings = append(e.findings, f)
			spoilt = true
		}
	}
	if !spoilt {
		e.add(OK, "topics", "", "%d of %d are there, as the lab makes them", len(names), len(specs))
	}
}

// Kafka's defaults of settings that may spoil a run, for topics that have none of their own.
const (
	defaultRetention = "604800000"
	defaultPolicy    = "delete"
	defaultStamps    = "CreateTime"
	noLimit          = "9223372036854775807"
)

// spoils finds what in a topic's settings would spoil a run. Results carry event times, so a topic of results with a retention loses them as
// they come if these lie further back.
func (e *examination) spoils(spec kafka.TopicSpec, partitions int, configs []kafka.ConfigEntry) []Finding {
	var found []Finding
	add := func(level Level, next, text string) {
		found = append(found, Finding{Level: level, Subject: "topic " + spec.Name, Text: text, Next: next})
	}
	value := func(name, otherwise string) string {
		for _, c := range configs {
			if c.Name == name {
				return c.Value
			}
		}
		return otherwise
	}
	again := "delete it, and let the lab make it"
	alter := func(setting string) string {
		return "kafka-configs --alter --topic " + spec.Name + " --add-config " + setting
	}
	if partitions != int(spec.Partitions) {
		add(Fail, again, strconv.Itoa(partitions)+" partitions, and the lab's grades are about "+strconv.Itoa(int(spec.Partitions)))
	}
	policy, table := value("cleanup.policy", defaultPolicy), spec.Name == topology.OrdersStatus
	switch {
	case table && !strings.Contains(policy, "compact"):
		add(Warn, alter("cleanup.policy=compact"), "cleanup.policy="+policy+": a table is to be compacted, or old statuses are lost")
	case !table && strings.Contains(policy, "compact"):
		add(Fail, alter("cleanup.policy=delete"), "cleanup.policy="+policy+": a stream that is compacted loses records")
	}
	// Those that the lab keeps for ever.
	results := slices.ContainsFunc(spec.Configs, func(c kafka.ConfigEntry) bool { return c.Name == "retention.ms" })
	if ms, err := strconv.ParseInt(value("retention.ms", defaultRetention), 10, 64); err == nil && ms >= 0 && strings.Contains(policy, "delete") {
		age := e.Now.Sub(e.FirstEvent)
		switch keeps := millis(ms); {
		case results && keeps < age+24*time.Hour:
			add(Fail, alter("retention.ms=-1"), "retention.ms="+strconv.FormatInt(ms, 10)+", and results carry event times from "+
				e.FirstEvent.UTC().Format(time.RFC3339)+" on: they are deleted as they come")
		case keeps < 24*time.Hour:
			add(Warn, alter("retention.ms="+defaultRetention), "retention.ms="+strconv.FormatInt(ms, 10)+": records may be gone before a grade reads them")
		}
	}
	if stamps := value("message.timestamp.type", defaultStamps); results && stamps != defaultStamps {
		add(Warn, alter("message.timestamp.type=CreateTime"), "message.timestamp.type="+stamps+": results lose their event times")
	}
	before, err := strconv.ParseInt(value("message.timestamp.before.max.ms", noLimit), 10, 64)
	if err == nil && results && e.Now.Add(-millis(before)).After(e.FirstEvent) {
		add(Fail, alter("message.timestamp.before.max.ms="+noLimit), "message.timestamp.before.max.ms="+strconv.FormatInt(before, 10)+
			": the broker refuses results with event times that far back")
	}
	return found
}

// millis is a setting in milliseconds. Kafka's go further than a time.Duration, and what lies beyond is as good as for ever.
func millis(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/2/int64(time.Millisecond))) * time.Millisecond
}
