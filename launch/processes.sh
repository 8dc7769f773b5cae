#!/usr/bin/env bash
# Several processes on this machine over loopback: the multi-host path without a cluster.
#
#   PROCESSES=2 launch/processes.sh --config=configs/tiny.py --workdir=runs/two
#
# Ends with the exit code of the first process that fails, after stopping the others.
set -euo pipefail
processes=${PROCESSES:-2}
port=${PORT:-$((20000 + RANDOM % 20000))}

for ((number = 0; number < processes; number++)); do
  python3 -m electra_jax.main --coordinator_address="127.0.0.1:$port" \
    --num_processes="$processes" --process_id="$number" "$@" &
done
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
for ((number = 0; number < processes; number++)); do
  wait -n
done
