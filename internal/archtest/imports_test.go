// Package archtest holds the rules that no compiler checks: which package may import which.
package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/windowed-order-counter/lab"
	// testBroker is for the tests of every package.
	testBroker = module + "/broker/brokertest"
)

// goPackage is the part of `go list -json` that the rules are about.
type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// within forbids a package of this module, and those below it, to import some others of it, at all or through any chain.
type within struct {
	from  string
	never []string
	chain bool
	why   string
}

var withinRules = []within{
	{
		from: "verify", never: []string{"streams", "store", "topology", "feed", "phases"}, chain: true,
		why: "an oracle that shares code with the engine shares its mistakes",
	},
	{from: "streams", never: []string{"topology", "feed", "verify", "phases", "broker"}, chain: true, why: "the engine knows no application"},
	{from: "store", never: []string{"streams", "topology", "feed", "verify", "phases", "broker"}, chain: true, why: "stores know no engine"},
	{from: "feed", never: []string{"streams", "store", "topology", "verify", "phases", "broker"}, chain: true, why: "the feed is a plain producer"},
	{from: "topology", never: []string{"verify", "phases", "broker"}, chain: true, why: "the topology is what the phases run"},
	{
		from: "broker", never: []string{"streams", "store", "topology", "feed", "verify", "phases"}, chain: true,
		why: "how a broker is had does not depend on what runs on it",
	},
	{
		from: "internal/kafka", never: []string{"streams", "store", "topology", "feed", "verify", "phases", "broker"}, chain: true,
		why: "the wire client knows Kafka only",
	},
	{
		from: "internal/handin", never: []string{"streams", "store", "topology", "feed", "phases", "broker", "internal/connect"}, chain: true,
		why: "hand-ins are graded without a broker",
	},
	{from: "phases", never: []string{"streams", "store"}, why: "phases drive processes and topics, not the engine"},
}

// outside says which packages of this module alone may import a module of others. Tests may.
type outside struct {
	path string
	by   []string
	why  string
}

var outsideRules = []outside{
	{path: "github.com/twmb/franz-go/pkg/kfake", by: []string{"broker"}, why: "the embedded broker is one of several"},
	{path: "github.com/twmb/franz-go/pkg/kgo", why: "the lab has a client of its own"},
	// The embedded broker looks at the produce requests that it is to refuse.
	{path: "github.com/twmb/franz-go/pkg/kmsg", by: []string{"internal/kafka", "broker"}, why: "messages of the wire stay in the wire client"},
	// An interface that streams.Config names, since no exported identifier may mention an internal type.
	{path: "github.com/segmentio/kafka-go/sasl", by: []string{"internal/kafka", "streams"}, why: "SASL is set up in two places"},
	{path: "github.com/segmentio/kafka-go", by: []string{"internal/kafka"}, why: "connections are made in one place"},
	{path: "go.etcd.io/bbolt", by: []string{"store", "verify"}, why: "the file format belongs to the stores, and to who checks them"},
}

func TestImports(t *testing.T) {
	packages := list(t)
	for _, p := range packages {
		for _, broken := range check(p) {
			t.Error(broken)
		}
	}
	for _, r := range withinRules {
		if !slices.ContainsFunc(packages, func(p goPackage) bool { return p.ImportPath == module+"/"+r.from }) {
			t.Errorf("the rule about %s matches no package", r.from)
		}
	}
}

// A checker that finds nothing would pass too.
func TestCheckFinds(t *testing.T) {
	const kafkaGo, kfake = "github.com/segmentio/kafka-go", "github.com/twmb/franz-go/pkg/kfake"
	for name, c := range map[string]struct {
		pkg  goPackage
		want int
	}{
		"direct":              {goPackage{ImportPath: module + "/phases", Imports: []string{module + "/store"}}, 1},
		"direct, chain is ok": {goPackage{ImportPath: module + "/phases", Deps: []string{module + "/store"}}, 0},
		"chain":               {goPackage{ImportPath: module + "/verify/sub", Deps: []string{module + "/feed"}}, 1},
		"oracle's test":       {goPackage{ImportPath: module + "/verify", XTestImports: []string{module + "/streams"}}, 1},
		"below a forbidden":   {goPackage{ImportPath: module + "/verify", Imports: []string{module + "/streams/x"}}, 1},
		"a like name":         {goPackage{ImportPath: module + "/verify", Imports: []string{module + "/storeroom"}}, 0},
		"other module":        {goPackage{ImportPath: module + "/feed", Imports: []string{kafkaGo}}, 1},
		"its part":            {goPackage{ImportPath: module + "/feed", Imports: []string{kafkaGo + "/protocol"}}, 1},
		"its allowed part":    {goPackage{ImportPath: module + "/streams", Imports: []string{kafkaGo + "/sasl"}}, 0},
		"its owner":           {goPackage{ImportPath: module + "/internal/kafka", Imports: []string{kafkaGo, kafkaGo + "/sasl"}}, 0},
		"in a test":           {goPackage{ImportPath: module + "/broker", TestImports: []string{kafkaGo}}, 0},
		"test broker":         {goPackage{ImportPath: module + "/streams", XTestImports: []string{testBroker}}, 0},
		"test broker in code": {goPackage{ImportPath: module + "/verify", Imports: []string{testBroker}}, 1},
		"below its owner":     {goPackage{ImportPath: module + "/broker/brokertest", Imports: []string{kfake}}, 0},
	} {
		if got := check(c.pkg); len(got) != c.want {
			t.Errorf("%s: found %q, want %d", name, got, c.want)
		}
	}
}

// check returns what p breaks.
func check(p goPackage) []string {
	var broken []string
	own, _ := strings.CutPrefix(p.ImportPath, module+"/")
	for _, r := range withinRules {
		if !under(own, r.from) {
			continue
		}
		seen := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		seen = slices.DeleteFunc(seen, func(path string) bool { return path == testBroker })
		if r.chain {
			seen = append(seen, p.Deps...)
		}
		for _, never := range r.never {
			if slices.ContainsFunc(seen, func(path string) bool { return under(path, module+"/"+never) }) {
				broken = append(broken, fmt.Sprintf("%s imports %s: %s", p.ImportPath, never, r.why))
			}
		}
	}
	for _, path := range p.Imports {
		if path == testBroker {
			broken = append(broken, fmt.Sprintf("%s imports %s: it is for tests", p.ImportPath, path))
		}
		// The first rule that matches counts: a part of a module stands before the module.
		i := slices.IndexFunc(outsideRules, func(r outside) bool { return under(path, r.path) })
		if i < 0 || slices.ContainsFunc(outsideRules[i].by, func(by string) bool { return under(own, by) }) {
			continue
		}
		broken = append(broken, fmt.Sprintf("%s imports %s: %s", p.ImportPath, path, outsideRules[i].why))
	}
	return broken
}

// under tells whether path is root or below it.
func under(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", module+"/...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
