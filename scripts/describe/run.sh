#!/bin/sh
# Writes streams/testdata/describe/generated/*.txt again: topologies as scripts, each with what Kafka Streams says of it.
# Needs Java 17 and Maven. The output is the same on every machine: `git diff` shows what a newer Kafka prints differently.
#
#   run.sh                 all files
#   run.sh --script FILE   the description of one script (a list of operator lines), on stdout
set -eu
caller=$PWD
cd "$(dirname "$0")"
if [ "${1:-}" = --script ]; then
    case $2 in /*) file=$2 ;; *) file=$caller/$2 ;; esac
    exec mvn -B -q compile exec:java -Dexec.args="--script '$file'"
fi
out=../../streams/testdata/describe/generated
mkdir -p "$out"
exec mvn -B -q compile exec:java -Dexec.args="$out refused.txt"
