# What the agents of the example do. The prompt comes on standard input; it names the action in its own words.
set -eu
prompt=$(cat)
case "$prompt" in
  *"Pack the painting"*) echo packed > crate.txt ;;
  *"Unpack the painting"*) rm -f crate.txt ;;
  *"Insure the journey"*) echo insured > insurance.txt ;;
  *"Cancel the insurance"*) rm -f insurance.txt ;;
  *"Hand the crate over"*)
    # The insurer's rule: a valuable piece leaves the house only when somebody has decided so. The attempt after that goes on.
    if [ -e valuable.txt ] && [ "$SKEIN_ATTEMPT" -lt 2 ]; then
      echo '{"class": "governance", "message": "a piece of this value may not leave without a decision"}' > "$SKEIN_ERROR"
      exit 1
    fi
    echo "handed over" > handover.txt
    ;;
  *) exit 3 ;;
esac
