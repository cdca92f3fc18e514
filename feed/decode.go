package feed

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Reason is why a value is not an order. Values with the same reason belong to one kind of bad input and are reported together.
type Reason string

// The reasons.
const (
	ReasonEmpty      Reason = "empty value" // null included
	ReasonBOM        Reason = "byte-order mark"
	ReasonNotObject  Reason = "not a JSON object"
	ReasonSyntax     Reason = "malformed JSON"
	ReasonTruncated  Reason = "truncated"
	ReasonTrailing   Reason = "data after the order"
	ReasonUTF8       Reason = "invalid UTF-8"
	ReasonDepth      Reason = "nested too deeply"
	ReasonMissing    Reason = "missing field"
	ReasonDuplicate  Reason = "duplicate field"
	ReasonNotString  Reason = "not a string"
	ReasonNotInteger Reason = "not an integer"
	ReasonRange      Reason = "beyond 64 bits"
	ReasonNegative   Reason = "negative time"
	ReasonStatus     Reason = "unknown status"
	ReasonTooLong    Reason = "too long" // never found by DecodeOrder: for those who cannot use ids of any length
)

// OrderError says why a value is not an order, and where.
type OrderError struct {
	Field  string // one of the order's five; "" if the fault lies in none of them
	Reason Reason
	Offset int // in bytes from the start of the value
}

func (e *OrderError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("order: %s at byte %d", e.Reason, e.Offset)
	}
	return fmt.Sprintf("order: field %s: %s at byte %d", e.Field, e.Reason, e.Offset)
}

// Kind is the kind of bad input: the reason.
func (e *OrderError) Kind() string { return string(e.Reason) }

// The order's fields, as bits of the set of fields seen.
const (
	fieldOrderID = 1 << iota
	fieldStoreID
	fieldStatus
	fieldAmount
	fieldOccurredAt
)

var fieldNames = [...]string{"orderId", "storeId", "status", "amount", "occurredAt"}

// DecodeOrder reads the JSON form of an order strictly: exactly one document of exactly one reading. Fields may come in any order and
// others may stand beside the five. The error is an *OrderError.
//
// It is written by hand and not on encoding/json because the rules are stricter than that package's (which takes the last of two equal
// fields, matches names without case, repairs broken UTF-8 and half surrogate pairs, and leaves a missing number 0), because each of the
// engine's records passes here, and because a dead letter names the byte. The fuzz test holds it against encoding/json.
//
// Only the two ids are allocated; b is not kept.
func DecodeOrder(b []byte) (Order, error) {
	s := scanner{b: b}
	var o Order
	if err := s.order(&o); err != nil {
		return Order{}, err
	}
	return o, nil
}

// maxDepth bounds the nesting inside a field that is not ours, as encoding/json does.
const maxDepth = 10_000

// scanner reads one JSON document from the front to the back.
type scanner struct {
	b     []byte
	i     int
	field string // the one of ours whose value is being read
}

func (s *scanner) fail(r Reason, at int) error {
	return &OrderError{Field: s.field, Reason: r, Offset: at}
}

// failHere blames the byte at the position, or the lack of one.
func (s *scanner) failHere(r Reason) error {
	if s.i >= len(s.b) {
		r = ReasonTruncated
	}
	return s.fail(r, s.i)
}

// next skips white space and returns the byte after it without taking it; 0 at the end.
func (s *scanner) next() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take skips white space and takes c.
func (s *scanner) take(c byte) error {
	if s.next() != c || s.i >= len(s.b) {
		return s.failHere(ReasonSyntax)
	}
	s.i++
	return nil
}

func (s *scanner) order(o *Order) error {
	switch {
	case len(s.b) == 0:
		return s.fail(ReasonEmpty, 0)
	case bytes.HasPrefix(s.b, []byte("\xef\xbb\xbf")):
		return s.fail(ReasonBOM, 0)
	case s.next() != '{':
		return s.failHere(ReasonNotObject)
	}
	s.i++
	seen := 0
	if s.next() == '}' {
		s.i++
	} else {
		for more := true; more; {
			if err := s.member(o, &seen); err != nil {
				return err
			}
			var err error
			if more, err = s.more('}'); err != nil {
				return err
			}
		}
	}
	for i, name := range fieldNames {
		if seen&(1<<i) == 0 {
			s.field = name
			return s.fail(ReasonMissing, s.i-1)
		}
	}
	if s.next(); s.i < len(s.b) {
		return s.fail(ReasonTrailing, s.i)
	}
	return nil
}

// more takes the comma that announces another element, or the end of the object or array.
func (s *scanner) more(end byte) (bool, error) {
	switch c := s.next(); c {
	case ',', end:
		s.i++
		return c == ',', nil
	default:
		return false, s.failHere(ReasonSyntax)
	}
}

// member reads one field of the order.
func (s *scanner) member(o *Order, seen *int) error {
	s.next()
	at := s.i
	name, err := s.str(ReasonSyntax)
	if err != nil {
		return err
	}
	if err := s.take(':'); err != nil {
		return err
	}
	bit := name.field()
	if bit < 0 {
		return s.value(1)
	}
	s.field = fieldNames[bit]
	if *seen&(1<<bit) != 0 {
		return s.fail(ReasonDuplicate, at)
	}
	*seen |= 1 << bit
	s.next()
	at = s.i
	switch 1 << bit {
	case fieldOrderID:
		o.OrderID, err = s.text()
	case fieldStoreID:
		o.StoreID, err = s.text()
	case fieldStatus:
		o.Status, err = s.status(at)
	case fieldAmount:
		o.Amount, err = s.integer()
	case fieldOccurredAt:
		if o.OccurredAt, err = s.integer(); err == nil && o.OccurredAt < 0 {
			err = s.fail(ReasonNegative, at)
		}
	}
	if err != nil {
		return err
	}
	s.field = ""
	return nil
}

// literal is a JSON string as it stands, without its quotes.
type literal struct {
	raw     []byte
	escaped bool
}

func (l literal) String() string {
	if !l.escaped {
		return string(l.raw)
	}
	return unescape(l.raw)
}

// field is the index of the name in fieldNames, or -1. A name written with escapes is the same name: else a duplicate could hide.
func (l literal) field() int {
	raw := l.raw
	if l.escaped {
		raw = []byte(unescape(raw))
	}
	switch string(raw) {
	case "orderId":
		return 0
	case "storeId":
		return 1
	case "status":
		return 2
	case "amount":
		return 3
	case "occurredAt":
		return 4
	default:
		return -1
	}
}

func (s *scanner) text() (string, error) {
	l, err := s.str(ReasonNotString)
	if err != nil {
		return "", err
	}
	return l.String(), nil
}

func (s *scanner) status(at int) (Status, error) {
	l, err := s.str(ReasonNotString)
	if err != nil {
		return 0, err
	}
	raw := l.raw
	if l.escaped {
		raw = []byte(unescape(raw))
	}
	switch string(raw) {
	case "PLACED":
		return Placed, nil
	case "CANCELLED":
		return Cancelled, nil
	default:
		return 0, s.fail(ReasonStatus, at)
	}
}

// str reads a string and checks it wholly, so that unescape cannot fail. other is the reason if something else stands there.
func (s *scanner) str(other Reason) (literal, error) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return literal{}, s.failHere(other)
	}
	s.i++
	start, escaped := s.i, false
	for {
		i := s.i
		for i < len(s.b) && plain[s.b[i]] {
			i++
		}
		s.i = i
		if i == len(s.b) {
			return literal{}, s.fail(ReasonTruncated, i)
		}
		switch c := s.b[i]; {
		case c == '"':
			s.i++
			return literal{s.b[start:i], escaped}, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return literal{}, err
			}
		case c < ' ':
			return literal{}, s.fail(ReasonSyntax, i)
		default:
			r, n := utf8.DecodeRune(s.b[s.i:])
			if r == utf8.RuneError && n == 1 {
				return literal{}, s.fail(ReasonUTF8, s.i)
			}
			s.i += n
		}
	}
}

// plain holds the bytes that stand for themselves inside a string.
var plain = func() (t [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// escape takes one escape, or two that make a surrogate pair. Half a pair is no character and has no UTF-8 form.
func (s *scanner) escape() error {
	at := s.i
	s.i++
	if s.i >= len(s.b) {
		return s.fail(ReasonTruncated, s.i)
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return nil
	case 'u':
	default:
		return s.fail(ReasonSyntax, at)
	}
	r, err := s.hex4(at)
	if err != nil || !utf16.IsSurrogate(r) {
		return err
	}
	if !bytes.HasPrefix(s.b[s.i:], []byte(`\u`)) {
		return s.fail(ReasonUTF8, at)
	}
	s.i++
	low, err := s.hex4(at)
	if err == nil && utf16.DecodeRune(r, low) == utf8.RuneError {
		err = s.fail(ReasonUTF8, at)
	}
	return err
}

// hex4 takes the u and the four digits of an escape.
func (s *scanner) hex4(at int) (rune, error) {
	if len(s.b)-s.i < 5 {
		return 0, s.fail(ReasonTruncated, len(s.b))
	}
	r, ok := parseHex4(s.b[s.i+1:])
	if !ok {
		return 0, s.fail(ReasonSyntax, at)
	}
	s.i += 5
	return r, nil
}

func parseHex4(b []byte) (r rune, ok bool) {
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape resolves the escapes of a string that str has checked.
func unescape(raw []byte) string {
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			b.WriteByte(c)
			i++
			continue
		}
		c = raw[i+1]
		i += 2
		switch c {
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r, _ := parseHex4(raw[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := parseHex4(raw[i+2:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			b.WriteRune(r)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// integer reads a number that has neither fraction nor exponent: 1e3 and 5.0 are integers to some readers and not to others. It never goes
// through a float, which would turn 9007199254740993 into 9007199254740992.
func (s *scanner) integer() (int64, error) {
	start := s.i
	if c := s.next(); c != '-' && (c < '0' || c > '9') {
		return 0, s.failHere(ReasonNotInteger)
	}
	whole, err := s.number()
	if err != nil {
		return 0, err
	}
	if !whole {
		return 0, s.fail(ReasonNotInteger, start)
	}
	digits := s.b[start:s.i]
	// Up to 18 digits fit whatever they are; the rest is rare and left to strconv.
	if len(digits) > 18 {
		n, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			return 0, s.fail(ReasonRange, start)
		}
		return n, nil
	}
	neg := digits[0] == '-'
	if neg {
		digits = digits[1:]
	}
	var n int64
	for _, c := range digits {
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	return n, nil
}

// number takes a number by JSON's grammar and tells whether it has neither fraction nor exponent.
func (s *scanner) number() (whole bool, err error) {
	if s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if err := s.digits(); err != nil {
		return false, err
	}
	whole = true
	if s.i < len(s.b) && s.b[s.i] == '.' {
		whole = false
		s.i++
		if err := s.digits(); err != nil {
			return false, err
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		whole = false
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if err := s.digits(); err != nil {
			return false, err
		}
	}
	return whole, nil
}

func (s *scanner) digits() error {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	if s.i == start {
		return s.failHere(ReasonSyntax)
	}
	return nil
}

// value takes any JSON value: that of a field which is not ours.
func (s *scanner) value(depth int) error {
	if depth > maxDepth {
		return s.fail(ReasonDepth, s.i)
	}
	switch c := s.next(); {
	case c == '"':
		_, err := s.str(ReasonSyntax)
		return err
	case c == '{', c == '[':
		s.i++
		end := c + 2 // } and ] stand two after { and [ in ASCII
		if s.next() == end {
			s.i++
			return nil
		}
		for more := true; more; {
			if c == '{' {
				s.next()
				if _, err := s.str(ReasonSyntax); err != nil {
					return err
				}
				if err := s.take(':'); err != nil {
					return err
				}
			}
			if err := s.value(depth + 1); err != nil {
				return err
			}
			var err error
			if more, err = s.more(end); err != nil {
				return err
			}
		}
		return nil
	case c == '-', '0' <= c && c <= '9':
		_, err := s.number()
		return err
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(s.b[s.i:], []byte(word)) {
			s.i += len(word)
			return nil
		}
	}
	return s.failHere(ReasonSyntax)
}
