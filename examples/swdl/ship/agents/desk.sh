# Plays every agent: it is told what to do on standard input, its inputs are in a file, and what it gives goes to another.
set -eu
prompt=$(cat)
echo "$prompt" >&2
has() { grep -q "\"feature\": \".*$1" "$SKEIN_INPUTS"; }
give() { echo "$1" > "$SKEIN_OUTPUT"; }

case "$prompt" in
  *"Answer with the summary alone"*)
    echo "Five points: tables, times, depths, units, a page."
    exit ;;
  *"You review a run that has ended"*)
    give '{"memories": [{"type": "gotcha", "text": "Depths are in fathoms.", "confidence": 0.8, "files": [], "stages": []}]}'
    exit ;;
esac

case "$SKEIN_STEP" in
  survey) give '{"findings": "There is a table of tides.", "risks": ["units"], "files": ["tides.csv"]}' ;;
  design)
    if has login; then login=true; else login=false; fi
    give "{\"page\": \"Show it.\", \"service\": \"Serve it.\", \"touches_login\": $login}" ;;
  page)
    mkdir -p site
    echo "<h1>Tides</h1>" > site/tides.html
    give '{"changed": ["site/tides.html"]}' ;;
  service)
    mkdir -p service
    echo "high water at six" > service/tides.txt
    give '{"changed": ["service/tides.txt"]}' ;;
  try)
    test -s site/tides.html && test -s service/tides.txt
    give '{"passed": true}' ;;
  audit) give '{"holes": ["the harbour master has no password"]}' ;;
  review)
    if has hasty; then verdict=changes; else verdict=approved; fi
    give "{\"verdict\": \"$verdict\", \"remarks\": []}" ;;
  release)
    echo "released to $RELEASE_CHANNEL" > RELEASED
    give '{"status": "released"}' ;;
esac
