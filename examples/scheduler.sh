#!/bin/sh
# A stand-in for your command: says every two seconds that it runs, and under which token.
trap 'echo "stopped"; exit 0' TERM INT
while :; do
  echo "term $TENURE_TERM, token $TENURE_TOKEN, on $(hostname)"
  sleep 2 &
  wait $!
done
