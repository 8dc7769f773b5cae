# SPDX-License-Identifier: Apache-2.0
"""The configuration as typed values, checked before anything is compiled or written.

`fields.py` declares every setting, `rules.py` checks settings against each other, `reads.py` says
which settings an objective reads, and `differences.py` which of them a continued run may change.
From outside, import this package for everything except three modules: `stages.py` divides a run
into stages, `row_split.py` says whether devices can share its rows, and `compiler_options.py` reads
XLA's options. A tree of settings, from `configs/*.py` through `parse` or from config.json and
checkpoints through `parse_saved`, comes out as a `Config` of frozen dataclasses.
"""

from collections.abc import Mapping
from typing import Any

from electra_jax.config import rules
from electra_jax.config.differences import RESUMABLE, differences
from electra_jax.config.fields import (
    BEST_BY,
    OBJECTIVES,
    SERVICES,
    Checkpoint,
    Config,
    Data,
    Evaluation,
    Init,
    Logging,
    Mesh,
    Model,
    Network,
    Objective,
    Optimizer,
    Schedule,
    between,
    declared,
    flatten,
    one_of,
)
from electra_jax.config.parsing import (
    ConfigError,
    completed,
    nearest,
    to_json,
    to_tree,
    typed,
)
from electra_jax.config.reads import (
    ONLY_WITH,
    READS,
    WITHOUT_GENERATOR,
    evaluated,
    has_use,
    shares_tables,
    unread,
)
from electra_jax.config.rules import check_services
from electra_jax.configs import base  # type: ignore[attr-defined] # mypy knows no __path__
from electra_jax.host import buckets, safe_files

__all__ = [
    "BEST_BY", "OBJECTIVES", "ONLY_WITH", "READS", "RESUMABLE", "SERVICES", "WITHOUT_GENERATOR",
    "Checkpoint", "Config", "ConfigError", "Data", "Evaluation", "Init", "Logging", "Mesh",
    "Model", "Network", "Objective", "Optimizer", "Schedule", "between", "check_services",
    "completed", "declared", "differences", "evaluated", "flatten", "has_use", "nearest", "one_of",
    "parse", "parse_saved", "shares_tables", "to_json", "to_tree", "typed", "unread",
]  # fmt: skip


def parse(tree: Mapping[str, Any]) -> Config:
    """Returns the configuration that a tree of settings describes.

    Raises ConfigError for the first setting that cannot be used.
    """
    config = typed(Config, tree, "configs/base.py")
    in_bucket = buckets.is_address(config.data.dir)
    check = buckets.check_address if in_bucket else safe_files.check_no_address
    check(config.data.dir, "data.dir", ConfigError)
    rules.check(config)
    return config


def parse_saved(tree: Mapping[str, Any]) -> Config:
    """Returns a configuration that was saved, perhaps by an earlier version of this package.

    A setting that the tree lacks came later, and has its value in configs/base.py, with which a run
    continues as it began. Raises ConfigError for the first setting that cannot be used.
    """
    return parse(completed(tree, base.get_config().to_dict()))
