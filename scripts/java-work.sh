#!/usr/bin/env bash
# What the Java program makes of the lab, graded by `lab verify`: first live, as a learner runs it, then as two applications that find all
# orders there. In a catch-up Java drops orders as late that were not: verify has to say which, and why.
#
#   scripts/java-work.sh    starts and wipes a Kafka of its own; the environment is that of scripts/kafka.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lane.sh"
export KAFKA_PORT=${KAFKA_PORT:-9092}
export KAFKA_HOME_DIR=${KAFKA_HOME_DIR:-$PWD/.kafka}
# The Java producer makes the outputs of the later applications.
export KAFKA_OVERRIDES="auto.create.topics.enable=true;num.partitions=3"
bootstrap=127.0.0.1:$KAFKA_PORT
peer=
on_end() {
  [ -z "$peer" ] || kill -9 "$peer" 2>/dev/null || true
  scripts/kafka.sh wipe
}

# start NAME PROPERTIES... starts an instance of the Java program.
start() {
  local name=$1
  shift
  scripts/peer.sh run "$name" "bootstrap.servers=$bootstrap" "state.dir=$work/state/$name" peer.leave=true "$@" \
    >"$work/$name.out" 2>"$work/$name.err" </dev/null &
  peer=$!
}

stop() {
  kill "$peer"
  wait "$peer" || [ $? -eq 143 ] || die "the Java program did not end by itself"
  peer=
}

# counted GROUP waits until it has committed all orders and all of the repartition topic.
counted() {
  local end=$((SECONDS + 180))
  until run groups "$1" 2>/dev/null | awk '/orders.(placed|status)|repartition/ && $6 != "-" { rows++; lag += $6 }
      END { exit !(rows >= 5 && lag == 0) }'; do
    kill -0 "$peer" 2>/dev/null || die "the Java program has ended: $(tail -n 5 "$work"/*.err)"
    [ "$SECONDS" -lt "$end" ] || die "$1 has not counted all: $(run groups "$1")"
    sleep 0.2
  done
}

order() {
  run send --order "$1" store-17 5000 "$2" >/dev/null
  counted order-counter
}

status() {
  run send orders.status ord-1042 "$1" >/dev/null
  counted order-counter
}

# judged PHASE grades all phases that were run, which go as far as that one, and wants them to pass.
judged() {
  run verify >"$work/verdict" || { cat "$work/verdict" >&2; die "verify of what Java wrote: $(tail -n 1 "$work/verdict")"; }
  grep -q "^PASS .*phase $1" "$work/verdict" || { cat "$work/verdict" >&2; die "phase $1 has not passed"; }
  tail -n 1 "$work/verdict"
}

go build -o "$lab" .
mkdir "$dir" "$work/state"
scripts/peer.sh build
scripts/kafka.sh wipe
scripts/kafka.sh up
run topics --create >/dev/null

start live
run feed 2026-09-12T10:00:00Z
counted order-counter
order ord-2001 2026-09-12T10:01:05Z
order ord-2002 2026-09-12T10:00:30Z
order ord-2003 2026-09-12T10:03:00Z
order ord-2004 2026-09-12T10:00:45Z
status PAID
order ord-1042 2026-09-12T10:03:30Z
status SHIPPED
order ord-1042 2026-09-12T10:03:40Z
order ord-2005 2026-09-12T10:03:50Z
judged 4
grep -q 'ord-2004 of 2026-09-12T10:00:45Z .*; sent after it: 1$' "$work/verdict" || die "verify does not say why ord-2004 came too late: $(cat "$work/verdict")"
run feed 2026-09-12T11:00:00Z
counted order-counter
order ord-2006 2026-09-12T11:05:00Z
judged 5
stop

for guarantee in exactly_once_v2 at_least_once; do
  name=eos
  [ "$guarantee" = exactly_once_v2 ] || name=alos
  # No order is joined there, so nothing would make this one.
  scripts/kafka.sh tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$bootstrap" --create --partitions 3 \
    --topic "analytics.orders-with-status.$name"
  start "$name" "application.id=order-counter-$name" "lab.output.suffix=.$name" "processing.guarantee=$guarantee"
  counted "order-counter-$name"
  stop
done
judged 6
for name in eos alos; do
  dropped=$(grep -c 'Skipping record for expired window' "$work/$name.err" || true)
  echo "$name: Java dropped $dropped orders as late"
  [ "$dropped" -eq 0 ] || grep -q "$dropped of 548 orders came too late for their minute" "$work/verdict" ||
    die "verify does not say that $dropped orders were dropped: $(cat "$work/verdict")"
done
if [ "$dropped" -gt 0 ]; then
  grep -m 1 "its task went ahead of those that read them" "$work/verdict" || die "verify does not say why: $(cat "$work/verdict")"
fi
echo "java-work: ok"
