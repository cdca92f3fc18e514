package streams

import (
	"encoding/base64"
	"encoding/binary"
)

// noTime is Kafka Streams' "no timestamp yet" for partition and stream time.
const noTime int64 = -1

// Version 2 of the metadata of a committed offset (Kafka Streams 4.3.1, TopicPartitionMetadata): Base64 of a version byte and the
// partition time as big-endian int64, then processor metadata, which this engine leaves out. Version 1 is the same without a tail.
const offsetMetadataVersion = 2

func encodeOffsetMetadata(partitionTime int64) string {
	var b [9]byte
	b[0] = offsetMetadataVersion
	binary.BigEndian.PutUint64(b[1:], uint64(partitionTime))
	return base64.StdEncoding.EncodeToString(b[:])
}

// decodeOffsetMetadata returns the partition time; ok is false for metadata that some other program wrote.
func decodeOffsetMetadata(s string) (partitionTime int64, ok bool) {
	if s == "" {
		return noTime, true
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) < 9 || b[0] < 1 || b[0] > offsetMetadataVersion {
		return noTime, false
	}
	return int64(binary.BigEndian.Uint64(b[1:9])), true
}
