# Reads its inputs, fails once in a way that is worth another attempt, and writes its output.
set -euo pipefail
echo "step $SKEIN_STEP, iteration $SKEIN_ITERATION, attempt $SKEIN_ATTEMPT"

number() { sed -n "s/^ *\"$1\": \([0-9]*\).*/\1/p" "$SKEIN_INPUTS"; }

if [ "$SKEIN_ATTEMPT" -eq 1 ]; then
  echo '{"class": "transient", "code": "scales_busy", "message": "the scales are in use"}' > "$SKEIN_ERROR"
  exit 1
fi

echo "{\"grams\": $(($(number pieces) * $(number grams_each)))}" > "$SKEIN_OUTPUT"
