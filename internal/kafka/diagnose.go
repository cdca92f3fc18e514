package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// greetTimeout bounds each of the questions of diagnose. A broker answers them at once, or ends the connection.
const greetTimeout = 2 * time.Second

// diagnose finds out why a first request failed where the failure itself does not tell: a broker that is spoken to in the wrong way ends the
// connection without a word. It asks the first address that can be connected to, with requests that brokers answer before any login, and
// returns err if that tells nothing.
func (c *Client) diagnose(ctx context.Context, err error) error {
	var known *SecurityError
	if errors.As(err, &known) && known.Problem != NoSuchMechanism {
		return known
	}
	for _, address := range c.cfg.Seeds {
		conn, derr := c.conns.dial(ctx, "tcp", address)
		if derr != nil {
			continue
		}
		_ = conn.Close()
		if found := c.examine(ctx, address, err); found != nil {
			found.Err = err
			return found
		}
		return err
	}
	return err
}

// examine speaks to an address, of which a request failed, as configured and then the other way; nil if nothing is found.
func (c *Client) examine(ctx context.Context, address string, failed error) *SecurityError {
	answer, err := c.greet(ctx, address, c.cfg.TLS)
	var found *SecurityError
	switch {
	case err == nil:
		return c.loginProblem(answer, failed)
	case errors.As(securityError(err), &found):
		return found
	case c.cfg.TLS != nil:
		if _, err := c.greet(ctx, address, nil); err == nil {
			return &SecurityError{Problem: PlainExpected}
		}
	case c.speaksTLS(ctx, address):
		return &SecurityError{Problem: TLSExpected}
	}
	return nil
}

// loginProblem reads a broker's answer to the question for a SASL mechanism, given how a request with a login failed; nil if the login is not
// to blame.
func (c *Client) loginProblem(answer *kmsg.SASLHandshakeResponse, failed error) *SecurityError {
	offer := "it offers " + strings.Join(slices.Sorted(slices.Values(answer.SupportedMechanisms)), ", ")
	switch code := Code(answer.ErrorCode); {
	case c.cfg.SASL == nil && code == UnsupportedSASLMechanism:
		return &SecurityError{Problem: LoginExpected, Detail: offer}
	case c.cfg.SASL == nil:
		return nil
	case code == UnsupportedSASLMechanism:
		return &SecurityError{Problem: NoSuchMechanism, Detail: offer + " and not " + c.cfg.SASL.Name()}
	case code == 0 && errors.Is(failed, context.DeadlineExceeded): // it may be slow; to refuse a login it would have ended the connection
		return nil
	case code == 0:
		return &SecurityError{Problem: WrongCredentials, Detail: "it ended the connection during the login"}
	default:
		return &SecurityError{Problem: LoginNotExpected}
	}
}

// greet asks for the versions of the API, and then for a SASL mechanism: the configured one, or else one that no broker has.
func (c *Client) greet(ctx context.Context, address string, config *tls.Config) (_ *kmsg.SASLHandshakeResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	conn, err := c.conns.dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// What is closed is the connection below TLS: a peer that speaks none would not understand the farewell.
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return nil, err
	}
	if config != nil {
		config = config.Clone()
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secured
	}
	versions := kmsg.NewPtrApiVersionsRequest()
	if _, err := newExchange(1, c.cfg.ClientID, anyNode, versions).RawExchange(conn); err != nil {
		return nil, err
	}
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.SetVersion(1)
	if c.cfg.SASL != nil {
		handshake.Mechanism = c.cfg.SASL.Name()
	}
	x := newExchange(2, c.cfg.ClientID, anyNode, handshake)
	if _, err := x.RawExchange(conn); err != nil {
		return nil, err
	}
	return x.resp.(*kmsg.SASLHandshakeResponse), nil
}

// speaksTLS tells whether an address completes a handshake of TLS, or refuses it in TLS. Nothing is sent over the connection.
func (c *Client) speaksTLS(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	conn, err := c.conns.dial(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) // only whether, not with whom
	var refused *SecurityError
	return err == nil || errors.As(securityError(err), &refused) && refused.Problem == TLSRefused
}
