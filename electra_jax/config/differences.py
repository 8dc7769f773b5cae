# SPDX-License-Identifier: Apache-2.0
"""Which settings may differ between a run and its continuation.

All others may not: they define what is trained, that is data, networks, objective and optimizer.
"""

from electra_jax.config.fields import Config, flatten

RESUMABLE = (  # fields that may differ, and whole sections, which end in a dot
    "name",
    "schedule.steps",
    "schedule.tokens",
    "schedule.minutes",
    "mesh.",
    "model.attention",
    "model.dtype",
    "model.scan",
    "model.remat",
    "checkpoint.",
    "evaluation.",
    "logging.",
    "data.dir",
    "data.workers",
    "init.",
)


def differences(old: Config, new: Config) -> tuple[list[str], list[str]]:
    """(allowed changes, forbidden changes) between two configurations, each as a line of text."""
    before, after = flatten(old), flatten(new)
    changed = [path for path in after if before[path] != after[path]]

    texts = {path: f"{path}: {before[path]!r} -> {after[path]!r}" for path in changed}
    allowed = [path for path in changed if _resumable(path)]
    return [texts[p] for p in allowed], [texts[p] for p in changed if p not in allowed]


def _resumable(path):
    section = path[: path.rfind(".") + 1]
    return path in RESUMABLE or section in RESUMABLE
