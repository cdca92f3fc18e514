// Package kafka is the wire client: everything the project says to a broker goes through it.
//
// kafka-go's Transport is the only connection layer: dialling, TLS, SASL, pooling. Each request and response body is a kmsg struct that
// travels through the Transport's RawExchanger hook, so any API and any version can be spoken (exchange.go). On top of that stand
//
//   - call and retry (client.go), routing with a metadata and coordinator cache (route.go), and the one place that maps error codes to
//     actions (errors.go);
//   - record batches (batch.go), the fetcher (fetch.go) and the idempotent and transactional producer (produce.go, txn.go);
//   - the classic group member (group.go, group_beat.go, group_protocol.go) and the administrative calls (admin.go, topic_configs.go,
//     offsets.go, groups.go).
//
// Nothing here knows Kafka Streams.
package kafka
