package clientconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/internal/clientconfig"
)

// The rows are those of the documentation of java.util.Properties.load, and what its text leaves open as JDK 17 does it.
func TestParseProperties(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]string
	}{
		"separators":         {"Truth = Beauty\n Truth2:Beauty\nTruth3\t:Beauty\nbare\nwords are values", map[string]string{"Truth": "Beauty", "Truth2": "Beauty", "Truth3": "Beauty", "bare": "", "words": "are values"}},
		"comments":           {"# a=b\n  ! c=d\ne=f # g", map[string]string{"e": "f # g"}},
		"continued":          {"fruits  apple, banana, pear, \\\n    cantaloupe, \\\r\n    kiwi", map[string]string{"fruits": "apple, banana, pear, cantaloupe, kiwi"}},
		"no continuation":    {"a=b\\\\\nc=d", map[string]string{"a": `b\`, "c": "d"}},
		"no comment inside":  {"a=b\\\n#c", map[string]string{"a": "b#c"}},
		"continued to end":   {"a=b\\", map[string]string{"a": "b"}},
		"escapes":            {`a\ b\:c=\t\n\"\u00e9\ud83d\ude00\q`, map[string]string{"a b:c": "\t\n\"é😀q"}},
		"equals in value":    {"a==b=c", map[string]string{"a": "=b=c"}},
		"the last one":       {"a=1\na=2", map[string]string{"a": "2"}},
		"trailing blanks":    {"a=b  ", map[string]string{"a": "b  "}},
		"UTF-8":              {"a=pässwörd", map[string]string{"a": "pässwörd"}},
		"ISO 8859-1":         {"a=p\xe4ss", map[string]string{"a": "päss"}},
		"other line ends":    {"a=1\r\rb=2\r\n", map[string]string{"a": "1", "b": "2"}},
		"an escaped newline": {"a=x\\\n\ny=z", map[string]string{"a": "x", "y": "z"}},
	} {
		got, err := clientconfig.ParseProperties([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
