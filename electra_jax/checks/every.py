# SPDX-License-Identifier: Apache-2.0
"""All checks by number: which there are, and measuring those that are not kept yet."""

from collections.abc import Callable, Sequence

from electra_jax import config as config_lib
from electra_jax.checks import analytic, arms, micro_run, saved, trained
from electra_jax.checks import result as result_lib

NUMBERS = tuple(sorted({**analytic.CHECKS, **micro_run.CHECKS, **arms.CHECKS}))


def measure(
    config: config_lib.Config,
    workdir: str,
    asked: Sequence[int],
    seeds: int,
    say: Callable[[str], None] = lambda line: None,
) -> list[tuple[int, result_lib.Result]]:
    """(seed, result) of every check asked for, in the order of checks and seeds."""
    if config.objective.name != "replaced_token_detection":
        raise config_lib.ConfigError(
            f"objective.name={config.objective.name!r}: the checks are of"
            " replaced_token_detection, and set other objectives themselves"
        )
    memory, settings = saved.Kept(workdir), saved.settings_hash(config)
    found = []
    for number in asked:
        for seed in range(seeds):
            result = memory.get(number, seed, settings)
            if result is None:
                say(f"check {number}, seed {seed}")
                result = run(config, workdir, number, seed)
                memory.put(seed, settings, result)
            found.append((seed, result))
    return found


def run(config: config_lib.Config, workdir: str, number: int, seed: int) -> result_lib.Result:
    """One check of one seed, with the runs that it reads."""
    if number in analytic.CHECKS:
        return analytic.CHECKS[number](config, seed)
    runs = trained.Runs(config, seed, workdir)
    if number in micro_run.CHECKS:
        return micro_run.CHECKS[number](runs.micro())
    return arms.CHECKS[number](runs)


def numbers(asked: Sequence[str]) -> list[int]:
    """The numbers of --only, or all. Raises ConfigError."""
    for text in asked:
        if not text.strip().isdecimal() or int(text) not in NUMBERS:
            raise config_lib.ConfigError(
                f"--only={text!r} is not a check; there are {', '.join(map(str, NUMBERS))}"
            )
    return sorted({int(text) for text in asked}) or list(NUMBERS)
