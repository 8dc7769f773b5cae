# SPDX-License-Identifier: Apache-2.0
"""The configuration as typed values, checked before anything is compiled or written.

`parse` turns a tree of settings into a `Config` and refuses what cannot be used. `fields.py`
declares every setting, `rules.py` says what two settings must be together, `reads.py` which
settings an objective reads, `stages.py` which rows a run has when.
"""

from collections.abc import Mapping
from typing import Any

from electra_jax.config import rules
from electra_jax.config.differences import RESUMABLE, differences
from electra_jax.config.fields import (
    OBJECTIVES,
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
from electra_jax.config.parsing import ConfigError, nearest, to_json, to_tree, typed
from electra_jax.config.reads import ONLY_WITH, READS, WITHOUT_GENERATOR, has_use, unread
from electra_jax.host import safe_files

__all__ = [
    "OBJECTIVES", "ONLY_WITH", "READS", "RESUMABLE", "WITHOUT_GENERATOR", "Checkpoint", "Config",
    "ConfigError", "Data", "Evaluation", "Init", "Logging", "Mesh", "Model", "Network",
    "Objective", "Optimizer", "Schedule", "between", "declared", "differences", "flatten",
    "has_use", "nearest", "one_of", "parse", "to_json", "to_tree", "typed", "unread",
]  # fmt: skip


def parse(tree: Mapping[str, Any]) -> Config:
    """Returns the configuration that a tree of settings describes.

    Raises ConfigError for the first thing that is wrong with it.
    """
    config = typed(Config, tree, "configs/base.py")
    safe_files.check_no_address(config.data.dir, "data.dir", ConfigError)
    rules.check(config)
    return config
