#!/usr/bin/env bash
# Pays: bank.sh TO AMOUNT. The token is in a file that is gone when this has ended.
set -euo pipefail
token=$(cat "$BANK_TOKEN_FILE")
echo "the bank knows the token $token" >&2
echo "$2 to $1" >> paid.txt
echo "{\"receipt\": \"$1-$2\"}"
