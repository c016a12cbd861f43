#!/usr/bin/env bash
# The warehouse: `shelves/NAME` holds how many there are, `reserved/` what is set aside, `sent/` what has left.
set -euo pipefail

# What to print when the answer is no; an error like this wins over the exit status.
refuse() {
  printf '{"ok": false, "error": {"code": "%s", "message": "%s"}}\n' "$1" "$2"
  exit 1
}

case "$1" in
  list)
    mkdir -p shelves
    names=""
    for file in shelves/*; do
      [ -e "$file" ] || continue
      names="$names${names:+, }\"${file##*/}\""
    done
    printf '{"things": [%s]}\n' "$names"
    ;;
  reserve)
    [ -e "shelves/$2" ] || exit 3
    left=$(($(cat "shelves/$2") - $3))
    [ "$left" -ge 0 ] || refuse stock.empty "there are not $3 of $2 any more"
    mkdir -p reserved
    echo "$left" > "shelves/$2"
    echo "$3" > "reserved/$2"
    printf '{"reservation": "%s", "count": %s}\n' "$2" "$3"
    ;;
  release)
    count=$(cat "reserved/$2")
    echo $(($(cat "shelves/$2") + count)) > "shelves/$2"
    rm "reserved/$2"
    printf '{"released": %s}\n' "$count"
    ;;
  weigh)
    # The scales are slow to come to rest: each look finds them a little calmer.
    looks=$(($(cat looks 2>/dev/null || echo 0) + 1))
    echo "$looks" > looks
    printf '{"grams": %s, "calm": %s}\n' $((900 + looks * 10)) "$([ "$looks" -ge 3 ] && echo true || echo false)"
    ;;
  send)
    [ "$2" != nowhere ] || refuse address.unknown "there is no such address"
    # The carrier is busy the first time it is asked.
    if [ ! -e asked ]; then
      touch asked
      exit 4
    fi
    mkdir -p sent
    echo "$2" > "sent/parcel"
    printf '{"parcel": "P-1", "to": "%s"}\n' "$2"
    ;;
esac
