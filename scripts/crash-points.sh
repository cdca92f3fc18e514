#!/usr/bin/env bash
# Crashes at every point of a commit, under both guarantees, again and again: `lab phase 6 --crash-point all` in a workspace of its own, until
# it has passed RUNS times or has not passed once.
#
#   RUNS=20 scripts/crash-points.sh                     on an embedded broker
#   RUNS=20 scripts/crash-points.sh --bootstrap LIST    on a cluster that runs already and holds no lab topics; clean deletes those it made
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bootstrap=
if [ "${1:-}" = --bootstrap ]; then
  bootstrap=${2:?--bootstrap needs host:port}
elif [ $# -gt 0 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$0"
  exit 64
fi
# Settings of the caller's own lab must not leak into this one.
while read -r name; do unset "$name"; done < <(compgen -e LAB_ || true)

work=$(mktemp -d)
lab=$work/lab
out=$work/out
go build -o "$lab" .
run() { "$lab" --dir "$work/workspace" ${bootstrap:+--bootstrap "$bootstrap"} "$@"; }

finish() {
  local code=$?
  trap - EXIT
  if [ "$code" -eq 0 ]; then
    run clean --yes >"$work/clean.out" 2>&1 || code=1
  fi
  if [ "$code" -eq 0 ]; then
    rm -rf "$work"
  else
    echo "crash-points: failed with $code, what is left is in $work" >&2
  fi
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$work/workspace"
for ((i = 1; i <= ${RUNS:-20}; i++)); do
  if ! run phase 6 --crash-point all --yes >"$out" 2>&1; then
    tail -n 40 "$out"
    exit 1
  fi
  echo "run $i: $(tail -n 1 "$out")"
  # The table, without what each of its cells is made of.
  sed -n '/^# crash points$/,/^$/{/^[a-z]*-/p;}' "$work/workspace/observations/phase-6.txt"
done
