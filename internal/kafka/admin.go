package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// adminTimeout is how long an administrative request lets the controller work on it.
const adminTimeout = 30 * time.Second

// TopicSpec is a topic to create.
type TopicSpec struct {
	Name        string
	Partitions  int32
	Replication int16         // -1: the broker's default
	Configs     []ConfigEntry // sent in this order; Source is not read
}

// CreateTopics creates topics and returns when each partition of each has a leader, so that the next request does not meet an unknown
// topic. Topics that are there already are no error: existing lists them, whatever their partitions and configs are.
func (c *Client) CreateTopics(ctx context.Context, specs []TopicSpec) (existing []string, err error) {
	pending := slices.Clone(specs)
	names := make([]string, 0, len(specs))
	for _, s := range specs {
		names = append(names, s.Name)
	}
	if len(pending) == 0 {
		return nil, nil
	}
	err = c.retry(ctx, kmsg.CreateTopics, Controller().String(), func() error {
		results, err := c.createTopics(ctx, pending)
		if err != nil {
			return err
		}
		var again error
		var refused []error
		pending = slices.DeleteFunc(pending, func(s TopicSpec) bool {
			err := results[s.Name]
			switch {
			case err == nil:
				return true
			case errors.Is(err, TopicAlreadyExists):
				existing = append(existing, s.Name)
				return true
			case retriable(actionFor(int16(kmsg.CreateTopics), err)):
				again = err
			default:
				refused = append(refused, err)
			}
			return false
		})
		if len(refused) > 0 {
			return errors.Join(refused...)
		}
		return again
	})
	if err != nil {
		return existing, err
	}
	return existing, c.awaitLeaders(ctx, names)
}

// createTopics sends one request and returns its errors by topic.
func (c *Client) createTopics(ctx context.Context, specs []TopicSpec) (map[string]error, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = millis(adminTimeout)
	byName := make(map[string]TopicSpec, len(specs))
	for _, s := range specs {
		byName[s.Name] = s
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = s.Name, s.Partitions, s.Replication
		for _, e := range s.Configs {
			cfg := kmsg.NewCreateTopicsRequestTopicConfig()
			cfg.Name, cfg.Value = e.Name, kmsg.StringPtr(e.Value)
			t.Configs = append(t.Configs, cfg)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := c.Do(ctx, Request{Route: Controller(), Req: req, Once: true})
	if err != nil {
		return nil, err
	}
	results := make(map[string]error, len(specs))
	for _, s := range specs {
		results[s.Name] = fmt.Errorf("CreateTopics topic %s: the answer does not mention it", s.Name)
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		results[t.Topic] = nil
		if t.ErrorCode == 0 {
			continue
		}
		results[t.Topic] = &Error{
			API:      req.Key(),
			Code:     Code(t.ErrorCode),
			Resource: "topic " + t.Topic,
			Message:  strings.Join(nonEmpty(askedFor(byName[t.Topic], Code(t.ErrorCode)), deref(t.ErrorMessage)), ": "),
		}
		c.distrustController(Code(t.ErrorCode))
	}
	return results, nil
}

// askedFor is the part of a spec that a code is about. Brokers do not always say what they did not like.
func askedFor(s TopicSpec, code Code) string {
	switch code {
	case InvalidPartitions:
		return fmt.Sprintf("%d partitions asked for", s.Partitions)
	case InvalidReplicationFactor:
		return fmt.Sprintf("replication factor %d asked for", s.Replication)
	case InvalidConfig:
		pairs := make([]string, 0, len(s.Configs))
		for _, e := range s.Configs {
			pairs = append(pairs, e.Name+"="+e.Value)
		}
		return "configs " + strings.Join(pairs, ", ")
	default:
		return ""
	}
}

// awaitLeaders returns when the brokers know all the topics and each of their partitions has a leader.
func (c *Client) awaitLeaders(ctx context.Context, names []string) error {
	return c.retry(ctx, kmsg.Metadata, "topics "+strings.Join(names, ", "), func() error {
		found, err := c.refresh(ctx, names)
		if err != nil {
			return err
		}
		for _, name := range names {
			switch t := found[name]; {
			case t == nil:
				return &Error{API: int16(kmsg.Metadata), Code: UnknownTopicOrPartition, Resource: "topic " + name}
			case !t.ready():
				return &Error{API: int16(kmsg.Metadata), Code: LeaderNotAvailable, Resource: "topic " + name}
			}
		}
		return nil
	})
}

// errStillThere keeps DeleteTopics asking. It is retriable as a topic whose metadata is in motion.
func errStillThere(name string) error {
	return &Error{API: int16(kmsg.Metadata), Code: LeaderNotAvailable, Resource: "topic " + name, Message: "its deletion is not done yet"}
}

// DeleteTopics deletes topics and returns when the brokers' metadata does not show them any more. Unknown topics are no error.
func (c *Client) DeleteTopics(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	pending := slices.Clone(names)
	err := c.retry(ctx, kmsg.DeleteTopics, Controller().String(), func() error {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = millis(adminTimeout)
		req.TopicNames = pending // up to version 5
		for _, name := range pending {
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, t)
		}
		resp, err := c.Do(ctx, Request{Route: Controller(), Req: req, Once: true})
		if err != nil {
			return err
		}
		var again error
		var refused []error
		pending = pending[:0:0]
		for _, t := range resp.(*kmsg.DeleteTopicsResponse).Topics {
			name, code := deref(t.Topic), Code(t.ErrorCode)
			switch act := actionOf(req.Key(), code); {
			case act == ActDone:
				continue
			case retriable(act):
				pending = append(pending, name)
				again = &Error{API: req.Key(), Code: code, Resource: "topic " + name, Message: deref(t.ErrorMessage)}
			default:
				refused = append(refused, &Error{API: req.Key(), Code: code, Resource: "topic " + name, Message: deref(t.ErrorMessage)})
			}
			c.distrustController(code)
		}
		if len(refused) > 0 {
			return errors.Join(refused...)
		}
		return again
	})
	if err != nil {
		return err
	}
	return c.retry(ctx, kmsg.Metadata, "topics "+strings.Join(names, ", "), func() error {
		found, err := c.refresh(ctx, names)
		if err != nil {
			return err
		}
		for _, name := range names {
			if found[name] != nil {
				return errStillThere(name)
			}
		}
		return nil
	})
}

// distrustController forgets the controller after an answer that says it is another one. The answer stands at each topic, where Do does
// not look.
func (c *Client) distrustController(code Code) {
	if code == NotController {
		c.forgetRoute(Controller())
	}
}

// Topics asks the brokers for the metadata of topics, or of all topics when none is named. Topics that do not exist are missing in the
// result. The result is shared with the client's cache: do not change it.
func (c *Client) Topics(ctx context.Context, names ...string) (found map[string]*Topic, err error) {
	if len(names) == 0 {
		names = nil
	}
	err = c.retry(ctx, kmsg.Metadata, AnyBroker().String(), func() (err error) {
		found, err = c.refresh(ctx, names)
		return err
	})
	return found, err
}

// Broker is one node of a cluster.
type Broker struct {
	ID   int32
	Host string
	Port int32
	Rack string
}

// Brokers returns the nodes by id, the id of the controller (-1 if there is none at the moment) and the cluster's id.
func (c *Client) Brokers(ctx context.Context) (brokers []Broker, controller int32, clusterID string, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // nil would mean all topics
	resp, err := c.Do(ctx, Request{Route: AnyBroker(), Req: req})
	if err != nil {
		return nil, anyNode, "", err
	}
	m := resp.(*kmsg.MetadataResponse)
	for _, b := range m.Brokers {
		brokers = append(brokers, Broker{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: deref(b.Rack)})
	}
	slices.SortFunc(brokers, func(a, b Broker) int { return cmp.Compare(a.ID, b.ID) })
	return brokers, m.ControllerID, deref(m.ClusterID), nil
}

func millis(d time.Duration) int32 { return int32(d / time.Millisecond) }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func nonEmpty(parts ...string) []string {
	return slices.DeleteFunc(parts, func(s string) bool { return s == "" })
}
