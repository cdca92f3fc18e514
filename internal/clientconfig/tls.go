package clientconfig

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"regexp"
	"strings"
)

// The properties of TLS, with Kafka's names. authorityKey is librdkafka's name of a PEM trust store.
const (
	trustTypeKey   = "ssl.truststore.type"
	trustFileKey   = "ssl.truststore.location"
	trustPEMKey    = "ssl.truststore.certificates"
	trustPassKey   = "ssl.truststore.password"
	authorityKey   = "ssl.ca.location"
	storeTypeKey   = "ssl.keystore.type"
	storeFileKey   = "ssl.keystore.location"
	storeChainKey  = "ssl.keystore.certificate.chain"
	storeKeyKey    = "ssl.keystore.key"
	storePassKey   = "ssl.keystore.password"
	keyPassKey     = "ssl.key.password"
	verifyHostKey  = "ssl.endpoint.identification.algorithm"
	tlsVersionsKey = "ssl.enabled.protocols"
)

// tls makes the configuration of encrypted connections. Without a trust store the system's authorities are trusted, as in Java.
func (p properties) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if err := p.versions(config); err != nil {
		return nil, err
	}
	if err := p.trust(config); err != nil {
		return nil, err
	}
	if err := p.own(config); err != nil {
		return nil, err
	}
	switch algorithm, set := p[verifyHostKey]; {
	case !set || strings.EqualFold(algorithm.value, "https"):
	case algorithm.value == "":
		// The chain is still verified, by the callback: only the name is not.
		config.InsecureSkipVerify = true
		roots := config.RootCAs
		config.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state.PeerCertificates, roots) }
	default:
		return nil, p.bad(verifyHostKey, "%q: https, or nothing for certificates of any host name", algorithm.value)
	}
	return config, nil
}

func verifyChain(chain []*x509.Certificate, roots *x509.CertPool) error {
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(options)
	return err
}

// versions takes the oldest and the newest of a list: Go offers all between them.
func (p properties) versions(config *tls.Config) error {
	var offered []uint16
	for name := range strings.SplitSeq(p.get(tlsVersionsKey), ",") {
		switch strings.TrimSpace(name) {
		case "":
		case "TLSv1.2":
			offered = append(offered, tls.VersionTLS12)
		case "TLSv1.3":
			offered = append(offered, tls.VersionTLS13)
		default:
			return p.bad(tlsVersionsKey, "%q: TLSv1.2, TLSv1.3 or both", name)
		}
	}
	for i, v := range offered {
		if i == 0 {
			config.MinVersion, config.MaxVersion = v, v
		}
		config.MinVersion, config.MaxVersion = min(config.MinVersion, v), max(config.MaxVersion, v)
	}
	return nil
}

// trust reads the authorities.
func (p properties) trust(config *tls.Config) error {
	key := trustPEMKey
	text := []byte(p.get(trustPEMKey))
	for _, file := range []string{authorityKey, trustFileKey} {
		path := p.get(file)
		switch {
		case path == "":
			continue
		case len(text) > 0:
			return p.bad(file, "%s says it too", key)
		}
		var err error
		if text, err = p.store(file, trustTypeKey, trustPassKey, trustCommand); err != nil {
			return err
		}
		key = file
	}
	if len(text) == 0 {
		return nil
	}
	config.RootCAs = x509.NewCertPool()
	found := false
	for block := range blocks(text) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return p.bad(key, "a certificate in it cannot be read: %v", err)
		}
		config.RootCAs.AddCert(c)
		found = true
	}
	if !found {
		return p.bad(key, "there is no certificate in it")
	}
	return nil
}

// own reads the client's certificate and its key, for brokers that want one.
func (p properties) own(config *tls.Config) error {
	chain, secret := []byte(p.get(storeChainKey)), []byte(p.get(storeKeyKey))
	chainKey, secretKey := storeChainKey, storeKeyKey
	if p.get(storeFileKey) != "" {
		if len(chain)+len(secret) > 0 {
			return p.bad(storeFileKey, "%s and %s say it too", storeChainKey, storeKeyKey)
		}
		text, err := p.store(storeFileKey, storeTypeKey, storePassKey, keyCommand)
		if err != nil {
			return err
		}
		chain, secret = text, text
		chainKey, secretKey = storeFileKey, storeFileKey
	}
	if len(chain)+len(secret) == 0 {
		return nil
	}
	var certificates bytes.Buffer
	for block := range blocks(chain) {
		if block.Type == "CERTIFICATE" {
			if err := pem.Encode(&certificates, block); err != nil {
				return err
			}
		}
	}
	if certificates.Len() == 0 {
		return p.bad(chainKey, "there is no certificate in it")
	}
	private, err := p.privateKey(secretKey, secret)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificates.Bytes(), private)
	if err != nil {
		return p.bad(secretKey, "the key does not go with the certificate: %v", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

// privateKey finds the key in a text and decrypts it if it must be. The result is PEM.
func (p properties) privateKey(from string, text []byte) ([]byte, error) {
	for block := range blocks(text) {
		switch {
		case block.Headers["Proc-Type"] != "":
			return nil, p.bad(from, "a key that is encrypted in OpenSSL's old way: %s", reencrypt)
		case block.Type == "ENCRYPTED PRIVATE KEY" && p.get(keyPassKey) == "":
			return nil, p.bad(from, "the key is encrypted, and %s is not set", keyPassKey)
		case block.Type == "ENCRYPTED PRIVATE KEY":
			plain, err := decryptPKCS8(block.Bytes, p.get(keyPassKey))
			if errors.Is(err, errWrongPassword) {
				return nil, p.bad(keyPassKey, "it does not decrypt the key")
			}
			if err != nil {
				return nil, p.bad(from, "%v: %s", err, reencrypt)
			}
			return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: plain}), nil
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			return pem.EncodeToMemory(block), nil
		}
	}
	return nil, p.bad(from, "there is no private key in it")
}

// What turns the stores of Java into PEM, with the path of the store to fill in.
const (
	trustCommand = "keytool -list -rfc -keystore %s > truststore.pem"
	keyCommand   = "keytool -importkeystore -srckeystore %s -destkeystore keystore.p12 -deststoretype PKCS12, " +
		"and openssl pkcs12 -in keystore.p12 -out keystore.pem -aes256"
	reencrypt = "openssl pkcs8 -topk8 -v2 aes-256-cbc -in KEY -out keystore.key"
)

// The first bytes of stores that are not text: Java's own, and DER, in which PKCS#12 is written.
var (
	magicJKS = []byte{0xfe, 0xed, 0xfe, 0xed}
	magicDER = []byte{0x30}
)

// store reads a PEM store. A type that is not set is seen from the file, where Java would assume JKS.
func (p properties) store(fileKey, typeKey, passKey, command string) ([]byte, error) {
	path := p.get(fileKey)
	kind := strings.ToUpper(p.get(typeKey))
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, p.bad(fileKey, "%v", err)
	}
	switch {
	case kind == "JKS" || kind == "PKCS12":
	case kind != "" && kind != "PEM":
		return nil, p.bad(typeKey, "%q: this program reads PEM", kind)
	case bytes.HasPrefix(text, magicJKS):
		kind = "JKS"
	case bytes.HasPrefix(text, magicDER):
		kind = "PKCS12"
	default:
		kind = "PEM"
	}
	if kind != "PEM" {
		return nil, p.bad(fileKey, "a store of type %s, and this program reads PEM: "+command, kind, path)
	}
	if p.get(passKey) != "" {
		return nil, p.bad(passKey, "a PEM store has no password; %s is for its key", keyPassKey)
	}
	return text, nil
}

// marker is the line before or after the content of a PEM block. In a property all may stand on one line (KIP-651).
var marker = regexp.MustCompile(`[ \t]*(-----(?:BEGIN|END) [A-Z0-9 ]+-----)[ \t]*`)

// blocks yields the PEM blocks of a text.
func blocks(text []byte) func(yield func(*pem.Block) bool) {
	return func(yield func(*pem.Block) bool) {
		rest := marker.ReplaceAll(text, []byte("\n$1\n"))
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil || !yield(block) {
				return
			}
		}
	}
}
