# SPDX-License-Identifier: Apache-2.0
"""Flags, trials side by side, the table of outcomes; see the package's docstring."""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tests.torture  # noqa: E402 - the platform must be set before

from .disturbances import KINDS  # noqa: E402
from .runs import STEPS, Lost  # noqa: E402
from .trials import Trial, World, end, prepare, same  # noqa: E402


def main() -> int:
    """Parses, tortures, prints the table."""
    arguments = argparse.ArgumentParser(
        prog="python -m tests.torture", description=tests.torture.__doc__.partition("\n")[0]
    )
    arguments.add_argument("--minutes", type=float, default=20, help="no trial begins after these")
    arguments.add_argument("--trials", type=int, default=0, help="how many; 0: as time allows")
    arguments.add_argument("--seed", type=int, default=0, help="of all draws")
    arguments.add_argument("--kinds", default=",".join(KINDS), help="some of: %(default)s")
    arguments.add_argument("--only", type=int, default=None, help="the number of one trial")
    arguments.add_argument("--jobs", type=int, default=2, help="trials at a time")
    given = arguments.parse_args()
    kinds = given.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        arguments.error(f"unknown kinds {sorted(unknown)}; known: {', '.join(KINDS)}")

    folder = pathlib.Path(tempfile.mkdtemp(prefix="torture-"))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "programs"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    world = prepare(folder)
    print(f"undisturbed: {STEPS} steps in {world.seconds:.1f} s; seed {given.seed}", flush=True)

    numbers = [given.only] if given.only is not None else range(given.trials or 1_000_000)
    ends = time.monotonic() + 60 * given.minutes
    outcomes = collections.defaultdict(collections.Counter)
    disturbances = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:

        def one(number):
            if time.monotonic() > ends:
                return None
            return run_trial(world, given.seed, number, kind_of(kinds, given.seed, number))

        waiting = collections.deque()
        for number in numbers:
            if time.monotonic() > ends:
                break
            waiting.append(pool.submit(one, number))
            if len(waiting) >= given.jobs:
                _count(waiting.popleft().result(), outcomes, disturbances)
        for left in waiting:
            _count(left.result(), outcomes, disturbances)

    print(table(outcomes, disturbances))
    lost = sum(counts["lost"] for counts in outcomes.values())
    if not lost:
        shutil.rmtree(folder)
    return 1 if lost else 0


def run_trial(world: World, seed: int, number: int, kind: str) -> tuple[str, Trial, str]:
    """(outcome, trial, what was lost)."""
    folder = world.folder / f"trial{number}"
    folder.mkdir()
    shutil.copy(world.folder / "corpus.txt", folder)
    trial = Trial(number, kind, random.Random(f"{seed} {number}"), folder, world)
    try:
        KINDS[kind][0](trial)
        if trial.folder.exists() and trial.workdir.exists():
            end(trial)
            same(trial)
    except Lost as lost:
        return "lost", trial, str(lost)
    except Exception:  # a mistake in this program must not pass for a pass
        return "lost", trial, traceback.format_exc(limit=3)
    shutil.rmtree(trial.folder)
    return ("refused" if trial.refused else "same"), trial, ""


def kind_of(kinds: list[str], seed: int, number: int) -> str:
    """The first trials have one kind each, in order; then by their shares."""
    if number < len(kinds):
        return kinds[number]
    shares = [KINDS[kind][1] for kind in kinds]
    return random.Random(f"kind {seed} {number}").choices(kinds, shares)[0]


def table(outcomes: dict, disturbances: collections.Counter) -> str:
    """Markdown: a line per kind, and one for all."""
    heads = ("disturbed by", "trials", "disturbances", "same", "refused", "lost")
    rows = [
        (kind, sum(counts.values()), disturbances[kind], *(counts[name] for name in heads[3:]))
        for kind, counts in outcomes.items()
    ]
    rows.append(("all", *(sum(column) for column in list(zip(*rows))[1:])))
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _count(result, outcomes, disturbances):
    if result is None:
        return
    outcome, trial, why = result
    outcomes[trial.kind][outcome] += 1
    disturbances[trial.kind] += len(trial.done)
    print(f"{trial.number:4d} {trial.kind:14} {outcome:8} {'; '.join(trial.done)}", flush=True)
    if why:
        print(f"     LOST: {why}\n     kept in {trial.folder}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
