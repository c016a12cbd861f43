# Plays the agents. What it is told comes on standard input, its inputs are in a file, and what it gives goes to another.
set -euo pipefail
cat > /dev/null
stage=${SKEIN_STEP##*/}
input() { sed -n "s/^ *\"$1\": \"\\(.*\\)\",*\$/\\1/p" "$SKEIN_INPUTS"; }

case "$stage" in
  find) echo '{"texts": ["Open", "Save", "Quit"], "count": 3}' > "$SKEIN_OUTPUT" ;;
  translate*) echo "{\"file\": \"$(input language).json\"}" > "$SKEIN_OUTPUT" ;;
  print) cat "$SKEIN_INPUTS" ;;
  read)
    # The first reading comes to nothing.
    test "$SKEIN_ATTEMPT" -ge 2
    echo "remarks=0" > "$SKEIN_OUTPUT"
    ;;
  spell)
    echo '{"class": "non_retryable", "code": "no_dictionary", "message": "there is no dictionary"}' > "$SKEIN_ERROR"
    exit 1
    ;;
  release) echo "released ${RELEASE_TO}" > released.txt ;;
esac
