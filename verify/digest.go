package verify

import (
	"encoding/binary"
	"hash/maphash"
)

// digest stands for a multiset of records: how many there are, and the sum of their hashes. Two multisets with equal digests are equal, but
// for a chance of 2^-64, whatever order they came in.
type digest struct {
	n   int64
	sum uint64
}

func (d *digest) add(hash uint64) {
	d.n++
	d.sum += hash
}

var seed = maphash.MakeSeed()

// fingerprint is the hash of a record's value and timestamp.
func fingerprint(value []byte, timestamp int64) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(timestamp))
	_, _ = h.Write(ms[:]) // a maphash never fails to write
	_, _ = h.Write(value)
	return h.Sum64()
}
