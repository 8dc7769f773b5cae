# SPDX-License-Identifier: Apache-2.0
"""All checks by number, and how those without a stored result are run."""

import os
from collections.abc import Callable, Sequence

from electra_jax import config as config_lib
from electra_jax.checks import (
    corrupted_rows,
    extra_runs,
    finished_runs,
    first_losses,
    gradients,
    micro_run,
    resuming,
    stored_results,
    tiny_networks,
)
from electra_jax.checks import result as result_lib
from electra_jax.host import cluster, compile_cache
from electra_jax.workdir import metadata

UNTRAINED = {  # checks that need no trained run: (config, seed) -> Result
    **first_losses.CHECKS,
    **corrupted_rows.CHECKS,
    **gradients.CHECKS,
    **resuming.CHECKS,
}
NUMBERS = tuple(sorted({**UNTRAINED, **micro_run.CHECKS, **extra_runs.CHECKS}))


def measure(
    config: config_lib.Config,
    workdir: str,
    asked: Sequence[int],
    seeds: int,
    say: Callable[[str], None] = lambda line: None,
) -> list[tuple[int, result_lib.Result]]:
    """Returns (seed, result) for each check in `asked`, in the order of checks and seeds.

    Results that are stored in the workdir are not computed again. Raises ConfigError if the
    configuration has another objective than replaced_token_detection.
    """
    if config.objective.name != "replaced_token_detection":
        raise config_lib.ConfigError(
            f"objective.name={config.objective.name!r}: the checks are of"
            " replaced_token_detection, and set other objectives themselves"
        )

    cluster.check_chips_are_free()
    compile_cache.keep()
    stored, settings = stored_results.StoredResults(workdir), stored_results.settings_hash(config)
    found = []
    if any(number not in UNTRAINED for number in asked):
        say(_what_is_trained(config, workdir))
    for number in asked:
        for seed in range(seeds):
            result = stored.get(number, seed, settings)
            if result is None:
                say(f"check {number}, seed {seed}")
                result = run(config, workdir, number, seed)
                stored.put(seed, settings, result)  # at once, so that a crash loses one check
            found.append((seed, result))

    return found


def _what_is_trained(config, workdir):
    """What a user is told before checks that read trained runs."""
    own = os.path.join(workdir, "seed0")
    line = (
        f"checks read runs of their own, in {own} and its like, and train what is missing: the"
        f" first is {config.name} with {config.schedule.steps:,} steps"
    )
    if metadata.steps(metadata.directory(workdir)):
        line += f"; the run in {workdir} itself is not read"
    return line


def run(config: config_lib.Config, workdir: str, number: int, seed: int) -> result_lib.Result:
    """Runs one check with one seed, and trains the runs that it reads if they are missing."""
    if number in UNTRAINED:
        with tiny_networks.exact_products():
            return UNTRAINED[number](config, seed)

    runs = finished_runs.RunsOfSeed(config, seed, workdir)
    if number in micro_run.CHECKS:
        return micro_run.CHECKS[number](runs.micro())
    return extra_runs.CHECKS[number](runs)


def numbers(asked: Sequence[str]) -> list[int]:
    """Returns the checks named by --only, or all. Raises ConfigError for an unknown number."""
    for text in asked:
        if not text.strip().isdecimal() or int(text) not in NUMBERS:
            raise config_lib.ConfigError(
                f"--only={text!r} is not a check; there are {', '.join(map(str, NUMBERS))}"
            )
    return sorted({int(text) for text in asked}) or list(NUMBERS)
