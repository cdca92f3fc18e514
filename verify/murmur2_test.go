package verify

import "testing"

// The hashes up to "abc" are those of Apache Kafka's own UtilsTest.
func TestMurmur2(t *testing.T) {
	for _, tt := range []struct {
		key        string
		hash       int32
		two, three int32 // partition of two, of three
	}{
		{"21", -973932308, 0, 0},
		{"foobar", -790332482, 0, 0},
		{"a-little-bit-long-string", -985981536, 0, 2},
		{"a-little-bit-longer-string", -1486304829, 1, 2},
		{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 1, 2},
		{"abc", 479470107, 1, 0},
		{"", 275646681, 1, 0},
		{"store-17", 1542570895, 1, 1},
		{"żółw", 1005548696, 0, 2},
	} {
		if got := murmur2([]byte(tt.key)); got != tt.hash {
			t.Errorf("murmur2(%q) = %d, want %d", tt.key, got, tt.hash)
		}
		if two, three := partitionOf([]byte(tt.key), 2), partitionOf([]byte(tt.key), 3); two != tt.two || three != tt.three {
			t.Errorf("%q is in partition %d of 2 and %d of 3, want %d and %d", tt.key, two, three, tt.two, tt.three)
		}
	}
}
