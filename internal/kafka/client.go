package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Config says how to reach a cluster. The zero value of each field but Seeds is usable.
type Config struct {
	Seeds    []string // host:port of one or more brokers
	ClientID string   // default "lab"
	Security          // the zero value: plain text, no login
	// Timeout bounds one request beyond the time it asks the broker to wait. Default 10 s.
	Timeout time.Duration
	// RetryTimeout bounds a request with all its retries, where the context does not end it earlier. Default 60 s.
	RetryTimeout time.Duration
	// Backoff is the pause before the first retry of a request; it doubles up to 16 times that. Default 20 ms.
	Backoff time.Duration
	Logger  *slog.Logger // default: discard
}

// Client talks to one cluster. It is safe for concurrent use. It starts no goroutines of its own besides those of the Transport.
type Client struct {
	cfg         Config
	transport   *kafkago.Transport
	conns       *connections
	seeds       net.Addr
	log         *slog.Logger
	correlation atomic.Int32

	// mu guards the caches below and is never held over a request.
	mu           sync.Mutex
	versions     map[int32]*nodeVersions
	topics       map[string]*Topic
	controller   int32
	coordinators map[Route]int32
}

// New returns a client after one answered request that needs a login where the broker wants one, so that a wrong address, certificate or
// password is told here, in its true words: later the Transport reports each of them as a missing broker. Then it is a *SecurityError.
func New(ctx context.Context, cfg Config) (*Client, error) {
	if len(cfg.Seeds) == 0 {
		return nil, errors.New("no bootstrap address given")
	}
	if cfg.ClientID == "" {
		cfg.ClientID = "lab"
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.RetryTimeout <= 0 {
		cfg.RetryTimeout = 60 * time.Second
	}
	if cfg.Backoff <= 0 {
		cfg.Backoff = 20 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	conns := newConnections()
	c := &Client{
		cfg:   cfg,
		conns: conns,
		transport: &kafkago.Transport{
			Dial:           conns.dial,
			ClientID:       cfg.ClientID,
			TLS:            cfg.TLS,
			SASL:           cfg.SASL,
			MetadataTopics: []string{}, // brokers only; nil would ask for all topics, again and again
			MetadataTTL:    30 * time.Second,
			IdleTimeout:    2 * time.Minute,
		},
		seeds:        kafkago.TCP(cfg.Seeds...),
		log:          cfg.Logger,
		versions:     map[int32]*nodeVersions{},
		topics:       map[string]*Topic{},
		controller:   anyNode,
		coordinators: map[Route]int32{},
	}
	if _, err := c.refresh(ctx, []string{}); err != nil {
		err = c.diagnose(ctx, err)
		c.Close()
		return nil, fmt.Errorf("connect to %v: %w", cfg.Seeds, err)
	}
	return c, nil
}

// ErrClosed is the error of requests after Close.
var ErrClosed = errors.New("kafka client is closed")

// Close drops the connections. Requests under way end with an error, as do later ones.
func (c *Client) Close() {
	c.conns.close()
	c.transport.CloseIdleConnections()
}

// call sends req to node once. wait is how long the broker may hold the answer back, beyond what the request itself says.
// Versions above limit are not used; limit < 0 sets none.
func (c *Client) call(ctx context.Context, node int32, req kmsg.Request, limit int16, wait time.Duration) (kmsg.Response, error) {
	v, err := c.pick(ctx, node, req.Key(), limit)
	if err != nil {
		return nil, err
	}
	return c.send(ctx, node, req, v, wait, c.cfg.ClientID)
}

func (c *Client) send(
	ctx context.Context, node int32, req kmsg.Request, version int16, wait time.Duration, clientID string,
) (kmsg.Response, error) {
	req.SetVersion(version)
	x := newExchange(c.correlation.Add(1)&0x7fffffff, clientID, node, req)
	if c.conns.isClosed() {
		return nil, ErrClosed
	}
	// Without a deadline a connection may wait for ever: the Transport sets none of its own.
	callCtx, cancel := context.WithTimeout(ctx, c.cfg.Timeout+wait+askedWait(req))
	defer cancel()
	if _, err := c.transport.RoundTrip(callCtx, c.seeds, x); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if c.conns.isClosed() {
			return nil, ErrClosed
		}
		// The other pooled connections are stale too, and this makes the Transport ask for the brokers anew.
		c.transport.CloseIdleConnections()
		c.forgetVersions(node)
		return nil, &NetworkError{API: req.Key(), Node: node, Err: securityError(err)}
	}
	return x.resp, nil
}

// askedWait is the time for which the request itself lets the broker hold the answer back.
func askedWait(req kmsg.Request) time.Duration {
	var ms int32
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		ms = r.MaxWaitMillis
	case *kmsg.ProduceRequest:
		ms = r.TimeoutMillis
	case *kmsg.JoinGroupRequest:
		ms = r.RebalanceTimeoutMillis
	case *kmsg.CreateTopicsRequest:
		ms = r.TimeoutMillis
	case *kmsg.DeleteTopicsRequest:
		ms = r.TimeoutMillis
	case *kmsg.DeleteRecordsRequest:
		ms = r.TimeoutMillis
	case *kmsg.CreatePartitionsRequest:
		ms = r.TimeoutMillis
	}
	return time.Duration(ms) * time.Millisecond
}

// Request is one call with its retries.
type Request struct {
	Route Route
	Req   kmsg.Request
	// Limit, where set, is the newest version to use.
	Limit *int16
	// Wait is how long the broker may hold the answer back beyond what Req itself says.
	Wait time.Duration
	// ClientID, where set, replaces Config.ClientID: brokers log it and show it for group members.
	ClientID string
	// Check returns the error in an answer, as *Error. Errors whose action is to try again are tried again here; others are returned.
	// An answer whose parts have errors of their own is for the caller to go through: Check is nil then.
	Check func(kmsg.Response) error
	// Once turns retries off: the first error is returned.
	Once bool
}

// Do sends a request and repeats it after network errors and after codes that say "try again" or "ask elsewhere" (see actionOf), until an
// answer, ctx's end or Config.RetryTimeout. Sequences, epochs and member ids make the repetition safe for all APIs in the version table.
func (c *Client) Do(ctx context.Context, r Request) (kmsg.Response, error) {
	if r.Once {
		return c.doOnce(ctx, r)
	}
	var resp kmsg.Response
	err := c.retry(ctx, kmsg.Key(r.Req.Key()), r.Route.String(), func() (err error) {
		resp, err = c.doOnce(ctx, r)
		return err
	})
	return resp, err
}

// retry calls once until it succeeds, fails with an error whose action is not to try again, or Config.RetryTimeout is over. It is for
// calls of more than one request, or whose answers have an error for each part; what is for debugging only.
func (c *Client) retry(ctx context.Context, api kmsg.Key, what string, once func() error) error {
	start := time.Now()
	for try := 1; ; try++ {
		err := once()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !retriable(actionFor(int16(api), err)) {
			return err
		}
		if spent := time.Since(start); spent > c.cfg.RetryTimeout {
			return fmt.Errorf("gave up after %d tries in %s: %w", try, spent.Round(time.Millisecond), err)
		}
		c.log.Debug("retrying", "api", api.Name(), "route", what, "try", try, "error", err)
		if err := c.pause(ctx, try); err != nil {
			return err
		}
	}
}

// doOnce sends a request once. An answer or a silence that says that the route was wrong makes the next request look it up again.
func (c *Client) doOnce(ctx context.Context, r Request) (kmsg.Response, error) {
	resp, err := c.sendOnce(ctx, r)
	if err != nil && ctx.Err() == nil {
		var network *NetworkError
		switch act := actionFor(r.Req.Key(), err); {
		case act == ActMetadata, act == ActCoordinator, errors.As(err, &network):
			c.forgetRoute(r.Route)
		}
	}
	return resp, err
}

func (c *Client) sendOnce(ctx context.Context, r Request) (kmsg.Response, error) {
	node, err := c.resolve(ctx, r.Route)
	if err != nil {
		return nil, err
	}
	limit := int16(-1)
	if r.Limit != nil {
		limit = *r.Limit
	}
	v, err := c.pick(ctx, node, r.Req.Key(), limit)
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, node, r.Req, v, r.Wait, cmp.Or(r.ClientID, c.cfg.ClientID))
	if err != nil || r.Check == nil {
		return resp, err
	}
	return resp, r.Check(resp)
}

// backoff is the pause before retry number try, counted from 1.
func (c *Client) backoff(try int) time.Duration { return c.cfg.Backoff << min(try-1, 4) }

// distrust makes the next request to a route find its broker anew, over a new connection. It is for callers that lost patience before
// Config.Timeout did.
func (c *Client) distrust(r Route) {
	c.transport.CloseIdleConnections()
	c.forgetRoute(r)
}

// pause waits before retry number try, or until ctx ends.
func (c *Client) pause(ctx context.Context, try int) error {
	t := time.NewTimer(c.backoff(try))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TransactionVersion is the finalized feature transaction.version of the cluster: 2 and above means KIP-890 transactions.
func (c *Client) TransactionVersion(ctx context.Context) (version int16, err error) {
	err = c.retry(ctx, kmsg.ApiVersions, AnyBroker().String(), func() error {
		v, err := c.nodeVersions(ctx, anyNode)
		if err == nil {
			version = v.transactionVersion
		}
		return err
	})
	return version, err
}
