#!/usr/bin/env bash
# The lab's application in Java, on Kafka Streams 4.3.1. Needs Java 17 and, until the jars are there, Maven.
#
#   scripts/peer.sh build                       compile it and fetch its jars, if that is not done
#   scripts/peer.sh run NAME [key=value ...]    run an instance until SIGTERM; the properties are those of `lab counter`
#   scripts/peer.sh --describe [key=value ...]  print its topology
#
# Environment: JAVA  the java program, 17 or later, default java
set -euo pipefail
peer=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/peer
target=$peer/target

# sources lists what the build depends on, with a digest of each.
sources() { find "$peer/pom.xml" "$peer/src" -type f -exec cksum {} +; }

build() {
  local now
  now=$(sources)
  [ "$now" != "$(cat "$target/built" 2>/dev/null)" ] || return 0
  rm -rf "$target"
  mvn -q -B -f "$peer/pom.xml" compile dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$target/libs" >&2
  echo "$now" >"$target/built"
}

run() { exec "${JAVA:-java}" -Xmx256m -cp "$target/classes:$target/libs/*" peer.Peer "$@"; }

case ${1:-} in
  build) build ;;
  run)
    [ $# -ge 2 ] || { echo "peer.sh: what is the instance's name?" >&2; exit 64; }
    shift
    build
    run "$@"
    ;;
  --describe)
    build
    run "$@"
    ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
    exit 64
    ;;
esac
