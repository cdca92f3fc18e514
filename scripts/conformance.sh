#!/usr/bin/env bash
# What Kafka Streams 4.3.1 says, as the tests of streams/ have it in testdata/: how its TopologyTestDriver runs the programs of the
# conformance tests, how it describes topologies, and whether it agrees with the cases. Needs Java 17 and Maven.
#
#   scripts/conformance.sh check    generate all of it again, beside, and compare; exit 1 if a file differs
#   scripts/conformance.sh write    generate it into testdata/
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
data=streams/testdata
project=$PWD/scripts/conformance
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

build() {
  mvn -q -B -f "$project/pom.xml" compile dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$project/target/libs"
}

run() { java -Djava.io.tmpdir="$out/tmp" -cp "$project/target/classes:$project/target/libs/*" "$@"; }

# Without caches, the programs with a table or an aggregate differ; these are kept.
uncached=(aggregates chain filtered-tables hopping processor window-aggregates)

generate() {
  mkdir -p "$out/tmp" "$out/conformance" "$out/conformance-uncached" "$out/describe"
  run Conformance "$out/conformance"
  run Conformance "$out/conformance-uncached" 0 "${uncached[@]}"
  run Programs "$out/describe"
  run Graphs 60 7 >"$out/describe-graphs.txt"
}

case ${1:-} in
  check)
    build
    generate
    different=0
    for name in conformance conformance-uncached describe describe-graphs.txt; do
      diff -r -x generated "$data/$name" "$out/$name" || different=1
    done
    run Cases "$data/cases"
    [ "$different" -eq 0 ] || { echo "conformance.sh: < testdata, > Kafka Streams: they differ" >&2; exit 1; }
    count() { find "$@" -name '*.txt' | wc -l; }
    echo "$(count "$out"/conformance*) conformance files, $(count "$out/describe") descriptions: as Kafka Streams has them"
    ;;
  write)
    build
    generate
    for name in conformance conformance-uncached describe; do cp "$out/$name"/*.txt "$data/$name/"; done
    cp "$out/describe-graphs.txt" "$data/"
    ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
    exit 64
    ;;
esac
