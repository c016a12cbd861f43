# Books things by writing a file, and takes a booking back by removing it.
set -euo pipefail
asked=$(cat)
mkdir -p booked
case "$asked" in
  *Cancel*) rm "booked/$SKEIN_STEP" ;;
  *Charge*)
    echo "the card was refused" >&2
    exit 1
    ;;
  *) echo yes > "booked/$SKEIN_STEP" ;;
esac
