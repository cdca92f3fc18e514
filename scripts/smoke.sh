#!/usr/bin/env bash
# The real binary through the whole lab in an empty workspace: every phase, the verdict, a look at everything, a second run, clean, and
# proof that nothing is left.
#
#   scripts/smoke.sh                      on an embedded broker
#   scripts/smoke.sh --bootstrap LIST     on a cluster that runs already and holds no lab topics; clean deletes those it made
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lane.sh"
cluster_of "$@"
on_end() { [ ! -x "$lab" ] || run clean --yes >"$work/clean.out" 2>&1; }
mkdir "$dir"

# step NAME COMMAND... prints and keeps a command's output in $work/NAME.out.
step() {
  local name=$1
  shift
  echo "--- $*"
  "$@" </dev/null 2>&1 | tee "$work/$name.out"
}

expect() { # expect NAME REGEXP
  grep -Eq -- "$2" "$work/$1.out" || die "the output of step $1 has no line $2"
}

# A zombie has ended; that nobody has collected it yet is the affair of process 1.
alive() {
  case $(ps -o stat= -p "$1" 2>/dev/null) in
    '' | Z*) return 1 ;;
  esac
}

last_line() { # last_line NAME REGEXP
  tail -n 1 "$work/$1.out" | grep -Eq -- "$2" || die "the last line of step $1 is not $2"
}

go build -o "$lab" .

# The pipe is part of the test: it must close when the command ends, although the broker stays.
step phases run phase all --yes
last_line phases '^PASS '
[ "$(wc -l <"$dir/observations/phase-1.txt")" -eq 115 ] || die "phase-1.txt has not 115 lines"
[ "$(grep -c 'first record for' "$dir/observations/phase-1-log.txt")" -eq 6 ] || die "phase-1-log.txt has not six stores"

for row in 'T10:01:00Z	1' 'T10:00:00Z	51' 'T10:03:00Z	1'; do
  [ "$(grep -c "^store-17|2026-09-12$row\$" "$dir/observations/phase-3.txt")" -eq 1 ] || die "phase-3.txt has not one line $row"
done
[ "$(grep -c 'WARN Skipping record for expired window' "$dir/observations/phase-3.txt")" -eq 1 ] || die "phase-3.txt has not one warning"
grep -q '^store-17	54$' "$dir/observations/phase-3.txt" || die "phase-3.txt has no running count 54"
[ "$(wc -l <"$dir/observations/phase-4.txt")" -eq 2 ] || die "phase-4.txt has not 2 lines"
grep -q '^ord-1042	PAID|{' "$dir/observations/phase-4.txt" || die "phase-4.txt has no order joined with PAID"
grep -q '^ord-1042	SHIPPED|{' "$dir/observations/phase-4.txt" || die "phase-4.txt has no order joined with SHIPPED"
grep -q '^store-17	57$' "$dir/observations/phase-4-log.txt" || die "phase-4-log.txt has no running count 57"
[ "$(grep -cE '^# (assignments|committed progress|count 107|takeover|count 108|clean restart|state deleted)$' "$dir/observations/phase-5.txt")" -eq 7 ] ||
  die "phase-5.txt has not its seven sections"
for count in 107 108; do
  grep -q "^store-17	$count\$" "$dir/observations/phase-5.txt" || die "phase-5.txt has no running count $count"
done
grep -q '^beyond detection ' "$dir/observations/phase-5.txt" || die "phase-5.txt does not break the takeover down"
for restored in 'restored=0' 'from=0 to=[1-9]'; do
  grep -qE "^restore .* store=orders-per-store .*$restored" "$dir/observations/phase-5.txt" || die "phase-5.txt has no restore with $restored"
done

[ "$(grep -c '^halting before counting store-17 record 20$' "$dir/observations/phase-6-log.txt")" -eq 2 ] || die "phase-6-log.txt has not two halts"
awk -F'\t' '{last[$1]=$2} END {for (k in last) print k "\t" last[k]}' "$dir/observations/phase-6-eos.txt" | sort |
  cmp - "$dir/observations/phase-6-input.txt" || die "the final counts of phase-6-eos.txt are not those of the input"
grep -q '^store-17	108$' "$dir/observations/phase-6-input.txt" || die "phase-6-input.txt has no 108"
grep -q '^# what this shows$' "$dir/observations/phase-6.txt" || die "phase-6.txt says nothing"

step verify run verify
last_line verify '^PASS '
step verify-json run verify --json
grep -q '"verdict"' "$work/verify-json.out" || die "verify --json has no verdict"

step status run status
expect status '^late records +1$'
step topics run topics
for topic in orders.placed orders.status analytics.high-value-orders analytics.orders-per-store \
  analytics.orders-per-store-minute analytics.orders-with-status order-counter-orders-by-store-repartition \
  order-counter-orders-per-store-changelog order-counter-orders-per-store-minute-changelog order-counter-order-status-changelog; do
  expect topics "$topic"
done
step groups run groups
expect groups order-counter
step group run groups order-counter
expect group orders.placed
step transactions run transactions
expect transactions '^TransactionalId .*TransactionState'
expect transactions '^order-counter-eos-'
step history run transactions --history
expect history 'COMMIT .*order-counter-eos-orders-by-store-repartition-1'
step dump run dump analytics.orders-per-store --print-key --last
for store in 17 18 19 20 21 22; do expect dump "^store-$store	[0-9]+$"; done
step decode run dump order-counter-orders-per-store-minute-changelog --print-key --decode
expect decode store-17

step again run phase all --yes
last_line again '^PASS '

broker=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$dir/.lab/broker.json" 2>/dev/null || true)
[ -n "$bootstrap" ] || [ -n "$broker" ] || die "no broker record"
step clean run clean --yes
expect clean '^processes 0$'
expect clean '^state: no such directory$'
[ -z "$broker" ] || ! alive "$broker" || die "the broker, pid $broker, outlived clean"
[ ! -e "$dir/.lab" ] || die ".lab is left"
[ ! -e "$dir/state" ] || die "state is left"
[ -s "$dir/observations/phase-1.txt" ] || die "observations are gone"
step handed-in "$lab" verify --from "$dir" all
last_line handed-in '^PASS phases 1, 2, 3, 4, 5, 6: '
# Whatever was started from this build runs from this path.
! ps -ww -A -o args= | grep -F "$lab" | grep -vF grep || die "a process is left"

echo "smoke: ok"
