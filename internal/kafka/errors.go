package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Code is an error code of the Kafka protocol. It is an error itself, so errors.Is(err, UnknownMemberID) works on each *Error.
type Code int16

// The codes that this client acts on by name.
const (
	OffsetOutOfRange           Code = 1
	CorruptMessage             Code = 2
	UnknownTopicOrPartition    Code = 3
	LeaderNotAvailable         Code = 5
	NotLeaderOrFollower        Code = 6
	RequestTimedOut            Code = 7
	ReplicaNotAvailable        Code = 9
	MessageTooLarge            Code = 10
	NetworkException           Code = 13
	CoordinatorLoadInProgress  Code = 14
	CoordinatorNotAvailable    Code = 15
	NotCoordinator             Code = 16
	InvalidTopic               Code = 17
	NotEnoughReplicas          Code = 19
	NotEnoughReplicasAppended  Code = 20
	IllegalGeneration          Code = 22
	InconsistentGroupProtocol  Code = 23
	UnknownMemberID            Code = 25
	RebalanceInProgress        Code = 27
	TopicAuthorizationFailed   Code = 29
	GroupAuthorizationFailed   Code = 30
	ClusterAuthorizationFailed Code = 31
	InvalidTimestamp           Code = 32
	UnsupportedSASLMechanism   Code = 33
	TopicAlreadyExists         Code = 36
	InvalidPartitions          Code = 37
	InvalidReplicationFactor   Code = 38
	InvalidConfig              Code = 40
	NotController              Code = 41
	OutOfOrderSequence         Code = 45
	DuplicateSequence          Code = 46
	InvalidProducerEpoch       Code = 47
	InvalidTxnState            Code = 48
	InvalidProducerIDMapping   Code = 49
	ConcurrentTransactions     Code = 51
	TxnIDAuthorizationFailed   Code = 53
	KafkaStorageError          Code = 56
	UnknownProducerID          Code = 59
	SecurityDisabled           Code = 54
	TokenAuthorizationFailed   Code = 65
	NonEmptyGroup              Code = 68
	GroupIDNotFound            Code = 69
	FencedLeaderEpoch          Code = 74
	UnknownLeaderEpoch         Code = 75
	OffsetNotAvailable         Code = 78
	MemberIDRequired           Code = 79
	FencedInstanceID           Code = 82
	InvalidRecord              Code = 87
	UnstableOffsetCommit       Code = 88
	ProducerFenced             Code = 90
	UnknownTopicID             Code = 100
	InconsistentTopicID        Code = 103
	TransactionAbortable       Code = 120
)

// Error gives the protocol's name of the code.
func (c Code) Error() string {
	if title := kafkago.Error(c).Title(); title != "" {
		return fmt.Sprintf("%s (error %d)", strings.ToLower(title), int16(c))
	}
	return fmt.Sprintf("error %d", int16(c))
}

// Error is a refusal by a broker.
type Error struct {
	API      int16
	Code     Code
	Resource string // what was asked for: "topic orders.placed", "partition orders.placed-0", "group order-counter"
	Message  string // the broker's own words, or a detail of ours
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(kmsg.NameForKey(e.API))
	if e.Resource != "" {
		b.WriteString(" " + e.Resource)
	}
	b.WriteString(": " + e.Code.Error())
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if acl := missingACL(e); acl != "" {
		b.WriteString("; grant this principal " + acl)
	}
	return b.String()
}

// Unwrap makes errors.Is(err, SomeCode) work.
func (e *Error) Unwrap() error { return e.Code }

// NetworkError is a request without an answer: it may or may not have been carried out.
type NetworkError struct {
	API  int16
	Node int32 // -1: any seed
	Err  error
}

func (e *NetworkError) Error() string {
	where := "broker"
	if e.Node >= 0 {
		where = fmt.Sprintf("broker %d", e.Node)
	}
	why := e.Err.Error()
	// The Transport hides the pool's own error for requests to a node, a wrong password's included.
	if errors.Is(e.Err, kafkago.BrokerNotAvailable) {
		why = "not reachable"
	} else if errors.Is(e.Err, context.DeadlineExceeded) {
		why = "no answer in time"
	}
	return fmt.Sprintf("%s to %s: %s", kmsg.NameForKey(e.API), where, why)
}

func (e *NetworkError) Unwrap() error { return e.Err }

// Action is what a code asks of the one who sent the request.
type Action uint8

// The actions. Do carries out the first three by itself; the others are for the caller.
const (
	ActFail         Action = iota // tell the caller: no rule says more
	ActRetry                      // the same request again, a little later
	ActMetadata                   // the leader moved or is not known yet: metadata, then the same request again
	ActCoordinator                // the coordinator moved or is loading: look it up, then the same request again
	ActRejoin                     // the group rebalances: join again with the same member id
	ActForgetMember               // the coordinator does not know this member any more: its partitions are lost; join as a new one
	ActNewProducer                // idempotence is broken: a new producer id, then resend; inside a transaction: abort
	ActAbort                      // abort the transaction; the producer id stays good
	ActFenced                     // another producer took the transactional id: throw the batch away, InitProducerId, read the offsets again
	ActDone                       // it has been done already
	ActReset                      // the offset does not exist (any more)
	ActRejected                   // a record of the batch is refused for what it is
	ActUnauthorized               // an ACL is missing: fatal
	ActFatal                      // give up: trying again cannot help
)

// retriable tells that the answer to an error is the same request again.
func retriable(act Action) bool {
	return act == ActRetry || act == ActMetadata || act == ActCoordinator
}

// actionOf is the one place that says what a code means for an API.
func actionOf(api int16, code Code) Action {
	switch code {
	case 0:
		return ActDone
	case TopicAuthorizationFailed, GroupAuthorizationFailed, ClusterAuthorizationFailed, TxnIDAuthorizationFailed,
		TokenAuthorizationFailed:
		return ActUnauthorized
	case CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator:
		return ActCoordinator
	case RequestTimedOut, NetworkException:
		return ActRetry
	case FencedInstanceID, InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidConfig, InconsistentGroupProtocol:
		return ActFatal
	case NotController:
		return ActMetadata
	case MemberIDRequired:
		return ActRejoin
	}
	switch kmsg.Key(api) {
	case kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.DeleteRecords, kmsg.Metadata, kmsg.DescribeProducers:
		return partitionAction(kmsg.Key(api), code)
	case kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.EndTxn, kmsg.TxnOffsetCommit:
		return txnAction(kmsg.Key(api), code)
	case kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.OffsetCommit, kmsg.OffsetFetch:
		return groupAction(code)
	case kmsg.CreateTopics:
		if code == TopicAlreadyExists {
			return ActDone
		}
	case kmsg.DeleteTopics:
		if code == UnknownTopicOrPartition {
			return ActDone
		}
	case kmsg.DeleteGroups:
		if code == GroupIDNotFound {
			return ActDone
		}
	}
	return ActFail
}

func partitionAction(api kmsg.Key, code Code) Action {
	switch code {
	case UnknownTopicOrPartition, LeaderNotAvailable, NotLeaderOrFollower, ReplicaNotAvailable, KafkaStorageError,
		FencedLeaderEpoch, UnknownLeaderEpoch, 76, UnknownTopicID, InconsistentTopicID:
		return ActMetadata
	case NotEnoughReplicas, NotEnoughReplicasAppended, OffsetNotAvailable:
		return ActRetry
	case CorruptMessage:
		if api == kmsg.Produce {
			return ActRetry // damaged on its way
		}
	case OffsetOutOfRange:
		return ActReset
	case MessageTooLarge, InvalidTimestamp, InvalidRecord, 18:
		if api == kmsg.Produce {
			return ActRejected
		}
	case OutOfOrderSequence, UnknownProducerID:
		return ActNewProducer
	case DuplicateSequence:
		return ActDone
	case ConcurrentTransactions:
		return ActRetry // KIP-890: the first write after EndTxn, while the markers are being written
	case InvalidProducerEpoch, InvalidTxnState, ProducerFenced:
		return ActFenced
	case TransactionAbortable:
		return ActAbort
	}
	return ActFail
}

func txnAction(api kmsg.Key, code Code) Action {
	switch code {
	case ConcurrentTransactions, UnknownTopicOrPartition, NotEnoughReplicas:
		return ActRetry
	case IllegalGeneration, UnknownMemberID, RebalanceInProgress, TransactionAbortable:
		return ActAbort
	case OutOfOrderSequence, UnknownProducerID:
		return ActNewProducer
	case InvalidProducerIDMapping, InvalidProducerEpoch, InvalidTxnState, ProducerFenced:
		return ActFenced
	}
	return ActFail
}

func groupAction(code Code) Action {
	switch code {
	case RebalanceInProgress:
		return ActRejoin
	case IllegalGeneration, UnknownMemberID, GroupIDNotFound: // the last from OffsetCommit 9 of a group deleted or never seen
		return ActForgetMember
	case UnstableOffsetCommit, UnknownTopicOrPartition:
		return ActRetry
	}
	return ActFail
}

// actionFor extends actionOf to errors without a code.
func actionFor(api int16, err error) Action {
	var security *SecurityError
	if errors.As(err, &security) {
		return ActFatal
	}
	var network *NetworkError
	if errors.As(err, &network) {
		return ActRetry
	}
	var e *Error
	if errors.As(err, &e) {
		if e.API == int16(kmsg.Metadata) && e.Code == UnknownTopicOrPartition && kmsg.Key(api) != kmsg.Metadata {
			return ActMetadata // right after its creation a topic is not known everywhere
		}
		return actionOf(e.API, e.Code)
	}
	return ActFail
}

// ActionFor tells what err, an error of a request with that API key, asks of its sender.
func ActionFor(api kmsg.Key, err error) Action { return actionFor(int16(api), err) }

// IsUnauthorized tells that an access control entry is missing, which the error names.
func IsUnauthorized(err error) bool {
	var e *Error
	return errors.As(err, &e) && actionOf(e.API, e.Code) == ActUnauthorized
}

// IsUnknownTopic tells that a topic or partition does not exist.
func IsUnknownTopic(err error) bool { return errors.Is(err, UnknownTopicOrPartition) }
