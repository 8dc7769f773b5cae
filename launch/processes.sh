#!/usr/bin/env bash
# Several processes on this machine over loopback: the multi-host path without a cluster.
#
#   PROCESSES=2 launch/processes.sh --config=configs/tiny.py --workdir=runs/two
#
# Ctrl-C and SIGTERM go on to all of them: they save at one step and end. Where one dies or fails,
# the others end by themselves. Ends with the exit code of the first of them, by number, that failed.
set -euo pipefail
processes=${PROCESSES:-2}
port=${PORT:-$((20000 + RANDOM % 20000))}

pids=()
trap 'kill -TERM "${pids[@]}" 2>/dev/null || true' INT TERM
for ((number = 0; number < processes; number++)); do
  python3 -m electra_jax.main --coordinator_address="127.0.0.1:$port" \
    --num_processes="$processes" --process_id="$number" "$@" &
  pids+=("$!")
done

code=0
for pid in "${pids[@]}"; do
  while kill -0 "$pid" 2>/dev/null; do
    wait "$pid" || true # a signal ends the waiting, not yet the process
  done
  ended=0
  wait "$pid" || ended=$?
  if ((code == 0)); then code=$ended; fi
done
exit "$code"
