#!/usr/bin/env bash
#SBATCH --job-name=electra
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --signal=TERM@120
#SBATCH --requeue
# One process a node, all of its GPUs; jax finds the others through Slurm's variables.
#
#   sbatch launch/slurm.sh --config=configs/base.py --workdir=/shared/runs/base
#
# Two minutes before the time is up every process gets SIGTERM, saves and ends; the requeued job
# goes on from there.
set -euo pipefail
srun python3 -m electra_jax.main "$@"
