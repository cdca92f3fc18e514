package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	kafkago "github.com/segmentio/kafka-go"
)

// SecurityProblem is a way in which a client and a broker do not come together. None of them goes away by trying again, as in Kafka's own
// clients, where these are AuthenticationExceptions and fatal.
type SecurityProblem uint8

// The problems. Each has words and a next step of its own.
const (
	WrongCredentials   SecurityProblem = iota + 1 // the login was refused
	NoSuchMechanism                               // the broker does not offer the SASL mechanism
	LoginExpected                                 // a SASL listener, and a client without SASL
	LoginNotExpected                              // a listener without SASL, and a client that would log in
	TLSExpected                                   // a TLS listener, and a client that speaks plain text
	PlainExpected                                 // a plain text listener, and a client that speaks TLS
	UnknownCA                                     // the certificate's issuer is not trusted here
	WrongHostName                                 // the certificate is for other names
	ExpiredCertificate                            // or one that is not valid yet
	BadCertificate                                // any other fault of the certificate
	TLSRefused                                    // the broker ended the handshake with an alert
)

// securityProblems holds what is wrong and what to do about it.
var securityProblems = map[SecurityProblem]struct{ what, cure string }{
	WrongCredentials: {
		"the broker refuses the user name or the password",
		"check sasl.jaas.config, or sasl.username and sasl.password, and that the user exists for this sasl.mechanism",
	},
	NoSuchMechanism: {"the broker does not offer this sasl.mechanism", "set sasl.mechanism to one that it offers"},
	LoginExpected: {
		"the broker wants a login, and none is configured",
		"set security.protocol to SASL_SSL or SASL_PLAINTEXT, with sasl.mechanism and sasl.jaas.config",
	},
	LoginNotExpected: {
		"the broker's listener takes no login, and one is configured",
		"set security.protocol to SSL or PLAINTEXT, or use the port of a SASL listener",
	},
	TLSExpected: {
		"the broker speaks TLS on this port, and this client plain text",
		"set security.protocol to SSL or SASL_SSL, or use the port of a plain text listener",
	},
	PlainExpected: {
		"the broker speaks plain text on this port, and this client TLS",
		"set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of a TLS listener",
	},
	UnknownCA: {
		"the broker's certificate is signed by an authority that is not trusted here",
		"put the authority's certificate, as PEM, into ssl.truststore.location",
	},
	WrongHostName: {
		"the broker's certificate is for another host name",
		"use a name that it holds in --bootstrap and in the broker's advertised.listeners, or set ssl.endpoint.identification.algorithm to nothing",
	},
	ExpiredCertificate: {"the broker's certificate is expired or not yet valid", "renew it, or set this machine's clock"},
	BadCertificate:     {"the broker's certificate cannot be accepted", "have it issued anew"},
	TLSRefused: {
		"the broker refuses the TLS handshake",
		"it may want a certificate of this client (ssl.keystore.location) or another version of TLS (ssl.enabled.protocols)",
	},
}

// SecurityError says that a broker was reached and that the two do not come together. It holds no secret.
type SecurityError struct {
	Problem SecurityProblem
	Detail  string // what the broker offers, or the names in its certificate; may be ""
	Err     error  // what was seen; may be nil
}

func (e *SecurityError) Error() string {
	p := securityProblems[e.Problem]
	if e.Detail != "" {
		return fmt.Sprintf("%s (%s): %s", p.what, e.Detail, p.cure)
	}
	return p.what + ": " + p.cure
}

// Unwrap returns what was seen.
func (e *SecurityError) Unwrap() error { return e.Err }

// securityError words err if it is one of the problems for certain. The end of a connection is not: brokers end them when they stop, too.
func securityError(err error) error {
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var remote *net.OpError
	found := func(p SecurityProblem, detail string) error {
		return &SecurityError{Problem: p, Detail: detail, Err: err}
	}
	switch {
	case errors.Is(err, kafkago.SASLAuthenticationFailed):
		return found(WrongCredentials, "")
	case errors.Is(err, kafkago.UnsupportedSASLMechanism):
		return found(NoSuchMechanism, "")
	case errors.Is(err, kafkago.IllegalSASLState):
		return found(LoginNotExpected, "")
	case errors.As(err, &hostname):
		return found(WrongHostName, strings.TrimPrefix(hostname.Error(), "x509: "))
	case errors.As(err, &authority):
		return found(UnknownCA, "")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return found(ExpiredCertificate, invalid.Detail)
	case errors.As(err, &verification):
		return found(BadCertificate, strings.TrimPrefix(verification.Err.Error(), "x509: "))
	case errors.As(err, &record):
		return found(PlainExpected, "")
	case errors.As(err, &remote) && remote.Op == "remote error": // crypto/tls's word for an alert of the other side
		return found(TLSRefused, remote.Err.Error())
	}
	return err
}
