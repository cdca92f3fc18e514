package feed

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const firstOrder = `{"orderId":"ord-1000","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207200000}`

func first() Order {
	return Order{OrderID: "ord-1000", StoreID: "store-17", Status: Placed, Amount: 5000, OccurredAt: 1789207200000}
}

func TestAppendOrder(t *testing.T) {
	odd := first()
	odd.OrderID = "a\"b\\c\nd\x01é\xff"
	odd.Status = Cancelled
	odd.Amount = -9223372036854775808
	tests := map[string]struct {
		order Order
		want  string
	}{
		"plain":   {first(), firstOrder},
		"escapes": {odd, `{"orderId":"a\"b\\c\u000ad\u0001é` + "\uFFFD" + `","storeId":"store-17","status":"CANCELLED","amount":-9223372036854775808,"occurredAt":1789207200000}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := string(AppendOrder([]byte("x"), tt.order)); got != "x"+tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, "x"+tt.want)
			}
		})
	}
}

func TestDecodeOrderAccepts(t *testing.T) {
	with := func(change func(*Order)) Order {
		o := first()
		change(&o)
		return o
	}
	replace := func(old, new string) string {
		s := strings.Replace(firstOrder, old, new, 1)
		if s == firstOrder {
			t.Fatalf("%q is not in the order", old)
		}
		return s
	}
	tests := map[string]struct {
		json string
		want Order
	}{
		"plain":           {firstOrder, first()},
		"white space":     {" \t\r\n" + replace(`,"amount":5000,`, " ,\n\"amount\" : 5000 , ") + "\n", first()},
		"cancelled":       {replace("PLACED", "CANCELLED"), with(func(o *Order) { o.Status = Cancelled })},
		"another order":   {`{"occurredAt":1789207200000,"amount":5000,"status":"PLACED","storeId":"store-17","orderId":"ord-1000"}`, first()},
		"extra fields":    {replace(`{`, `{"a":{"b":[1.5e-3,true,false,null,"é\u00e9",{},[]]},"a":0,"Amount":7,`), first()},
		"negative amount": {replace("5000", "-5000"), with(func(o *Order) { o.Amount = -5000 })},
		"zero":            {replace("5000", "-0"), with(func(o *Order) { o.Amount = 0 })},
		// The first integer that a float64 cannot hold.
		"beyond 2^53":            {replace("5000", "9007199254740993"), with(func(o *Order) { o.Amount = 9007199254740993 })},
		"largest":                {replace("5000", "9223372036854775807"), with(func(o *Order) { o.Amount = 9223372036854775807 })},
		"smallest":               {replace("5000", "-9223372036854775808"), with(func(o *Order) { o.Amount = -9223372036854775808 })},
		"epoch":                  {replace("1789207200000", "0"), with(func(o *Order) { o.OccurredAt = 0 })},
		"empty ids":              {replace("ord-1000", ""), with(func(o *Order) { o.OrderID = "" })},
		"escapes":                {replace("ord-1000", `\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00`), with(func(o *Order) { o.OrderID = "\"\\/\b\f\n\r\té😀" })},
		"non-ASCII":              {replace("ord-1000", "é😀"), with(func(o *Order) { o.OrderID = "é😀" })},
		"escaped name":           {replace(`"amount"`, `"\u0061mount"`), first()},
		"escaped status":         {replace("PLACED", `\u0050LACED`), first()},
		"U+FFFD itself":          {replace("ord-1000", "\uFFFD"), with(func(o *Order) { o.OrderID = "\uFFFD" })},
		"deep, but not too deep": {replace(`{`, `{"a":`+strings.Repeat("[", maxDepth-1)+strings.Repeat("]", maxDepth-1)+`,`), first()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeOrder([]byte(tt.json))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			again, err := DecodeOrder(AppendOrder(nil, got))
			if err != nil || again != got {
				t.Errorf("encoded and decoded again: %+v, %v", again, err)
			}
		})
	}
}

// badOrders are values that are no orders; they also seed the fuzz test.
var badOrders = []struct {
	name, json string
	want       OrderError
}{
	{"null value", "", OrderError{"", ReasonEmpty, 0}},
	{"white space only", "  ", OrderError{"", ReasonTruncated, 2}},
	{"bare text", "hello", OrderError{"", ReasonNotObject, 0}},
	{"array", "[1]", OrderError{"", ReasonNotObject, 0}},
	{"byte-order mark", "\xef\xbb\xbf" + firstOrder, OrderError{"", ReasonBOM, 0}},
	{"two documents", firstOrder + firstOrder, OrderError{"", ReasonTrailing, len(firstOrder)}},
	{"NUL after it", firstOrder + "\x00", OrderError{"", ReasonTrailing, len(firstOrder)}},
	{"empty object", "{}", OrderError{"orderId", ReasonMissing, 1}},
	{"missing amount", edit(`"amount":5000,`, ``), OrderError{"amount", ReasonMissing, len(firstOrder) - 15}},
	{"name in other case", edit(`amount`, `Amount`), OrderError{"amount", ReasonMissing, len(firstOrder) - 1}},
	{"duplicate", edit(`,"occ`, `,"amount":5000,"occ`), OrderError{"amount", ReasonDuplicate, 75}},
	{"duplicate under an escaped name", edit(`,"occ`, `,"\u0061mount":1,"occ`), OrderError{"amount", ReasonDuplicate, 75}},
	{"amount a string", edit(`5000`, `"5000"`), OrderError{"amount", ReasonNotInteger, 70}},
	{"amount null", edit(`5000`, `null`), OrderError{"amount", ReasonNotInteger, 70}},
	{"amount 1e3", edit(`5000`, `1e3`), OrderError{"amount", ReasonNotInteger, 70}},
	{"amount 5000.0", edit(`5000`, `5000.0`), OrderError{"amount", ReasonNotInteger, 70}},
	{"amount 1e", edit(`5000`, `1e`), OrderError{"amount", ReasonSyntax, 72}},
	{"amount +1", edit(`5000`, `+1`), OrderError{"amount", ReasonNotInteger, 70}},
	{"amount -", edit(`5000`, `-`), OrderError{"amount", ReasonSyntax, 71}},
	{"amount 01", edit(`5000`, `01`), OrderError{"", ReasonSyntax, 71}},
	{"amount beyond int64", edit(`5000`, `9223372036854775808`), OrderError{"amount", ReasonRange, 70}},
	{"amount far beyond", edit(`5000`, strings.Repeat("9", 400)), OrderError{"amount", ReasonRange, 70}},
	{"occurredAt negative", edit(`1789207200000`, `-1`), OrderError{"occurredAt", ReasonNegative, 88}},
	{"unknown status", edit(`PLACED`, `placed`), OrderError{"status", ReasonStatus, 52}},
	{"status a number", edit(`"PLACED"`, `1`), OrderError{"status", ReasonNotString, 52}},
	{"store null", edit(`"store-17"`, `null`), OrderError{"storeId", ReasonNotString, 32}},
	{"invalid UTF-8 in an id", edit(`ord-1000`, "ord-\xff"), OrderError{"orderId", ReasonUTF8, 16}},
	{"invalid UTF-8 in another field", edit(`{`, "{\"x\":\"\xc3\","), OrderError{"", ReasonUTF8, 6}},
	{"overlong UTF-8", edit(`ord-1000`, "\xc0\xaf"), OrderError{"orderId", ReasonUTF8, 12}},
	{"half a surrogate pair", edit(`ord-1000`, `\ud83d`), OrderError{"orderId", ReasonUTF8, 12}},
	{"wrong half", edit(`ord-1000`, `\ud83d\ud83d`), OrderError{"orderId", ReasonUTF8, 12}},
	{"second half alone", edit(`ord-1000`, `\ude00`), OrderError{"orderId", ReasonUTF8, 12}},
	{"bad escape", edit(`ord-1000`, `\x41`), OrderError{"orderId", ReasonSyntax, 12}},
	{"bad hex", edit(`ord-1000`, `\u00g0`), OrderError{"orderId", ReasonSyntax, 12}},
	{"control character", edit(`ord-1000`, "a\nb"), OrderError{"orderId", ReasonSyntax, 13}},
	{"trailing comma", edit(`}`, `,}`), OrderError{"", ReasonSyntax, len(firstOrder)}},
	{"no colon", edit(`"amount":`, `"amount"`), OrderError{"", ReasonSyntax, 69}},
	{"single quotes", "{'orderId':1}", OrderError{"", ReasonSyntax, 1}},
	{"bad word", edit(`{`, `{"x":nul,`), OrderError{"", ReasonSyntax, 5}},
	{"brackets that do not match", edit(`{`, `{"x":[1},`), OrderError{"", ReasonSyntax, 7}},
	{"nested too deeply", `{"x":` + strings.Repeat("[", 2*maxDepth), OrderError{"", ReasonDepth, 5 + maxDepth}},
}

func edit(old, new string) string { return strings.Replace(firstOrder, old, new, 1) }

func TestDecodeOrderRefuses(t *testing.T) {
	for _, tt := range badOrders {
		t.Run(tt.name, func(t *testing.T) {
			got, err := DecodeOrder([]byte(tt.json))
			var e *OrderError
			if !errors.As(err, &e) {
				t.Fatalf("got %+v, %v; want an *OrderError", got, err)
			}
			if diff := cmp.Diff(tt.want, *e); diff != "" {
				t.Error(diff)
			}
			if got != (Order{}) {
				t.Errorf("an order beside the error: %+v", got)
			}
		})
	}
	for n := range len(firstOrder) {
		if got, err := DecodeOrder([]byte(firstOrder[:n])); err == nil {
			t.Errorf("truncated to %d bytes: accepted as %+v", n, got)
		}
	}
}

func TestOrderErrorText(t *testing.T) {
	_, err := DecodeOrder([]byte(edit("5000", "1e3")))
	if want := "order: field amount: not an integer at byte 70"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestDecodeOrderKeepsNothing(t *testing.T) {
	b := []byte(firstOrder)
	o, err := DecodeOrder(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if o != first() {
		t.Errorf("the order changed with the buffer: %+v", o)
	}
}

func TestAllocations(t *testing.T) {
	b := []byte(firstOrder)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := DecodeOrder(b); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("DecodeOrder allocates %v times, want the two ids only", n)
	}
	buf := make([]byte, 0, 256)
	o := first()
	if n := testing.AllocsPerRun(100, func() { buf = AppendOrder(buf[:0], o) }); n > 0 {
		t.Errorf("AppendOrder allocates %v times, want 0", n)
	}
}

func BenchmarkDecodeOrder(b *testing.B) {
	value := []byte(firstOrder)
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeOrder(value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendOrder(b *testing.B) {
	buf := make([]byte, 0, 256)
	o := first()
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendOrder(buf[:0], o)
	}
}
