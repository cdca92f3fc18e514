package clientconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// The properties of a login. usernameKey and passwordKey are librdkafka's names; they win over what is in sasl.jaas.config.
const (
	mechanismKey = "sasl.mechanism"
	jaasKey      = "sasl.jaas.config"
	usernameKey  = "sasl.username"
	passwordKey  = "sasl.password"
)

// The login modules of Kafka for the mechanisms that this program speaks.
const (
	plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
)

// login makes the SASL mechanism with its credentials.
func (p properties) login(c *Config) error {
	mechanism := strings.ToUpper(p.get(mechanismKey))
	switch {
	case mechanism == "":
		return p.bad(mechanismKey, "it is not set, and Kafka's default, GSSAPI, is not spoken here: %s", strings.Join(kafka.Mechanisms(), ", "))
	case !slices.Contains(kafka.Mechanisms(), mechanism):
		return p.bad(mechanismKey, "%q is not spoken here: %s", mechanism, strings.Join(kafka.Mechanisms(), ", "))
	}
	var username, password string
	if text := p.get(jaasKey); text != "" {
		var err error
		if username, password, err = parseJAAS(text, mechanism); err != nil {
			return p.bad(jaasKey, "%v", err)
		}
	}
	if v := p.get(usernameKey); v != "" {
		username = v
	}
	if v := p.get(passwordKey); v != "" {
		password = v
	}
	switch {
	case username == "":
		return p.bad(usernameKey, "there is no user name, here or in %s", jaasKey)
	case password == "":
		return p.bad(passwordKey, "there is no password, here or in %s", jaasKey)
	}
	var err error
	if c.Security.SASL, err = kafka.Login(mechanism, username, password); err != nil {
		return p.bad(usernameKey, "%v", err)
	}
	c.Mechanism, c.Username = mechanism, username
	return nil
}

// parseJAAS reads a value such as
//
//	org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="a \"secret\"";
//
// as Kafka does (JaasConfig): one login module, a control flag, options, a semicolon. Errors do not quote the value.
func parseJAAS(text, mechanism string) (username, password string, err error) {
	words, err := jaasWords(text)
	if err != nil {
		return "", "", err
	}
	if len(words) < 3 || words[len(words)-1] != ";" {
		return "", "", errors.New("want LoginModule required username=\"…\" password=\"…\"; with the semicolon")
	}
	want := scramModule
	if mechanism == "PLAIN" {
		want = plainModule
	}
	if words[0] != want {
		return "", "", fmt.Errorf("its login module is not that of %s, which is %s", mechanism, want)
	}
	if !slices.Contains([]string{"required", "requisite", "sufficient", "optional"}, strings.ToLower(words[1])) {
		return "", "", errors.New("after the login module comes a control flag, such as required")
	}
	options := words[2 : len(words)-1]
	for ; len(options) >= 3 && options[1] == "="; options = options[3:] {
		switch options[0] {
		case "username":
			username = options[2]
		case "password":
			password = options[2]
		default:
			return "", "", errors.New("it has options other than username and password, such as those of delegation tokens, which are not known here")
		}
	}
	if len(options) > 0 {
		return "", "", errors.New("its options are not of the form name=\"value\"")
	}
	return username, password, nil
}

// jaasWords splits a text into words, strings in quotation marks, and the signs = and ;.
func jaasWords(text string) ([]string, error) {
	var words []string
	for text = strings.TrimLeft(text, " \t\r\n"); text != ""; text = strings.TrimLeft(text, " \t\r\n") {
		switch c := text[0]; c {
		case '=', ';':
			words, text = append(words, text[:1]), text[1:]
		case '"', '\'':
			word, rest, ok := quoted(text[1:], c)
			if !ok {
				return nil, errors.New("a quotation mark is not closed")
			}
			words, text = append(words, word), rest
		default:
			end := strings.IndexAny(text, " \t\r\n=;\"'")
			if end < 0 {
				end = len(text)
			}
			words, text = append(words, text[:end]), text[end:]
		}
	}
	return words, nil
}

// quoted reads up to the closing mark. A backslash takes the next character as it is, or as the control character of Java.
func quoted(text string, mark byte) (word, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == mark:
			return b.String(), text[i+1:], true
		case c == '\\' && i+1 < len(text):
			i++
			if at := strings.IndexByte("nrtfb", text[i]); at >= 0 {
				b.WriteByte("\n\r\t\f\b"[at])
			} else {
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
