#!/usr/bin/env bash
# Crashes at every point of a commit, under both guarantees, again and again: `lab phase 6 --crash-point all` in a workspace of its own, until
# it has passed RUNS times or has not passed once.
#
#   RUNS=20 scripts/crash-points.sh                     on an embedded broker
#   RUNS=20 scripts/crash-points.sh --bootstrap LIST    on a cluster that runs already and holds no lab topics; clean deletes those it made
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lane.sh"
cluster_of "$@"
on_end() { [ "$1" -ne 0 ] || run clean --yes >"$work/clean.out" 2>&1; }
out=$work/out
mkdir "$dir"
go build -o "$lab" .
for ((i = 1; i <= ${RUNS:-20}; i++)); do
  if ! run phase 6 --crash-point all --yes >"$out" 2>&1; then
    tail -n 40 "$out"
    exit 1
  fi
  echo "run $i: $(tail -n 1 "$out")"
  # The table, without what each of its cells is made of.
  sed -n '/^# crash points$/,/^$/{/^[a-z]*-/p;}' "$dir/observations/phase-6.txt"
done
