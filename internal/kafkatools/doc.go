// Package kafkatools is the four command-line tools that the lab text uses, without a JVM: the console consumer (consume.go, rows.go), the
// console producer (produce.go), kafka-topics (topics.go) and kafka-consumer-groups (groups.go); and, to look at exactly once,
// kafka-transactions (transactions.go). Layouts are those of Apache Kafka 4.3.1.
package kafkatools
