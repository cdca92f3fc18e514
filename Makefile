# Short names for what .ci/run does in full. Needs Go; `kafka` also Java 17 and Maven.
.PHONY: build test race rebalances bench-restore lint smoke kafka ci

build:
	go build -o lab .

test:
	go test ./...

race:
	go test -race ./...

# The long forms of the rebalance tests: minutes each. With LAB_TEST_BOOTSTRAP=host:port they run on that cluster.
rebalances:
	LAB_TEST_LONG=1 go test ./topology -count=1 -v -timeout 60m \
		-run 'RollingRestarts|JoiningAndLeaving|RebalancesLeave|KilledInstancesOfThree|Takeover$$|RestartWithLocalState'

# How fast a million keys are restored, and in how much memory.
bench-restore:
	go test ./topology -run '^$$' -bench BenchmarkRestore -benchtime=1000000x

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
