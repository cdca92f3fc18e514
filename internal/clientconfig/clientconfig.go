// Package clientconfig reads how to reach a cluster that someone else runs: Kafka's client properties for TLS and SASL, by Kafka's names.
//
// Three places may say it, and the later one wins for each property by itself:
//
//	a file        --config FILE or LAB_CONFIG, in Java's properties format
//	environment   LAB_SASL_PASSWORD for sasl.password, and so on
//	arguments     key=value of `lab counter`
//
// File map: clientconfig.go (the sources and what comes of them), properties.go (Java's format), tls.go (trust and key stores), pkcs8.go
// (encrypted keys), login.go (SASL and JAAS), errors.go.
package clientconfig

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

// known are the properties that are read, and whether each is a secret.
var known = map[string]struct{ secret bool }{
	protocolKey:    {},
	trustTypeKey:   {},
	trustFileKey:   {},
	trustPEMKey:    {},
	trustPassKey:   {secret: true},
	authorityKey:   {},
	storeTypeKey:   {},
	storeFileKey:   {},
	storeChainKey:  {},
	storeKeyKey:    {secret: true},
	storePassKey:   {secret: true},
	keyPassKey:     {secret: true},
	verifyHostKey:  {},
	tlsVersionsKey: {},
	mechanismKey:   {},
	jaasKey:        {secret: true},
	usernameKey:    {},
	passwordKey:    {secret: true},
}

const (
	protocolKey = "security.protocol"
	// bootstrapKey is read from a file only: on the command line and in the environment it has a flag of its own.
	bootstrapKey = "bootstrap.servers"
	// prefix begins the names of environment variables.
	prefix = "LAB_"
)

// families begin the names of properties and variables that are a mistake if they are not known. Others are for other programs.
var families = []string{"security.", "ssl.", "sasl."}

// Names lists the known properties.
func Names() []string { return slices.Sorted(maps.Keys(known)) }

// IsOurs tells a property of a connection's security, known or not, from the others. text may be a key or a whole key=value.
func IsOurs(text string) bool {
	return slices.ContainsFunc(families, func(family string) bool { return strings.HasPrefix(text, family) })
}

// Sources are where properties come from.
type Sources struct {
	File        string   // a path, "" for none
	Environment []string // NAME=value, as os.Environ
	Arguments   []string // key=value, all of which IsOurs
}

// Config is what the sources say.
type Config struct {
	Security  kafka.Security
	Bootstrap string // bootstrap.servers of the file
	// File is the absolute path of the file, for programs that are started elsewhere; "" for none.
	File string
	// Mechanism and Username are of the login, "" without one.
	Mechanism, Username string
	// Given are the properties that are set, as name=value by name, fit to be printed: secrets are [hidden], as in Kafka's own logs.
	Given []string
	// Notes are worth to be told once.
	Notes []string
}

// Read reads the sources. An error is an *Error and names the property and where it was set, never a secret.
func Read(s Sources) (Config, error) {
	p := properties{}
	var c Config
	if s.File != "" {
		if err := p.readFile(s.File, &c); err != nil {
			return Config{}, err
		}
	}
	if err := p.readEnvironment(s.Environment); err != nil {
		return Config{}, err
	}
	for _, pair := range s.Arguments {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return Config{}, &Error{Key: nameIn(pair), Source: "an argument", Reason: "write it as key=value"}
		}
		if err := p.set(key, value, "an argument"); err != nil {
			return Config{}, err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p)) {
		c.Given = append(c.Given, key+"="+p.shown(key))
	}
	return c, p.apply(&c)
}

// nameIn is the part of a botched argument that can be shown: what follows the name may be a secret.
func nameIn(pair string) string {
	end := strings.IndexFunc(pair, func(r rune) bool { return r != '.' && (r < 'a' || r > 'z') })
	if end < 0 {
		return pair
	}
	return pair[:end]
}

// properties are values by key, with where each was set.
type properties map[string]struct{ value, source string }

func (p properties) set(key, value, source string) error {
	if _, ok := known[key]; !ok {
		reason := "unknown"
		if near := args.Nearest(key, Names()); near != "" {
			reason += "; did you mean " + near + "?"
		}
		return &Error{Key: key, Source: source, Reason: reason}
	}
	p[key] = struct{ value, source string }{value, source}
	return nil
}

// get returns a value; "" if it is not set, as Kafka takes an empty one for most properties.
func (p properties) get(key string) string { return p[key].value }

// longestShown is how long a value may be to be printed; inline certificates are longer.
const longestShown = 120

// shown is a value for people.
func (p properties) shown(key string) string {
	switch value := p.get(key); {
	case known[key].secret:
		return "[hidden]"
	case len(value) > longestShown:
		return fmt.Sprintf("[%d bytes]", len(value))
	default:
		return value
	}
}

// bad is an error of a property. Its reason must not hold the value of a secret.
func (p properties) bad(key, format string, a ...any) error {
	return &Error{Key: key, Source: p[key].source, Reason: fmt.Sprintf(format, a...)}
}

// readFile reads a client's properties file. What is in it for other clients is told and not used, as Kafka's clients do.
func (p properties) readFile(path string, c *Config) error {
	bad := func(err error) error { return &Error{Source: path, Reason: "cannot be read", Err: err} }
	abs, err := filepath.Abs(path)
	if err != nil {
		return bad(err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return bad(err)
	}
	if !info.Mode().IsRegular() {
		return &Error{
			Source: path,
			Reason: "is no regular file, and instances that a phase starts read it too; LAB_… variables hold what must not be in a file",
		}
	}
	raw, err := os.ReadFile(abs)
	if err != nil {
		return bad(err)
	}
	read, err := parseProperties(raw)
	if err != nil {
		return &Error{Source: path, Reason: "is no properties file", Err: err}
	}
	c.File = abs
	var unused []string
	secret := false
	for _, key := range slices.Sorted(maps.Keys(read)) {
		property, ok := known[key]
		switch {
		case key == bootstrapKey:
			c.Bootstrap = strings.Join(strings.FieldsFunc(read[key], func(r rune) bool { return r == ',' || r == ' ' }), ",")
		case !ok:
			unused = append(unused, printable(key))
		default:
			p[key] = struct{ value, source string }{read[key], path}
			secret = secret || property.secret
		}
	}
	if len(unused) > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%s: not used here: %s", path, strings.Join(unused, ", ")))
	}
	if secret && readableByAll(info) {
		c.Notes = append(c.Notes, fmt.Sprintf("%s holds secrets and can be read by everyone on this machine: chmod 600 %s", path, path))
	}
	return nil
}

// printable quotes a name that a terminal would not show as it is.
func printable(name string) string {
	if quoted := strconv.Quote(name); name == "" || quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// readableByAll reads the mode of a file, which on Windows tells nothing.
func readableByAll(info fs.FileInfo) bool {
	return runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0
}

// readEnvironment takes an empty variable for one that is not set, but for the one property that has an empty value.
func (p properties) readEnvironment(environment []string) error {
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		key := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", ".")
		if !IsOurs(key) || value == "" && key != verifyHostKey {
			continue
		}
		if err := p.set(key, value, "the environment as "+name); err != nil {
			return err
		}
	}
	return nil
}

// apply makes the security of them all.
func (p properties) apply(c *Config) error {
	encrypted, login := false, false
	switch protocol := strings.ToUpper(p.get(protocolKey)); protocol {
	case "", "PLAINTEXT":
	case "SSL":
		encrypted = true
	case "SASL_PLAINTEXT":
		login = true
	case "SASL_SSL":
		encrypted, login = true, true
	default:
		return p.bad(protocolKey, "%q: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", protocol)
	}
	var err error
	if encrypted {
		if c.Security.TLS, err = p.tls(); err != nil {
			return err
		}
	}
	if login {
		return p.login(c)
	}
	return nil
}
