#!/usr/bin/env bash
# A real broker that dies under a running counter. Killed and started again: the counter goes on by itself, and all is counted. Gone for
# good: the counter ends by itself, in bounded time, and says what it tried.
#
#   scripts/outage.sh    starts and wipes a Kafka of its own; the environment is that of scripts/kafka.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lane.sh"
export KAFKA_PORT=${KAFKA_PORT:-9092}
export KAFKA_HOME_DIR=${KAFKA_HOME_DIR:-$PWD/.kafka}
bootstrap=127.0.0.1:$KAFKA_PORT
counter=
on_end() {
  [ -z "$counter" ] || kill -9 "$counter" 2>/dev/null || true
  scripts/kafka.sh wipe
}

no_lag() { # of the orders and the repartition topic: each row has a number for the lag, and it is 0
  run groups order-counter 2>/dev/null | awk '/orders.placed|repartition/ { rows++; lag += $6 == "0" ? 0 : 1 } END { exit !(rows == 5 && lag == 0) }'
}
ended() { ! kill -0 "$counter" 2>/dev/null; }
kill_broker() {
  local pid
  pid=$(cat "$KAFKA_HOME_DIR/pid")
  kill -9 "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}

go build -o "$lab" .
mkdir "$dir"
scripts/kafka.sh wipe
scripts/kafka.sh up
run topics --create >/dev/null
"$lab" --dir "$dir" --bootstrap "$bootstrap" counter a retry.timeout.ms=60000 session.timeout.ms=10000 \
  repartition.purge.interval.ms=86400000 >"$work/counter.out" 2>&1 </dev/null &
counter=$!
run feed 2026-09-12T10:00:00Z
within 60 "the first feed counted" no_lag

echo "the broker is killed, and back after 5 s"
kill_broker
sleep 5
scripts/kafka.sh up
run feed 2026-09-12T11:00:00Z
within 120 "the second feed counted after the broker's return" no_lag
! ended || die "the counter ended: $(tail -n 3 "$work/counter.out")"
run dump analytics.orders-per-store --print-key --last | tee "$work/counts"
for row in "17	100" "18	80" "19	100" "20	80" "21	100" "22	80"; do
  grep -q "^store-$row$" "$work/counts" || die "store-$row is missing"
done

echo "the broker is killed for good"
kill_broker
within 180 "the counter's end" ended
code=0
wait "$counter" || code=$?
counter=
tail -n 3 "$work/counter.out"
[ "$code" -eq 1 ] || die "the counter ended with $code, not 1"
grep -q 'gave up after' "$work/counter.out" || die "the counter does not say what it tried"
echo "outage: ok"
