#!/usr/bin/env bash
# The lab on --broker docker, with a real Docker daemon: the life of a container, all six phases, and an end that leaves nothing. It fails if it
# cannot run.
#
# Without a daemon it starts one of its own, with everything in a temporary folder, and installs Debian's docker.io for that if need be; both
# need root. Without the image it makes the stand-in for it, see scripts/docker-standin.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
lab=$work/lab
dir=$work/workspace
daemon=
bridge=

die() {
  echo "docker-lane.sh: $*" >&2
  exit 1
}

finish() {
  local code=$?
  trap - EXIT
  [ ! -x "$lab" ] || "$lab" --dir "$dir" clean --yes >/dev/null 2>&1 || code=1
  if [ -n "$daemon" ]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
    [ -z "$bridge" ] || ip link delete docker0 || code=1
  fi
  rm -rf "$work" || code=1
  [ "$code" -eq 0 ] || echo "docker-lane.sh: FAILED with $code after $SECONDS s" >&2
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

install_docker() {
  command -v apt-get >/dev/null || die "there is no dockerd, and no apt-get to install it with"
  echo "installing docker.io"
  # The package starts a daemon where there is an init that does so; this lane has its own.
  (apt-get update && apt-get install -y --no-install-recommends docker.io) >"$work/apt.log" 2>&1 ||
    { tail -n 20 "$work/apt.log" >&2; die "docker.io could not be installed"; }
}

# No rules of the firewall: a port of the loopback interface goes through the daemon's own proxy.
start_daemon() {
  command -v dockerd >/dev/null || install_docker
  ip link show docker0 >/dev/null 2>&1 || bridge=ours
  export DOCKER_HOST=unix://$work/docker.sock
  dockerd --host "$DOCKER_HOST" --data-root "$work/docker" --exec-root "$work/exec" --pidfile "$work/docker.pid" \
    --iptables=false --ip6tables=false --ip-forward=false >"$work/dockerd.log" 2>&1 &
  daemon=$!
  local waited
  for ((waited = 0; waited < 300; waited++)); do
    ! docker version >/dev/null 2>&1 || return 0
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.2
  done
  tail -n 20 "$work/dockerd.log" >&2
  die "dockerd does not answer; the end of its log is above"
}

on_docker() { "$lab" --dir "$dir" --broker docker "$@" </dev/null; }

cd "$here/.."
docker version >/dev/null 2>&1 || start_daemon
docker version --format 'docker {{.Server.Version}}'
"$here/docker-standin.sh"
LAB_TEST_DOCKER=1 go test -count=1 -run 'Container' ./broker
go build -o "$lab" .
on_docker phase all --yes
on_docker broker status
on_docker clean | tee "$work/clean"
grep -qx 'containers 0' "$work/clean" || die "clean does not say that no container is left"
left=$(docker ps --all --quiet --filter label=lab.workspace)
[ -z "$left" ] || die "containers are left: $left"
left=$(docker volume ls --quiet)
[ -z "$left" ] || [ -z "$daemon" ] || die "volumes are left: $left"
echo "docker-lane.sh: passed in $SECONDS s"
