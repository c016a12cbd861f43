# What an agent is: told what to do on standard input, given its inputs in a file, and it writes what it gives to another.
set -euo pipefail
prompt=$(cat)
mkdir -p told
echo "$prompt" > "told/$(echo "$SKEIN_STEP" | tr '/[]#' '____').txt"
input() { sed -n "s/^ *\"$1\": \"\\(.*\\)\",*\$/\\1/p" "$SKEIN_INPUTS"; }

case "${SKEIN_STEP##*/}" in
  measure)
    echo 'harbours=["east","north"]' > "$SKEIN_OUTPUT"
    echo 'depth=7' >> "$SKEIN_OUTPUT"
    ;;
  sound*)
    echo "reading=$(input harbour) is 4 fathoms deep" > "$SKEIN_OUTPUT"
    ;;
  dredge)
    echo "nobody calls for me" >&2
    exit 1
    ;;
  write)
    echo "text=a chart of the harbours" > "$SKEIN_OUTPUT"
    ;;
  flaky)
    if [ "$SKEIN_ATTEMPT" -lt 2 ]; then
      echo "the pen is dry" >&2
      exit 1
    fi
    echo "done=true" > "$SKEIN_OUTPUT"
    ;;
  slow)
    sleep 600
    ;;
  broken)
    echo '{"class": "transient", "code": "no_ink", "message": "there is no ink"}' > "$SKEIN_ERROR"
    exit 1
    ;;
  after)
    echo "ok=true" > "$SKEIN_OUTPUT"
    ;;
  check | publish)
    echo "report=all is well" > "$SKEIN_OUTPUT"
    ;;
esac
