# Short names for what .ci/run does in full. Needs Go; `kafka` also Java 17 and Maven.
.PHONY: build test race rebalances broker-trouble crash-points three-brokers bench-restore bench-standby chaos same-as-java mutants lint smoke kafka ci

build:
	go build -o lab .

test:
	go test ./...

race:
	go test -race ./...

# The long forms of the rebalance tests: minutes each. With LAB_TEST_BOOTSTRAP=host:port they run on that cluster.
rebalances:
	LAB_TEST_LONG=1 go test ./topology -count=1 -v -timeout 60m \
		-run 'RollingRestarts|JoiningAndLeaving|RebalancesLeave|KilledInstancesOfThree|KilledInstanceWithThreads|KilledInstanceRestores|Takeover$$|RestartWithLocalState'

# A real Kafka is killed, suspended, restarted and given a slow disk, for 30 s each, under both guarantees. Needs Java 17, Maven and strace.
broker-trouble:
	LAB_TEST_OWN_KAFKA=$(CURDIR)/.kafka/trouble LAB_TEST_LONG=1 go test ./topology -count=1 -v -timeout 30m -run BrokerTrouble

# Every crash point under both guarantees, RUNS times: a minute each. scripts/crash-points.sh --bootstrap host:port runs it on that cluster.
RUNS ?= 20
crash-points:
	RUNS=$(RUNS) scripts/crash-points.sh

# Three nodes of Kafka, each role's killed KILLS times while RECORDS orders are counted exactly once: ten minutes. Needs Java 17 and Maven.
KILLS ?= 5
RECORDS ?= 300000
three-brokers:
	KILLS=$(KILLS) RECORDS=$(RECORDS) scripts/three-brokers.sh

# How fast a million keys are restored, and in how much memory.
bench-restore:
	go test ./topology -run '^$$' -bench BenchmarkRestore -benchtime=1000000x

# How long it takes to take over a million keys from a killed owner, with a standby and without.
bench-standby:
	go test ./topology -run '^$$' -bench BenchmarkTakeover -benchtime=1000000x -v -timeout 30m

# Five seeds with 50 kills each, exactly once and at least once: three to four minutes a seed. BOOTSTRAP=host:port takes that cluster, else an
# embedded broker does. A run that does not pass is kept, and says where.
chaos: build
	for guarantee in exactly_once_v2 at_least_once; do \
		./lab chaos --dir .lab/make-chaos/$$guarantee $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP)) \
			--guarantee $$guarantee --records 300000 --instances 3 --kills 50 --repeat 5 || exit; \
	done

# Both programs on a Kafka of the target's own: the same records, and hand-overs in all forms. Needs Java 17 and Maven.
same-as-java: export KAFKA_HOME_DIR = $(CURDIR)/.kafka/peer
same-as-java: export KAFKA_PORT ?= 9392
same-as-java:
	scripts/kafka.sh wipe
	scripts/kafka.sh up
	LAB_TEST_PEER=1 LAB_TEST_LONG=1 LAB_TEST_BOOTSTRAP=127.0.0.1:$$KAFKA_PORT go test ./topology -count=1 -v -timeout 60m -run Java; \
		code=$$?; scripts/kafka.sh wipe; exit $$code

# Mistakes in the engine, and in what it leaves in topics: verify has to find each, at the right check and for the right reason. Five to ten minutes.
mutants:
	go test ./verify -count=1 -v -run Mutants
	LAB_TEST_MUTANTS=1 go test ./mutants -count=1 -v -timeout 30m

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
