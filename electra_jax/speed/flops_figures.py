# SPDX-License-Identifier: Apache-2.0
"""Parameters and floating-point operations as plain numbers, for tables and for other programs.

`published` gives those of the models that the ELECTRA paper reports, `of_config` those of a
configuration, and `mfu` says which share of a device's peak a measured speed reaches. Each number
is given in two conventions: "paper" (or "script", its authors' program) as in `paper_flops`, and
"honest" as in `model.accounting`: three forward passes of matrix products, look-ups free.
"""

import dataclasses

import jax

from electra_jax import config as config_lib
from electra_jax.config import stages
from electra_jax.model import accounting
from electra_jax.objectives import objective as objective_lib
from electra_jax.speed import paper_flops, synthetic
from electra_jax.step import plans
from electra_jax.training import budget

# Objectives whose main network predicts tokens instead of telling replaced ones from originals.
_PREDICTING = ("masked_lm", "replace_mlm", "all_tokens_mlm")


def published() -> list[dict]:
    """Returns the rows of the paper's tables: the paper's number, its script's, the honest one.

    A number is None if the paper does not give it, or if its script has only a constant.
    """
    rows = []
    for row in paper_flops.PUBLISHED:
        found = {
            "name": row.name,
            "script": row.script,
            "paper": row.paper,
            "equal": row.equal,
            "script_3x_sparse": None,
            "honest": None,
            "inference_script": None,
            "inference_honest": None,
            "inference_paper": row.paper_inference,
            "note": row.why,
        }
        if row.run is not None:
            per_token = paper_flops.inference(
                paper_flops.at_length(row.run, paper_flops.INFERENCE_LENGTH).encoder
            )
            found |= {
                "script_3x_sparse": paper_flops.train(row.run, passes=3, sparse=True),
                "honest": paper_flops.honest(row.run),
                "inference_script": paper_flops.INFERENCE_LENGTH * per_token.as_script(),
                "inference_honest": paper_flops.INFERENCE_LENGTH * per_token.products,
            }
        rows.append(found)

    return rows


def of_config(
    config: config_lib.Config,
    vocab_size: int,
    tokens_per_second: float | None = None,
    padding_rate: float = 0.0,
) -> dict:
    """Returns all that the table of a configuration shows, as plain numbers.

    Numbers per token or per row are those of the first stage; `train` sums up all stages.

    Args:
      config: a configuration.
      vocab_size: the size of its vocabulary.
      tokens_per_second: a measured speed of all devices together, padding not counted. Needed to
        know the steps if the budget is in minutes; `steps` and `train` are None otherwise.
      padding_rate: the share of padding in the rows.
    """
    run_stages = stages.of(config)
    plan = plans.make_plan(config, synthetic.MadeUpVocabulary(vocab_size))
    by_stage = [
        _of_rows(config, stage, plan.objectives[stage.sequence_length]) for stage in run_stages
    ]

    seconds = []
    if tokens_per_second is not None:
        places_per_second = tokens_per_second / (1 - padding_rate)
        seconds = [
            stage.batch_size * stage.sequence_length / places_per_second for stage in run_stages
        ]

    real = [1 - padding_rate] * len(run_stages)
    steps = stages.steps(config.schedule, run_stages, real, seconds)
    train = dict.fromkeys(("paper", "honest"))
    if steps:
        rows = [stage.batch_size * count for stage, count in zip(run_stages, steps)]
        train = {
            convention: sum(
                found["train_per_row"][convention] * count for found, count in zip(by_stage, rows)
            )
            for convention in train
        }

    found = by_stage[0] | {
        "budget": budget.describe(config.schedule),
        "steps": steps and sum(steps),
        "train": train,
    }
    if len(run_stages) > 1:
        found["stages"] = [
            {"sequence_length": stage.sequence_length, "batch_size": stage.batch_size}
            | {"steps": steps and steps[n], "train_per_row": by_stage[n]["train_per_row"]}
            for n, stage in enumerate(run_stages)
        ]

    return found


def _of_rows(
    config: config_lib.Config, stage: stages.Stage, objective: objective_lib.Objective
) -> dict:
    """Returns the numbers of one stage that do not depend on how many rows there are."""
    params = jax.eval_shape(objective.init, jax.random.key(0))
    vocab_size, length = objective.networks.vocab_size, stage.sequence_length
    counted = objective.flops(length)

    own_layer = objective.networks.discriminator_head == "own_layer"
    padded, slots = objective.networks.padded_vocab_size, objective.slots / length
    by_script = _parts(config, length, vocab_size, paper_flops.OUTPUT_SHARE, own_layer)
    parts = _parts(config, length, padded, slots, own_layer)
    honest = {part: operations.products for part, operations in parts.items()}

    # `model.accounting` knows whether a layer sees less than the whole row, `paper_flops` does not.
    # So the layers get what its count leaves after all other parts.
    for network, count in (
        ("discriminator", counted.discriminator),
        ("generator", counted.generator + counted.generator_head),
    ):
        if count:
            layers = f"{network} layers"
            around = sum(x for part, x in honest.items() if part.startswith(network))
            honest[layers] += count / length - around

    # In the paper a training step is two forward passes; a frozen generator needs one.
    script_row = 0.0
    for part, operations in by_script.items():
        frozen = part.startswith("generator") and counted.generator_passes == 1
        script_row += (1 if frozen else 2) * length * operations.as_script()

    # Inference is that of the main network with the discriminator's head, as in the paper. A layer
    # of that head stands in the place of the encoder's last one, or is left behind with the head.
    per_token = paper_flops.inference(
        _shape(config, config.model.discriminator, length, vocab_size)
    )
    plain = dataclasses.replace(objective.networks, discriminator_head="token")
    detection = accounting.detection(plain, length)
    return {
        "config": config.name,
        "objective": config.objective.name,
        "vocab_size": vocab_size,
        "sequence_length": length,
        "slots": objective.slots,
        "batch_size": stage.batch_size,
        "parameters": {part: accounting.parameters(tree) for part, tree in params.items()},
        "forward_per_token": {
            part: {"paper": by_script[part].as_script(), "honest": honest[part]} for part in honest
        },
        "train_per_row": {"paper": script_row, "honest": counted.train},
        "inference": {"paper": length * per_token.as_script(), "honest": detection.discriminator},
    }


def _parts(
    config: config_lib.Config, length: int, vocab_size: int, predicted: float, own_layer: bool
) -> dict[str, paper_flops.Operations]:
    """Returns the operations of one token in a forward pass of each part.

    Heads over the vocabulary are used at a share of the positions only, which is `predicted`.
    `own_layer` says whether the discriminator's head has a layer of its own.
    """
    name, model = config.objective.name, config.model
    main = _shape(config, model.discriminator, length, vocab_size)
    head = paper_flops.detection_head(main)
    if name in _PREDICTING:
        share = 1.0 if name == "all_tokens_mlm" else predicted
        head = share * paper_flops.masked_head(main)

    parts = {
        "discriminator embeddings": paper_flops.embeddings(main),
        "discriminator layers": paper_flops.layers(main),
        "discriminator head": head,
    }
    if own_layer:
        parts["discriminator own layer"] = paper_flops.layers(dataclasses.replace(main, layers=1))
    if name == "multi_word_selection":
        few = dataclasses.replace(main, vocab_size=config.objective.selection_size)
        parts["discriminator selection"] = predicted * paper_flops.masked_head(few)

    if name == "corrective_lm":
        parts["discriminator correction"] = predicted * paper_flops.masked_head(main)

    if name == "electric":
        # Two towers; the head reads the states of both, at every token.
        tower = _shape(config, model.generator, length, vocab_size)
        both = dataclasses.replace(tower, width=2 * tower.width)
        parts |= {
            "generator embeddings": 2 * paper_flops.embeddings(tower),
            "generator layers": 2 * paper_flops.layers(tower),
            "generator head": paper_flops.masked_head(both),
        }
    elif name not in config_lib.WITHOUT_GENERATOR:
        generator = _shape(config, model.generator, length, vocab_size)
        parts |= {
            "generator embeddings": paper_flops.embeddings(generator),
            "generator layers": paper_flops.layers(generator),
            "generator head": predicted * paper_flops.masked_head(generator),
        }

    return parts


def _shape(
    config: config_lib.Config, network: config_lib.Network, length: int, vocab_size: int
) -> paper_flops.NetworkSizes:
    """Returns the shape of a network in the form that the paper's script takes."""
    return paper_flops.NetworkSizes(
        network.width,
        network.layers,
        length,
        vocab_size,
        config.model.embedding_size,
        network.heads,
        network.feed_forward,
        3 if config.model.feed_forward_kind == "geglu" else 2,
    )


def mfu(
    found: dict, tokens_per_second: float, kind: str, devices: int, padding_rate: float = 0.0
) -> dict:
    """Returns the MFU: which share of the datasheet's peak a speed reaches, in honest operations.

    A row with padding costs as much as one without, so the rows per second follow from the speed
    and the share of padding. Also returns the seconds that the schedule takes at that speed.

    Args:
      found: what `of_config` returned.
      tokens_per_second: of all devices together, padding not counted.
      kind: the name of the device.
      devices: how many of them.
      padding_rate: the share of padding in the rows.

    Raises ConfigError if the peak of the device is not known.
    """
    peak = accounting.peak(kind)
    if peak is None:
        known = ", ".join(name for name, *_ in accounting.PEAKS)
        raise config_lib.ConfigError(
            f"no datasheet figure is known for device {kind!r}; --device= one of {known}"
        )

    places_per_second = tokens_per_second / (1 - padding_rate)
    rate = places_per_second * found["train_per_row"]["honest"] / found["sequence_length"]
    places = sum(
        stage["batch_size"] * stage["steps"] * stage["sequence_length"]
        for stage in found.get("stages", [found])
    )

    return {
        "tokens_per_second": tokens_per_second,
        "padding_rate": padding_rate,
        "device": kind,
        "devices": devices,
        "flops_per_second": rate,
        "mfu": rate / (peak * devices),
        "seconds": places / places_per_second,
    }
