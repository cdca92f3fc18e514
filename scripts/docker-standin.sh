#!/usr/bin/env bash
# A stand-in for the published image apache/kafka:4.3.1, for machines that cannot pull it: the same Kafka from its Maven jars on this machine's
# Java, under the same name, started by the same command and configured by the same KAFKA_… variables, as far as the lab uses them.
# It is no copy of that image, and is labelled as what it is. An image of the name that is no stand-in is left alone.
#
#   scripts/docker-standin.sh         make it, unless it is there
#   scripts/docker-standin.sh remove  remove it
#
# Needs a Docker daemon, Java 17 or later, and what `scripts/kafka.sh jars` needs. Linux only.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
image=apache/kafka:4.3.1
label=lab.standin

die() {
  echo "docker-standin.sh: $*" >&2
  exit 1
}

present() { docker image inspect "$image" >/dev/null 2>&1; }

standin() { [ "$(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$image")" = true ]; }

# The libraries that programs are linked to, and the loader itself.
libraries() { ldd "$@" 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*' | sort -u; }

make() {
  local java jars root
  java=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
  jars=$("$here/kafka.sh" jars)
  root=$(mktemp -d)
  # shellcheck disable=SC2064 # this very folder
  trap "rm -rf '$root'" EXIT
  mkdir -p "$root"/{bin,etc/kafka/docker,opt/kafka,opt/java,tmp,var/lib/kafka/data}
  chmod 1777 "$root/tmp"
  # Sources are not needed, and on Debian their link leads nowhere without the package that has them.
  tar -C "$java" -ch --exclude=lib/src.zip --exclude=lib/ct.sym bin conf lib | tar -C "$root/opt/java" -x
  cp -L /bin/bash "$root/bin/bash"
  cp -r "$jars" "$root/opt/kafka/libs"
  # shellcheck disable=SC2046 # one word a path
  libraries /bin/bash "$java/bin/java" $(find "$java/lib" -name '*.so') | grep -v "^$java" | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
  cat >"$root/etc/kafka/docker/log4j2.properties" <<'LOGGING'
status = error
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
LOGGING
  # KAFKA_LOG_DIRS=x becomes log.dirs=x, as in the published image; so does the rest but for the options of the JVM.
  cat >"$root/etc/kafka/docker/run" <<'RUN'
#!/bin/bash
set -e
settings=/etc/kafka/docker/server.properties
for name in "${!KAFKA_@}"; do
  [ "$name" = KAFKA_HEAP_OPTS ] && continue
  setting=${name#KAFKA_}
  setting=${setting,,}
  printf '%s=%s\n' "${setting//_/.}" "${!name}"
done >$settings
kafka=(-cp '/opt/kafka/libs/*' -Dlog4j2.configurationFile=/etc/kafka/docker/log4j2.properties)
java "${kafka[@]}" kafka.tools.StorageTool format --ignore-formatted --cluster-id "$CLUSTER_ID" --config $settings
exec java $KAFKA_HEAP_OPTS "${kafka[@]}" kafka.Kafka $settings
RUN
  chmod 755 "$root/etc/kafka/docker/run"
  tar -C "$root" -c . | docker import --message "stand-in for $image" \
    --change "LABEL $label=true" --change 'ENV PATH=/opt/java/bin:/bin' --change 'EXPOSE 9092' \
    --change 'VOLUME ["/var/lib/kafka/data"]' --change 'CMD ["/etc/kafka/docker/run"]' - "$image" >/dev/null
}

docker version >/dev/null || die "no Docker daemon answers"
case ${1:-} in
  "")
    if ! present; then
      make
      echo "made a stand-in for $image from $(java -version 2>&1 | head -n 1)"
    elif standin; then
      echo "the stand-in for $image is there"
    else
      echo "$image is there, and no stand-in"
    fi
    ;;
  remove)
    present || exit 0
    standin || die "$image is no stand-in: left alone"
    docker rmi "$image" >/dev/null
    ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
    exit 64
    ;;
esac
