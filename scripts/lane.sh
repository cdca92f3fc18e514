# What the scripts have in common that run the real binary; each sources it first. It gives them the repository's root as their folder, none of
# the caller's own settings of the lab, and a workspace that is kept if they fail:
#
#   $work    a new folder, with $lab, where the binary is to be built, and $dir, where the workspace is to be made, in it
#   die      ends the script with a message
#   within   waits for something
#
# A script defines on_end, which is told the exit code and ends what the script has started. If it fails, so does the script.
script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
while read -r name; do unset "$name"; done < <(compgen -e LAB_ || true)
work=$(mktemp -d)
lab=$work/lab
dir=$work/workspace

die() {
  echo "$(basename "$script" .sh): $*" >&2
  exit 1
}

finish() {
  local code=$?
  trap - EXIT
  on_end "$code" || [ "$code" -ne 0 ] || code=1
  if [ "$code" -eq 0 ]; then
    rm -rf "$work"
  else
    echo "$(basename "$script" .sh): failed with $code, what is left is in $work" >&2
  fi
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# within SECONDS WHAT COMMAND... tries until it succeeds. A script may define another hopeless, which ends it earlier.
within() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    hopeless
    [ "$SECONDS" -lt "$end" ] || die "not in time: $what"
    sleep 0.2
  done
}
hopeless() { :; }

# cluster_of ARGS... takes the arguments of a script that runs on an embedded broker or, with --bootstrap LIST, on a cluster. run is lab there.
cluster_of() {
  bootstrap=
  if [ "${1:-}" = --bootstrap ]; then
    bootstrap=${2:?--bootstrap needs host:port}
  elif [ $# -gt 0 ]; then
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$script"
    trap - EXIT
    rm -rf "$work"
    exit 64
  fi
}
run() { "$lab" --dir "$dir" ${bootstrap:+--bootstrap "$bootstrap"} "$@"; }
