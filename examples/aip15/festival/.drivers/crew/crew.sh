#!/usr/bin/env bash
set -euo pipefail

case "$1" in
  set)
    mkdir -p tables
    touch "tables/$2"
    printf '{"table": "%s"}\n' "$2"
    ;;
  clear)
    rm -f "tables/$2"
    echo '{}'
    ;;
  listen)
    # Each time someone has turned a knob.
    level=$(($(cat sound 2>/dev/null || echo 0) + 1))
    echo "$level" > sound
    printf '{"level": %s}\n' "$level"
    ;;
esac
