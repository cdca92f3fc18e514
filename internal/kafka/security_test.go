package kafka_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

const password = "correct horse battery"

func login(t *testing.T, mechanism, password string) sasl.Mechanism {
	t.Helper()
	m, err := kafka.Login(mechanism, "alice", password)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func trust(t *testing.T, a *brokertest.Authority) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.PEM) {
		t.Fatal("no certificate")
	}
	return &tls.Config{RootCAs: pool}
}

// TestWrongSettings has a row for each way in which a client and a broker do not come together: the error names it, and comes at once.
func TestWrongSettings(t *testing.T) {
	ca, other := brokertest.NewAuthority(t, "lab"), brokertest.NewAuthority(t, "lab")
	tomorrow := time.Now().Add(24 * time.Hour)
	good := ca.Issue(t, tomorrow, "127.0.0.1", "localhost").Server(t)
	mutual := good.Clone()
	mutual.ClientAuth = tls.RequireAnyClientCert
	users := brokertest.Login("alice", password)
	listen := func(opts ...brokertest.Option) string { return brokertest.Bootstrap(brokertest.Embedded(t, opts...)) }
	plain, encrypted := limited(t, listen()), listen(brokertest.TLS(good))
	saslPlain, saslTLS := listen(users...), listen(append(users, brokertest.TLS(good))...)
	elsewhere := listen(brokertest.TLS(ca.Issue(t, tomorrow, "kafka.example").Server(t)))
	expired := listen(brokertest.TLS(ca.Issue(t, time.Now().Add(-time.Hour), "127.0.0.1").Server(t)))
	mtls := listen(brokertest.TLS(mutual))

	for name, c := range map[string]struct {
		address string
		kafka.Security
		want kafka.SecurityProblem // 0: it works
		says string
	}{
		"plain":                   {address: plain},
		"TLS":                     {address: encrypted, Security: kafka.Security{TLS: trust(t, ca)}},
		"PLAIN":                   {address: saslPlain, Security: kafka.Security{SASL: login(t, "PLAIN", password)}},
		"TLS and SCRAM-SHA-256":   {address: saslTLS, Security: kafka.Security{TLS: trust(t, ca), SASL: login(t, "SCRAM-SHA-256", password)}},
		"TLS and SCRAM-SHA-512":   {address: saslTLS, Security: kafka.Security{TLS: trust(t, ca), SASL: login(t, "SCRAM-SHA-512", password)}},
		"wrong password, PLAIN":   {saslPlain, kafka.Security{SASL: login(t, "PLAIN", "wrong")}, kafka.WrongCredentials, "user name or the password"},
		"wrong password, SCRAM":   {saslTLS, kafka.Security{TLS: trust(t, ca), SASL: login(t, "SCRAM-SHA-256", "wrong")}, kafka.WrongCredentials, "user name or the password"},
		"wrong authority":         {encrypted, kafka.Security{TLS: trust(t, other)}, kafka.UnknownCA, "ssl.truststore.location"},
		"wrong host name":         {elsewhere, kafka.Security{TLS: trust(t, ca)}, kafka.WrongHostName, "127.0.0.1"},
		"expired":                 {expired, kafka.Security{TLS: trust(t, ca)}, kafka.ExpiredCertificate, "expired"},
		"plain text to TLS":       {encrypted, kafka.Security{}, kafka.TLSExpected, "security.protocol to SSL"},
		"TLS to plain text":       {plain, kafka.Security{TLS: trust(t, ca)}, kafka.PlainExpected, "security.protocol to PLAINTEXT"},
		"no login":                {saslPlain, kafka.Security{}, kafka.LoginExpected, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"},
		"no login, TLS":           {saslTLS, kafka.Security{TLS: trust(t, ca)}, kafka.LoginExpected, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"},
		"no certificate":          {mtls, kafka.Security{TLS: trust(t, ca)}, kafka.TLSRefused, "ssl.keystore.location"},
		"plain text to TLS login": {saslTLS, kafka.Security{SASL: login(t, "PLAIN", password)}, kafka.TLSExpected, "SASL_SSL"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			client, err := kafka.New(ctx, kafka.Config{Seeds: []string{c.address}, Security: c.Security})
			if err == nil {
				defer client.Close()
				_, _, _, err = client.Brokers(ctx)
			}
			var problem *kafka.SecurityError
			switch {
			case c.want == 0 && err == nil:
			case c.want == 0:
				t.Error(err)
			case !errors.As(err, &problem) || problem.Problem != c.want || !strings.Contains(err.Error(), c.says):
				t.Errorf("got %v, want problem %d and %q", err, c.want, c.says)
			case strings.Contains(err.Error(), "wrong") && strings.Contains(name, "password"):
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

// limited stands before a broker and ends connections that ask for more than it takes, as Kafka does (socket.request.max.bytes): the first
// bytes of TLS are such a size. The embedded broker would wait for so much.
func limited(t *testing.T, address string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = ln.Close() })
	pass := func(client net.Conn) {
		defer func() { _ = client.Close() }()
		var head [4]byte
		if _, err := io.ReadFull(client, head[:]); err != nil || binary.BigEndian.Uint32(head[:]) > 100<<20 {
			return
		}
		server, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		defer func() { _ = server.Close() }()
		serving.Go(func() {
			_, _ = io.Copy(server, io.MultiReader(bytes.NewReader(head[:]), client))
			_ = server.Close()
		})
		_, _ = io.Copy(client, server)
	}
	serving.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { pass(client) })
		}
	})
	return ln.Addr().String()
}

// An address that answers nothing is no matter of security, and is told as what it is.
func TestNobodyThereIsNoSecurityProblem(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = kafka.New(t.Context(), kafka.Config{Seeds: []string{address}, Security: kafka.Security{SASL: login(t, "PLAIN", password)}})
	var problem *kafka.SecurityError
	if err == nil || errors.As(err, &problem) {
		t.Errorf("got %v", err)
	}
}

// A broker that takes the login and then is too slow to answer has not refused it: to look for a wrong password would be in vain.
func TestSlowBrokerIsNoSecurityProblem(t *testing.T) {
	cluster := brokertest.Embedded(t, brokertest.Login("alice", password)...)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	_, err := kafka.New(t.Context(), kafka.Config{
		Seeds: []string{brokertest.Bootstrap(cluster)}, Security: kafka.Security{SASL: login(t, "PLAIN", password)}, Timeout: 500 * time.Millisecond,
	})
	var problem *kafka.SecurityError
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &problem) {
		t.Errorf("got %v", err)
	}
}

func TestCredentialsAreNotPrinted(t *testing.T) {
	for _, mechanism := range kafka.Mechanisms() {
		s := kafka.Security{SASL: login(t, mechanism, password)}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if out := fmt.Sprintf(verb, s); strings.Contains(out, password) || strings.Contains(out, "alice") {
				t.Errorf("%s of %s: %s", verb, mechanism, out)
			}
		}
	}
}

// A refusal names what to grant: the operation and the resource.
func TestRefusalsNameTheEntry(t *testing.T) {
	for _, c := range []struct {
		err  kafka.Error
		want string
	}{
		{kafka.Error{API: 1, Code: kafka.TopicAuthorizationFailed, Resource: "partition orders.placed-backup-2"}, "Read on topic orders.placed-backup"},
		{kafka.Error{API: 3, Code: kafka.TopicAuthorizationFailed, Resource: "topic orders.placed"}, "Describe on topic orders.placed"},
		{kafka.Error{API: 19, Code: kafka.TopicAuthorizationFailed, Resource: "topic x", Message: "Authorization failed."}, "Create on topic x"},
		{kafka.Error{API: 28, Code: kafka.TopicAuthorizationFailed, Resource: "group g", Message: "partition t-0"}, "Read on topic t"},
		{kafka.Error{API: 8, Code: kafka.TopicAuthorizationFailed, Resource: "group g partition t-0"}, "Read on topic t"},
		{kafka.Error{API: 8, Code: kafka.GroupAuthorizationFailed, Resource: "group g partition t-0"}, "Read on group g"},
		{kafka.Error{API: 10, Code: kafka.GroupAuthorizationFailed, Resource: "coordinator of group g"}, "Describe and Read on group g"},
		{kafka.Error{API: 42, Code: kafka.GroupAuthorizationFailed, Resource: "group g"}, "Delete on group g"},
		{kafka.Error{API: 10, Code: kafka.TxnIDAuthorizationFailed, Resource: "coordinator of transactional id x-1"}, "Describe and Write on transactional id x-1"},
		{kafka.Error{API: 22, Code: kafka.TxnIDAuthorizationFailed, Resource: "transactional id x-1"}, "Write on transactional id x-1"},
		{kafka.Error{API: 22, Code: kafka.ClusterAuthorizationFailed}, "Write on a topic, or IdempotentWrite on the cluster"},
		{kafka.Error{API: 32, Code: kafka.ClusterAuthorizationFailed, Resource: "broker 1"}, "DescribeConfigs on the cluster"},
	} {
		if got := c.err.Error(); !strings.HasSuffix(got, "; grant this principal "+c.want) {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
	if got := (&kafka.Error{API: 1, Code: kafka.OffsetOutOfRange, Resource: "partition t-0"}).Error(); strings.Contains(got, "grant") {
		t.Error(got)
	}
}
