package clientconfig_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/clientconfig"
)

const secret = "hush-4711"

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// authenticate returns what a PLAIN login would send: NUL, the name, NUL, the password.
func authenticate(t *testing.T, c clientconfig.Config) string {
	t.Helper()
	_, first, err := c.Security.SASL.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(first), "\x00", "|")
}

// Each property by itself comes from the last place that says it: the file, then the environment, then the arguments.
func TestPrecedence(t *testing.T) {
	const plain = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
	jaas := `sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="file" password="filepass";`
	for name, c := range map[string]struct {
		file        string
		environment []string
		arguments   []string
		want        string
	}{
		"file":                          {file: plain + jaas, want: "|file|filepass"},
		"the file's own names win":      {file: plain + jaas + "\nsasl.password=own", want: "|file|own"},
		"environment over file":         {plain + jaas, []string{"LAB_SASL_PASSWORD=env", "PATH=x", "LAB_DIR=y"}, nil, "|file|env"},
		"an empty variable is none":     {plain + jaas, []string{"LAB_SASL_PASSWORD=", "LAB_SECURITY_PROTOCOL="}, nil, "|file|filepass"},
		"arguments over environment":    {plain + jaas, []string{"LAB_SASL_PASSWORD=env"}, []string{"sasl.password=arg", "sasl.username=me"}, "|me|arg"},
		"environment alone":             {"", []string{"LAB_SECURITY_PROTOCOL=sasl_plaintext", "LAB_SASL_MECHANISM=PLAIN", "LAB_SASL_USERNAME=u", "LAB_SASL_PASSWORD=p=q"}, nil, "|u|p=q"},
		"arguments alone":               {"", nil, []string{"security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=u", "sasl.password=p"}, "|u|p"},
		"quotation marks and backslash": {plain + `sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='a b' password="x\\"y\\\\z;";`, nil, nil, `|a b|x"y\z;`},
	} {
		t.Run(name, func(t *testing.T) {
			s := clientconfig.Sources{Environment: c.environment, Arguments: c.arguments}
			if c.file != "" {
				s.File = write(t, "client.properties", c.file, 0o600)
			}
			got, err := clientconfig.Read(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := authenticate(t, got); got != c.want {
				t.Errorf("logs in as %s, want %s", got, c.want)
			}
		})
	}
}

func TestNothingSaysPlainText(t *testing.T) {
	c, err := clientconfig.Read(clientconfig.Sources{Environment: []string{"LAB_BOOTSTRAP=x", "SASL_PASSWORD=y"}})
	if err != nil || !c.Security.Plain() || len(c.Given)+len(c.Notes) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// What a file holds for other clients is told once, and a file with secrets that everyone can read is too.
func TestNotes(t *testing.T) {
	text := "bootstrap.servers = a:1, b:2\ngroup.id=x\nacks=all\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=" + secret
	path := write(t, "client.properties", text, 0o644)
	c, err := clientconfig.Read(clientconfig.Sources{File: path})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{path + ": not used here: acks, group.id"}
	if runtime.GOOS != "windows" {
		want = append(want, path+" holds secrets and can be read by everyone on this machine: chmod 600 "+path)
	}
	if diff := cmp.Diff(want, c.Notes); diff != "" {
		t.Error(diff)
	}
	if c.Bootstrap != "a:1,b:2" || c.File != path || c.Username != "u" {
		t.Errorf("%+v", c)
	}
	shown := []string{"sasl.mechanism=PLAIN", "sasl.password=[hidden]", "sasl.username=u", "security.protocol=SASL_PLAINTEXT"}
	if diff := cmp.Diff(shown, c.Given); diff != "" || strings.Contains(fmt.Sprintf("%+v", c), secret) {
		t.Errorf("shown: %s\n%+v", diff, c)
	}
	odd, err := clientconfig.Read(clientconfig.Sources{File: write(t, "client.properties", "=x\n\x1b[2J=y", 0o644)})
	if want := `: not used here: "", "\x1b[2J"`; err != nil || len(odd.Notes) != 1 || !strings.HasSuffix(odd.Notes[0], want) {
		t.Errorf("names that are none: %q, %v", odd.Notes, err)
	}
	quiet, err := clientconfig.Read(clientconfig.Sources{File: write(t, "client.properties", "security.protocol=SSL", 0o644)})
	if err != nil || len(quiet.Notes) > 0 {
		t.Errorf("a file without secrets: %q, %v", quiet.Notes, err)
	}
}

func TestStores(t *testing.T) {
	ca := brokertest.NewAuthority(t, "lab")
	client := ca.Issue(t, time.Now().Add(time.Hour), "client")
	oneLine := strings.ReplaceAll(string(ca.PEM), "\n", " ")
	trusted := write(t, "ca.pem", string(ca.PEM), 0o644)
	for name, c := range map[string]struct {
		arguments    []string
		certificates int
		insecure     bool
	}{
		"the system's":           {nil, 0, false},
		"file":                   {[]string{"ssl.truststore.type=PEM", "ssl.truststore.location=" + trusted}, 0, false},
		"file, type not told":    {[]string{"ssl.truststore.location=" + trusted}, 0, false},
		"librdkafka's name":      {[]string{"ssl.ca.location=" + trusted}, 0, false},
		"inline":                 {[]string{"ssl.truststore.type=PEM", "ssl.truststore.certificates=" + string(ca.PEM)}, 0, false},
		"inline, one line":       {[]string{"ssl.truststore.certificates=" + oneLine}, 0, false},
		"any host name":          {[]string{"ssl.ca.location=" + trusted, "ssl.endpoint.identification.algorithm="}, 0, true},
		"own certificate":        {[]string{"ssl.ca.location=" + trusted, "ssl.keystore.location=" + write(t, "k.pem", string(client.Store()), 0o600)}, 1, false},
		"own certificate inline": {[]string{"ssl.keystore.certificate.chain=" + string(client.Chain), "ssl.keystore.key=" + string(client.Key)}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := clientconfig.Read(clientconfig.Sources{Arguments: append([]string{"security.protocol=SSL"}, c.arguments...)})
			if err != nil {
				t.Fatal(err)
			}
			config := got.Security.TLS
			if (config.RootCAs == nil) != (c.arguments == nil || c.certificates > 0 && config.RootCAs == nil) {
				t.Errorf("authorities: %v", config.RootCAs)
			}
			if len(config.Certificates) != c.certificates || config.InsecureSkipVerify != c.insecure {
				t.Errorf("certificates %d, any host name %v", len(config.Certificates), config.InsecureSkipVerify)
			}
		})
	}
}

// Keys as OpenSSL encrypts them, see testdata/README.md.
func TestEncryptedKeys(t *testing.T) {
	plain, err := os.ReadFile(filepath.Join("testdata", "plain.key"))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := pem.Decode(plain)
	for file, c := range map[string]struct{ password, fails string }{
		"aes128-sha1.key":   {password: "sesame"},
		"aes192-sha256.key": {password: "sesame"},
		"aes256-sha512.key": {password: "sesame"},
		"des3.key":          {"sesame", "a way that this program does not know"},
		"scrypt.key":        {"sesame", "a way that this program does not know"},
	} {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(text)
			got, err := clientconfig.DecryptPKCS8(block.Bytes, c.password)
			switch {
			case c.fails == "" && (err != nil || !bytes.Equal(got, want.Bytes)):
				t.Errorf("%v, the right key: %v", err, bytes.Equal(got, want.Bytes))
			case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
				t.Errorf("got %v, want %q", err, c.fails)
			}
			if c.fails == "" {
				// Of these, 10 and 17 leave in aes128-sha1.key what looks like padding.
				for i := range 18 {
					if _, err := clientconfig.DecryptPKCS8(block.Bytes, fmt.Sprint("wrong", i)); err == nil {
						t.Fatalf("password wrong%d decrypts it", i)
					}
				}
			}
		})
	}
}

// Each mistake is named with its property and where it was made, with what to do, and without a secret.
func TestMistakes(t *testing.T) {
	ca := brokertest.NewAuthority(t, "lab")
	one, two := ca.Issue(t, time.Now().Add(time.Hour), "one"), ca.Issue(t, time.Now().Add(time.Hour), "two")
	encrypted, err := os.ReadFile(filepath.Join("testdata", "aes256-sha512.key"))
	if err != nil {
		t.Fatal(err)
	}
	login := func(more ...string) []string {
		return append([]string{"security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=u"}, more...)
	}
	jaas := func(text string) []string { return login("sasl.jaas.config=" + text) }
	const module = "org.apache.kafka.common.security.plain.PlainLoginModule"
	encryption := func(more ...string) []string { return append([]string{"security.protocol=SSL"}, more...) }
	jks := write(t, "kafka.truststore.jks", "\xfe\xed\xfe\xed\x00\x00\x00\x02", 0o644)
	for name, c := range map[string]struct {
		arguments []string
		want      []string
	}{
		"protocol":           {[]string{"security.protocol=TLS"}, []string{"security.protocol of an argument", "SASL_SSL"}},
		"unknown":            {[]string{"sasl.pasword=" + secret}, []string{"sasl.pasword", "did you mean sasl.password?"}},
		"no equals sign":     {[]string{"sasl.password:" + secret}, []string{"property sasl.password", "key=value"}},
		"mechanism":          {[]string{"security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI"}, []string{"GSSAPI", "SCRAM-SHA-512"}},
		"no mechanism":       {[]string{"security.protocol=SASL_SSL"}, []string{"sasl.mechanism", "GSSAPI"}},
		"no password":        {login(), []string{"sasl.password", "no password"}},
		"no name":            {[]string{"security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.password=" + secret}, []string{"sasl.username", "no user name"}},
		"jaas, semicolon":    {jaas(module + ` required username="u" password="` + secret + `"`), []string{"sasl.jaas.config", "semicolon"}},
		"jaas, module":       {jaas(`org.apache.kafka.common.security.scram.ScramLoginModule required password="` + secret + `";`), []string{module}},
		"jaas, flag":         {jaas(module + ` password="` + secret + `";`), []string{"control flag"}},
		"jaas, token":        {jaas(module + ` required tokenauth="` + secret + `";`), []string{"delegation tokens"}},
		"jaas, open quote":   {jaas(module + ` required password="` + secret), []string{"not closed"}},
		"jaas, no value":     {jaas(module + ` required password;`), []string{"name=\"value\""}},
		"no file":            {encryption("ssl.truststore.location=nowhere.pem"), []string{"ssl.truststore.location", "nowhere.pem"}},
		"JKS by its type":    {encryption("ssl.truststore.type=JKS", "ssl.truststore.location="+jks), []string{"JKS", "keytool -list -rfc -keystore " + jks}},
		"JKS by its look":    {encryption("ssl.truststore.location="+jks, "ssl.truststore.password="+secret), []string{"JKS", "keytool -list -rfc"}},
		"PKCS12":             {encryption("ssl.keystore.type=PKCS12", "ssl.keystore.location="+jks), []string{"PKCS12", "openssl pkcs12"}},
		"store type":         {encryption("ssl.truststore.type=BKS", "ssl.truststore.location="+jks), []string{"ssl.truststore.type", "PEM"}},
		"store password":     {encryption("ssl.truststore.location="+write(t, "x.pem", string(ca.PEM), 0o644), "ssl.truststore.password="+secret), []string{"ssl.truststore.password"}},
		"no certificate":     {encryption("ssl.truststore.certificates=hello"), []string{"ssl.truststore.certificates", "no certificate"}},
		"said twice":         {encryption("ssl.truststore.certificates="+string(ca.PEM), "ssl.ca.location=x"), []string{"ssl.ca.location", "says it too"}},
		"host name check":    {encryption("ssl.endpoint.identification.algorithm=ldaps"), []string{"https"}},
		"TLS version":        {encryption("ssl.enabled.protocols=TLSv1.1,TLSv1.2"), []string{"TLSv1.1", "TLSv1.3"}},
		"another's key":      {encryption("ssl.keystore.certificate.chain="+string(one.Chain), "ssl.keystore.key="+string(two.Key)), []string{"ssl.keystore.key", "does not go with"}},
		"no key":             {encryption("ssl.keystore.certificate.chain=" + string(one.Chain)), []string{"ssl.keystore.key", "no private key"}},
		"no key password":    {encryption("ssl.keystore.certificate.chain="+string(one.Chain), "ssl.keystore.key="+string(encrypted)), []string{"ssl.key.password is not set"}},
		"wrong key password": {encryption("ssl.keystore.certificate.chain="+string(one.Chain), "ssl.keystore.key="+string(encrypted), "ssl.key.password="+secret), []string{"ssl.key.password", "does not decrypt"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := clientconfig.Read(clientconfig.Sources{Arguments: c.arguments})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(c.want, "") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %q", err, want)
				}
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "PRIVATE KEY") {
				t.Errorf("a secret is in %v", err)
			}
		})
	}
}

func TestMistakesInPlaces(t *testing.T) {
	_, err := clientconfig.Read(clientconfig.Sources{Environment: []string{"LAB_SASL_PASWORD=" + secret}})
	if err == nil || !strings.Contains(err.Error(), "LAB_SASL_PASWORD: unknown; did you mean sasl.password?") || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
	_, err = clientconfig.Read(clientconfig.Sources{File: filepath.Join(t.TempDir(), "none")})
	if err == nil || !strings.Contains(err.Error(), "none cannot be read") {
		t.Error(err)
	}
	_, err = clientconfig.Read(clientconfig.Sources{File: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Error(err)
	}
	_, err = clientconfig.Read(clientconfig.Sources{File: write(t, "bad", `sasl.password=\u00`+secret, 0o600)})
	if err == nil || !strings.Contains(err.Error(), "the value of sasl.password") || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
}
