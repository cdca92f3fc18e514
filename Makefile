# Short names for what .ci/run does in full. Needs Go; `kafka` also Java 17 and Maven.
.PHONY: build test race lint smoke kafka ci

build:
	go build -o lab .

test:
	go test ./...

race:
	go test -race ./...

# Installs the pinned golangci-lint into .ci/bin on first use, which takes minutes.
lint:
	go vet ./...
	.ci/lint

smoke:
	scripts/smoke.sh

# Starts a real Kafka on KAFKA_PORT (9092); scripts/kafka.sh down stops it.
kafka:
	scripts/kafka.sh up

ci:
	.ci/run
