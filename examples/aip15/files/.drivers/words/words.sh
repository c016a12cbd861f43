#!/usr/bin/env bash
# words.sh FOLDER
set -euo pipefail
words=$(($(wc -w < "$1/data")))
echo "$words words" > "$1/report"
echo "{\"words\": $words}"
