package kafka

import (
	"context"
	"fmt"
	"testing"

	"github.com/windowed-order-counter/lab/broker/brokertest"
)

// The lab's records: a key of 8 bytes, a value of 140.
var (
	benchKey   = []byte("ord-1000")
	benchValue = make([]byte, 140)
)

const benchPartitions = 6

// BenchmarkProduce sends records to six partitions of one broker: the time and the allocations are those of one record.
func BenchmarkProduce(b *testing.B) {
	c := testClient(b, brokertest.Start(b))
	topic := testTopic(b, c, "bench", benchPartitions)
	p := testProducer(b, c, ProducerConfig{})
	ctx := context.Background()
	b.SetBytes(int64(len(benchKey) + len(benchValue)))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		m := Message{Topic: topic, Partition: int32(i % benchPartitions), Timestamp: handTime + int64(i), Key: benchKey, Value: benchValue}
		if err := p.Send(ctx, m); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFetch reads records from six partitions.
func BenchmarkFetch(b *testing.B) {
	c := testClient(b, brokertest.Start(b))
	topic := testTopic(b, c, "bench", benchPartitions)
	p := testProducer(b, c, ProducerConfig{})
	ctx := context.Background()
	const loaded = 300_000
	for i := range loaded {
		m := Message{Topic: topic, Partition: int32(i % benchPartitions), Timestamp: handTime, Key: benchKey, Value: benchValue}
		if err := p.Send(ctx, m); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(benchKey) + len(benchValue)))
	b.ReportAllocs()
	b.ResetTimer()
	for read := 0; read < b.N; {
		f := c.NewFetcher(FetcherConfig{})
		for i := range int32(benchPartitions) {
			f.Set(TopicPartition{topic, i}, 0)
		}
		for round := 0; round < loaded && read < b.N; {
			<-f.Ready()
			for _, r := range f.Poll() {
				round += len(r.Records)
				read += len(r.Records)
			}
		}
		f.Close()
	}
}

// BenchmarkTxn is the commit of one small transaction.
func BenchmarkTxn(b *testing.B) {
	for version := int16(1); version <= 2; version++ {
		b.Run(fmt.Sprintf("transaction.version=%d", version), func(b *testing.B) {
			c := flowClient(b, brokertest.Start(b), version)
			topic, group := testTopic(b, c, "bench", benchPartitions), testGroup(b, c)
			p := testProducer(b, c, ProducerConfig{TransactionalID: unique(b, "txn")})
			ctx := context.Background()
			b.ResetTimer()
			for i := range b.N {
				if err := p.Send(ctx, Message{Topic: topic, Value: benchValue}); err != nil {
					b.Fatal(err)
				}
				offsets := map[TopicPartition]Offset{{topic, 1}: {Offset: int64(i), LeaderEpoch: -1}}
				if err := p.Commit(ctx, offsets, GroupMeta{Group: group, Generation: -1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWalk(b *testing.B) {
	for codec := Uncompressed; codec <= Zstd; codec++ {
		b.Run(codec.String(), func(b *testing.B) {
			var records []Record
			for i := range 3000 {
				records = append(records, Record{Timestamp: handTime + int64(i), Key: benchKey, Value: benchValue})
			}
			raw := buildBatch(b, 0, codec, producerID{1, 0}, false, records)
			b.SetBytes(int64(len(benchKey) + len(benchValue)))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += len(records) {
				if got, _, err := (batchWalk{tp: testTP}).walk(nil, raw); err != nil || len(got) != len(records) {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}
