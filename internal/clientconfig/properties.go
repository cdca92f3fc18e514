package clientconfig

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parseProperties reads Java's properties format (java.util.Properties.load): comments with # and !, keys that end at =, : or white space,
// lines that go on after a backslash, and the escapes \t \n \r \f \uXXXX. A later value of a key wins.
//
// Java reads the bytes as ISO 8859-1. Here what is valid UTF-8 is taken as such, since that is what editors write; a password that works
// in Java's tools has the same value here unless its bytes happen to be both.
func parseProperties(raw []byte) (map[string]string, error) {
	read := map[string]string{}
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(decode(raw)), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for goesOn(line) {
			line = line[:len(line)-1]
			if i++; i == len(lines) {
				break
			}
			line += strings.TrimLeft(lines[i], " \t\f")
		}
		key, value := split(line)
		key, kerr := unescape(key)
		value, verr := unescape(value)
		if kerr != nil {
			return nil, kerr
		}
		if verr != nil {
			return nil, fmt.Errorf("the value of %s: %w", key, verr)
		}
		read[key] = value
	}
	return read, nil
}

func decode(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	runes := make([]rune, len(raw))
	for i, b := range raw {
		runes[i] = rune(b)
	}
	return string(runes)
}

// goesOn tells an odd number of backslashes at the end.
func goesOn(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// split cuts a line at the first separator that is not escaped: white space, and one = or : with white space around it.
func split(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
		} else if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	return line[:end], rest
}

func unescape(s string) (string, error) {
	var units []uint16 // of UTF-16, since an escape may be half of a pair
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		if r == '\\' && s != "" {
			r, size = utf8.DecodeRuneInString(s)
			s = s[size:]
			switch r {
			case 't':
				r = '\t'
			case 'n':
				r = '\n'
			case 'r':
				r = '\r'
			case 'f':
				r = '\f'
			case 'u':
				code, err := strconv.ParseUint(s[:min(4, len(s))], 16, 16)
				if err != nil || len(s) < 4 {
					return "", errEscape // strconv's own words quote what may be part of a password
				}
				units, s = append(units, uint16(code)), s[4:]
				continue
			}
		}
		units = utf16.AppendRune(units, r)
	}
	return string(utf16.Decode(units)), nil
}
