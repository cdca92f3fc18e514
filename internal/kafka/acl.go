package kafka

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicOperations are the operations on a topic that requests need besides Describe, by Apache Kafka's documentation of its authorizer.
var topicOperations = map[kmsg.Key]string{
	kmsg.Produce: "Write", kmsg.AddPartitionsToTxn: "Write",
	kmsg.Fetch: "Read", kmsg.OffsetCommit: "Read", kmsg.TxnOffsetCommit: "Read", kmsg.DescribeProducers: "Read", kmsg.OffsetDelete: "Read",
	kmsg.CreateTopics: "Create", kmsg.DeleteTopics: "Delete", kmsg.DeleteRecords: "Delete", kmsg.CreatePartitions: "Alter",
	kmsg.DescribeConfigs: "DescribeConfigs", kmsg.IncrementalAlterConfigs: "AlterConfigs",
}

// groupOperations are those on a group.
var groupOperations = map[kmsg.Key]string{
	kmsg.JoinGroup: "Read", kmsg.SyncGroup: "Read", kmsg.Heartbeat: "Read", kmsg.LeaveGroup: "Read", kmsg.OffsetCommit: "Read",
	kmsg.TxnOffsetCommit: "Read", kmsg.AddOffsetsToTxn: "Read", kmsg.DeleteGroups: "Delete", kmsg.OffsetDelete: "Delete",
}

// missingACL names the access control entry whose lack a refusal tells: the operation, and the resource with its name as far as the error has
// it. "" for any other error.
func missingACL(e *Error) string {
	key := kmsg.Key(e.API)
	switch e.Code {
	case TopicAuthorizationFailed:
		return operation(topicOperations, key) + " on topic" + topicIn(e.Resource+" "+e.Message)
	case GroupAuthorizationFailed:
		if key == kmsg.FindCoordinator { // only the first of the requests to come, which need Read as a rule
			return "Describe and Read on group" + wordAfter(e.Resource, "group ")
		}
		return operation(groupOperations, key) + " on group" + wordAfter(e.Resource, "group ")
	case TxnIDAuthorizationFailed:
		op := "Write"
		switch key {
		case kmsg.FindCoordinator:
			op = "Describe and Write"
		case kmsg.DescribeTransactions:
			op = "Describe"
		}
		return op + " on transactional id" + wordAfter(e.Resource, "transactional id ")
	case ClusterAuthorizationFailed:
		switch key {
		case kmsg.InitProducerID, kmsg.Produce:
			return "Write on a topic, or IdempotentWrite on the cluster"
		case kmsg.CreateTopics:
			return "Create on the cluster"
		case kmsg.DescribeConfigs:
			return "DescribeConfigs on the cluster"
		default:
			return "Describe on the cluster"
		}
	case TokenAuthorizationFailed:
		return "Describe on the delegation token"
	}
	return ""
}

func operation(known map[kmsg.Key]string, key kmsg.Key) string {
	if op := known[key]; op != "" {
		return op
	}
	return "Describe"
}

// topicIn finds the name in "topic T" or "partition T-0"; " " stands before it.
func topicIn(text string) string {
	if name := wordAfter(text, "topic "); name != "" {
		return name
	}
	name := wordAfter(text, "partition ")
	if at := strings.LastIndexByte(name, '-'); at >= 0 {
		return name[:at]
	}
	return name
}

func wordAfter(text, word string) string {
	_, rest, found := strings.Cut(text, word)
	if !found {
		return ""
	}
	name, _, _ := strings.Cut(rest, " ")
	return " " + name
}
