#!/usr/bin/env bash
# Runs one command on every worker of a TPU VM or pod; they find each other by themselves.
#
#   NAME=my-pod ZONE=us-central2-b launch/tpu_pod.sh --config=configs/base.py --workdir=DIR
#
# DIR must be the same for all workers (a shared file system); the code must be checked out at
# CODE (default ~/electra_jax) and installed with its extra: pip install -e '.[tpu]'.
# A preempted worker gets SIGTERM: all save at one step, and the same command goes on.
set -euo pipefail

: "${NAME:?set NAME to the name of the TPU VM}" "${ZONE:?set ZONE to its zone}"
code=${CODE:-\~/electra_jax}
printf -v arguments ' %q' "$@"

exec gcloud compute tpus tpu-vm ssh "$NAME" --zone="$ZONE" --worker=all \
  --command="cd $code && python3 -m electra_jax.main$arguments"
