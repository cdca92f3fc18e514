package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// order is an order as this package reads it.
type order struct {
	ID, Store  string
	Placed     bool // else cancelled
	Amount     int64
	OccurredAt int64
}

// Orders beyond these limits cannot be counted: a minute after latestOccurredAt need not have an end, and a count is kept under the store's
// id, which no state file takes if it is longer.
const (
	latestOccurredAt = 1 << 62
	longestStore     = 32_756
)

var errNoOrder = errors.New("not an order")

// readOrder reads the JSON of an order. What the application is to set aside as bad input, because it has two readings or none, must not be
// counted here either: so each field once, integers as integers, one document, true UTF-8.
func readOrder(value []byte) (order, error) {
	if o, ok := readPlain(value); ok {
		return o, nil
	}
	if !utf8.Valid(value) || halfSurrogate(value) {
		return order{}, fmt.Errorf("%w: invalid UTF-8", errNoOrder)
	}
	fields, err := readFields(value)
	if err != nil {
		return order{}, fmt.Errorf("%w: %w", errNoOrder, err)
	}
	var o order
	var status string
	for _, f := range []struct {
		name string
		text *string
		num  *int64
	}{
		{"orderId", &o.ID, nil}, {"storeId", &o.Store, nil}, {"status", &status, nil},
		{"amount", nil, &o.Amount}, {"occurredAt", nil, &o.OccurredAt},
	} {
		tok, ok := fields[f.name]
		if !ok {
			return order{}, fmt.Errorf("%w: no %s", errNoOrder, f.name)
		}
		switch v := tok.(type) {
		case string:
			ok = f.text != nil
			if ok {
				*f.text = v
			}
		case json.Number:
			ok = f.num != nil
			if ok {
				*f.num, err = strconv.ParseInt(string(v), 10, 64)
				ok = err == nil
			}
		default:
			ok = false
		}
		if !ok {
			return order{}, fmt.Errorf("%w: %s is %v", errNoOrder, f.name, tok)
		}
	}
	if o.OccurredAt < 0 || o.OccurredAt > latestOccurredAt {
		return order{}, fmt.Errorf("%w: occurredAt is %d", errNoOrder, o.OccurredAt)
	}
	if len(o.Store) > longestStore {
		return order{}, fmt.Errorf("%w: storeId has %d bytes", errNoOrder, len(o.Store))
	}
	switch status {
	case "PLACED":
		o.Placed = true
	case "CANCELLED":
	default:
		return order{}, fmt.Errorf("%w: status is %q", errNoOrder, status)
	}
	return o, nil
}

// readPlain reads an order whose JSON is written the plain way, as nearly all are, at a fraction of the cost: field after field without spaces
// or escapes, so that there is only one way to read it.
func readPlain(value []byte) (order, bool) {
	rest := string(value)
	text := func(before string) string {
		after, ok := strings.CutPrefix(rest, before)
		end := strings.IndexAny(after, "\"\\")
		if !ok || end < 0 || after[end] != '"' {
			rest = ""
			return ""
		}
		rest = after[end:]
		return after[:end]
	}
	number := func(before, until string) int64 {
		after, ok := strings.CutPrefix(rest, before)
		digits, _, found := strings.Cut(after, until)
		n, err := strconv.ParseInt(digits, 10, 64)
		if !ok || !found || err != nil || strconv.FormatInt(n, 10) != digits {
			rest = ""
			return 0
		}
		rest = after[len(digits):]
		return n
	}
	o := order{ID: text(`{"orderId":"`), Store: text(`","storeId":"`)}
	status := text(`","status":"`)
	o.Placed = status == "PLACED"
	o.Amount, o.OccurredAt = number(`","amount":`, ","), number(`,"occurredAt":`, "}")
	plain := rest == "}" && utf8.Valid(value) && !strings.ContainsFunc(o.ID+o.Store, func(r rune) bool { return r < ' ' })
	return o, plain && o.OccurredAt >= 0 && o.OccurredAt <= latestOccurredAt && len(o.Store) <= longestStore && (o.Placed || status == "CANCELLED")
}

// readFields returns the order's fields of one JSON object.
func readFields(value []byte) (map[string]json.Token, error) {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("no JSON object")
	}
	fields := make(map[string]json.Token, 5)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := tok.(string)
		if !ok {
			return nil, errors.New("no field name")
		}
		switch name {
		case "orderId", "storeId", "status", "amount", "occurredAt":
		default:
			var skip json.RawMessage
			if err := dec.Decode(&skip); err != nil {
				return nil, err
			}
			continue
		}
		if _, again := fields[name]; again {
			return nil, fmt.Errorf("%s twice", name)
		}
		if fields[name], err = dec.Token(); err != nil {
			return nil, err
		}
		if _, nested := fields[name].(json.Delim); nested {
			return nil, fmt.Errorf("%s is no plain value", name)
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something after the object")
	}
	return fields, nil
}

// halfSurrogate tells whether a string holds an escaped surrogate without its other half, which encoding/json would replace in silence.
func halfSurrogate(value []byte) bool {
	if !bytes.Contains(value, []byte(`\u`)) {
		return false
	}
	rest := strings.ReplaceAll(string(value), `\\`, `--`)
	for {
		at := strings.Index(rest, `\u`)
		if at < 0 || len(rest) < at+6 {
			return false
		}
		unit, err := strconv.ParseUint(rest[at+2:at+6], 16, 16)
		rest = rest[at+6:]
		if err != nil || unit < 0xd800 || unit > 0xdfff {
			continue
		}
		if unit >= 0xdc00 || len(rest) < 6 || rest[:2] != `\u` {
			return true
		}
		low, err := strconv.ParseUint(rest[2:6], 16, 16)
		if err != nil || low < 0xdc00 || low > 0xdfff {
			return true
		}
		rest = rest[6:]
	}
}
