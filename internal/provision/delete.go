package provision

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// lookEvery is how often Delete looks whether a group has lost its last member.
const lookEvery = 100 * time.Millisecond

// MemberError says that a group cannot be deleted, because it has members that are none of this workspace's dead instances.
type MemberError struct {
	Group   string
	Members []kafka.GroupMember
}

func (e *MemberError) Error() string {
	who := make([]string, len(e.Members))
	for i, m := range e.Members {
		who[i] = fmt.Sprintf("%s (%s at %s)", m.MemberID, m.ClientID, strings.TrimPrefix(m.Host, "/"))
	}
	return fmt.Sprintf("group %s still has members: %s; no topic has been deleted: stop them, and try again", e.Group, strings.Join(who, ", "))
}

// Unwrap makes errors.Is(err, kafka.NonEmptyGroup) work.
func (e *MemberError) Unwrap() error { return kafka.NonEmptyGroup }

// Traces are the topics and groups on a broker that the workspace's record knows as its own, by exact name.
type Traces struct {
	Groups, Topics []string
}

// Names lists them all, in the order in which Delete deletes them.
func (t Traces) Names() []string {
	names := make([]string, 0, len(t.Groups)+len(t.Topics))
	for _, g := range t.Groups {
		names = append(names, "group "+g)
	}
	return append(names, t.Topics...)
}

// Find returns what Delete would delete. There is nothing if the record is about other topics than those of the broker.
func Find(ctx context.Context, conn *connect.Conn, w *workspace.Workspace) (t Traces, err error) {
	r, err := Check(ctx, conn, w)
	var foreign *ForeignError
	if errors.As(err, &foreign) || err == nil && !r.Known {
		return Traces{}, nil
	}
	if err != nil {
		return Traces{}, err
	}
	groups, err := conn.ListGroups(ctx)
	if err != nil {
		return Traces{}, err
	}
	for _, g := range groups {
		if slices.Contains(applications, g.ID) {
			t.Groups = append(t.Groups, g.ID)
		}
	}
	all, err := conn.Topics(ctx)
	if err != nil {
		return Traces{}, err
	}
	for name, topic := range all {
		id, created := r.Created[name]
		created = created && (id == "" || id == kafkatools.TopicID(topic))
		internal := slices.ContainsFunc(applications, func(a string) bool { return slices.Contains(internals(a), name) })
		if name != topology.OrdersPlaced && (created || internal) {
			t.Topics = append(t.Topics, name)
		}
	}
	slices.Sort(t.Topics)
	if _, created := r.Created[topology.OrdersPlaced]; created && all[topology.OrdersPlaced] != nil {
		t.Topics = append(t.Topics, topology.OrdersPlaced)
	}
	return t, nil
}

// Delete deletes what Find returned from a broker whose data stays. No instance of the workspace may run.
//
// Groups come first and orders.placed last: for as long as that is there, the record knows what else is this workspace's, so a Delete that
// failed can be repeated. A group keeps the place of an instance that was killed until its session ends; its member is taken out if the
// local state tells that it was this workspace's, else waited for until ctx ends, which is a *MemberError.
//
// waiting is told once, before it waits.
func Delete(
	ctx context.Context, conn *connect.Conn, w *workspace.Workspace, t Traces, waiting func(*MemberError),
) (deleted []string, err error) {
	for _, id := range t.Groups {
		if err := deleteGroup(ctx, conn, w, id, waiting); err != nil {
			return deleted, err
		}
		deleted = append(deleted, "group "+id)
	}
	rest, last := t.Topics, []string(nil)
	if n := len(rest); n > 0 && rest[n-1] == topology.OrdersPlaced {
		rest, last = rest[:n-1], rest[n-1:]
	}
	for _, names := range [][]string{rest, last} {
		if err := conn.DeleteTopics(ctx, names...); err != nil {
			return deleted, err
		}
		deleted = append(deleted, names...)
	}
	return deleted, nil
}

// Reset deletes just what one application has on the brokers: its group, its internal topics, and the output topics of its suffix, which must
// not be "". It returns what there was. A group that has members is waited for as in Delete.
func Reset(ctx context.Context, conn *connect.Conn, w *workspace.Workspace, application, suffix string) (deleted []string, err error) {
	var outputs []string
	for _, s := range Topics(suffix) {
		if strings.HasSuffix(s.Name, suffix) {
			outputs = append(outputs, s.Name)
		}
	}
	return DeleteApplication(ctx, conn, w, application, outputs...)
}

// DeleteApplication deletes an application with the lab's topology: its group, its internal topics and those named. It returns what there was.
// A group that has members is waited for as in Delete.
func DeleteApplication(
	ctx context.Context, conn *connect.Conn, w *workspace.Workspace, application string, topics ...string,
) (deleted []string, err error) {
	groups, err := conn.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(groups, func(g kafka.GroupListing) bool { return g.ID == application }) {
		if err := deleteGroup(ctx, conn, w, application, func(*MemberError) {}); err != nil {
			return nil, err
		}
		deleted = append(deleted, "group "+application)
	}
	all, err := conn.Topics(ctx)
	if err != nil {
		return deleted, err
	}
	own := slices.DeleteFunc(append(internals(application), topics...), func(name string) bool { return all[name] == nil })
	slices.Sort(own)
	return append(deleted, own...), conn.DeleteTopics(ctx, own...)
}

// ProcessID is the id of the process that works, or worked, for an application under an instance's name: it is part of its transactional ids.
// "" if there was none.
func ProcessID(w *workspace.Workspace, application, instance string) string {
	return store.ProcessIDIn(filepath.Join(w.InstanceState(instance), application))
}

// deleteGroup deletes a group once it has no members.
func deleteGroup(ctx context.Context, conn *connect.Conn, w *workspace.Workspace, id string, waiting func(*MemberError)) error {
	dead, err := processes(w, id)
	if err != nil {
		return err
	}
	var left *MemberError // what kept the last attempt from it
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		members, err := tryDeleteGroup(ctx, conn, id, dead)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && left != nil:
			return stillThere(ctx, left)
		case !errors.Is(err, kafka.NonEmptyGroup):
			return err
		}
		if len(members) > 0 && left == nil {
			waiting(&MemberError{Group: id, Members: members})
		}
		if len(members) > 0 {
			left = &MemberError{Group: id, Members: members}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if left == nil {
				return errors.Join(err, context.Cause(ctx))
			}
			return stillThere(ctx, left)
		}
	}
}

// stillThere is the error after the time is up, or after the caller wants no more.
func stillThere(ctx context.Context, left *MemberError) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return errors.Join(left, cause)
	}
	return left
}

// tryDeleteGroup takes the members of dead processes out of a group and deletes it, unless there are others: it returns those.
func tryDeleteGroup(ctx context.Context, conn *connect.Conn, id string, dead []string) (others []kafka.GroupMember, err error) {
	group, err := conn.DescribeGroup(ctx, id)
	if err != nil {
		return nil, err
	}
	var gone []string
	for _, m := range group.Members {
		if slices.Contains(dead, streams.ProcessOf(m.UserData)) {
			gone = append(gone, m.MemberID)
		} else {
			others = append(others, m)
		}
	}
	if len(gone) > 0 {
		if err := conn.RemoveMembers(ctx, id, gone...); err != nil {
			return others, err
		}
	}
	return others, conn.DeleteGroups(ctx, id)
}

// processes are the ids of the processes that worked for an application in this workspace, as its state folders tell.
func processes(w *workspace.Workspace, application string) ([]string, error) {
	folders, err := filepath.Glob(filepath.Join(w.State(), "*", application))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, folder := range folders {
		if id := store.ProcessIDIn(folder); id != "" {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
