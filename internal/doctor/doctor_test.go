package doctor_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/clientconfig"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/doctor"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/provision"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/verify"
)

var (
	firstEvent = time.Date(2026, time.September, 12, 10, 0, 0, 0, time.UTC)
	now        = firstEvent.Add(60 * 24 * time.Hour)
)

func options(t *testing.T, bootstrap string) doctor.Options {
	t.Helper()
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return doctor.Options{
		Workspace: w, Connect: connect.Options{Dir: w.Dir(), Bootstrap: bootstrap}, Version: "1", Now: now,
		EarliestStart: firstEvent.Add(-time.Hour), FirstEvent: firstEvent,
	}
}

func examine(t *testing.T, o doctor.Options) doctor.Report {
	t.Helper()
	r, err := doctor.Examine(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// find returns the first finding about a subject whose text holds some words.
func find(r doctor.Report, subject, words string) *doctor.Finding {
	for i, f := range r.Findings {
		if f.Subject == subject && strings.Contains(f.Text, words) {
			return &r.Findings[i]
		}
	}
	return nil
}

func TestHealthy(t *testing.T) {
	bootstrap := brokertest.Bootstrap(brokertest.Embedded(t))
	o := options(t, bootstrap)
	client, err := kafka.New(t.Context(), kafka.Config{Seeds: []string{bootstrap}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := provision.Create(t.Context(), &connect.Conn{Client: client}, o.Workspace, ""); err != nil {
		t.Fatal(err)
	}
	r := examine(t, o)
	if r.Verdict != verify.Pass {
		t.Errorf("%+v", r)
	}
	for _, subject := range []string{"versions", "clock", "disk", "workspace", "broker embedded", "cluster", "transactions", "topics"} {
		if f := find(r, subject, ""); f == nil || f.Level != doctor.OK || f.Next != "" {
			t.Errorf("%s: %+v", subject, f)
		}
	}
	if f := find(r, "topics", ""); f != nil && f.Text != "6 of 6 are there, as the lab makes them" {
		t.Errorf("%+v", f)
	}
}

// Each setting that would spoil a run is found, with the command that mends it.
func TestWhatSpoilsARun(t *testing.T) {
	entry := func(name, value string) kafka.ConfigEntry { return kafka.ConfigEntry{Name: name, Value: value} }
	forever := entry("retention.ms", "-1")
	for name, c := range map[string]struct {
		topic      string
		partitions int32
		configs    []kafka.ConfigEntry
		level      doctor.Level // "" if there is nothing to find
		text, next string
	}{
		"as it is made":            {"analytics.orders-per-store", 3, []kafka.ConfigEntry{forever}, "", "", ""},
		"partitions":               {"orders.placed", 2, nil, doctor.Fail, "2 partitions", "delete it"},
		"a compacted stream":       {"orders.placed", 3, []kafka.ConfigEntry{entry("cleanup.policy", "compact")}, doctor.Fail, "loses records", "cleanup.policy=delete"},
		"input gone in an hour":    {"orders.placed", 3, []kafka.ConfigEntry{entry("retention.ms", "3600000")}, doctor.Warn, "before a grade reads them", "retention.ms="},
		"a table that expires":     {"orders.status", 3, nil, doctor.Warn, "to be compacted", "cleanup.policy=compact"},
		"results, default":         {"analytics.orders-per-store", 3, []kafka.ConfigEntry{entry("retention.ms", "604800000")}, doctor.Fail, "deleted as they come", "retention.ms=-1"},
		"results, a year":          {"analytics.orders-per-store", 3, []kafka.ConfigEntry{entry("retention.ms", "31536000000")}, "", "", ""},
		"results, append time":     {"analytics.orders-per-store", 3, []kafka.ConfigEntry{forever, entry("message.timestamp.type", "LogAppendTime")}, doctor.Warn, "lose their event times", "CreateTime"},
		"results, too far back":    {"analytics.orders-per-store", 3, []kafka.ConfigEntry{forever, entry("message.timestamp.before.max.ms", "3600000")}, doctor.Fail, "refuses results", "message.timestamp.before.max.ms="},
		"results, far enough back": {"analytics.orders-per-store", 3, []kafka.ConfigEntry{forever, entry("message.timestamp.before.max.ms", "9223372036854775807")}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bootstrap := brokertest.Bootstrap(brokertest.Embedded(t))
			client, err := kafka.New(t.Context(), kafka.Config{Seeds: []string{bootstrap}})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			spec := kafka.TopicSpec{Name: c.topic, Partitions: c.partitions, Replication: 1, Configs: c.configs}
			if _, err := client.CreateTopics(t.Context(), []kafka.TopicSpec{spec}); err != nil {
				t.Fatal(err)
			}
			r := examine(t, options(t, bootstrap))
			f := find(r, "topic "+c.topic, c.text)
			switch {
			case c.level == "" && f != nil:
				t.Errorf("found %+v", f)
			case c.level != "" && (f == nil || f.Level != c.level || !strings.Contains(f.Next, c.next)):
				t.Errorf("found %+v among %+v", f, r.Findings)
			}
			// The topic is not of this workspace, and that is told as well.
			if f := find(r, "topics", "no record of"); f == nil || f.Level != doctor.Fail || r.Verdict != verify.Fail {
				t.Errorf("%+v, %s", f, r.Verdict)
			}
		})
	}
}

func TestClock(t *testing.T) {
	o := options(t, "")
	o.Now = firstEvent.Add(-2 * time.Hour)
	r := examine(t, o)
	if f := find(r, "clock", ""); f == nil || f.Level != doctor.Fail || r.Verdict != verify.Fail {
		t.Errorf("%+v, %s", f, r.Verdict)
	}
}

// A kind of broker that cannot be had matters to those who asked for it.
func TestKindsThatCannotBeHad(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("JAVA_HOME", "")
	t.Setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
	o := options(t, "")
	r := examine(t, o)
	for _, kind := range []string{"broker jvm", "broker docker"} {
		if f := find(r, kind, ""); f == nil || f.Level != doctor.Warn {
			t.Errorf("%s: %+v", kind, f)
		}
	}
	if r.Verdict != verify.Pass {
		t.Errorf("%s: %+v", r.Verdict, r.Findings)
	}
	o.Connect.Kind = "jvm"
	if r := examine(t, o); r.Verdict != verify.Fail || find(r, "broker jvm", "").Level != doctor.Fail {
		t.Errorf("%+v", r)
	}
}

// What is written can be pasted: no secret is in it, whatever is wrong.
func TestNoSecrets(t *testing.T) {
	const secret = "hush-4711"
	client, err := clientconfig.Read(clientconfig.Sources{Environment: []string{
		"LAB_SECURITY_PROTOCOL=SASL_PLAINTEXT", "LAB_SASL_MECHANISM=PLAIN", "LAB_SASL_USERNAME=alice", "LAB_SASL_PASSWORD=" + secret,
	}})
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, brokertest.Bootstrap(brokertest.Embedded(t, brokertest.Login("alice", "another")...)))
	o.Connect.Client = client
	r := examine(t, o)
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		if err := r.Write(&out, asJSON); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.Contains(text, secret) || !strings.Contains(text, "sasl.password=[hidden]") || !strings.Contains(text, "user name or the password") {
			t.Errorf("%s", text)
		}
		if asJSON {
			var back struct {
				Findings []doctor.Finding
				Verdict  string
			}
			if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Verdict != "FAIL" || len(back.Findings) != len(r.Findings) {
				t.Errorf("%+v, %v", back, err)
			}
		} else if lines := strings.Split(strings.TrimSpace(text), "\n"); !strings.HasPrefix(lines[len(lines)-1], "FAIL ") || len(lines) != len(r.Findings)+1 {
			t.Errorf("the last line of\n%s", text)
		}
	}
}
