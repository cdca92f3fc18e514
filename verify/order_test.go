package verify

import (
	"slices"
	"testing"
)

// What is read the fast way has to be what the careful way reads, which a space in front asks for.
func TestReadPlain(t *testing.T) {
	plain := []byte(orderJSON(order{ID: "ord-1", Store: "störe", Placed: true, Amount: -5, OccurredAt: 10}))
	if _, ok := readPlain(plain); !ok {
		t.Fatalf("%s is not read the fast way", plain)
	}
	read := 0
	check := func(value []byte) {
		fast, ok := readPlain(value)
		careful, err := readOrder(append([]byte(" "), value...))
		if ok && (err != nil || fast != careful) {
			t.Errorf("%q is %+v, want %+v, %v", value, fast, careful, err)
		}
		if ok {
			read++
		}
	}
	for i := range plain {
		check(slices.Delete(slices.Clone(plain), i, i+1))
		for _, b := range []byte("0-+.e \"\\{}:,\n\x00\x7f\x80\xffu") {
			changed := slices.Clone(plain)
			changed[i] = b
			check(changed)
			check(slices.Insert(slices.Clone(plain), i, b))
		}
	}
	if read < 100 {
		t.Errorf("%d values were read the fast way", read)
	}
}
