# SPDX-License-Identifier: Apache-2.0
"""Opens weights without their run, to evaluate them on a text.

    path of weights, settings of another run  ->  open         ->  TrainedRun without records
    that and the texts                        ->  drawing_by   ->  the same, with their frequencies

So the weights of other programs, and exports, are held against a run on the same text. Rows and
masks are those of the other run; networks, vocabulary and what is measured follow from the weights.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.configs import base
from electra_jax.core import trees
from electra_jax.data import evaluation_text
from electra_jax.host import cluster, compile_cache
from electra_jax.step import plans
from electra_jax.training import trained_run
from electra_jax.weights import outline, reading, trained_weights
from electra_jax.workdir import metadata

_OF_THE_RECIPE = ("data", "objective", "evaluation", "mesh")  # sections
_TOKENS = 32_768  # in a batch, where no run says how many


def recipe_of(config: config_lib.Config, workdir: str) -> config_lib.Config:
    """The settings of a run, with the rows of the stage that its newest checkpoint is in.

    Without a checkpoint they are those of its first stage.
    """
    _, about = next(metadata.readable(metadata.directory(workdir)), (0, {}))
    return _in_stage(config, about.get("stage", 0))


def open(
    path: str | os.PathLike, recipe: config_lib.Config | None = None
) -> trained_run.TrainedRun:
    """Opens weights of any kind that `reading.open` knows; their text need not be there.

    Args:
      path: where they are.
      recipe: a run whose rows, masks and batches are taken; without it those of the weights' own
        run or, if that is not known, of configs/base.py.

    Raises ConfigError or CheckpointError, one line, if there are none, if no head of theirs says
    anything of tokens, or if they cannot take such rows.
    """
    cluster.check_chips_are_free()
    compile_cache.keep()
    found = reading.open(path)
    config = _config(found, recipe)
    plan = _plan(config, found.vocabulary)
    return trained_run.TrainedRun(
        config=config,
        stage=plan.stages[0],
        records=None,
        vocabulary=found.vocabulary,
        plan=plan,
        params=_placed(found, config, plan),
        step=found.step,
        longest_row=found.limit,
    )


def drawing_by(
    run: trained_run.TrainedRun, texts: Sequence[evaluation_text.Text]
) -> trained_run.TrainedRun:
    """The same weights, where what is drawn by frequency is drawn by the frequencies of the texts.

    Those of the text that they were trained on are not known.
    """
    counts_V = sum(text.counts_V for text in texts)
    plan = _plan(run.config, run.vocabulary, {run.stage.sequence_length: counts_V})
    return dataclasses.replace(run, plan=plan, drawn_by_V=counts_V)


def _plan(config, vocabulary, unigrams=None):
    return plans.make_plan(config, vocabulary, unigrams, plans.make_mesh(config, evaluates=True))


def _config(found, recipe):
    """The settings under which the weights are evaluated."""
    longest = found.trained_tokens or found.limit
    tree = config_lib.to_tree(config_lib.parse(base.get_config()))
    if recipe is None and found.config is not None:
        taken = [number for number, rows in enumerate(found.stage_rows) if rows]
        recipe = _in_stage(found.config, max(taken, default=0))
    if recipe is not None:
        tree |= {name: config_lib.to_tree(recipe)[name] for name in _OF_THE_RECIPE}
        tree["seed"] = recipe.seed
    else:
        length = min(longest, tree["data"]["sequence_length"])
        tree["data"] |= {
            "sequence_length": length,
            "batch_size": max(8, _TOKENS // length // 8 * 8),
        }

    length = tree["data"]["sequence_length"]
    if length > found.limit:
        raise config_lib.ConfigError(
            f"{found.source} takes rows of {found.limit} tokens at most, and"
            f" data.sequence_length={length}; set --config.data.sequence_length={found.limit}"
            + (" and --config.schedule.stages='()'" if recipe and recipe.schedule.stages else "")
        )
    tree["name"] = trained_weights.name_of(found.source)
    tree["model"] |= outline.settings(found.networks, max(longest, length))
    tree["objective"]["name"] = _objective(found)
    # The rules of settings with each other are of training, and all of this is trained already.
    return config_lib.typed(config_lib.Config, tree, "configs/base.py")


def _in_stage(config, number):
    """The settings with the rows of one stage as those of the section `data`."""
    of_config = stages.of(config)
    stage = of_config[min(number, len(of_config) - 1)]
    rows = {"sequence_length": stage.sequence_length, "batch_size": stage.batch_size}
    return dataclasses.replace(config, data=dataclasses.replace(config.data, **rows))


def _objective(found) -> str:
    """The objective whose metrics these weights have."""
    if found.config is not None and not found.only:
        name = found.config.objective.name
        # The same networks and metrics; a frozen generator would have to be named.
        return "replaced_token_detection" if name == "frozen_generator" else name

    main, generator = found.role("discriminator"), found.role("generator")
    if main == "predicts":
        return "masked_lm"
    if main == "judges":
        return "replaced_token_detection" if generator == "predicts" else "unigram_generator"
    raise config_lib.ConfigError(
        f"{found.source} has an encoder without a head, so nothing is known of what it says of"
        " tokens; give weights of pre-training"
    )


def _placed(found, config, plan) -> dict[str, Any]:
    """The weights that the objective reads, on the devices of the plan. Raises ConfigError."""
    wanted = trees.flat(jax.eval_shape(plan.objective.init, plan.key))
    there = trees.flat(found.params)
    for name, x in wanted.items():
        if name not in there or there[name].shape != x.shape:
            raise config_lib.ConfigError(
                f"{found.source} lacks {name}, which objective.name={config.objective.name!r} has;"
                " give all networks of its run"
            )
    chosen = trees.nested({name: there[name] for name in wanted})
    return jax.device_put(chosen, plan.state_shardings.params)
