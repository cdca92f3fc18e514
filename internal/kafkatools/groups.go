package kafkatools

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
)

// Group is a consumer group with its progress.
type Group struct {
	ID, State string
	Rows      []GroupRow
	Standbys  []GroupStandby
}

// GroupStandby is a standby task, of which a member keeps a copy. Kafka's own tool does not know of them: they have no partitions to consume.
type GroupStandby struct {
	Task     string
	MemberID string
	Host     string
	ClientID string
}

// GroupRow is one partition of a group: assigned to a member, committed, or both.
type GroupRow struct {
	kafka.TopicPartition
	Current  int64 // the committed offset, -1 for none
	End      int64 // the high watermark
	MemberID string
	Host     string
	ClientID string
}

// Lag is how far the group is behind, and unknown without a committed offset.
func (r GroupRow) Lag() (lag int64, known bool) {
	if r.Current < 0 {
		return 0, false
	}
	return r.End - r.Current, true
}

// DescribeGroup asks for a group's members, offsets and log ends. A group that does not exist has state Dead and no rows.
func DescribeGroup(ctx context.Context, client *kafka.Client, id string) (Group, error) {
	d, err := client.DescribeGroup(ctx, id)
	if err != nil {
		return Group{}, err
	}
	committed, err := client.CommittedOffsets(ctx, id, nil)
	if err != nil {
		return Group{}, err
	}
	// The members with the most partitions come first, as in Kafka's tool, and what nobody owns last.
	members := slices.Clone(d.Members)
	slices.SortStableFunc(members, func(a, b kafka.GroupMember) int { return cmp.Compare(len(b.Assigned), len(a.Assigned)) })
	var rows []GroupRow
	var standbys []GroupStandby
	owned := map[kafka.TopicPartition]bool{}
	for _, m := range members {
		for _, tp := range slices.SortedFunc(slices.Values(m.Assigned), kafka.TopicPartition.Compare) {
			owned[tp] = true
			rows = append(rows, GroupRow{TopicPartition: tp, MemberID: m.MemberID, Host: m.Host, ClientID: m.ClientID})
		}
		for _, task := range streams.StandbysOf(m.Given) {
			standbys = append(standbys, GroupStandby{Task: task.String(), MemberID: m.MemberID, Host: m.Host, ClientID: m.ClientID})
		}
	}
	for _, tp := range slices.SortedFunc(maps.Keys(committed), kafka.TopicPartition.Compare) {
		if !owned[tp] {
			rows = append(rows, GroupRow{TopicPartition: tp, MemberID: "-", Host: "-", ClientID: "-"})
		}
	}
	tps := make([]kafka.TopicPartition, len(rows))
	for i := range rows {
		tps[i] = rows[i].TopicPartition
	}
	ends, err := client.ListOffsets(ctx, tps, kafka.LatestOffset, kafka.ReadUncommitted)
	if err != nil {
		return Group{}, err
	}
	for i, tp := range tps {
		rows[i].Current, rows[i].End = -1, ends[tp]
		if c, ok := committed[tp]; ok {
			rows[i].Current = c.Offset
		}
	}
	return Group{ID: id, State: d.State, Rows: rows, Standbys: standbys}, nil
}

// Write prints a group in the layout of kafka-consumer-groups --describe, and below it the standby tasks, if there are any.
func (g Group) Write(w io.Writer) error {
	const least = 15 // of these columns, in org.apache.kafka.tools.consumer.group.ConsumerGroupCommand
	group, topic, member, host := least, least, least, least
	for _, r := range g.Rows {
		group, topic = max(group, len(g.ID)), max(topic, len(r.Topic))
		member, host = max(member, len(r.MemberID)), max(host, len(r.Host))
	}
	for _, s := range g.Standbys { // their members may own nothing
		member, host = max(member, len(s.MemberID)), max(host, len(s.Host))
	}
	out := bufio.NewWriter(w)
	line := func(cells ...string) {
		fmt.Fprintf(out, "%-*s %-*s %-10s %-15s %-15s %-15s %-*s %-*s %s\n", group, cells[0], topic, cells[1],
			cells[2], cells[3], cells[4], cells[5], member, cells[6], host, cells[7], cells[8])
	}
	fmt.Fprintln(out)
	line("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
	for _, r := range g.Rows {
		current, behind := "-", "-"
		if lag, known := r.Lag(); known {
			current, behind = strconv.FormatInt(r.Current, 10), strconv.FormatInt(lag, 10)
		}
		line(g.ID, r.Topic, strconv.Itoa(int(r.Partition)), current, strconv.FormatInt(r.End, 10), behind, r.MemberID, r.Host, r.ClientID)
	}
	if len(g.Standbys) > 0 {
		fmt.Fprintf(out, "\n%-*s %-15s %-*s %-*s %s\n", group, "GROUP", "STANDBY-TASK", member, "CONSUMER-ID", host, "HOST", "CLIENT-ID")
		for _, s := range g.Standbys {
			fmt.Fprintf(out, "%-*s %-15s %-*s %-*s %s\n", group, g.ID, s.Task, member, s.MemberID, host, s.Host, s.ClientID)
		}
	}
	return out.Flush()
}

// Lag is how many records of the topics a group has not committed yet. The ends are asked for after the commits: where it is zero, all that
// the committed records led to was written before.
func Lag(ctx context.Context, client *kafka.Client, group string, topics ...string) (int64, error) {
	var tps []kafka.TopicPartition
	for _, topic := range topics {
		more, err := partitionsOf(ctx, client, topic)
		if err != nil {
			return 0, err
		}
		tps = append(tps, more...)
	}
	committed, err := client.CommittedOffsets(ctx, group, tps)
	if err != nil {
		return 0, err
	}
	starts, err := client.ListOffsets(ctx, tps, kafka.EarliestOffset, kafka.ReadUncommitted)
	if err != nil {
		return 0, err
	}
	ends, err := client.ListOffsets(ctx, tps, kafka.LatestOffset, kafka.ReadUncommitted)
	if err != nil {
		return 0, err
	}
	var lag int64
	for _, tp := range tps {
		done := starts[tp]
		if c, ok := committed[tp]; ok {
			done = c.Offset
		}
		lag += ends[tp] - done
	}
	return lag, nil
}

// WriteGroup describes a group on out as kafka-consumer-groups --describe does, with its remarks about a group without members or in a
// rebalance, which has no assignment to show, on notes.
func WriteGroup(ctx context.Context, client *kafka.Client, id string, out, notes io.Writer) error {
	g, err := DescribeGroup(ctx, client, id)
	if err != nil {
		return err
	}
	if g.State == "Dead" {
		return fmt.Errorf("there is no group %s", id)
	}
	if _, err := io.WriteString(notes, g.remark()); err != nil {
		return err
	}
	return g.Write(out)
}

// groupState is a group without its offsets.
type groupState struct {
	kafka.GroupDescription
	coordinator kafka.Broker
}

// WriteGroupState describes a group in the layout of kafka-consumer-groups --describe --state: which broker coordinates it, and how many
// members it has. Unlike WriteGroup it waits for no open transaction.
func WriteGroupState(ctx context.Context, client *kafka.Client, id string, out io.Writer) error {
	d, err := client.DescribeGroup(ctx, id)
	if err != nil {
		return err
	}
	if d.State == "Dead" {
		return fmt.Errorf("there is no group %s", id)
	}
	node, err := client.Coordinator(ctx, kafka.GroupCoordinator(id))
	if err != nil {
		return err
	}
	brokers, _, _, err := client.Brokers(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(brokers, func(b kafka.Broker) bool { return b.ID == node })
	if i < 0 {
		return fmt.Errorf("broker %d, which coordinates group %s, is not in the cluster any more", node, id)
	}
	return groupState{d, brokers[i]}.write(out)
}

func (g groupState) write(w io.Writer) error {
	// The widths are those of org.apache.kafka.tools.consumer.group.ConsumerGroupCommand.
	coordinator := fmt.Sprintf("%s:%d  (%d)", g.coordinator.Host, g.coordinator.Port, g.coordinator.ID)
	line := fmt.Sprintf("\n%%-%ds %%-%ds %%-20s %%-20s %%s", max(15, len(g.ID)), max(25, len(coordinator)))
	_, err := fmt.Fprintf(w, line+line+"\n", "GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS",
		g.ID, coordinator, cmp.Or(g.Protocol, "-"), g.State, strconv.Itoa(len(g.Members)))
	return err
}

// remark is what org.apache.kafka.tools.consumer.group.ConsumerGroupCommand says of a group whose rows tell little.
func (g Group) remark() string {
	switch g.State {
	case "Empty":
		return fmt.Sprintf("\nConsumer group '%s' has no active members.\n", g.ID)
	case "PreparingRebalance", "CompletingRebalance":
		return fmt.Sprintf("\nWarning: Consumer group '%s' is rebalancing.\n", g.ID)
	default:
		return ""
	}
}
