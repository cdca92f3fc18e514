package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxVersions is the newest version of each API that was tried on Apache Kafka 4.3.1. It is a table and not kmsg's maximum because kmsg
// and the embedded broker are ahead of 4.3.1: their newest versions ask for topic ids instead of names in places.
var maxVersions = map[kmsg.Key]int16{
	kmsg.Produce:                 12,
	kmsg.Fetch:                   12,
	kmsg.ListOffsets:             8,
	kmsg.Metadata:                12,
	kmsg.OffsetCommit:            9,
	kmsg.OffsetFetch:             9,
	kmsg.FindCoordinator:         4,
	kmsg.JoinGroup:               9,
	kmsg.Heartbeat:               4,
	kmsg.LeaveGroup:              5,
	kmsg.SyncGroup:               5,
	kmsg.DescribeGroups:          5,
	kmsg.ListGroups:              5,
	kmsg.ApiVersions:             3,
	kmsg.CreateTopics:            7,
	kmsg.DeleteTopics:            6,
	kmsg.DeleteRecords:           2,
	kmsg.CreatePartitions:        3,
	kmsg.InitProducerID:          5,
	kmsg.AddPartitionsToTxn:      3,
	kmsg.AddOffsetsToTxn:         3,
	kmsg.EndTxn:                  5,
	kmsg.TxnOffsetCommit:         5,
	kmsg.DescribeConfigs:         4,
	kmsg.IncrementalAlterConfigs: 1,
	kmsg.DeleteGroups:            2,
	kmsg.DescribeProducers:       0,
	kmsg.DescribeTransactions:    0,
	kmsg.ListTransactions:        0,
	kmsg.OffsetDelete:            0,
}

// nodeVersions is what one broker offers.
type nodeVersions struct {
	ranges             map[int16][2]int16
	transactionVersion int16 // the finalized feature transaction.version; 2 means KIP-890 transactions
}

// VersionError says that a broker and this client have no version of an API in common.
type VersionError struct {
	API            string
	Node           int32
	Ours           int16
	BrokerMin, Max int16
}

func (e *VersionError) Error() string {
	if e.Max < 0 {
		return fmt.Sprintf("the broker does not offer %s: it is too old for this program (Apache Kafka 3.5 or newer is needed)", e.API)
	}
	return fmt.Sprintf("%s: this program speaks up to version %d, broker %d offers %d to %d", e.API, e.Ours, e.Node, e.BrokerMin, e.Max)
}

// pick chooses the version for a request to node: the smaller of our tested maximum (lowered to limit where limit >= 0) and the broker's.
func (c *Client) pick(ctx context.Context, node int32, key int16, limit int16) (int16, error) {
	if kmsg.Key(key) == kmsg.ApiVersions {
		return maxVersions[kmsg.ApiVersions], nil
	}
	ours, ok := maxVersions[kmsg.Key(key)]
	if !ok {
		return 0, fmt.Errorf("%s is not in this client's version table", kmsg.NameForKey(key))
	}
	if limit >= 0 {
		ours = min(ours, limit)
	}
	v, err := c.nodeVersions(ctx, node)
	if err != nil {
		return 0, err
	}
	r, ok := v.ranges[key]
	if !ok {
		return 0, &VersionError{API: kmsg.NameForKey(key), Node: node, Ours: ours, BrokerMin: -1, Max: -1}
	}
	if r[0] > ours {
		return 0, &VersionError{API: kmsg.NameForKey(key), Node: node, Ours: ours, BrokerMin: r[0], Max: r[1]}
	}
	return min(ours, r[1]), nil
}

func (c *Client) nodeVersions(ctx context.Context, node int32) (*nodeVersions, error) {
	c.mu.Lock()
	v := c.versions[node]
	c.mu.Unlock()
	if v != nil {
		return v, nil
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "lab", "1"
	resp, err := c.send(ctx, node, req, maxVersions[kmsg.ApiVersions], 0, c.cfg.ClientID)
	if err != nil {
		return nil, err
	}
	r := resp.(*kmsg.ApiVersionsResponse)
	if r.ErrorCode != 0 {
		return nil, &Error{API: req.Key(), Code: Code(r.ErrorCode)}
	}
	v = &nodeVersions{ranges: make(map[int16][2]int16, len(r.ApiKeys))}
	for _, k := range r.ApiKeys {
		v.ranges[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	for _, f := range r.FinalizedFeatures {
		if f.Name == "transaction.version" {
			v.transactionVersion = f.MaxVersionLevel
		}
	}
	c.mu.Lock()
	c.versions[node] = v
	c.mu.Unlock()
	return v, nil
}

// forgetVersions makes the next request ask again: after a network error the node may come back as another version.
func (c *Client) forgetVersions(node int32) {
	c.mu.Lock()
	delete(c.versions, node)
	c.mu.Unlock()
}
