package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const anyNode int32 = -1

type routeKind int8

const (
	routeAny routeKind = iota
	routeNode
	routeController
	routeLeader
	routeGroup
	routeTxn
)

// Route says which broker a request has to reach. Routes are comparable; resolved ones are cached until an answer says they are wrong.
type Route struct {
	kind      routeKind
	name      string // topic, group or transactional id
	partition int32  // or node id
}

// AnyBroker is the route of requests that each broker answers.
func AnyBroker() Route { return Route{} }

// Node is the route to the broker with that id.
func Node(id int32) Route { return Route{kind: routeNode, partition: id} }

// Controller is the route of administrative requests. Brokers in KRaft mode forward these; the embedded one answers NOT_CONTROLLER elsewhere.
func Controller() Route { return Route{kind: routeController} }

// Leader is the route of produce, fetch, offset lookup and delete-records requests of one partition.
func Leader(tp TopicPartition) Route {
	return Route{kind: routeLeader, name: tp.Topic, partition: tp.Partition}
}

// GroupCoordinator is the route of group requests.
func GroupCoordinator(group string) Route { return Route{kind: routeGroup, name: group} }

// TxnCoordinator is the route of transaction requests.
func TxnCoordinator(id string) Route { return Route{kind: routeTxn, name: id} }

func (r Route) String() string {
	switch r.kind {
	case routeNode:
		return fmt.Sprintf("broker %d", r.partition)
	case routeController:
		return "controller"
	case routeLeader:
		return fmt.Sprintf("leader of %s-%d", r.name, r.partition)
	case routeGroup:
		return "coordinator of group " + r.name
	case routeTxn:
		return "coordinator of transactional id " + r.name
	default:
		return "any broker"
	}
}

func (c *Client) resolve(ctx context.Context, r Route) (int32, error) {
	switch r.kind {
	case routeNode:
		return r.partition, nil
	case routeController:
		c.mu.Lock()
		node := c.controller
		c.mu.Unlock()
		if node >= 0 {
			return node, nil
		}
		if _, err := c.refresh(ctx, []string{}); err != nil {
			return 0, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.controller, nil
	case routeLeader:
		return c.leader(ctx, TopicPartition{r.name, r.partition})
	case routeGroup, routeTxn:
		return c.coordinator(ctx, r)
	default:
		return anyNode, nil
	}
}

func (c *Client) forgetRoute(r Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.kind {
	case routeController:
		c.controller = anyNode
	case routeLeader:
		delete(c.topics, r.name)
	case routeGroup, routeTxn:
		delete(c.coordinators, r)
	}
}

// coordinator finds the broker that keeps a group or a transactional id. Group and transaction coordinators are looked up and cached apart.
func (c *Client) coordinator(ctx context.Context, r Route) (int32, error) {
	c.mu.Lock()
	node, ok := c.coordinators[r]
	c.mu.Unlock()
	if ok {
		return node, nil
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	if r.kind == routeTxn {
		req.CoordinatorType = 1
	}
	req.CoordinatorKey = r.name            // up to version 3
	req.CoordinatorKeys = []string{r.name} // from version 4
	resp, err := c.call(ctx, anyNode, req, -1, 0)
	if err != nil {
		return 0, err
	}
	f := resp.(*kmsg.FindCoordinatorResponse)
	node, code := f.NodeID, f.ErrorCode
	if f.Version >= 4 {
		if len(f.Coordinators) != 1 {
			return 0, fmt.Errorf("FindCoordinator: %d answers for one key", len(f.Coordinators))
		}
		node, code = f.Coordinators[0].NodeID, f.Coordinators[0].ErrorCode
	}
	if code != 0 {
		return 0, &Error{API: req.Key(), Code: Code(code), Resource: r.String()}
	}
	c.mu.Lock()
	c.coordinators[r] = node
	c.mu.Unlock()
	return node, nil
}

// Coordinator asks for the broker that keeps a group or a transactional id at this moment, past what is cached of it.
func (c *Client) Coordinator(ctx context.Context, r Route) (node int32, err error) {
	err = c.retry(ctx, kmsg.FindCoordinator, r.String(), func() (err error) {
		c.forgetRoute(r)
		node, err = c.coordinator(ctx, r)
		return err
	})
	return node, err
}

// Topic is what a broker's metadata says of a topic.
type Topic struct {
	Name       string
	ID         [16]byte
	Internal   bool // one of the broker's own, like __consumer_offsets
	Partitions []Partition
}

// Partition is what a broker's metadata says of a partition. Partitions stand at their own index in Topic.Partitions.
type Partition struct {
	Leader      int32 // -1: none at the moment
	LeaderEpoch int32
	Replicas    []int32
	ISR         []int32
}

// ready tells that each partition has a leader. Right after creation that takes a moment.
func (t *Topic) ready() bool {
	return !slices.ContainsFunc(t.Partitions, func(p Partition) bool { return p.Leader < 0 })
}

// refresh asks for metadata: of the named topics, of all topics if nil, of brokers only if empty. Topics that the broker does not know are
// missing in the answer; other per-topic codes come back as the error.
func (c *Client) refresh(ctx context.Context, topics []string) (map[string]*Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if topics != nil {
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(topics))
		for _, name := range topics {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, t)
		}
	}
	resp, err := c.call(ctx, anyNode, req, -1, 0)
	if err != nil {
		return nil, err
	}
	m := resp.(*kmsg.MetadataResponse)
	found := make(map[string]*Topic, len(m.Topics))
	for _, t := range m.Topics {
		if t.Topic == nil || Code(t.ErrorCode) == UnknownTopicOrPartition {
			continue
		}
		if t.ErrorCode != 0 && Code(t.ErrorCode) != LeaderNotAvailable {
			return nil, &Error{API: req.Key(), Code: Code(t.ErrorCode), Resource: "topic " + *t.Topic}
		}
		topic := &Topic{Name: *t.Topic, ID: t.TopicID, Internal: t.IsInternal, Partitions: make([]Partition, len(t.Partitions))}
		for _, p := range t.Partitions {
			if p.Partition < 0 || int(p.Partition) >= len(t.Partitions) {
				return nil, fmt.Errorf("metadata of topic %s: partition %d of %d", topic.Name, p.Partition, len(t.Partitions))
			}
			topic.Partitions[p.Partition] = Partition{Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR}
		}
		found[topic.Name] = topic
	}
	c.mu.Lock()
	c.controller = m.ControllerID
	if topics == nil {
		clear(c.topics)
	}
	for _, name := range topics {
		delete(c.topics, name)
	}
	for name, t := range found {
		c.topics[name] = t
	}
	c.mu.Unlock()
	return found, nil
}

// topic returns a topic from the cache or the broker. It fails with UnknownTopicOrPartition if there is none.
func (c *Client) topic(ctx context.Context, name string) (*Topic, error) {
	c.mu.Lock()
	t := c.topics[name]
	c.mu.Unlock()
	if t != nil {
		return t, nil
	}
	found, err := c.refresh(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	if t = found[name]; t == nil {
		return nil, &Error{API: int16(kmsg.Metadata), Code: UnknownTopicOrPartition, Resource: "topic " + name}
	}
	return t, nil
}

func (c *Client) leader(ctx context.Context, tp TopicPartition) (int32, error) {
	t, err := c.topic(ctx, tp.Topic)
	if err != nil {
		return 0, err
	}
	if int(tp.Partition) >= len(t.Partitions) || tp.Partition < 0 {
		return 0, &Error{API: int16(kmsg.Metadata), Code: UnknownTopicOrPartition, Resource: "partition " + tp.String(),
			Message: fmt.Sprintf("the topic has %d partitions", len(t.Partitions))}
	}
	if leader := t.Partitions[tp.Partition].Leader; leader >= 0 {
		return leader, nil
	}
	c.forgetRoute(Leader(tp))
	return 0, &Error{API: int16(kmsg.Metadata), Code: LeaderNotAvailable, Resource: "partition " + tp.String()}
}

// leaders groups partitions by the node that leads them. A partition without a leader makes the whole call fail, to be tried again.
func (c *Client) leaders(ctx context.Context, tps []TopicPartition) (map[int32][]TopicPartition, error) {
	byNode := map[int32][]TopicPartition{}
	for _, tp := range tps {
		node, err := c.leader(ctx, tp)
		if err != nil {
			return nil, err
		}
		byNode[node] = append(byNode[node], tp)
	}
	return byNode, nil
}
