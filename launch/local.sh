#!/usr/bin/env bash
# A run on this machine, in one process or in several that share its GPUs.
#
#   launch/local.sh --config=configs/tiny.py --workdir=runs/tiny
#   launch/local.sh --processes=2 -- --config=configs/tiny.py --workdir=runs/two
#
# One process uses all GPUs or TPU chips of the machine, which is what a run wants. Several, over
# loopback, try what several machines do; they share the GPUs evenly.
#
# Options come before the flags of electra_jax.main, which may follow after `--`:
#   --processes=N      1
#   --gpus=N           that the processes share; those of CUDA_VISIBLE_DEVICES, or of the machine
#   --port=PORT        of the first process; one that is free
#   --dry-run          prints the commands and runs none
#
# Ctrl-C and SIGTERM go on to all processes: they save at one step and end. Where one dies or fails,
# the others end by themselves. Ends with the exit code of the first, by number, that failed.
set -euo pipefail

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

processes=1 gpus='' port='' dry_run=no
while (($#)); do
  case $1 in
  --processes=*) processes=${1#*=} ;;
  --gpus=*) gpus=${1#*=} ;;
  --port=*) port=${1#*=} ;;
  --dry-run) dry_run=yes ;;
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  --)
    shift
    break
    ;;
  *) break ;;
  esac
  shift
done
(($#)) || fail "give the flags of electra_jax.main, at least --config=... or --workdir=..."
[[ $processes =~ ^[1-9][0-9]*$ ]] || fail "--processes=$processes is not 1 or more"
[[ -z $gpus || $gpus =~ ^[0-9]+$ ]] || fail "--gpus=$gpus is no number"
[[ -z $port || ($port =~ ^[1-9][0-9]{0,4}$ && $port -le 65535) ]] ||
  fail "--port=$port is no number of 1 to 65535"

visible_gpus() {
  if [[ ${CUDA_VISIBLE_DEVICES+given} ]]; then
    local listed=()
    IFS=, read -r -a listed <<<"$CUDA_VISIBLE_DEVICES"
    echo "${#listed[@]}"
  elif command -v nvidia-smi >/dev/null; then
    nvidia-smi --list-gpus | wc -l
  else
    echo 0
  fi
}

# The numbers of the GPUs of process $1, with commas.
share_of() {
  local each=$((gpus / processes))
  seq -s, $(($1 * each)) $((($1 + 1) * each - 1))
}

# The system picks one; it is closed again before the run begins.
free_port() {
  python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}

if ((processes > 1)); then
  [[ $gpus ]] || gpus=$(visible_gpus)
  ((gpus % processes == 0)) || fail "$processes processes cannot share $gpus GPUs evenly"
  [[ $port ]] || port=$(free_port)
fi

# One command a process, in the shell's own words.
start() {
  local number=$1 words=()
  shift
  if ((processes > 1 && gpus)); then words=(env "JAX_LOCAL_DEVICE_IDS=$(share_of "$number")"); fi
  words+=(python3 -m electra_jax.main)
  if ((processes > 1)); then
    words+=(--coordinator_address="127.0.0.1:$port" --num_processes="$processes"
      --process_id="$number")
  fi
  words+=("$@")

  if [[ $dry_run == yes ]]; then
    printf '%q ' "${words[@]}"
    printf '\n'
  else
    exec "${words[@]}"
  fi
}

if [[ $dry_run == yes ]]; then
  for ((number = 0; number < processes; number++)); do start "$number" "$@"; done
  exit 0
fi

pids=()
trap 'kill -TERM "${pids[@]}" 2>/dev/null || true' INT TERM
for ((number = 0; number < processes; number++)); do
  start "$number" "$@" &
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
