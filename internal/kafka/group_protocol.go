package kafka

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// protocolType is the one of Kafka's consumers. With it the embedded consumer structures of this file are what Kafka's own tools expect in
// a group, so `kafka-consumer-groups --describe` shows our members' partitions.
const protocolType = "consumer"

// Versions of the consumer structures: subscription 3 carries owned partitions with their generation (KIP-792), and assignments have not
// changed since 0.
const (
	subscriptionVersion = 3
	assignmentVersion   = 0
)

// Subscription is what a member tells the leader when it joins.
type Subscription struct {
	MemberID   string
	InstanceID string // "" for dynamic members
	Topics     []string
	Owned      []TopicPartition // what the member still holds…
	Generation int32            // …from this generation; -1 if nothing
	UserData   []byte
}

// MemberAssignment is what the leader gives to a member.
type MemberAssignment struct {
	Partitions []TopicPartition
	UserData   []byte
}

func encodeSubscription(s Subscription) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics, m.UserData, m.Generation = subscriptionVersion, s.Topics, s.UserData, s.Generation
	for topic, partitions := range byTopic(s.Owned) {
		o := kmsg.NewConsumerMemberMetadataOwnedPartition()
		o.Topic, o.Partitions = topic, partitions
		m.OwnedPartitions = append(m.OwnedPartitions, o)
	}
	return m.AppendTo(nil)
}

func decodeSubscription(b []byte) (Subscription, error) {
	m := kmsg.NewConsumerMemberMetadata()
	if err := m.ReadFrom(b); err != nil {
		return Subscription{}, fmt.Errorf("subscription of %d bytes: %w", len(b), err)
	}
	s := Subscription{Topics: m.Topics, UserData: m.UserData, Generation: m.Generation}
	for _, o := range m.OwnedPartitions {
		for _, p := range o.Partitions {
			s.Owned = append(s.Owned, TopicPartition{o.Topic, p})
		}
	}
	return s, nil
}

func encodeAssignment(a MemberAssignment) []byte {
	m := kmsg.ConsumerMemberAssignment{Version: assignmentVersion, UserData: a.UserData}
	for topic, partitions := range byTopic(a.Partitions) {
		m.Topics = append(m.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: topic, Partitions: partitions})
	}
	return m.AppendTo(nil)
}

// decodeAssignment takes no bytes at all as no partitions: that is what a coordinator gives to a member that the leader did not mention.
func decodeAssignment(b []byte) (MemberAssignment, error) {
	if len(b) == 0 {
		return MemberAssignment{}, nil
	}
	var m kmsg.ConsumerMemberAssignment
	if err := m.ReadFrom(b); err != nil {
		return MemberAssignment{}, fmt.Errorf("assignment of %d bytes: %w", len(b), err)
	}
	a := MemberAssignment{UserData: m.UserData}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			a.Partitions = append(a.Partitions, TopicPartition{t.Topic, p})
		}
	}
	slices.SortFunc(a.Partitions, TopicPartition.Compare)
	return a, nil
}
