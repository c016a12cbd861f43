# Bakes. What it is asked to do comes on standard input; which step it is, in SKEIN_STEP.
# A step of a workflow that was called has the path to it there, such as `bread/knead`.
set -euo pipefail
cat > "asked-${SKEIN_STEP##*/}.txt"
case "${SKEIN_STEP##*/}" in
  knead) echo '{"loaves": 4, "flour": "rye"}' > "$SKEIN_OUTPUT" ;;
  heat)
    # The oven does not catch the first time.
    [ "$SKEIN_ATTEMPT" -gt 1 ] || exit 1
    ;;
  garnish)
    echo "there are no seeds" >&2
    exit 1
    ;;
  bake) sed -n 's/^ *"loaves": \([0-9]*\).*/baked=\1/p' "$SKEIN_INPUTS" > "$SKEIN_OUTPUT" ;;
esac
