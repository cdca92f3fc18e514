package kafka

import "encoding/binary"

// PartitionFor is the partition that Kafka's default partitioner chooses for a record with a key: murmur2 with the sign bit masked off, not
// made absolute, modulo the number of partitions. An empty key has a hash; only a null one has not (Kafka Streams 4.3.1, BuiltInPartitioner).
func PartitionFor(key []byte, partitions int32) int32 {
	return (murmur2(key) & 0x7fffffff) % partitions
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2: 32 bits, little endian, with Kafka's seed.
func murmur2(data []byte) int32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(data))
	for len(data) >= 4 {
		k := binary.LittleEndian.Uint32(data)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return int32(h)
}
