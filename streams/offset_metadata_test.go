package streams

import "testing"

func TestOffsetMetadata(t *testing.T) {
	// Written by Kafka Streams 4.3.1.
	for text, time := range map[string]int64{
		"AgAAAYvP5gRC": 1700000040002,
		"Av//////////": -1,
		"AgAAAaCVECkI": 1789207259400,
	} {
		if got := encodeOffsetMetadata(time); got != text {
			t.Errorf("encode(%d) = %s, Java writes %s", time, got, text)
		}
	}
	for _, tc := range []struct {
		text string
		time int64
		ok   bool
	}{
		{"AgAAAYvP5gRC", 1700000040002, true},
		{"AgAAAYvP5gRCAAAAAQAAABdvcmRlcnMtcGVyLXN0b3JlLW1pbnV0ZQAAAYvP5u6g", 1700000040002, true}, // with processor metadata
		{"AQAAAYvP5gRC", 1700000040002, true},                                                     // version 1
		{"", -1, true},
		{"garbage", -1, false},
		{"BAAAAYvP5gRC", -1, false}, // a version of the future
		{"AgAA", -1, false},
	} {
		if got, ok := decodeOffsetMetadata(tc.text); got != tc.time || ok != tc.ok {
			t.Errorf("decode(%q) = %d, %v; want %d, %v", tc.text, got, ok, tc.time, tc.ok)
		}
	}
}
