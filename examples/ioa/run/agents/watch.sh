# Looks out at night. The first night is foggy.
set -euo pipefail
cat > /dev/null
if [ ! -e fog-has-lifted ]; then
  touch fog-has-lifted
  echo "nothing can be seen" >&2
  exit 1
fi
echo "ships=2" > "$SKEIN_OUTPUT"
