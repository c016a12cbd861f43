#!/usr/bin/env bash
set -euo pipefail
mkdir -p office

case "$1" in
  account)
    echo "$2" > "office/account-$2"
    printf '{"account": "%s"}\n' "$2"
    ;;
  no-account)
    rm -f "office/account-$2"
    echo '{}'
    ;;
  group)
    touch "office/$3-$2"
    printf '{"group": "%s"}\n' "$3"
    ;;
  no-group)
    rm -f "office/$3-$2"
    echo '{}'
    ;;
  mail)
    echo "$3" > "office/mail-$2"
    printf '{"mail": "office/mail-%s"}\n' "$2"
    ;;
  order)
    if [ "$2" = none ]; then
      echo '{"ok": false, "error": {"code": "sold_out", "message": "there is no such laptop"}}'
      exit 1
    fi
    # The shop is busy the first time it is asked.
    if [ ! -e office/asked ]; then
      touch office/asked
      exit 4
    fi
    printf '{"order": "%s-1"}\n' "$2"
    ;;
  look)
    echo look >> "office/looks-$2"
    ready=$([ "$(wc -l < "office/looks-$2")" -ge 3 ] && echo true || echo false)
    printf '{"ready": %s}\n' "$ready"
    ;;
  badge)
    printf '{"badge": "B-%s"}\n' "$2"
    ;;
esac
