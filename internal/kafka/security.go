package kafka

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Security is how a client talks to the brokers of a cluster. The zero value is plain text without a login.
type Security struct {
	TLS  *tls.Config
	SASL sasl.Mechanism
}

// Plain tells that the connections are neither encrypted nor logged in.
func (s Security) Plain() bool { return s.TLS == nil && s.SASL == nil }

// Protocol is Kafka's name for it, a value of security.protocol.
func (s Security) Protocol() string {
	switch {
	case s.TLS != nil && s.SASL != nil:
		return "SASL_SSL"
	case s.TLS != nil:
		return "SSL"
	case s.SASL != nil:
		return "SASL_PLAINTEXT"
	default:
		return "PLAINTEXT"
	}
}

// Mechanisms are the values of sasl.mechanism that Login knows.
func Mechanisms() []string { return []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} }

// Login returns a SASL mechanism with its credentials. Whatever prints a configuration prints the mechanism's name and no more.
func Login(name, username, password string) (sasl.Mechanism, error) {
	var m sasl.Mechanism
	var err error
	switch name {
	case "PLAIN":
		m = plain.Mechanism{Username: username, Password: password}
	case "SCRAM-SHA-256":
		m, err = scram.Mechanism(scram.SHA256, username, password)
	case "SCRAM-SHA-512":
		m, err = scram.Mechanism(scram.SHA512, username, password)
	default:
		return nil, fmt.Errorf("sasl.mechanism %q: this program speaks %v", name, Mechanisms())
	}
	if err != nil {
		// SASLprep's own words may quote what it could not prepare.
		return nil, fmt.Errorf("%s: the user name or the password holds characters that SASLprep (RFC 4013) forbids", name)
	}
	return login{name: name, start: m.Start}, nil
}

// login hides credentials in a closure, which no formatting of a value can look into.
type login struct {
	name  string
	start func(context.Context) (sasl.StateMachine, []byte, error)
}

func (l login) Name() string { return l.name }

func (l login) String() string { return l.name }

func (l login) Start(ctx context.Context) (sasl.StateMachine, []byte, error) { return l.start(ctx) }
