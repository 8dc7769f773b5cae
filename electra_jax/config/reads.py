# SPDX-License-Identifier: Apache-2.0
"""Which settings each objective reads, and which settings of a configuration change nothing."""

import functools

from electra_jax.config.fields import Config, Network, declared

_CHOOSING = ("mask_rate", "first_mask_rate", "mask_unit", "span_words")
_MASKING = (*_CHOOSING, "mask_token_rate", "random_token_rate")
_SAMPLING = ("temperature", "first_temperature", "temperature_decay", "disallow_correct")
_DETECTION = (*_MASKING, *_SAMPLING, "gen_weight", "disc_weight")
_PREDICTION = (*_MASKING, *_SAMPLING, "gen_weight", "mlm_weight")


def _reads(objective: tuple, *others: str) -> tuple[str, ...]:
    """Fields of the section `objective` and paths of others; both rates are read by all."""
    rates = "optimizer.gen_learning_rate", "optimizer.disc_learning_rate", "optimizer.clip"
    return *(f"objective.{field}" for field in objective), *others, *rates


_BOTH = ("model.generator", "model.sharing")  # where there is a generator
_HEAD = "model.discriminator_head"  # where something is judged

READS = {  # objective -> the settings about objectives that change what it does; docs/objectives.md
    "replaced_token_detection": _reads(_DETECTION, *_BOTH, _HEAD),
    "decoupled_detection": _reads(_DETECTION, *_BOTH, _HEAD),
    "masked_token_detection": _reads(_DETECTION, *_BOTH, _HEAD),
    "adversarial_generator": _reads(_DETECTION, *_BOTH, _HEAD),
    "frozen_generator": _reads((*_MASKING, *_SAMPLING, "disc_weight"), *_BOTH, _HEAD),
    "uniform_generator": _reads((*_CHOOSING, "disc_weight"), _HEAD),
    "unigram_generator": _reads((*_CHOOSING, "disc_weight"), _HEAD),
    "electric": _reads((*_CHOOSING, "gen_weight", "disc_weight"), *_BOTH, _HEAD),
    "masked_lm": _reads((*_MASKING, "mlm_weight")),
    "replace_mlm": _reads(_PREDICTION, *_BOTH),
    "all_tokens_mlm": _reads(_PREDICTION, *_BOTH),
}

ONLY_WITH = {  # path -> (what it needs, in words; whether a configuration has that)
    "objective.span_words": (
        "it needs objective.mask_unit='span'",
        lambda c: c.objective.mask_unit == "span",
    ),
    "objective.temperature_decay": (
        "it needs objective.first_temperature",
        lambda c: c.objective.first_temperature > 0,
    ),
    "optimizer.gen_learning_rate": (
        "nothing at this rate learns",
        lambda c: not (c.objective.name == "frozen_generator" and c.model.sharing == "gdes"),
    ),
    "optimizer.clip": (
        "no step clips gradients of both networks together",
        lambda c: c.optimizer.clip_norm > 0 and not _one_network_a_phase(c),
    ),
}

WITHOUT_GENERATOR = ("uniform_generator", "unigram_generator", "masked_lm")

_GENERATORS = (  # layers, width, heads, feed_forward of each size's generator
    (2, 128, 4, 512),
    (12, 64, 1, 256),
    (12, 256, 4, 1024),
    (24, 256, 4, 1024),
)


def unread(config: Config) -> list[str]:
    """What is set and changes nothing, a line each with the reason; defaults are not named.

    `READS` says which settings the objective reads, and `ONLY_WITH` what else these need.
    """
    lines, name = [], config.objective.name
    for path in dict.fromkeys(path for paths in READS.values() for path in paths):
        if path not in READS[name]:
            reason = f"{name} does not read it"
        elif not has_use(config, path):
            reason = ONLY_WITH[path][0]
        else:
            continue

        value = functools.reduce(getattr, path.split("."), config)
        if not _is_default(config, path, value):
            lines.append(f"{path}={value!r} changes nothing: {reason}")
    return lines


def has_use(config: Config, path: str) -> bool:
    """Whether all is there that a setting which the objective reads needs to change something."""
    return path not in ONLY_WITH or ONLY_WITH[path][1](config)


def _is_default(config, path, value):
    """Whether a configuration of the package has this value untouched."""
    if path == "model.generator":  # every size has its own; some give it the main network's shape
        sizes = [Network(*shape) for shape in _GENERATORS]
        return value in (*sizes, config.model.discriminator)
    return value in declared(Config)[path].metadata["untouched"]


def _one_network_a_phase(config):
    """Whether no backward pass has gradients of both networks: what is clipped is one of them."""
    two_phases = config.objective.name in ("decoupled_detection", "frozen_generator")
    return two_phases and config.model.sharing == "gdes"
