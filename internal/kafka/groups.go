package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// GroupListing is one line of a list of groups.
type GroupListing struct {
	ID           string
	ProtocolType string // "consumer", or "" for a group that has offsets only
	State        string // "Stable", "Empty", "PreparingRebalance", …
}

// GroupDescription is what the coordinator knows of a group.
type GroupDescription struct {
	ID           string
	State        string // "Dead" for a group that does not exist
	ProtocolType string
	Protocol     string // chosen in the last rebalance; Kafka's own clients put the assignor's name here
	Members      []GroupMember
}

// GroupMember is one member of a group as its coordinator sees it.
type GroupMember struct {
	MemberID   string
	InstanceID string // "" for dynamic members
	ClientID   string
	Host       string
	Assigned   []TopicPartition // empty too if the member's protocol is not a consumer's
	UserData   []byte           // what the member said of itself when it joined
	Given      []byte           // the user data of its assignment
}

// ListGroups asks every broker for the groups that it coordinates and returns them by id.
func (c *Client) ListGroups(ctx context.Context) ([]GroupListing, error) {
	brokers, _, _, err := c.Brokers(ctx)
	if err != nil {
		return nil, err
	}
	var groups []GroupListing
	for _, b := range brokers {
		req := kmsg.NewPtrListGroupsRequest()
		resp, err := c.Do(ctx, Request{Route: Node(b.ID), Req: req, Check: func(resp kmsg.Response) error {
			if code := resp.(*kmsg.ListGroupsResponse).ErrorCode; code != 0 {
				return &Error{API: req.Key(), Code: Code(code), Resource: Node(b.ID).String()}
			}
			return nil
		}})
		if err != nil {
			return nil, err
		}
		for _, g := range resp.(*kmsg.ListGroupsResponse).Groups {
			groups = append(groups, GroupListing{ID: g.Group, ProtocolType: g.ProtocolType, State: g.GroupState})
		}
	}
	byID := func(a, b GroupListing) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(groups, byID)
	// A group whose coordinator moves between two of the requests is told twice.
	return slices.CompactFunc(groups, func(a, b GroupListing) bool { return a.ID == b.ID }), nil
}

// DescribeGroup asks a group's coordinator for its members and what is assigned to them. A group that does not exist is in state "Dead".
func (c *Client) DescribeGroup(ctx context.Context, id string) (GroupDescription, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{id}
	resp, err := c.Do(ctx, Request{Route: GroupCoordinator(id), Req: req, Check: func(resp kmsg.Response) error {
		groups := resp.(*kmsg.DescribeGroupsResponse).Groups
		if len(groups) != 1 {
			return fmt.Errorf("DescribeGroups group %s: the answer is about %d groups", id, len(groups))
		}
		if code := groups[0].ErrorCode; code != 0 {
			return &Error{API: req.Key(), Code: Code(code), Resource: "group " + id, Message: deref(groups[0].ErrorMessage)}
		}
		return nil
	}})
	if err != nil {
		return GroupDescription{}, err
	}
	g := resp.(*kmsg.DescribeGroupsResponse).Groups[0]
	d := GroupDescription{ID: id, State: g.State, ProtocolType: g.ProtocolType, Protocol: g.Protocol}
	for _, m := range g.Members {
		member := GroupMember{MemberID: m.MemberID, InstanceID: deref(m.InstanceID), ClientID: m.ClientID, Host: m.ClientHost}
		// While a group rebalances these are empty, and members of other protocols may put anything here.
		if sub, err := decodeSubscription(m.ProtocolMetadata); err == nil {
			member.UserData = sub.UserData
		}
		if a, err := decodeAssignment(m.MemberAssignment); err == nil {
			member.Assigned, member.Given = a.Partitions, a.UserData
		}
		d.Members = append(d.Members, member)
	}
	slices.SortFunc(d.Members, func(a, b GroupMember) int { return cmp.Compare(a.MemberID, b.MemberID) })
	return d, nil
}

// RemoveMembers takes members out of a group that cannot leave by themselves, because they were killed. One that has left is no error.
func (c *Client) RemoveMembers(ctx context.Context, group string, memberIDs ...string) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	for _, id := range memberIDs {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = id
		req.Members = append(req.Members, m)
	}
	_, err := c.Do(ctx, Request{Route: GroupCoordinator(group), Req: req, Check: func(resp kmsg.Response) error {
		r := resp.(*kmsg.LeaveGroupResponse)
		if code := Code(r.ErrorCode); code != 0 && code != GroupIDNotFound {
			return &Error{API: req.Key(), Code: code, Resource: "group " + group}
		}
		for _, m := range r.Members {
			if code := Code(m.ErrorCode); code != 0 && code != UnknownMemberID {
				return &Error{API: req.Key(), Code: code, Resource: "member " + m.MemberID + " of group " + group}
			}
		}
		return nil
	}})
	return err
}

// DeleteGroups deletes groups with their offsets. Unknown groups are no error; one that has members is refused with NonEmptyGroup.
func (c *Client) DeleteGroups(ctx context.Context, ids ...string) error {
	var errs []error
	for _, id := range ids {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{id}
		_, err := c.Do(ctx, Request{Route: GroupCoordinator(id), Req: req, Check: func(resp kmsg.Response) error {
			for _, g := range resp.(*kmsg.DeleteGroupsResponse).Groups {
				if code := Code(g.ErrorCode); actionOf(req.Key(), code) != ActDone {
					return &Error{API: req.Key(), Code: code, Resource: "group " + id}
				}
			}
			return nil
		}})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
