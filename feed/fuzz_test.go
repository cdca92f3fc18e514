package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"
)

// FuzzDecodeOrder holds the hand-written decoder against encoding/json with the stricter rules put on top.
func FuzzDecodeOrder(f *testing.F) {
	f.Add([]byte(firstOrder))
	f.Add([]byte(edit(`{`, `{"a":{"b":[1.5e-3,true,false,null,"é\u00e9",{},[]]},"a":0,`)))
	f.Add([]byte(edit(`ord-1000`, `\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00`)))
	for _, bad := range badOrders {
		if len(bad.json) < 2000 {
			f.Add([]byte(bad.json))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := DecodeOrder(b)
		want, refErr := referenceDecode(b)
		if (err == nil) != (refErr == nil) {
			t.Fatalf("%q: %v; encoding/json: %v", b, err, refErr)
		}
		if err != nil {
			var e *OrderError
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(b) {
				t.Fatalf("%q: error %#v", b, err)
			}
			return
		}
		if got != want {
			t.Fatalf("%q: %+v; encoding/json: %+v", b, got, want)
		}
		again, err := DecodeOrder(AppendOrder(nil, got))
		if err != nil || again != got {
			t.Fatalf("%q: encoded and decoded again: %+v, %v", b, again, err)
		}
	})
}

var (
	surrogate = regexp.MustCompile(`(?i)\\u(d[89ab][0-9a-f]{2}\\u)?(d[c-f][0-9a-f]{2})|\\u(d[89ab][0-9a-f]{2})`)
	integer   = regexp.MustCompile(`^-?[0-9]+$`)
)

func referenceDecode(b []byte) (Order, error) {
	if !utf8.Valid(b) {
		return Order{}, errors.New("not UTF-8")
	}
	if !json.Valid(b) {
		return Order{}, errors.New("not JSON")
	}
	if halfPair(b) {
		return Order{}, errors.New("half a surrogate pair")
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return Order{}, fmt.Errorf("no object: %v %w", tok, err)
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return Order{}, err
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return Order{}, err
		}
		name := tok.(string)
		if _, ok := fields[name]; ok && slices.Contains(fieldNames[:], name) {
			return Order{}, fmt.Errorf("%s twice", name)
		}
		fields[name] = raw
	}
	if _, err := dec.Token(); err != nil {
		return Order{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Order{}, errors.New("more after it")
	}
	var o Order
	var err error
	text := func(name string) (s string) {
		if len(fields[name]) == 0 || fields[name][0] != '"' {
			err = fmt.Errorf("no string %s", name)
			return ""
		}
		if e := json.Unmarshal(fields[name], &s); e != nil {
			err = e
		}
		return s
	}
	number := func(name string) int64 {
		if !integer.Match(fields[name]) {
			err = fmt.Errorf("no integer %s", name)
			return 0
		}
		n, e := strconv.ParseInt(string(fields[name]), 10, 64)
		if e != nil {
			err = e
		}
		return n
	}
	o.OrderID, o.StoreID = text("orderId"), text("storeId")
	o.Amount, o.OccurredAt = number("amount"), number("occurredAt")
	switch text("status") {
	case "PLACED":
		o.Status = Placed
	case "CANCELLED":
		o.Status = Cancelled
	default:
		err = errors.New("status")
	}
	if o.OccurredAt < 0 {
		err = errors.New("negative")
	}
	if err != nil {
		return Order{}, err
	}
	return o, nil
}

// halfPair tells whether valid JSON holds an escaped surrogate without its other half.
func halfPair(b []byte) bool {
	// An escaped backslash is no start of an escape.
	b = bytes.ReplaceAll(b, []byte(`\\`), []byte(`--`))
	for _, m := range surrogate.FindAllSubmatch(b, -1) {
		if len(m[1]) == 0 {
			return true
		}
	}
	return false
}
