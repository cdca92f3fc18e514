package phases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/windowed-order-counter/lab/broker"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
)

// Status is what runs in a workspace and how far it has come.
type Status struct {
	Dir       string               `json:"dir"`
	Broker    *broker.Record       `json:"broker"` // null: none runs
	Instances []workspace.Instance `json:"instances"`
	Tasks     []InstanceTasks      `json:"tasks"`
	Group     *GroupStatus         `json:"group"` // null: nothing could be asked
	Counts    []Count              `json:"counts"`
	Late      LateStatus           `json:"late"`
	// DeadLetters are the records that could not be processed, by kind.
	DeadLetters []kafkatools.KindCount `json:"dead_letters"`
	Passed      []int                  `json:"passed"` // phases
	// Damaged are the records that cannot be read, in words.
	Damaged []string `json:"damaged,omitempty"`
}

// InstanceTasks is what an instance of the lab's application works on, and what it keeps warm copies of.
type InstanceTasks struct {
	Instance string         `json:"instance"`
	Active   []journal.Task `json:"active"`
	Standby  []journal.Task `json:"standby"`
}

// GroupStatus is the state of the application's group.
type GroupStatus struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Lag   *int64 `json:"lag"` // null: the application has no inputs yet
}

// Count is the running count of a store.
type Count struct {
	Store string `json:"store"`
	Count string `json:"count"`
}

// GetStatus looks and changes nothing. A workspace without a broker is no error.
func GetStatus(ctx context.Context, cfg Config) (Status, error) {
	s := Status{Dir: cfg.Workspace.Dir(), Instances: []workspace.Instance{}, Tasks: []InstanceTasks{}, Counts: []Count{}, DeadLetters: []kafkatools.KindCount{}, Passed: []int{}}
	instances, err := cfg.Workspace.Instances()
	if err != nil && !s.damaged(err) {
		return s, err
	}
	s.Instances = append(s.Instances, instances...)
	if s.Tasks, err = instanceTasks(cfg.Workspace, instances); err != nil {
		return s, err
	}
	progress, _, err := cfg.Workspace.Progress()
	if err != nil && !s.damaged(err) {
		return s, err
	}
	s.Passed = append(s.Passed, progress.Passed...)
	if s.Late, err = lateOrders(cfg.Workspace); err != nil {
		return s, err
	}
	conn, err := connect.Find(ctx, cfg.Connect)
	if errors.Is(err, broker.ErrNotRunning) || s.damaged(err) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer conn.Close()
	s.Broker = &conn.Broker
	group, err := conn.DescribeGroup(ctx, topology.ApplicationID)
	if err != nil {
		return s, err
	}
	s.Group = &GroupStatus{ID: group.ID, State: group.State}
	topics, err := conn.Topics(ctx, topology.OrdersPlaced, topology.OrdersStatus, repartitionTopic, topology.OrdersPerStore)
	if err != nil {
		return s, err
	}
	if topics[topology.OrdersPlaced] != nil && topics[topology.OrdersStatus] != nil && topics[repartitionTopic] != nil {
		r := &run{Config: cfg, conn: conn}
		lag, err := r.lag(ctx)
		if err != nil {
			return s, err
		}
		s.Group.Lag = &lag
	}
	if topics[topology.OrdersPerStore] != nil {
		if s.Counts, err = counts(ctx, conn.Client); err != nil {
			return s, err
		}
	}
	dead, err := kafkatools.CountDeadLetters(ctx, conn.Client, topology.ApplicationID)
	s.DeadLetters = append(s.DeadLetters, dead...)
	return s, err
}

// instanceTasks is what the instances that run have last told of their tasks.
func instanceTasks(w *workspace.Workspace, live []workspace.Instance) ([]InstanceTasks, error) {
	events, err := journal.ReadAll(w.Journals(), topology.ApplicationID)
	if err != nil {
		return nil, err
	}
	live = slices.DeleteFunc(slices.Clone(live), func(in workspace.Instance) bool { return in.Application != topology.ApplicationID })
	list := []InstanceTasks{}
	for _, m := range members(events, live) {
		t := InstanceTasks{Instance: m.name, Active: []journal.Task{}, Standby: []journal.Task{}}
		if m.tasks != nil {
			t.Active = append(t.Active, m.tasks.Active...)
		}
		if m.standbys != nil {
			t.Standby = append(t.Standby, m.standbys.Standby...)
		}
		list = append(list, t)
	}
	return list, nil
}

// ids are the tasks in their order, in one line.
func ids(tasks []journal.Task) string {
	var list []string
	for _, t := range tasks {
		id := t.ID
		if t.Thread > 0 {
			id += fmt.Sprintf(" (thread %d)", t.Thread)
		}
		list = append(list, id)
	}
	return strings.Join(list, " ")
}

// damaged notes an error that says only that a record cannot be read, and reports whether it is one.
func (s *Status) damaged(err error) bool {
	var damaged *workspace.DamagedError
	if !errors.As(err, &damaged) && !errors.Is(err, broker.ErrDamagedRecord) {
		return false
	}
	s.Damaged = append(s.Damaged, strings.Split(err.Error(), "\n")...)
	return true
}

func counts(ctx context.Context, client *kafka.Client) ([]Count, error) {
	var rows bytes.Buffer
	err := kafkatools.Dump(ctx, client, kafkatools.DumpConfig{
		ReadConfig: kafkatools.ReadConfig{Topic: topology.OrdersPerStore, Isolation: kafka.ReadCommitted}, Last: true,
	}, &rows)
	all := []Count{}
	for row := range strings.Lines(rows.String()) {
		store, count, _ := strings.Cut(strings.TrimSuffix(row, "\n"), "\t")
		all = append(all, Count{Store: store, Count: count})
	}
	return all, err
}

// Write prints the status for people.
func (s Status) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "workspace\t%s\n", s.Dir)
	if s.Broker == nil {
		fmt.Fprintln(t, "broker\tnone")
	} else {
		fmt.Fprintf(t, "broker\t%s\n", s.Broker)
	}
	if len(s.Instances) == 0 {
		fmt.Fprintln(t, "instances\tnone")
	}
	for _, in := range s.Instances {
		fmt.Fprintf(t, "instance\t%s of %s, pid %d, %s, since %s\n",
			in.Name, in.Application, in.PID, in.Guarantee, in.Started.Format(time.RFC3339))
	}
	for _, in := range s.Tasks {
		fmt.Fprintf(t, "active tasks\t%s: %s\n", in.Instance, ids(in.Active))
		if len(in.Standby) > 0 {
			fmt.Fprintf(t, "standby tasks\t%s: %s\n", in.Instance, ids(in.Standby))
		}
	}
	if s.Group != nil {
		lag := "unknown"
		if s.Group.Lag != nil {
			lag = fmt.Sprint(*s.Group.Lag)
		}
		fmt.Fprintf(t, "group\t%s: %s, lag %s\n", s.Group.ID, s.Group.State, lag)
	}
	for _, c := range s.Counts {
		fmt.Fprintf(t, "count\t%s %s\n", c.Store, c.Count)
	}
	for _, d := range s.DeadLetters {
		fmt.Fprintf(t, "dead letters\t%d: %s\n", d.Records, d.Kind)
	}
	s.Late.write(t)
	for _, d := range s.Damaged {
		fmt.Fprintf(t, "damaged\t%s\n", d)
	}
	passed := "none"
	if len(s.Passed) > 0 {
		passed = strings.Trim(fmt.Sprint(s.Passed), "[]")
	}
	fmt.Fprintf(t, "phases passed\t%s\n", passed)
	return t.Flush()
}
