#!/usr/bin/env bash
# Three nodes of Apache Kafka, of which one dies under load: the node that leads a partition of the counts' repartition or changelog topic, the
# group's coordinator, the coordinator of an instance's transactions, in turn. Each is killed with -9 and missed until the group commits on all
# partitions again, then it comes back and catches up. `lab chaos` publishes, counts exactly once, and judges: nothing lost, nothing twice.
#
#   scripts/three-brokers.sh    starts and wipes nodes of its own. Needs Java 17 and, until the jars are there, Maven.
#
# Environment:
#   KILLS    kills of each role, default 5
#   RECORDS  orders, default 300000
#   RATE     orders a second. Left to itself it leaves 25 s for each kill and twice what the nodes took to start, which a slow machine needs
#   PORT     where the nodes want to be, default 9092 and the two after it; free ones if taken
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lane.sh"
kills=${KILLS:-5}
records=${RECORDS:-300000}
chaos=
run() { "$lab" --dir "$dir" "$@" </dev/null; }
up() { run --broker jvm --nodes 3 --port "${PORT:-9092}" broker up; }

on_end() {
  if [ -n "$chaos" ]; then
    kill "$chaos" 2>/dev/null || true
    wait "$chaos" || true
  fi
  if [ "$1" -eq 0 ]; then
    run clean --yes >/dev/null
  elif [ -x "$lab" ]; then
    run broker down --force
  fi
}

# There is nothing to wait for once chaos has ended.
hopeless() { kill -0 "$chaos" 2>/dev/null || die "chaos ended: $(tail -n 3 "$work/chaos.out")"; }

since() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", to - from }'; }

# The node that has a role at this moment, asked as any client asks.
leader() { # leader TOPIC PARTITION
  run topics "$1" | awk -F'\t' -v p="Partition: $2" '$3 == p { sub("Leader: ", "", $4); print $4 }'
}
group_coordinator() { run groups "$app" --state | sed -n 's/.*:[0-9]*  (\([0-9]*\)) .*/\1/p'; }
transaction_coordinator() { run transactions "$1" | awk 'NR == 2 { print $1 }'; }

# offsets prints partition, committed offset and end of each partition with orders.
offsets() {
  run groups "$app" 2>/dev/null | awk '/orders.placed|orders-by-store-repartition/ { print $2 "-" $3, $4, $5 }'
}
seen() { offsets >"$1" && [ -s "$1" ]; }
at_work() { # the group has committed something of each partition
  seen "$work/now" && awk '$2 == "-" { none++ } END { exit !(NR >= 5 && !none) }' "$work/now"
}
went_on() { # further on all partitions than in $work/then
  seen "$work/now" && awk 'NR == FNR { then[$1] = $2; next } { rows++; still += $2 > then[$1] ? 0 : 1 } END { exit !(rows >= 5 && !still) }' \
    "$work/then" "$work/now"
}
published() { awk '/orders.placed/ { n += $3 } END { print n }' "$1"; }

in_sync() { # each partition of each topic, on all three
  local all
  mapfile -t all < <(run topics 2>/dev/null)
  [ "${#all[@]}" -gt 0 ] || return 1
  run topics "${all[@]}" 2>/dev/null | awk -F'\t' '$3 ~ /^Partition: / { rows++; short += $6 ~ /^Isr: [0-9]+,[0-9]+,[0-9]+$/ ? 0 : 1 } END { exit !(rows && !short) }'
}
moved() { # moved NODE ROLE...: another node has the role
  local now
  now=$("${@:2}" 2>/dev/null) && [ -n "$now" ] && [ "$now" -ge 1 ] && [ "$now" -ne "$1" ]
}

# strike NAME ROLE... kills the node that has the role, brings it back once the group goes on without it, and says how long each took.
strike() {
  local name=$1 node pid from moved went_on
  shift
  node=$("$@")
  pid=$(run broker status | sed -n "s/^  node $node on .*, pid \([0-9]*\)$/\1/p")
  [ -n "$pid" ] || die "the $name is node '$node', which does not run"
  kill -9 "$pid"
  from=$EPOCHREALTIME
  while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
  within 90 "an answer about the group without node $node" seen "$work/then"
  within 90 "another $name than node $node" moved "$node" "$@"
  moved=$(since "$from")
  within 120 "commits on all partitions without node $node" went_on
  went_on=$(since "$from")
  [ "$(published "$work/now")" -lt "$records" ] || die "by then all orders were published, so this kill proves nothing: publish fewer a second with RATE"
  up >>"$work/up.out" 2>&1 || die "node $node does not come back: $(tail -n 3 "$work/up.out")"
  within 120 "node $node in sync" in_sync
  echo "$name: node $node killed by order $(published "$work/then"), another has the role after $moved, commits went on after $went_on," \
    "back and in sync after $(since "$from")"
}

go build -o "$lab" .
mkdir "$dir"
started=$SECONDS
up
rate=${RATE:-$((records / (kills * 3 * (25 + 2 * (SECONDS - started)))))}
echo "$records orders, $rate a second, $kills kills of each role"
"$lab" --dir "$dir" chaos --guarantee exactly_once_v2 --records "$records" --rate "$rate" --instances 3 --kills 0 \
  >"$work/chaos.out" 2>&1 </dev/null &
chaos=$!
named() { app=$(ls "$dir/.lab/chaos" 2>/dev/null) && [ -n "$app" ]; }
within 60 "the run's name" named
within 120 "commits on all partitions" at_work
within 60 "all topics in sync" in_sync
for ((i = 0; i < kills; i++)); do
  topic=$app-orders-by-store-repartition
  [ $((i % 2)) -eq 0 ] || topic=$app-orders-per-store-changelog
  strike "leader of $topic-$((i / 2 % 2))" leader "$topic" $((i / 2 % 2))
  strike "group coordinator" group_coordinator
  id=$(run transactions | awk -v of="$app-" 'index($1, of) == 1 { ids[$4 == "Ongoing"] = $1 } END { print 1 in ids ? ids[1] : ids[0] }')
  strike "coordinator of $id" transaction_coordinator "$id"
done
code=0
wait "$chaos" || code=$?
chaos=
cat "$work/chaos.out"
[ "$code" -eq 0 ] || die "chaos ended with $code"
tail -n 1 "$work/chaos.out" | grep -q '^PASS chaos .* lost 0, duplicated 0, unknown 0$' || die "chaos does not say that all orders were counted once"
echo "three-brokers: ok, $((3 * kills)) kills of nodes in $SECONDS s"
