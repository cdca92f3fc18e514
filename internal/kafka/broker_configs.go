package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitialRebalanceDelay is how long a broker lets the first member of an empty group wait for others (group.initial.rebalance.delay.ms): 3 s
// by default. It takes DescribeConfigs on the cluster.
func (c *Client) InitialRebalanceDelay(ctx context.Context) (time.Duration, error) {
	const name = "group.initial.rebalance.delay.ms"
	brokers, _, _, err := c.Brokers(ctx)
	if err != nil {
		return 0, err
	}
	if len(brokers) == 0 {
		return 0, errors.New("the cluster tells of no broker")
	}
	id := brokers[0].ID
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(id)), []string{name}
	req.Resources = append(req.Resources, r)
	resp, err := c.Do(ctx, Request{Route: Node(id), Req: req, Check: func(resp kmsg.Response) error {
		for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			if r.ErrorCode != 0 {
				return &Error{API: req.Key(), Code: Code(r.ErrorCode), Resource: Node(id).String(), Message: deref(r.ErrorMessage)}
			}
		}
		return nil
	}})
	if err != nil {
		return 0, err
	}
	for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
		for _, e := range r.Configs {
			if e.Name != name {
				continue
			}
			ms, err := strconv.ParseInt(deref(e.Value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s of %s: %w", name, Node(id), err)
			}
			return time.Duration(ms) * time.Millisecond, nil
		}
	}
	return 0, fmt.Errorf("%s does not tell its %s", Node(id), name)
}
