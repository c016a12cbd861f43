# Plays every agent. What it is asked to do comes on standard input, which step it does is in SKEIN_STEP.
set -euo pipefail
asked=$(cat)
step=${SKEIN_STEP##*/}

case "$asked" in
  *"Delete the invoices"*) rm -r invoices; exit ;;
  *"Take the entries back"*) rm ledger.txt; exit ;;
esac

case "$step" in
  collect)
    printf '%s\n' "mill 120" "bakery 80" > hours.txt
    echo "customers=2" > "$SKEIN_OUTPUT"
    ;;
  draft)
    mkdir -p invoices
    while read -r customer hours; do echo "$customer owes $hours euros" > "invoices/$customer.txt"; done < hours.txt
    ;;
  rates)
    # The bank does not answer the first time.
    test "$SKEIN_ATTEMPT" -ge 2
    ;;
  archive)
    echo "the archive is closed" >&2
    exit 1
    ;;
  enter) cat invoices/*.txt > ledger.txt ;;
  check)
    customers=$(sed -n 's/^ *"customers": \([0-9]*\).*/\1/p' "$SKEIN_INPUTS")
    echo "{\"text\": \"$customers invoices for $(sed -n 's/.*"month": "\(.*\)".*/\1/p' "$SKEIN_INPUTS")\"}" > "$SKEIN_OUTPUT"
    ;;
  send)
    if [ -e offline ]; then
      echo "there is no connection" >&2
      exit 1
    fi
    ls invoices
    ;;
esac
