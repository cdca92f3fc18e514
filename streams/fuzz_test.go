package streams

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// FuzzParseProperties reads one key=value as a command line gives it: it is refused with the key's name, or the configuration prints and
// reads as the same again.
func FuzzParseProperties(f *testing.F) {
	for _, p := range DefaultConfig().Properties() {
		f.Add(p)
	}
	for _, p := range []string{
		"", "=", "commit.interval.ms", "commit.interval.ms=", "commit.interval.ms=1=2", "comit.interval.ms=1", " commit.interval.ms=1",
		"commit.interval.ms=9223372036854775807", "commit.idle.ms=-9223372036854775808", "commit.idle.ms=-1", "replication.factor=32768",
		"bootstrap.servers=a:1, b:2,,", "task.time.alignment=TRUE", "task.time.alignment=yes", "application.id=\x00", "statestore.cache.max.bytes=1e3",
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, pair string) {
		c, err := ParseProperties(DefaultConfig(), []string{pair})
		key, value, _ := strings.Cut(pair, "=")
		if err != nil {
			var e *PropertyError
			if !errors.As(err, &e) || e.Key != key && e.Key != pair || e.Error() == "" {
				t.Fatalf("%q: %#v", pair, err)
			}
			if e.Nearest != "" && !slices.Contains(PropertyNames(), e.Nearest) {
				t.Fatalf("%q: nearest is %q", pair, e.Nearest)
			}
			return
		}
		if !slices.Contains(PropertyNames(), key) {
			t.Fatalf("%q is no property", key)
		}
		printed := c.Properties()
		again, err := ParseProperties(DefaultConfig(), printed)
		if err != nil || !slices.Equal(printed, again.Properties()) {
			t.Fatalf("%q: printed and read again:\n%q\n%q\n%v", pair, printed, again.Properties(), err)
		}
		if !strings.HasSuffix(key, ".ms") {
			return
		}
		asked, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatalf("%q was taken", pair)
		}
		most := int64(math.MaxInt64 / 1_000_000)
		want := key + "=" + strconv.FormatInt(max(-most, min(asked, most)), 10)
		if !slices.Contains(printed, want) {
			t.Fatalf("%q: no %s in %q", pair, want, printed)
		}
	})
}

// FuzzOffsetMetadata reads what a group has as the metadata of an offset, which any client may have written.
func FuzzOffsetMetadata(f *testing.F) {
	for _, s := range []string{"", "AgAAAaCVD0Io", "AQAAAaCVD0Io", "AgAAAaCVD0I", "Ag==", "AwAAAaCVD0IoAA==", "not base64!", "AgAAAaCVD0Ioxx"} {
		f.Add(s)
	}
	f.Add(encodeOffsetMetadata(noTime))
	f.Add(encodeOffsetMetadata(math.MaxInt64))
	f.Fuzz(func(t *testing.T, metadata string) {
		at, known := decodeOffsetMetadata(metadata)
		if !known && at != noTime {
			t.Fatalf("%q: not understood, and time %d", metadata, at)
		}
		if again, ok := decodeOffsetMetadata(encodeOffsetMetadata(at)); known && (!ok || again != at) {
			t.Fatalf("%q: %d came back as %d, %t", metadata, at, again, ok)
		}
	})
}
