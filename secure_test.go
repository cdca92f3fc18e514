package main

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

// secureEnv asks for the tests on a real Kafka with TLS, logins and access control: they start one by scripts/kafka.sh. Its value is the folder
// for its jars, or 1 for a temporary one.
const secureEnv = "LAB_TEST_SECURE"

// The passwords of the users. They must turn up nowhere.
const (
	labPassword   = "aaPlumTree-0815"
	guestPassword = "bbPearTree-4711"
)

// secureKafka is Apache Kafka with a listener for each way to talk to it, and an authorizer for which only those without a login are trusted.
type secureKafka struct {
	dir   string            // certificates
	ports map[string]string // listener to address
	admin *kafkago.Client
}

// startSecureKafka starts it, with the users lab and guest.
func startSecureKafka(t *testing.T) *secureKafka {
	t.Helper()
	home := os.Getenv(secureEnv)
	if home == "" {
		t.Skipf("%s is not set", secureEnv)
	}
	if home == "1" {
		home = t.TempDir()
	}
	k := &secureKafka{dir: t.TempDir(), ports: map[string]string{}}
	ca := brokertest.NewAuthority(t, "lab")
	soon := time.Now().Add(time.Hour)
	server := ca.Issue(t, soon, "127.0.0.1", "localhost")
	files := map[string][]byte{
		"ca.pem": ca.PEM, "other-ca.pem": brokertest.NewAuthority(t, "lab").PEM, "server.pem": server.Store(),
		"expired.pem": ca.Issue(t, time.Now().Add(-time.Hour), "127.0.0.1").Store(), "elsewhere.pem": ca.Issue(t, soon, "kafka.example").Store(),
		"client.pem": ca.Issue(t, soon, "client").Store(),
		"jaas.conf": []byte(`KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required user_lab="` + labPassword + `" user_guest="` + guestPassword + `";
  org.apache.kafka.common.security.scram.ScramLoginModule required;
};
`),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(k.dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listeners := []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "EXPIRED", "ELSEWHERE", "MUTUAL"}
	ports := freePorts(t, len(listeners)+1)
	var addresses []string
	for i, name := range listeners {
		k.ports[name] = fmt.Sprintf("127.0.0.1:%d", ports[i])
		addresses = append(addresses, name+"://"+k.ports[name])
	}
	advertised := strings.Join(addresses, ",")
	store := func(name string) string { return filepath.Join(k.dir, name) }
	overrides := []string{
		"listeners=" + advertised + fmt.Sprintf(",CONTROLLER://127.0.0.1:%d", ports[len(listeners)]),
		"advertised.listeners=" + advertised,
		fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", ports[len(listeners)]),
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL," +
			"EXPIRED:SSL,ELSEWHERE:SSL,MUTUAL:SSL",
		"ssl.keystore.type=PEM", "ssl.keystore.location=" + store("server.pem"),
		"ssl.truststore.type=PEM", "ssl.truststore.location=" + store("ca.pem"),
		"listener.name.expired.ssl.keystore.type=PEM", "listener.name.expired.ssl.keystore.location=" + store("expired.pem"),
		"listener.name.elsewhere.ssl.keystore.type=PEM", "listener.name.elsewhere.ssl.keystore.location=" + store("elsewhere.pem"),
		"listener.name.mutual.ssl.client.auth=required",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.sasl_plaintext.sasl.enabled.mechanisms=SCRAM-SHA-512",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users=User:ANONYMOUS",
	}
	env := append(os.Environ(), "KAFKA_HOME_DIR="+home, fmt.Sprintf("KAFKA_PORT=%d", ports[0]),
		"KAFKA_OVERRIDES="+strings.Join(overrides, ";"), "JAVA_TOOL_OPTIONS=-Djava.security.auth.login.config="+store("jaas.conf"))
	script := func(verb string) {
		cmd := exec.Command("scripts/kafka.sh", verb)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("kafka.sh %s: %v\n%s", verb, err, out)
		}
	}
	t.Cleanup(func() { script("wipe") })
	script("wipe")
	script("up")
	k.admin = &kafkago.Client{Addr: kafkago.TCP(k.ports["PLAINTEXT"]), Timeout: 10 * time.Second}
	k.addUser(t, "lab", labPassword)
	k.addUser(t, "guest", guestPassword)
	return k
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }() // held until all are found
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// addUser makes a user of SCRAM-SHA-512.
func (k *secureKafka) addUser(t *testing.T, name, password string) {
	t.Helper()
	salt, iterations := []byte("not random, a test"), 4096
	salted, err := pbkdf2.Key(sha512.New, password, salt, iterations, sha512.Size)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := k.admin.AlterUserScramCredentials(t.Context(), &kafkago.AlterUserScramCredentialsRequest{
		Upsertions: []kafkago.UserScramCredentialsUpsertion{{
			Name: name, Mechanism: kafkago.ScramMechanismSha512, Iterations: iterations, Salt: salt,
			SaltedPassword: salted,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range answer.Results {
		if r.Error != nil {
			t.Fatal(r.Error)
		}
	}
}

// lab is the program in a workspace, with a file of client properties.
type labRun struct{ dir, bootstrap, config string }

func (k *secureKafka) run(t *testing.T, listener string, properties ...string) labRun {
	t.Helper()
	config := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(config, []byte(strings.Join(properties, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return labRun{dir: t.TempDir(), bootstrap: k.ports[listener], config: config}
}

// exec runs a command to its end. One that has not ended in time is told to stop and fails.
func (r labRun) exec(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "lab", append([]string{"--dir", r.dir, "--bootstrap", r.bootstrap, "--config", r.config, "--yes"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 15 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return string(out), err
}

// must runs a command that has to succeed.
func (r labRun) must(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := r.exec(ctx, args...)
	if err != nil {
		t.Fatalf("lab %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (k *secureKafka) scram(t *testing.T, user, password string) labRun {
	t.Helper()
	return k.run(t, "SASL_SSL", "security.protocol=SASL_SSL", "ssl.truststore.location="+filepath.Join(k.dir, "ca.pem"), "sasl.mechanism=SCRAM-SHA-512",
		fmt.Sprintf(`sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="%s" password="%s";`, user, password))
}

// TestSecureKafka is the lab on a cluster as a company has it.
func TestSecureKafka(t *testing.T) {
	k := startSecureKafka(t)
	t.Run("wrong settings", k.wrongSettings)
	entries := documentedACLs(t)
	k.grant(t, entries...)
	lab := k.scram(t, "lab", labPassword)
	t.Run("all phases", func(t *testing.T) { k.phases(t, lab) })
	t.Run("missing entries", func(t *testing.T) { k.missingEntries(t, lab, entries) })
	t.Run("clean", func(t *testing.T) { k.clean(t, lab) })
}

// wrongSettings has a row for each way in which it does not come together: what the last line says, and within seconds.
func (k *secureKafka) wrongSettings(t *testing.T) {
	trust := "ssl.truststore.location=" + filepath.Join(k.dir, "ca.pem")
	login := func(mechanism, password string) []string {
		return []string{"sasl.mechanism=" + mechanism, "sasl.username=guest", "sasl.password=" + password}
	}
	join := func(parts ...[]string) []string { return slices.Concat(parts...) }
	one := func(words ...string) []string { return words }
	const tls, saslTLS, saslPlain = "security.protocol=SSL", "security.protocol=SASL_SSL", "security.protocol=SASL_PLAINTEXT"
	for name, c := range map[string]struct {
		listener   string
		properties []string
		want       string // "" if it works
	}{
		"plain text":                {"PLAINTEXT", nil, ""},
		"TLS":                       {"SSL", one(tls, trust), ""},
		"TLS both ways":             {"MUTUAL", one(tls, trust, "ssl.keystore.location="+filepath.Join(k.dir, "client.pem")), ""},
		"any host name":             {"ELSEWHERE", one(tls, trust, "ssl.endpoint.identification.algorithm="), ""},
		"TLS 1.2":                   {"SSL", one(tls, trust, "ssl.enabled.protocols=TLSv1.2"), ""},
		"PLAIN over TLS":            {"SASL_SSL", join(one(saslTLS, trust), login("PLAIN", guestPassword)), ""},
		"SCRAM over TLS":            {"SASL_SSL", join(one(saslTLS, trust), login("SCRAM-SHA-512", guestPassword)), ""},
		"SCRAM over plain text":     {"SASL_PLAINTEXT", join(one(saslPlain), login("SCRAM-SHA-512", guestPassword)), ""},
		"wrong password, PLAIN":     {"SASL_SSL", join(one(saslTLS, trust), login("PLAIN", "xx"+guestPassword)), "refuses the user name or the password"},
		"wrong password, SCRAM":     {"SASL_SSL", join(one(saslTLS, trust), login("SCRAM-SHA-512", "xx"+guestPassword)), "refuses the user name or the password"},
		"no user of the mechanism":  {"SASL_SSL", join(one(saslTLS, trust), login("SCRAM-SHA-256", guestPassword)), "refuses the user name or the password"},
		"wrong authority":           {"SSL", one(tls, "ssl.truststore.location="+filepath.Join(k.dir, "other-ca.pem")), "an authority that is not trusted here"},
		"wrong host name":           {"ELSEWHERE", one(tls, trust), "for another host name"},
		"expired":                   {"EXPIRED", one(tls, trust), "expired or not yet valid"},
		"plain text to TLS":         {"SSL", nil, "speaks TLS on this port"},
		"plain text to TLS + login": {"SASL_SSL", nil, "speaks TLS on this port"},
		"TLS to plain text":         {"PLAINTEXT", one(tls, trust), "speaks plain text on this port"},
		"TLS to plain text + login": {"SASL_PLAINTEXT", join(one(saslTLS, trust), login("SCRAM-SHA-512", guestPassword)), "speaks plain text on this port"},
		"mechanism":                 {"SASL_PLAINTEXT", join(one(saslPlain), login("PLAIN", guestPassword)), "it offers SCRAM-SHA-512 and not PLAIN"},
		"no login":                  {"SASL_SSL", one(tls, trust), "wants a login, and none is configured (it offers PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)"},
		"no login, plain text":      {"SASL_PLAINTEXT", nil, "wants a login, and none is configured (it offers SCRAM-SHA-512)"},
		"login where none is":       {"PLAINTEXT", join(one(saslPlain), login("PLAIN", guestPassword)), "takes no login"},
		"no client certificate":     {"MUTUAL", one(tls, trust), "ssl.keystore.location"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			out, err := k.run(t, c.listener, c.properties...).exec(ctx, "topics")
			switch {
			case ctx.Err() != nil:
				t.Errorf("it takes too long\n%s", out)
			case c.want == "" && err != nil:
				t.Errorf("%v\n%s", err, out)
			case c.want != "" && (err == nil || !strings.Contains(out, c.want)):
				t.Errorf("%v, want %q in\n%s", err, c.want, out)
			case strings.Contains(out, guestPassword):
				t.Errorf("the password is in\n%s", out)
			}
		})
	}
}

// phases runs all of them, and every command that looks at what they leave.
func (k *secureKafka) phases(t *testing.T, lab labRun) {
	var printed strings.Builder
	for _, args := range [][]string{
		{"phase", "all"}, {"verify"}, {"status"}, {"status", "--json"}, {"topics"}, {"topics", "orders.placed"}, {"groups"}, {"groups", "order-counter"},
		{"transactions"}, {"dump", "analytics.orders-per-store", "--last"}, {"send", "orders.status", "ord-1", "PAID"}, {"doctor"}, {"doctor", "--json"},
	} {
		printed.WriteString(lab.must(t, args...))
	}
	if strings.Contains(printed.String(), labPassword) {
		t.Error("the password is in what the commands printed")
	}
	err := filepath.WalkDir(lab.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(content), labPassword) {
			t.Errorf("the password is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// acl is one operation on one resource.
type acl struct {
	kind            kafkago.ResourceType
	name, operation string
}

var (
	resourceOption  = regexp.MustCompile(`--resource-pattern-type prefixed --(topic|group|transactional-id) (\S+)`)
	operationOption = regexp.MustCompile(`--operation (\w+)`)
)

// documentedACLs reads the commands in docs/security.md.
func documentedACLs(t *testing.T) []acl {
	t.Helper()
	text, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]kafkago.ResourceType{
		"topic": kafkago.ResourceTypeTopic, "group": kafkago.ResourceTypeGroup, "transactional-id": kafkago.ResourceTypeTransactionalID,
	}
	var entries []acl
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		if !strings.HasPrefix(line, "kafka-acls ") {
			continue
		}
		resource := resourceOption.FindStringSubmatch(line)
		if resource == nil {
			t.Fatalf("no resource in %s", line)
		}
		for _, op := range operationOption.FindAllStringSubmatch(line, -1) {
			entries = append(entries, acl{kinds[resource[1]], resource[2], op[1]})
		}
	}
	if len(entries) < 10 {
		t.Fatalf("only %d entries are documented", len(entries))
	}
	return entries
}

var operations = map[string]kafkago.ACLOperationType{
	"Read": kafkago.ACLOperationTypeRead, "Write": kafkago.ACLOperationTypeWrite, "Create": kafkago.ACLOperationTypeCreate,
	"DescribeConfigs": kafkago.ACLOperationTypeDescribeConfigs, "Delete": kafkago.ACLOperationTypeDelete,
}

func (k *secureKafka) grant(t *testing.T, entries ...acl) {
	t.Helper()
	req := &kafkago.CreateACLsRequest{}
	for _, e := range entries {
		req.ACLs = append(req.ACLs, kafkago.ACLEntry{
			ResourceType: e.kind, ResourceName: e.name, ResourcePatternType: kafkago.PatternTypePrefixed, Principal: "User:lab", Host: "*",
			Operation: operations[e.operation], PermissionType: kafkago.ACLPermissionTypeAllow,
		})
	}
	answer, err := k.admin.CreateACLs(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(answer.Errors...); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		k.await(t, e, true)
	}
}

// await waits until the broker's authorizer has an entry, or has it no more: the controller, which is asked to change it, tells it later. A
// clean once still deleted what its entry had just been taken away for.
func (k *secureKafka) await(t *testing.T, e acl, there bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := k.admin.DescribeACLs(ctx, &kafkago.DescribeACLsRequest{Filter: kafkago.ACLFilter{
			ResourceTypeFilter: e.kind, ResourceNameFilter: e.name, ResourcePatternTypeFilter: kafkago.PatternTypePrefixed,
			PrincipalFilter: "User:lab", HostFilter: "*", Operation: operations[e.operation], PermissionType: kafkago.ACLPermissionTypeAllow,
		}})
		if err != nil {
			t.Fatal(err)
		}
		if (len(answer.Resources) > 0) == there {
			return
		}
		<-tick.C
	}
}

func (k *secureKafka) revoke(t *testing.T, e acl) {
	t.Helper()
	answer, err := k.admin.DeleteACLs(t.Context(), &kafkago.DeleteACLsRequest{Filters: []kafkago.DeleteACLsFilter{{
		ResourceTypeFilter: e.kind, ResourceNameFilter: e.name, ResourcePatternTypeFilter: kafkago.PatternTypePrefixed,
		PrincipalFilter: "User:lab", HostFilter: "*", Operation: operations[e.operation], PermissionType: kafkago.ACLPermissionTypeAllow,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(answer.Results[0].MatchingACLs); n != 1 {
		t.Fatalf("%d entries match %+v", n, e)
	}
	k.await(t, e, false)
}

// missingEntries takes each documented entry away and runs what needs it: it ends, and its last lines name the operation and the resource.
func (k *secureKafka) missingEntries(t *testing.T, lab labRun, entries []acl) {
	const topic, group, txn = kafkago.ResourceTypeTopic, kafkago.ResourceTypeGroup, kafkago.ResourceTypeTransactionalID
	counter := []string{"counter"} // one of an application of its own, which begins with the first order
	covered := map[acl]bool{}
	for i, c := range []struct {
		without acl
		command []string
		want    string
	}{
		{acl{topic, "orders.", "Read"}, counter, "Read on topic orders."},
		{acl{topic, "orders.", "Read"}, []string{"verify"}, "Read on topic orders.placed"},
		{acl{topic, "orders.", "Read"}, []string{"dump", "orders.placed"}, "Read on topic orders.placed"},
		{acl{topic, "orders.", "Write"}, []string{"send", "orders.status", "a", "b"}, "Write on topic orders.status"},
		{acl{topic, "orders.", "Write"}, []string{"feed", "2026-09-12T10:00:00Z"}, "Write on topic orders.placed"},
		{acl{topic, "orders.", "Create"}, []string{"topics", "--create"}, "Create on topic orders."},
		{acl{topic, "orders.", "DescribeConfigs"}, []string{"topics", "orders.placed"}, "DescribeConfigs on topic orders.placed"},
		{acl{topic, "analytics.", "Read"}, []string{"verify"}, "Read on topic analytics."},
		{acl{topic, "analytics.", "Read"}, []string{"status"}, "Read on topic analytics."},
		{acl{topic, "analytics.", "Write"}, counter, "Write on topic analytics."},
		{acl{topic, "analytics.", "Create"}, []string{"topics", "--create"}, "Create on topic analytics."},
		{acl{topic, "analytics.", "DescribeConfigs"}, []string{"topics", "analytics.orders-per-store"}, "DescribeConfigs on topic analytics.orders-per-store"},
		{acl{topic, "order-counter", "Read"}, counter, "Read on topic order-counter-"},
		{acl{topic, "order-counter", "Write"}, counter, "Write on topic order-counter-"},
		{acl{topic, "order-counter", "Create"}, counter, "Create on topic order-counter-"},
		{acl{topic, "order-counter", "DescribeConfigs"}, counter, "DescribeConfigs on topic order-counter-"},
		{acl{group, "order-counter", "Read"}, counter, "Read on group order-counter-"},
		{acl{txn, "order-counter", "Write"}, counter, "Describe and Write on transactional id order-counter-"},
		{acl{topic, "order-counter", "Delete"}, counter, "Delete on topic order-counter-"},
		// What can be deleted is, so these come last.
		{acl{group, "order-counter", "Delete"}, []string{"clean"}, "Delete on group order-counter"},
		{acl{topic, "order-counter", "Delete"}, []string{"clean"}, "Delete on topic order-counter-"},
		{acl{topic, "analytics.", "Delete"}, []string{"clean"}, "Delete on topic analytics."},
		{acl{topic, "orders.", "Delete"}, []string{"clean"}, "Delete on topic orders."},
	} {
		covered[c.without] = true
		t.Run(c.without.operation+" on "+c.without.name+" for "+c.command[0], func(t *testing.T) {
			if !slices.Contains(entries, c.without) {
				t.Fatal("it is not documented")
			}
			if c.command[0] == "clean" {
				lab.must(t, "topics", "--create") // those that the row before has deleted
			}
			k.revoke(t, c.without)
			defer k.grant(t, c.without)
			run, command := lab, c.command
			if command[0] == "counter" {
				run = k.scram(t, "lab", labPassword)
				command = []string{
					"counter", "x", fmt.Sprintf("application.id=order-counter-%d", i), "processing.guarantee=exactly_once_v2", "commit.interval.ms=100",
					"repartition.purge.interval.ms=100",
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			out, err := run.exec(ctx, command...)
			if err == nil || ctx.Err() != nil || !strings.Contains(out, "grant this principal "+c.want) {
				t.Errorf("%v, want %q in\n%s", err, c.want, out)
			}
		})
	}
	for _, e := range entries {
		if !covered[e] {
			t.Errorf("nothing shows what %s on %s is for", e.operation, e.name)
		}
	}
}

// clean deletes what the lab made, by exact name, and nothing else.
func (k *secureKafka) clean(t *testing.T, lab labRun) {
	answer, err := k.admin.CreateTopics(t.Context(), &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{
		{Topic: "orders.placed.backup", NumPartitions: 1, ReplicationFactor: 1},
	}})
	if err != nil || answer.Errors["orders.placed.backup"] != nil {
		t.Fatal(err, answer.Errors)
	}
	lab.must(t, "clean")
	var left []string
	for name := range strings.Lines(lab.must(t, "topics")) {
		if name = strings.TrimSpace(name); !madeByCounter.MatchString(name) {
			left = append(left, name)
		}
	}
	if want := []string{"orders.placed.backup"}; !slices.Equal(left, want) {
		t.Errorf("left: %q, want %q", left, want)
	}
}

// madeByCounter are the topics of the applications of missingEntries, which are none of the lab's own.
var madeByCounter = regexp.MustCompile(`^order-counter-[0-9]`)
