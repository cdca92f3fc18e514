package kafkatools

import (
	"context"
	"errors"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

// Send writes one record and returns when the broker has it. The topic must exist.
func Send(ctx context.Context, client *kafka.Client, m kafka.Message) (err error) {
	if _, err := partitionsOf(ctx, client, m.Topic); err != nil {
		return err
	}
	producer, err := client.NewProducer(ctx, kafka.ProducerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, producer.Close(ctx)) }()
	if err := producer.Send(ctx, m); err != nil {
		return err
	}
	return producer.Flush(ctx)
}
