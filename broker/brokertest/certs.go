package brokertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority issues certificates for the tests of encrypted connections.
type Authority struct {
	// PEM is its own certificate, for trust stores.
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Certificate is a certificate with its key, both as PEM: the key is PKCS#8, as Kafka's PEM stores have it.
type Certificate struct{ Chain, Key []byte }

// Store is the whole in one file, as ssl.keystore.location takes it.
func (c Certificate) Store() []byte { return append(append([]byte{}, c.Key...), c.Chain...) }

// Server is the certificate for a TLS listener.
func (c Certificate) Server(t testing.TB) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair(c.Chain, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// NewAuthority makes an authority. Two of one name are still two.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	template := template(t, name, time.Now().Add(24*time.Hour))
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a := &Authority{cert: template, key: newKey(t)}
	a.PEM = a.sign(t, template, a.key)
	return a
}

// Issue makes a certificate for host names and addresses that is valid for the two days before until.
func (a *Authority) Issue(t testing.TB, until time.Time, hosts ...string) Certificate {
	t.Helper()
	template := template(t, hosts[0], until)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key := newKey(t)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Certificate{Chain: a.sign(t, template, key), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})}
}

func (a *Authority) sign(t testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func template(t testing.TB, name string, until time.Time) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: until.Add(-48 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
