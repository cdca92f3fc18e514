package streams

import (
	"encoding/binary"
	"fmt"
)

// Serde turns values of one type into the bytes of a key or value and back. A null is not its business: see Record.
type Serde[T any] struct {
	// Append appends v's bytes to dst and returns the extended slice. It runs for every record that is
	// written, so it should not allocate beyond growing dst. It keeps neither dst nor v.
	Append func(dst []byte, v T) ([]byte, error)
	// Decode reads b, which is only valid during the call: what the value keeps of it must be copied.
	Decode func(b []byte) (T, error)

	// partitionBy is the part of a key's bytes that chooses its partition; nil: all of them.
	partitionBy func(key []byte) []byte
}

func (s Serde[T]) known() bool { return s.Append != nil && s.Decode != nil }

// Text is Java's StringSerde: UTF-8. As there, bytes are not checked.
func Text() Serde[string] {
	return Serde[string]{
		Append: func(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil },
		Decode: func(b []byte) (string, error) { return string(b), nil },
	}
}

// Int64 is Java's LongSerde: eight bytes, big endian. Counts are kept in it.
func Int64() Serde[int64] {
	return Serde[int64]{
		Append: func(dst []byte, v int64) ([]byte, error) { return binary.BigEndian.AppendUint64(dst, uint64(v)), nil },
		Decode: func(b []byte) (int64, error) {
			if len(b) != 8 {
				return 0, fmt.Errorf("an int64 has 8 bytes, not %d", len(b))
			}
			return int64(binary.BigEndian.Uint64(b)), nil
		},
	}
}

// Bytes is Java's ByteArraySerde: the bytes themselves.
func Bytes() Serde[[]byte] {
	return Serde[[]byte]{
		Append: func(dst []byte, v []byte) ([]byte, error) { return append(dst, v...), nil },
		Decode: func(b []byte) ([]byte, error) { return append(make([]byte, 0, len(b)), b...), nil },
	}
}
