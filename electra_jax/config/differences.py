# SPDX-License-Identifier: Apache-2.0
"""Which settings may differ between a run and its continuation.

All others may not: they define what is trained, that is data, networks, objective and optimizer.
"""

from collections.abc import Sequence
from typing import Any

from electra_jax.config.fields import flatten

RESUMABLE = (  # fields that may differ, and whole sections, which end in a dot
    "name",
    "schedule.steps",
    "schedule.tokens",
    "schedule.minutes",
    "schedule.accumulation",
    "mesh.",
    "model.attention",
    "model.residual_norm",
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


def differences(
    old: Any, new: Any, resumable: Sequence[str] = RESUMABLE
) -> tuple[list[str], list[str]]:
    """(allowed changes, forbidden changes) between two configurations, each as a line of text.

    Args:
      old: a configuration, as `config.fields.Config`.
      new: another one of the same class.
      resumable: the fields of that class that may differ, and sections, as in `RESUMABLE`.
    """
    before, after = flatten(old), flatten(new)
    changed = [path for path in after if before[path] != after[path]]

    texts = {path: f"{path}: {before[path]!r} -> {after[path]!r}" for path in changed}
    allowed = [path for path in changed if path in resumable or _section(path) in resumable]
    return [texts[p] for p in allowed], [texts[p] for p in changed if p not in allowed]


def _section(path):
    return path[: path.rfind(".") + 1]
