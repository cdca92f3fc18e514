package kafka

import "testing"

// The hashes are those of org.apache.kafka.common.utils.Utils.murmur2 in Apache Kafka 4.3.1.
func TestMurmur2(t *testing.T) {
	for _, tc := range []struct {
		key        string
		hash       int32
		two, three int32 // partition of two, of three
	}{
		{"", 275646681, 1, 0},
		{"a", -1563381124, 0, 1},
		{"21", -973932308, 0, 0},
		{"s1", 322709757, 1, 0},
		{"s2", -1359869759, 1, 0},
		{"store-1", -729410832, 0, 2},
		{"store-42", 907339507, 1, 1},
		{"order-000001", 596492369, 1, 2},
		{"żółw", 1005548696, 0, 2},
	} {
		if got := murmur2([]byte(tc.key)); got != tc.hash {
			t.Errorf("murmur2(%q) = %d, want %d", tc.key, got, tc.hash)
		}
		if got := PartitionFor([]byte(tc.key), 2); got != tc.two {
			t.Errorf("PartitionFor(%q, 2) = %d, want %d", tc.key, got, tc.two)
		}
		if got := PartitionFor([]byte(tc.key), 3); got != tc.three {
			t.Errorf("PartitionFor(%q, 3) = %d, want %d", tc.key, got, tc.three)
		}
	}
}
