package verify

// murmur2 is the hash by which Kafka's default partitioner places a record with a key: 32 bits of Austin Appleby's MurmurHash2 over little
// endian words, with Kafka's own seed (Apache Kafka 4.3.1, Utils.murmur2).
func murmur2(key []byte) int32 {
	const m = 0x5bd1e995
	h := 0x9747b28c ^ uint32(len(key))
	whole := len(key) &^ 3
	for i := 0; i < whole; i += 4 {
		k := uint32(key[i]) | uint32(key[i+1])<<8 | uint32(key[i+2])<<16 | uint32(key[i+3])<<24
		k *= m
		k = (k ^ k>>24) * m
		h = h*m ^ k
	}
	if whole < len(key) {
		for i, b := range key[whole:] {
			h ^= uint32(b) << (8 * i)
		}
		h *= m
	}
	h = (h ^ h>>13) * m
	return int32(h ^ h>>15)
}

// partitionOf is the partition of n that the key belongs to: the hash without its sign bit (Utils.toPositive), modulo n.
func partitionOf(key []byte, n int) int32 {
	return (murmur2(key) & 0x7fffffff) % int32(n)
}
