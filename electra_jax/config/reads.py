# SPDX-License-Identifier: Apache-2.0
"""Which settings each objective reads, and which settings of a configuration have no effect.

    config -> `unread` -> warnings in the log when a run starts

A test compares `READS` with the traced programs of all objectives.
"""

import functools

from electra_jax.config.fields import Config, Network, declared

# Settings of the section `objective`, grouped by what they control.
_CHOOSING = ("mask_rate", "first_mask_rate", "mask_unit", "span_words")
_MASKING = (*_CHOOSING, "mask_token_rate", "random_token_rate")
_SAMPLING = ("temperature", "first_temperature", "temperature_decay", "disallow_correct")
_DETECTION = (*_MASKING, *_SAMPLING, "gen_weight", "disc_weight")
_SELECTION = ("selection_weight", "selection_size")
_PREDICTION = (*_MASKING, *_SAMPLING, "gen_weight", "mlm_weight")


def _reads(objective: tuple, *others: str) -> tuple[str, ...]:
    """The paths of these fields of the section `objective`, of `others`, and of what all read."""
    rates = ("disc_learning_rate", "disc_muon_learning_rate")
    of_all = (f"optimizer.{field}" for field in rates)
    return *(f"objective.{field}" for field in objective), *others, *of_all


_GENERATOR = ("model.generator", "model.sharing")  # read if there is a generator
# Read if it learns.
_BOTH = (*_GENERATOR, "optimizer.gen_learning_rate", "optimizer.clip")
_HEAD = "model.discriminator_head"  # read if there is a discriminator
_LAYERS = "model.shared_layers"  # read if both networks learn in one phase, each by its own loss

# objective -> the settings that it reads, of those that not all objectives read. The same table is
# in docs/objectives.md.
READS = {
    "replaced_token_detection": _reads(_DETECTION, *_BOTH, _HEAD, _LAYERS),
    "decoupled_detection": _reads(_DETECTION, *_BOTH, _HEAD),
    "masked_token_detection": _reads(_DETECTION, *_BOTH, _HEAD, _LAYERS),
    "multi_word_selection": _reads((*_DETECTION, *_SELECTION), *_BOTH, _HEAD, _LAYERS),
    "corrective_lm": _reads((*_DETECTION, "mlm_weight"), *_BOTH, _HEAD, _LAYERS),
    "adversarial_generator": _reads(_DETECTION, *_BOTH, _HEAD),
    "frozen_generator": _reads((*_MASKING, *_SAMPLING, "disc_weight"), *_GENERATOR, _HEAD),
    "uniform_generator": _reads((*_CHOOSING, "disc_weight"), _HEAD),
    "unigram_generator": _reads((*_CHOOSING, "disc_weight"), _HEAD),
    "electric": _reads((*_CHOOSING, "gen_weight", "disc_weight"), *_BOTH, _HEAD),
    "masked_lm": _reads((*_MASKING, "mlm_weight")),
    "replace_mlm": _reads(_PREDICTION, *_BOTH, _LAYERS),
    "all_tokens_mlm": _reads(_PREDICTION, *_BOTH, _LAYERS),
}

ONLY_WITH = {  # path -> (why it may have no effect, whether it has one in a configuration)
    "objective.span_words": (
        "it needs objective.mask_unit='span'",
        lambda c: c.objective.mask_unit == "span",
    ),
    "data.duplicate_similarity": (
        "it needs data.deduplicate=True",
        lambda c: c.data.deduplicate,
    ),
    "objective.temperature_decay": (
        "it needs objective.first_temperature",
        lambda c: c.objective.first_temperature > 0,
    ),
    "optimizer.disc_muon_learning_rate": (
        "no matrix of layers that Muon updates is the discriminator's alone",
        lambda c: c.optimizer.name == "muon" and _has_own_layers(c),
    ),
    "optimizer.clip": (
        "no step clips gradients of both networks together",
        lambda c: c.optimizer.clip_norm > 0 and not _one_network_a_phase(c),
    ),
    # All objectives read these.
    "data.mixture_alpha": (
        "it needs several sources in data.source",
        lambda c: ";" in c.data.source.strip("; "),
    ),
    "data.lower_case": (
        "it needs a data.vocab that is trained or a vocab.txt; a .model and a tokenizer.json have"
        " rules of their own",
        lambda c: not c.data.vocab.endswith((".model", ".json")),
    ),
    "data.strip_accents": (
        "it needs a data.vocab that is no tokenizer.json, which has rules of its own",
        lambda c: not c.data.vocab.endswith(".json"),
    ),
    "data.documents": (
        "it needs files in data.source: text: or hf:",
        lambda c: "text:" in c.data.source or "hf:" in c.data.source,
    ),
    "data.single_segment_rate": ("it needs data.rows='pairs'", lambda c: c.data.rows == "pairs"),
    "data.short_row_rate": ("it needs data.rows='pairs'", lambda c: c.data.rows == "pairs"),
    "model.rotary_base": (
        "it needs model.positions='rotary'",
        lambda c: c.model.positions == "rotary",
    ),
    "model.global_every": ("it needs model.local_window", lambda c: c.model.local_window > 0),
    "schedule.decay_power": (
        "it needs schedule.shape='linear'",
        lambda c: c.schedule.shape == "linear",
    ),
    "schedule.decay_share": (
        "it needs schedule.shape='warmup_stable_decay'",
        lambda c: c.schedule.shape == "warmup_stable_decay",
    ),
    "schedule.spike_factor": (
        "it needs schedule.on_spike='skip' or 'roll_back'",
        lambda c: c.schedule.on_spike != "go_on",
    ),
    "init.weights": (
        "it needs init.from or init.generator_from",
        lambda c: bool(c.init.from_ or c.init.generator_from),
    ),
    "init.longer_positions": (
        "it needs init.from or init.generator_from, and model.positions='learned'",
        lambda c: bool(c.init.from_ or c.init.generator_from) and c.model.positions == "learned",
    ),
    "model.dropout": (
        "it needs model.dropout_bits=32, since 8 bits per decision make it 0",
        lambda c: _drops(c.model.dropout, c.model.dropout_bits),
    ),
    "model.attention_dropout": (
        "it needs model.dropout_bits=32, since 8 bits per decision make it 0",
        lambda c: _drops(c.model.attention_dropout, c.model.dropout_bits),
    ),
    "logging.profile": (
        "it needs more steps than schedule.steps: the run ends before",
        lambda c: not c.logging.profile or c.logging.profile[0] <= c.schedule.steps,
    ),
}

WITHOUT_GENERATOR = ("uniform_generator", "unigram_generator", "masked_lm")

_GENERATORS = (  # layers, width, heads, feed_forward of each size's generator
    (2, 128, 4, 512),
    (12, 64, 1, 256),
    (12, 256, 4, 1024),
    (24, 256, 4, 1024),
)


def evaluated(objective: str) -> tuple[str, ...]:
    """The metrics of `BEST_BY` that a run with this objective is evaluated by."""
    detects = _HEAD in READS[objective]
    with_generator = objective not in WITHOUT_GENERATOR
    found = {
        "loss": True,
        "gen_masked_loss": with_generator,
        "mlm_masked_loss": "objective.mlm_weight" in READS[objective],
        "disc_loss": detects,
        "disc_auc": detects,
        "selection_loss": "objective.selection_size" in READS[objective],
    }
    return tuple(name for name, is_there in found.items() if is_there)


def unread(config: Config) -> list[str]:
    """One line, with the reason, for each setting that was changed and has no effect.

    `READS` says which settings the objective reads, and `ONLY_WITH` what else these settings need.
    """
    lines, name = [], config.objective.name
    read_by_some = dict.fromkeys(path for paths in READS.values() for path in paths)
    for path in read_by_some | dict.fromkeys(ONLY_WITH):
        if path in read_by_some and path not in READS[name]:
            reason = f"{name} does not read it"
        elif not has_use(config, path):
            reason = ONLY_WITH[path][0]
        else:
            continue

        value = functools.reduce(getattr, path.split("."), config)
        if not _is_default(config, path, value):
            lines.append(f"{path}={value!r} changes nothing: {reason}")
    return lines


def shares_tables(config: Config) -> bool:
    """Whether a generator reads the embedding tables that the main network reads."""
    return config.objective.name not in WITHOUT_GENERATOR and config.model.sharing != "none"


def _has_own_layers(config):
    """Whether the layers of the main network are no other network's."""
    return config.objective.name in WITHOUT_GENERATOR or config.model.sharing != "all"


def has_use(config: Config, path: str) -> bool:
    """Whether a setting has an effect, if the objective reads it: `ONLY_WITH` may ask for more."""
    return path not in ONLY_WITH or ONLY_WITH[path][1](config)


def _is_default(config, path, value):
    """Whether a setting has the value that a configuration of this package gives it."""
    if path == "model.generator":  # one of a size, or the shape of the main network
        sizes = [Network(*shape) for shape in _GENERATORS]
        return value in (*sizes, config.model.discriminator)
    return value in declared(Config)[path].metadata.get("untouched", ())


def _drops(rate, bits):
    """Whether dropout at this rate, with so many bits, drops anything (`layers.drop_threshold`)."""
    return rate == 0 or round(rate * 2**bits) > 0


def _one_network_a_phase(config):
    """Whether every phase has gradients of one network only, so that clipping is per network."""
    two_phases = config.objective.name == "decoupled_detection"
    return two_phases and config.model.sharing in ("gdes", "none")
