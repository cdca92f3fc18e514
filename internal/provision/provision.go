// Package provision creates the lab's topics and knows whose topics a broker holds.
package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
)

// Topics are the topics that the lab creates, with the suffix of the output topics. The outputs carry event times that may lie far back, so
// they are kept for ever: a broker's default retention would delete results as they come.
func Topics(suffix string) []kafka.TopicSpec {
	spec := func(name string, configs ...kafka.ConfigEntry) kafka.TopicSpec {
		return kafka.TopicSpec{Name: name, Partitions: topology.Partitions, Replication: -1, Configs: configs}
	}
	forever := kafka.ConfigEntry{Name: "retention.ms", Value: "-1"}
	return []kafka.TopicSpec{
		spec(topology.OrdersPlaced),
		spec(topology.OrdersStatus, kafka.ConfigEntry{Name: "cleanup.policy", Value: "compact"}),
		spec(topology.HighValueOrders+suffix, forever),
		spec(topology.OrdersPerStore+suffix, forever),
		spec(topology.OrdersPerStoreMinute+suffix, forever),
		spec(topology.OrdersWithStatus+suffix, forever),
	}
}

// ForeignError says that a broker or the workspace holds traces of the lab that the workspace's record does not know, so that counts would
// add up from two runs.
type ForeignError struct {
	Topics, Groups []string
	State          string // the folder of local state, "" if there is none
	Ours           bool   // the lab started the broker, so clean can delete its data
}

func (e *ForeignError) Error() string {
	var found []string
	if len(e.Topics) > 0 {
		found = append(found, "topics "+strings.Join(e.Topics, ", "))
	}
	if len(e.Groups) > 0 {
		found = append(found, "groups "+strings.Join(e.Groups, ", "))
	}
	if e.State != "" {
		found = append(found, "local state "+e.State)
	}
	cure := "run `lab clean` first, or use another --dir"
	if !e.Ours && len(e.Topics)+len(e.Groups) > 0 {
		cure = "use a fresh cluster, or delete them with Kafka's own tools"
	}
	return fmt.Sprintf("an earlier run that this workspace has no record of left something behind: %s; %s", strings.Join(found, "; "), cure)
}

// Record tells whether the workspace's record is about the topics that the broker now holds.
type Record struct {
	workspace.Progress
	Known bool
}

// Check compares the workspace's record with the broker. If there is something of the lab that the record does not know, the error is a
// *ForeignError.
func Check(ctx context.Context, conn *connect.Conn, w *workspace.Workspace) (Record, error) {
	_, _, cluster, err := conn.Brokers(ctx)
	if err != nil {
		return Record{}, err
	}
	all, err := conn.Topics(ctx)
	if err != nil {
		return Record{}, err
	}
	p, ok, err := w.Progress()
	if err != nil {
		return Record{}, err
	}
	orders := all[topology.OrdersPlaced]
	if ok && p.ClusterID == cluster && (p.OrdersID == "" || orders != nil && p.OrdersID == kafkatools.TopicID(orders)) {
		return Record{Progress: p, Known: true}, nil
	}
	found := &ForeignError{Ours: conn.Ours()}
	for name := range all {
		if IsOurs(name) {
			found.Topics = append(found.Topics, name)
		}
	}
	slices.Sort(found.Topics)
	groups, err := conn.ListGroups(ctx)
	if err != nil {
		return Record{}, err
	}
	for _, g := range groups {
		if slices.Contains(applications, g.ID) {
			found.Groups = append(found.Groups, g.ID)
		}
	}
	if _, err := os.Stat(w.State()); err == nil {
		found.State = w.State()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Record{}, err
	}
	if len(found.Topics)+len(found.Groups) > 0 || found.State != "" {
		return Record{}, found
	}
	fresh := workspace.Progress{
		ClusterID: cluster, Broker: string(conn.Broker.Kind), Bootstrap: conn.Bootstrap(), Started: time.Now().UTC(), Passed: []int{},
	}
	return Record{Progress: fresh}, nil
}

// The applications of the lab, and the suffixes of their output topics. On a shared cluster a name that only begins like one of the lab's is
// somebody else's.
var (
	applications = []string{
		topology.ApplicationID, topology.ApplicationID + "-eos", topology.ApplicationID + "-alos",
		topology.ApplicationID + "-crash-eos", topology.ApplicationID + "-crash-alos",
	}
	suffixes = []string{"", ".eos", ".alos", ".crash-eos", ".crash-alos"}
)

// internals are the topics that an application with the lab's topology makes for itself.
func internals(application string) []string {
	return []string{
		application + "-" + topology.Repartition, application + "-" + topology.PerStoreChangelog,
		application + "-" + topology.PerStoreMinuteChangelog, application + "-" + topology.StatusChangelog,
		kafkatools.DeadLetters(application),
	}
}

// IsOurs tells the names of the lab's topics, internal ones and those with a suffix included.
func IsOurs(topic string) bool {
	isInternal := func(application string) bool { return slices.Contains(internals(application), topic) }
	isOutput := func(suffix string) bool {
		return slices.ContainsFunc(Topics(suffix), func(s kafka.TopicSpec) bool { return topic == s.Name })
	}
	return slices.ContainsFunc(applications, isInternal) || slices.ContainsFunc(suffixes, isOutput)
}

// Create creates those of the lab's topics that are missing and returns their names. On a broker without a trace of the lab it notes in the
// workspace that what comes is this workspace's; elsewhere it leaves the record alone.
func Create(ctx context.Context, conn *connect.Conn, w *workspace.Workspace, suffix string) ([]string, error) {
	r, err := Check(ctx, conn, w)
	var foreign *ForeignError
	if err != nil && !errors.As(err, &foreign) {
		return nil, err
	}
	before, err := conn.Topics(ctx)
	if err != nil {
		return nil, err
	}
	specs := Topics(suffix)
	missing := slices.DeleteFunc(slices.Clone(specs), func(s kafka.TopicSpec) bool { return before[s.Name] != nil })
	note := foreign == nil && (r.OrdersID == "" || len(missing) > 0)
	if note {
		// Noted before anything exists, so that an interrupted creation is known as ours.
		for _, s := range missing {
			r.Note(s.Name, "")
		}
		if err := w.SaveProgress(r.Progress); err != nil {
			return nil, err
		}
	}
	if _, err := conn.CreateTopics(ctx, specs); err != nil {
		return nil, fmt.Errorf("create the lab's topics: %w", err)
	}
	created := make([]string, len(missing))
	for i, s := range missing {
		created[i] = s.Name
	}
	if !note {
		return created, nil
	}
	after, err := conn.Topics(ctx)
	if err != nil {
		return nil, err
	}
	if orders := after[topology.OrdersPlaced]; orders != nil {
		r.OrdersID = kafkatools.TopicID(orders)
	}
	for _, name := range created {
		if t := after[name]; t != nil {
			r.Note(name, kafkatools.TopicID(t))
		}
	}
	return created, w.SaveProgress(r.Progress)
}
