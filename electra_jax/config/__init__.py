# SPDX-License-Identifier: Apache-2.0
"""The configuration as typed values, checked before anything is compiled or written.

`configs/*.py` build ml_collections trees; `parse` turns one into the frozen dataclasses below and
refuses what is unknown, missing, mistyped or out of range, in one line with the remedy. What each
field means stands beside it in `configs/base.py`.
"""

import dataclasses
import difflib
import functools
import json
import math
from collections.abc import Mapping
from typing import Any

import ml_collections

from electra_jax.host import safe_files


class ConfigError(ValueError):
    """A setting that cannot be used; the message is one line and names the remedy."""


@dataclasses.dataclass(frozen=True)
class Data:
    """Text -> vocabulary -> rows -> batches."""

    source: str
    mixture_alpha: float
    dir: str
    vocab: str
    vocab_sample_characters: int
    lower_case: bool
    strip_accents: bool
    text_field: str
    invalid_utf8: str
    min_document_characters: int
    deduplicate: bool
    heldout_fraction: float
    rows: str
    sequence_length: int
    single_segment_rate: float
    short_row_rate: float
    batch_size: int
    workers: int


@dataclasses.dataclass(frozen=True)
class Network:
    """The shape of one encoder."""

    layers: int
    width: int
    heads: int
    feed_forward: int


@dataclasses.dataclass(frozen=True)
class Model:
    """Both networks and how they run."""

    embedding_size: int
    max_positions: int
    discriminator: Network
    generator: Network
    sharing: str
    discriminator_head: str
    dropout: float
    attention_dropout: float
    dropout_bits: int
    initial_scale: float
    positions: str
    rotary_base: float
    feed_forward_kind: str
    norm_place: str
    norm_kind: str
    biases: bool
    local_window: int
    global_every: int
    attention: str
    dtype: str
    scan: str
    remat: str


@dataclasses.dataclass(frozen=True)
class Objective:
    """What is learnt. `READS` says which settings each objective reads."""

    name: str
    mask_rate: float
    first_mask_rate: float
    mask_token_rate: float
    random_token_rate: float
    mask_unit: str
    span_words: float
    temperature: float
    first_temperature: float
    temperature_decay: float
    disallow_correct: bool
    gen_weight: float
    disc_weight: float
    mlm_weight: float


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """AdamW in one of two forms, or Muon."""

    name: str
    learning_rate: float
    gen_learning_rate: float
    disc_learning_rate: float
    muon_learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    clip_norm: float
    clip: str
    ema_decay: float


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long, and how the rate moves."""

    steps: int
    budget: str
    tokens: int
    minutes: float
    warmup_steps: int
    shape: str
    decay_share: float
    on_spike: str
    spike_factor: float
    accumulation: int
    stages: tuple


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Devices along each axis."""

    data: int
    fsdp: int
    tensor: int


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What is kept to go on from."""

    every: int
    keep_last: int
    keep_every: int


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Held-out metrics."""

    every: int
    rows: int
    batch_size: int


@dataclasses.dataclass(frozen=True)
class Logging:
    """Console, files, report."""

    every: int
    tensorboard: bool
    report_every: int
    profile: tuple


@dataclasses.dataclass(frozen=True)
class Init:
    """Where first weights come from."""

    from_: str
    generator_from: str
    weights: str
    new_tokens: str
    longer_positions: str
    missing_generator: str
    optimizer: str


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole run."""

    name: str
    seed: int
    data: Data
    model: Model
    objective: Objective
    optimizer: Optimizer
    schedule: Schedule
    mesh: Mesh
    checkpoint: Checkpoint
    evaluation: Evaluation
    logging: Logging
    init: Init


RESUMABLE = (  # fields, and sections with a dot, that may differ between a run and its continuation
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

_PLAIN = {  # what configurations of the package set where nothing reads it, at one size or another
    "objective.mask_token_rate": (0.85,),
    "objective.temperature": (1.0,),
    "objective.gen_weight": (1.0,),
    "objective.disc_weight": (50.0, 5.0),  # 5 at the size tiny
    "objective.mlm_weight": (1.0,),
}

_GENERATORS = (  # layers, width, heads, feed_forward of each size's generator
    (2, 128, 4, 512),
    (12, 64, 1, 256),
    (12, 256, 4, 1024),
    (24, 256, 4, 1024),
)

_SHARING = {  # objective -> how its networks may share; without a generator `READS` has no sharing
    "decoupled_detection": ("embeddings", "none", "gdes"),
    "frozen_generator": ("none", "gdes"),
    "electric": ("embeddings",),
    "replace_mlm": ("embeddings", "none"),
    "all_tokens_mlm": ("embeddings", "none"),
}

WITHOUT_GENERATOR = ("uniform_generator", "unigram_generator", "masked_lm")

_ADDED = {  # fields that came later, and what a config.json written before them means
    "model.dropout_bits": 8,
    "model.positions": "learned",
    "model.rotary_base": 10_000.0,
    "model.feed_forward_kind": "gelu",
    "model.norm_place": "post",
    "model.norm_kind": "layer",
    "model.biases": True,
    "model.local_window": 0,
    "model.global_every": 3,
    "model.attention": "einsum",
    "logging.profile": (),
    "model.sharing": "embeddings",
    "model.discriminator_head": "token",
    "objective.name": "replaced_token_detection",
    "objective.first_mask_rate": 0.0,
    "objective.random_token_rate": 0.0,
    "objective.mask_unit": "token",
    "objective.span_words": 3.8,
    "objective.first_temperature": 0.0,
    "objective.temperature_decay": 0.1,
    "objective.disallow_correct": False,
    "objective.mlm_weight": 1.0,
    "init.generator_from": "",
    "optimizer.gen_learning_rate": 0.0,
    "optimizer.disc_learning_rate": 0.0,
    "optimizer.muon_learning_rate": 0.0,
    "optimizer.clip": "joint",
    "optimizer.ema_decay": 0.0,
    "schedule.budget": "steps",
    "schedule.tokens": 0,
    "schedule.minutes": 0.0,
    "schedule.shape": "linear",
    "schedule.decay_share": 0.1,
    "schedule.on_spike": "go_on",
    "schedule.spike_factor": 5.0,
    "schedule.stages": (),
    "init.weights": "auto",
    "init.new_tokens": "refuse",
    "init.longer_positions": "fresh",
    "init.missing_generator": "fresh",
    "init.optimizer": "fresh",
}

_CHOICES = {
    "data.invalid_utf8": ("replace", "refuse"),
    "data.rows": ("pairs", "packed"),
    "model.dropout_bits": (8, 32),
    "model.positions": ("learned", "rotary"),
    "model.feed_forward_kind": ("gelu", "geglu"),
    "model.norm_place": ("post", "pre"),
    "model.norm_kind": ("layer", "rms"),
    "model.attention": ("auto", "einsum", "splash", "cudnn"),
    "model.dtype": ("auto", "float32", "bfloat16"),
    "model.scan": ("auto", "on", "off"),
    "model.remat": ("none", "dots", "full"),
    "model.sharing": ("embeddings", "none", "gdes", "all"),
    "model.discriminator_head": ("token", "cls_context"),
    "objective.name": tuple(READS),
    "objective.mask_unit": ("token", "word", "span"),
    "optimizer.name": ("reference_adamw", "adamw", "muon"),
    "optimizer.clip": ("joint", "per_network"),
    "schedule.budget": ("steps", "tokens", "minutes"),
    "schedule.shape": ("linear", "cosine", "warmup_stable_decay"),
    "schedule.on_spike": ("go_on", "skip", "roll_back"),
    "init.weights": ("auto", "ema", "raw"),
    "init.new_tokens": ("refuse", "mean"),
    "init.longer_positions": ("copied", "interpolated", "fresh"),
    "init.missing_generator": ("fresh", "discriminator"),
    "init.optimizer": ("fresh", "restored"),
}

_RANGES = {  # inclusive bounds
    "seed": (0, 2**31 - 1),
    "data.mixture_alpha": (0, 10),
    "data.vocab_sample_characters": (1_000, math.inf),
    "data.min_document_characters": (0, math.inf),
    "data.heldout_fraction": (1e-6, 0.5),
    "data.sequence_length": (8, 65_536),
    "data.single_segment_rate": (0, 1),
    "data.short_row_rate": (0, 1),
    "data.batch_size": (1, 2**24),
    "data.workers": (0, 4096),
    "model.embedding_size": (1, 65_536),
    "model.max_positions": (8, 65_536),
    "model.dropout": (0, 0.9),
    "model.attention_dropout": (0, 0.9),
    "model.initial_scale": (1e-6, 10),
    "model.rotary_base": (2, 1e9),
    "model.local_window": (0, 65_536),
    "model.global_every": (1, 65_536),
    "objective.mask_rate": (0.001, 0.9),
    "objective.first_mask_rate": (0, 0.9),
    "objective.mask_token_rate": (0, 1),
    "objective.random_token_rate": (0, 1),
    "objective.span_words": (1, 100),
    "objective.temperature": (0.01, 100),
    "objective.first_temperature": (0, 100),
    "objective.temperature_decay": (1e-3, 100),
    "objective.mlm_weight": (0, 1e6),
    "objective.gen_weight": (0, 1e6),
    "objective.disc_weight": (0, 1e6),
    "optimizer.learning_rate": (0, 10),
    "optimizer.gen_learning_rate": (0, 10),
    "optimizer.disc_learning_rate": (0, 10),
    "optimizer.muon_learning_rate": (0, 10),
    "optimizer.beta1": (0, 0.99999),
    "optimizer.beta2": (0, 0.999999),
    "optimizer.epsilon": (1e-20, 1),
    "optimizer.weight_decay": (0, 10),
    "optimizer.clip_norm": (0, math.inf),
    "optimizer.ema_decay": (0, 0.999999),
    "schedule.steps": (1, 2**31 - 1),
    "schedule.tokens": (0, 2**62),
    "schedule.minutes": (0, 10_000_000),
    "schedule.warmup_steps": (0, 2**31 - 1),
    "schedule.decay_share": (0.000001, 1),
    "schedule.spike_factor": (1, 1e6),
    "schedule.accumulation": (1, 65_536),
    "checkpoint.every": (1, 2**31 - 1),
    "checkpoint.keep_last": (1, 10_000),
    "checkpoint.keep_every": (0, 2**31 - 1),
    "evaluation.every": (1, 2**31 - 1),
    "evaluation.rows": (1, 2**31 - 1),
    "evaluation.batch_size": (0, 2**24),
    "logging.every": (1, 2**31 - 1),
    "logging.report_every": (0, 2**31 - 1),
} | {
    f"model.{network}.{field}": (1, 65_536)
    for network in ("discriminator", "generator")
    for field in ("layers", "width", "heads", "feed_forward")
}


def parse(tree: Mapping[str, Any]) -> Config:
    """ml_collections or JSON tree -> Config. Raises ConfigError with the first thing wrong."""
    config = typed(Config, tree, _ADDED, "configs/base.py")
    check_each(config, _CHOICES, _RANGES)
    safe_files.check_no_address(config.data.dir, "data.dir", ConfigError)
    _check_together(config)
    return config


def typed(kind: type, tree: Mapping[str, Any], added: Mapping[str, Any], page: str) -> Any:
    """A tree as dataclasses of `kind`. Raises ConfigError for what is unknown, missing, mistyped.

    Args:
      added: fields that came later, by path, and what a tree without them means.
      page: the file that has every field, for the message.
    """
    if isinstance(tree, ml_collections.ConfigDict):
        tree = tree.to_dict()
    return _build(kind, tree, "", added, page)


def check_each(config: Any, choices: Mapping[str, tuple], ranges: Mapping[str, tuple]) -> None:
    """Each field by itself: one of its choices, within its inclusive bounds."""
    flat = flatten(config)
    for path, allowed in choices.items():
        if flat[path] not in allowed:
            raise ConfigError(
                f"{path}={flat[path]!r} is not one of {', '.join(map(repr, allowed))}"
            )
    for path, (low, high) in ranges.items():
        if not low <= flat[path] <= high:  # a NaN fails this too
            raise ConfigError(f"{path}={flat[path]} is outside [{low}, {high}]")


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """{'data.source': ..., ...}: every field by its path."""
    flat = {}
    for field in dataclasses.fields(config):
        path, value = prefix + field.name.rstrip("_"), getattr(config, field.name)
        flat |= flatten(value, path + ".") if dataclasses.is_dataclass(value) else {path: value}
    return flat


def to_tree(config: Any) -> dict[str, Any]:
    """The nested dict that `parse` takes back, and what config.json holds."""
    tree: dict[str, Any] = {}
    for path, value in flatten(config).items():
        *sections, name = path.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    return tree


def to_json(config: Any) -> str:
    """config.json: the tree, indented, in the order of the flow."""
    return json.dumps(to_tree(config), indent=2) + "\n"


def differences(old: Config, new: Config) -> tuple[list[str], list[str]]:
    """(what a continuation may change and did, what it must not change but did), as texts."""
    before, after = flatten(old), flatten(new)
    changed = [path for path in after if before[path] != after[path]]
    texts = {path: f"{path}: {before[path]!r} -> {after[path]!r}" for path in changed}
    allowed = [path for path in changed if _resumable(path)]
    return [texts[p] for p in allowed], [texts[p] for p in changed if p not in allowed]


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


def nearest(name: str, known: list[str]) -> str:
    """' Did you mean X?' or the list of what is known."""
    close = difflib.get_close_matches(name, known, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"


def _is_default(config, path, value):
    """Whether a configuration of the package has this value untouched."""
    if path == "model.generator":  # every size has its own; some give it the main network's shape
        sizes = [Network(*shape) for shape in _GENERATORS]
        return value in (*sizes, config.model.discriminator)
    plain = _PLAIN.get(path) or (_ADDED[path],)
    return value in plain


def _one_network_a_phase(config):
    """Whether no backward pass has gradients of both networks: what is clipped is one of them."""
    two_phases = config.objective.name in ("decoupled_detection", "frozen_generator")
    return two_phases and config.model.sharing == "gdes"


def _resumable(path):
    section = path[: path.rfind(".") + 1]
    return path in RESUMABLE or section in RESUMABLE


def _build(kind, tree, prefix, added, page):
    fields = {field.name.rstrip("_"): field for field in dataclasses.fields(kind)}
    for name in tree:
        if name not in fields:
            raise ConfigError(f"unknown field {prefix}{name}; {nearest(name, list(fields))}")
    values = {}
    for name, field in fields.items():
        path = prefix + name
        if name not in tree and path not in added:
            raise ConfigError(f"field {path} is missing; {page} has every field")
        value = tree[name] if name in tree else added[path]
        if dataclasses.is_dataclass(field.type):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{path} is a section, not {value!r}")
            values[field.name] = _build(field.type, value, path + ".", added, page)
        else:
            values[field.name] = _typed(path, value, field.type)
    return kind(**values)


def _typed(path, value, kind):
    if kind is float and type(value) is int:
        return float(value)
    if kind is tuple and isinstance(value, list):  # as JSON has it
        value = tuple(value)
    if kind is tuple and isinstance(value, tuple):
        return tuple(tuple(part) if isinstance(part, list) else part for part in value)
    if type(value) is not kind:
        raise ConfigError(
            f"{path}={value!r} is of type {type(value).__name__}, not of type {kind.__name__}"
        )
    return value


def _check_together(c: Config):
    """What two fields say of each other."""
    for name in ("discriminator", "generator"):
        network = getattr(c.model, name)
        if network.width % network.heads:
            raise ConfigError(
                f"model.{name}.width={network.width} is not divisible by heads={network.heads};"
                f" try width={network.width // network.heads * network.heads or network.heads}"
            )
        if c.model.positions == "rotary" and network.width // network.heads % 2:
            raise ConfigError(
                f"model.positions='rotary' turns channels in pairs, but heads of model.{name} have"
                f" {network.width // network.heads}; change width or heads"
            )
    if c.model.attention in ("splash", "cudnn") and c.model.attention_dropout > 0:
        raise ConfigError(
            f"model.attention={c.model.attention!r} cannot drop attention probabilities, but"
            f" model.attention_dropout={c.model.attention_dropout}; set it to 0 or try"
            " model.attention=einsum"
        )
    _check_objective(c)
    _check_init(c)
    if c.model.positions == "learned" and c.data.sequence_length > c.model.max_positions:
        raise ConfigError(
            f"data.sequence_length={c.data.sequence_length} is longer than"
            f" model.max_positions={c.model.max_positions}; raise max_positions or shorten the rows"
        )
    if c.data.batch_size % c.schedule.accumulation:
        raise ConfigError(
            f"data.batch_size={c.data.batch_size} is not divisible by"
            f" schedule.accumulation={c.schedule.accumulation}"
        )
    _check_stages(c)
    for budget in ("tokens", "minutes"):
        given = getattr(c.schedule, budget)
        if (c.schedule.budget == budget) != (given > 0):
            raise ConfigError(
                f"schedule.{budget}={given} with schedule.budget={c.schedule.budget!r}; give"
                f" {budget} above 0 where they are the budget, and 0 where they are not"
            )
    if c.optimizer.muon_learning_rate and c.optimizer.name != "muon":
        raise ConfigError(
            f"optimizer.muon_learning_rate={c.optimizer.muon_learning_rate} does nothing with"
            f" optimizer.name={c.optimizer.name!r}; leave it at 0, or set optimizer.name='muon'"
        )
    profile = c.logging.profile
    if profile and not (
        len(profile) == 2 and all(type(n) is int for n in profile) and 1 <= profile[0] <= profile[1]
    ):
        raise ConfigError(
            f"logging.profile={profile!r} is not (first step, last step);"
            " try (10, 12), or () for none"
        )
    if not c.data.source.strip():
        raise ConfigError("data.source is empty; try builtin, text:GLOB or tfds:NAME")
    if not c.data.vocab.strip():
        raise ConfigError("data.vocab is empty; try train:sentencepiece:8192 or a path")
    for axis in ("data", "fsdp", "tensor"):
        size = getattr(c.mesh, axis)
        if size < 1 and not (axis == "data" and size == -1):
            raise ConfigError(f"mesh.{axis}={size} must be positive (mesh.data may be -1)")


def _check_stages(c: Config):
    """Each stage for itself, and the order in which they begin."""
    before = 0.0
    for stage in c.schedule.stages:
        if not (isinstance(stage, tuple) and [type(x) for x in stage] == [float, int, int]):
            raise ConfigError(
                f"schedule.stages={c.schedule.stages!r} holds {stage!r}, which is not (share of the"
                " budget, sequence_length, batch_size); try ((0.9, 512, 32),)"
            )
        share, length, batch_size = stage
        if not before < share < 1:
            raise ConfigError(
                f"schedule.stages: {stage} begins at a share of {share}; give shares that rise"
                f" between {before:g} and 1"
            )
        for field, value in (("sequence_length", length), ("batch_size", batch_size)):
            low, high = _RANGES[f"data.{field}"]
            if not low <= value <= high:
                raise ConfigError(
                    f"schedule.stages: {field} of {stage} is outside [{low}, {high}]; stages are"
                    " (share, sequence_length, batch_size)"
                )
        if c.model.positions == "learned" and length > c.model.max_positions:
            raise ConfigError(
                f"schedule.stages: rows of {length} in {stage} are longer than"
                f" model.max_positions={c.model.max_positions}; raise max_positions to {length} or"
                " set model.positions='rotary'"
            )
        if batch_size % c.schedule.accumulation:
            raise ConfigError(
                f"schedule.stages: {batch_size} rows a step in {stage} are not divisible by"
                f" schedule.accumulation={c.schedule.accumulation}"
            )
        before = share


def _check_objective(c: Config):
    """Objective, sharing and shapes that go together."""
    o, sharing = c.objective, c.model.sharing
    allowed = _SHARING.get(o.name, _CHOICES["model.sharing"])
    if sharing not in allowed:
        raise ConfigError(
            f"model.sharing={sharing!r} does not go with objective.name={o.name!r};"
            f" try {' or '.join(map(repr, allowed))}"
        )
    alone = o.name in WITHOUT_GENERATOR  # then nothing reads it, as the log says
    if sharing == "all" and not alone and c.model.generator != c.model.discriminator:
        raise ConfigError(
            f"model.sharing='all' needs networks of one shape, not {c.model.generator} and"
            f" {c.model.discriminator}; set model.generator to the discriminator's"
        )
    shown = o.mask_token_rate + o.random_token_rate
    if shown > 1:
        raise ConfigError(
            f"objective.mask_token_rate={o.mask_token_rate} and random_token_rate="
            f"{o.random_token_rate} make {shown:g}, more than 1; BERT has 0.8 and 0.1"
        )
    if o.name == "frozen_generator" and not c.init.generator_from:
        raise ConfigError(
            "objective.name='frozen_generator' needs a trained generator; give"
            " init.generator_from a workdir with one"
        )


def _check_init(c: Config):
    """Settings of `init` that have nothing to act on."""
    settings = {
        "new_tokens": ("refuse", c.init.from_ or c.init.generator_from),
        "missing_generator": ("fresh", c.init.from_),
        "optimizer": ("fresh", c.init.from_),
    }
    for name, (plain, source) in settings.items():
        value = getattr(c.init, name)
        if value != plain and not source:
            raise ConfigError(
                f"init.{name}={value!r} changes nothing without weights to start from; give"
                f" init.from, or leave it at {plain!r}"
            )
    if c.init.missing_generator == "discriminator":
        why = {
            f"objective.name={c.objective.name!r} has no generator": WITHOUT_GENERATOR,
            "the generator of objective.name='electric' has two towers": ("electric",),
        }
        reason = next((text for text, names in why.items() if c.objective.name in names), None)
        if c.model.sharing == "all":
            reason = "with model.sharing='all' it has the discriminator's encoder already"
        if c.init.generator_from:
            reason = "init.generator_from names one"
        if reason:
            raise ConfigError(
                f"init.missing_generator='discriminator' changes nothing: {reason}; leave it at"
                " 'fresh'"
            )
