#!/usr/bin/env bash
# One real Apache Kafka broker (KRaft, broker and controller in one process) on the loopback interface, from its Maven jars.
#
#   scripts/kafka.sh up               start it and wait until it is ready; nothing happens if it runs already
#   scripts/kafka.sh down             stop it and wait until it is gone; its data stays
#   scripts/kafka.sh wipe             down, and delete its data
#   scripts/kafka.sh status           print where it answers; exit 1 if it does not run
#   scripts/kafka.sh jars             print the folder of the jars, once they are there
#   scripts/kafka.sh tool CLASS ...   run one of Kafka's tools, e.g. org.apache.kafka.tools.TopicCommand --list
#                                     (--bootstrap-server is the caller's to give)
#
# Environment:
#   KAFKA_PORT       client port, default 9092; the controller takes the next one
#   KAFKA_HOME_DIR   jars, settings, data, log and pid, default .kafka in the repository
#   KAFKA_OVERRIDES  more broker settings, name=value separated by ';', which win over the ones below
#   KAFKA_CLUSTER_ID id of a new cluster, default a random one
#   KAFKA_HEAP       heap of the broker, default 512m
#   KAFKA_TIMEOUT    seconds to wait for start and stop, default 90
#   JAVA             the java program, 17 or later, default java
#
# Needs Java 17 and, until the jars are there, Maven.
set -euo pipefail

self=${BASH_SOURCE[0]}
here=$(cd "$(dirname "$self")" && pwd)
pom=$here/../broker/kafka/pom.xml # the one that `lab --broker jvm` uses too
home=${KAFKA_HOME_DIR:-$here/../.kafka}
mkdir -p "$home"
home=$(cd "$home" && pwd)
port=${KAFKA_PORT:-9092}
timeout=${KAFKA_TIMEOUT:-90}
java=${JAVA:-java}
settings=$home/server.properties
log=$home/broker.log

die() {
  echo "kafka.sh: $*" >&2
  exit 1
}

# The pid in the file counts only while it is a Kafka that reads our settings: a pid is used again after a crash or a reboot.
running() {
  local pid
  pid=$(cat "$home/pid" 2>/dev/null) && [ -n "$pid" ] || return 1
  ps -ww -o args= -p "$pid" 2>/dev/null | grep -qF "kafka.Kafka $settings"
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

need() { command -v "$1" >/dev/null || die "$1 is needed and not installed"; }

need_java() {
  need "$java"
  local version
  version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
  [ "${version:-0}" -ge 17 ] || die "Java 17 or later is needed, found ${version:-none}"
}

# The jars are copied beside their place and moved there, so that an interrupted copy is never taken for a whole one.
fetch_jars() {
  cmp -s "$pom" "$home/libs/pom.xml" && return
  need mvn
  rm -rf "$home/libs" "$home/libs.part"
  mvn -q -B -f "$pom" dependency:copy-dependencies -DoutputDirectory="$home/libs.part"
  cp "$pom" "$home/libs.part/pom.xml"
  mv "$home/libs.part" "$home/libs"
}

# logging NAME LEVEL STREAM writes one log4j2 configuration.
logging() {
  cat >"$home/$1" <<EOF
status = error
rootLogger.level = $2
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = $3
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
EOF
}

jvm() { # jvm LOGGING ARGS...
  local logging=$1
  shift
  "$java" -cp "$home/libs/*" -Dlog4j2.configurationFile="$home/$logging" "$@"
}

prepare() {
  need_java
  fetch_jars
  logging broker-log4j2.properties INFO SYSTEM_OUT
  logging tool-log4j2.properties WARN SYSTEM_ERR
}

# A single node needs a replication factor of 1 for the internal topics, and what has event times of long ago must not be deleted as it comes,
# every five minutes, or before a test has read it; the rest is Kafka's default.
configure() {
  cat >"$settings" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$home/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.ms=-1
EOF
  [ -z "${KAFKA_OVERRIDES:-}" ] || tr ';' '\n' <<<"$KAFKA_OVERRIDES" >>"$settings"
  if [ ! -f "$home/data/meta.properties" ]; then
    local id
    id=${KAFKA_CLUSTER_ID:-$(jvm tool-log4j2.properties kafka.tools.StorageTool random-uuid)}
    jvm tool-log4j2.properties kafka.tools.StorageTool format --cluster-id "$id" --config "$settings" >/dev/null
  fi
}

up() {
  if running; then
    echo "kafka is up already, pid $(cat "$home/pid"), on $(address)"
    return
  fi
  prepare
  for p in "$port" $((port + 1)); do
    ! listening "$p" || die "port $p is taken"
  done
  configure
  : >"$log" # or the line that is waited for below is found in the log of the last broker, as long as this one's shell has not begun
  # A session of its own where there is setsid, so that Ctrl-C at the caller does not reach it; nothing inherited but the log.
  local detach=nohup
  ! command -v setsid >/dev/null || detach=setsid
  (
    cd "$home"
    exec "$detach" "$java" "-Xmx${KAFKA_HEAP:-512m}" -cp "$home/libs/*" \
      -Dlog4j2.configurationFile="$home/broker-log4j2.properties" kafka.Kafka "$settings" \
      >"$log" 2>&1 </dev/null 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
  ) &
  local child=$! waited
  echo "$child" >"$home/pid"
  for ((waited = 0; waited < timeout * 5; waited++)); do
    if grep -q 'Kafka Server started' "$log" 2>/dev/null; then
      echo "kafka is up, pid $child, on 127.0.0.1:$port"
      return
    fi
    kill -0 "$child" 2>/dev/null || failed "ended while starting"
    sleep 0.2
  done
  kill -KILL "$child" 2>/dev/null || true
  failed "was not ready after $timeout s"
}

failed() {
  rm -f "$home/pid"
  tail -n 30 "$log" >&2 || true
  die "the broker $*; the end of $log is above"
}

down() {
  if running; then
    local pid waited
    pid=$(cat "$home/pid")
    kill "$pid"
    for ((waited = 0; waited < timeout * 5; waited++)); do
      running || break
      sleep 0.2
    done
    ! running || die "the broker, pid $pid, still runs $timeout s after it was asked to end"
  fi
  rm -f "$home/pid"
}

address() { sed -n 's|^advertised.listeners=PLAINTEXT://||p' "$settings"; }

case ${1:-} in
  up) up ;;
  down) down ;;
  wipe)
    down
    rm -rf "$home/data"
    ;;
  status)
    running || die "not running"
    address
    ;;
  jars)
    fetch_jars >&2
    echo "$home/libs"
    ;;
  tool)
    [ $# -ge 2 ] || die "which tool?"
    prepare
    shift
    jvm tool-log4j2.properties "$@"
    ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$self"
    exit 64
    ;;
esac
