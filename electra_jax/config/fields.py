# SPDX-License-Identifier: Apache-2.0
"""Declares every setting of a run with its type and its choices or inclusive bounds.

The default, unit and reason of each field are in `configs/base.py`; read that file first.

Some settings are read by some objectives only. `untouched` lists the values that such a setting has
in the configurations of this package, which differ between sizes. If the objective does not read
the setting and it has any other value, the user has set it in vain and is warned (`reads.py`).
"""

import dataclasses
import math
from typing import Any, dataclass_transform

SERVICES = ("wandb", "trackio", "mlflow")  # the names that logging.writers may hold

# The held-out metrics that checkpoint.keep_best may name. Of losses the lowest is the best one.
BEST_BY = (
    "loss", "gen_masked_loss", "mlm_masked_loss", "disc_loss", "disc_auc", "selection_loss",
)  # fmt: skip

OBJECTIVES = (
    "replaced_token_detection",
    "decoupled_detection",
    "masked_token_detection",
    "multi_word_selection",
    "corrective_lm",
    "adversarial_generator",
    "frozen_generator",
    "uniform_generator",
    "unigram_generator",
    "electric",
    "masked_lm",
    "replace_mlm",
    "all_tokens_mlm",
)


def one_of(*choices: Any, untouched: tuple = ()) -> Any:
    """Declares a field that has one of these values."""
    return dataclasses.field(metadata={"choices": choices, "untouched": untouched})


def any_text(untouched: tuple[str, ...] = ()) -> Any:
    """Declares a field with a text of its own grammar, which is checked where it is read."""
    return dataclasses.field(metadata={"untouched": untouched})


def between(low: float, high: float, untouched: tuple = ()) -> Any:
    """Declares a number within inclusive bounds."""
    return dataclasses.field(metadata={"bounds": (low, high), "untouched": untouched})


@dataclass_transform(frozen_default=True, field_specifiers=(one_of, between, any_text))
def _section(kind: type) -> Any:
    """A frozen dataclass whose fields may be declared by the functions above.

    Type checkers know from it that such a field has no default.
    """
    return dataclasses.dataclass(frozen=True)(kind)


@_section
class Data:
    """From text to vocabulary, rows and batches."""

    source: str
    mixture_alpha: float = between(0, 10, untouched=(1.0,))
    dir: str
    vocab: str
    added_pieces: int = between(0, 2_000_000)
    vocab_sample_characters: int = between(1_000, math.inf)
    lower_case: bool = one_of(True, False, untouched=(True,))
    strip_accents: bool = one_of(True, False, untouched=(True,))
    text_field: str
    documents: str = any_text(untouched=("blank_lines",))
    invalid_utf8: str = one_of("replace", "refuse")
    min_document_characters: int = between(0, math.inf)
    deduplicate: bool
    duplicate_similarity: float = between(0.5, 1, untouched=(1.0,))
    heldout_fraction: float = between(1e-6, 0.5)
    rows: str = one_of("pairs", "packed")
    sequence_length: int = between(8, 65_536)
    single_segment_rate: float = between(0, 1, untouched=(0.1,))
    short_row_rate: float = between(0, 1, untouched=(0.05,))
    batch_size: int = between(1, 2**24)
    workers: int = between(0, 4096)
    streaming: str = one_of("off", "on", untouched=("off",))


@_section
class Network:
    """The shape of one encoder."""

    layers: int = between(1, 65_536)
    width: int = between(1, 65_536)
    heads: int = between(1, 65_536)
    feed_forward: int = between(1, 65_536)


@_section
class Model:
    """Both networks, and how they are computed."""

    embedding_size: int = between(1, 65_536)
    max_positions: int = between(8, 65_536)
    discriminator: Network
    generator: Network
    sharing: str = one_of("embeddings", "none", "gdes", "all", untouched=("embeddings",))
    shared_layers: int = between(0, 1000, untouched=(0,))
    discriminator_head: str = one_of("token", "cls_context", "own_layer", untouched=("token",))
    dropout: float = between(0, 0.9)
    attention_dropout: float = between(0, 0.9)
    dropout_bits: int = one_of(8, 32)
    initial_scale: float = between(1e-6, 10)
    positions: str = one_of("learned", "rotary")
    rotary_base: float = between(2, 1e9, untouched=(10_000.0,))
    feed_forward_kind: str = one_of("gelu", "geglu")
    norm_place: str = one_of("post", "pre")
    norm_kind: str = one_of("layer", "rms")
    biases: bool
    local_window: int = between(0, 65_536)
    global_every: int = between(1, 65_536, untouched=(3,))
    attention: str = one_of("auto", "einsum", "fused", "blockwise", "splash")
    residual_norm: str = one_of("auto", "plain")
    dtype: str = one_of("auto", "float32", "bfloat16")
    scan: str = one_of("auto", "on", "off")
    remat: str = one_of("none", "dots", "full")


@_section
class Objective:
    """What the networks learn. `reads.READS` says which of these settings each objective reads."""

    name: str = one_of(*OBJECTIVES)
    mask_rate: float = between(0.001, 0.9)
    first_mask_rate: float = between(0, 0.9, untouched=(0.0,))
    mask_token_rate: float = between(0, 1, untouched=(0.85,))
    random_token_rate: float = between(0, 1, untouched=(0.0,))
    mask_unit: str = one_of("token", "word", "span", untouched=("token",))
    span_words: float = between(1, 100, untouched=(3.8,))
    temperature: float = between(0.01, 100, untouched=(1.0,))
    first_temperature: float = between(0, 100, untouched=(0.0,))
    temperature_decay: float = between(1e-3, 100, untouched=(0.1,))
    disallow_correct: bool = one_of(False, True, untouched=(False,))
    gen_weight: float = between(0, 1e6, untouched=(1.0,))
    disc_weight: float = between(0, 1e6, untouched=(50.0, 5.0))  # 5 at the size tiny
    mlm_weight: float = between(0, 1e6, untouched=(1.0,))
    selection_weight: float = between(0, 1e6, untouched=(2.0,))
    selection_size: int = between(2, 64, untouched=(5,))


@_section
class Optimizer:
    """AdamW in one of two variants, Muon, or LAMB."""

    name: str = one_of("reference_adamw", "adamw", "muon", "lamb")
    learning_rate: float = between(0, 10)
    gen_learning_rate: float = between(0, 10, untouched=(0.0,))
    disc_learning_rate: float = between(0, 10, untouched=(0.0,))
    muon_learning_rate: float = between(0, 10)
    disc_muon_learning_rate: float = between(0, 10, untouched=(0.0,))
    beta1: float = between(0, 0.99999)
    beta2: float = between(0, 0.999999)
    epsilon: float = between(1e-20, 1)
    weight_decay: float = between(0, 10)
    clip_norm: float = between(0, math.inf)
    clip: str = one_of("joint", "per_network", untouched=("joint",))
    ema_decay: float = between(0, 0.999999)


@_section
class Schedule:
    """The length of a run, its stages, and how the learning rate changes."""

    steps: int = between(1, 2**31 - 1)
    budget: str = one_of("steps", "tokens", "minutes")
    tokens: int = between(0, 2**62)
    minutes: float = between(0, 10_000_000)
    warmup_steps: int = between(0, 2**31 - 1)
    shape: str = one_of("linear", "cosine", "warmup_stable_decay")
    decay_power: float = between(0.001, 100, untouched=(1.0,))
    decay_share: float = between(0.000001, 1, untouched=(0.1,))
    on_spike: str = one_of("go_on", "skip", "roll_back")
    spike_factor: float = between(1, 1e6, untouched=(5.0,))
    accumulation: int = between(1, 65_536)
    stages: tuple


@_section
class Mesh:
    """The number of devices along each axis, of slices that they belong to, and XLA's options."""

    data: int
    fsdp: int
    tensor: int
    slices: int = between(0, 65_536)
    compiler_options: str


@_section
class Checkpoint:
    """How often a checkpoint is saved, and which ones are kept."""

    every: int = between(1, 2**31 - 1)
    keep_last: int = between(1, 10_000)
    keep_every: int = between(0, 2**31 - 1)
    keep_best: str = one_of("", *BEST_BY)


@_section
class Evaluation:
    """How often held-out metrics are computed, and on how many rows."""

    every: int = between(1, 2**31 - 1)
    rows: int = between(1, 2**31 - 1)
    batch_size: int = between(0, 2**24)


@_section
class Logging:
    """What is written to console, files and report, and how often."""

    every: int = between(1, 2**31 - 1)
    tensorboard: bool
    report_every: int = between(0, 2**31 - 1)
    profile: tuple
    writers: str


@_section
class Init:
    """Where the initial weights come from."""

    from_: str
    generator_from: str
    weights: str = one_of("auto", "ema", "raw", untouched=("auto",))
    new_tokens: str = one_of("refuse", "mean")
    longer_positions: str = one_of("copied", "interpolated", "fresh", untouched=("copied",))
    missing_generator: str = one_of("fresh", "discriminator")
    optimizer: str = one_of("fresh", "restored")


@_section
class Config:
    """All settings of a run."""

    name: str
    seed: int = between(0, 2**31 - 1)
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


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """The value of every field of a configuration by its path: {'data.source': ..., ...}."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        path, value = prefix + field.name.rstrip("_"), getattr(config, field.name)
        flat |= flatten(value, path + ".") if dataclasses.is_dataclass(value) else {path: value}
    return flat


def declared(kind: Any, prefix: str = "") -> dict[str, dataclasses.Field]:
    """The declaration of every field of a configuration class, by its path."""
    found: dict[str, dataclasses.Field] = {}
    for field in dataclasses.fields(kind):
        path = prefix + field.name.rstrip("_")
        section = dataclasses.is_dataclass(field.type)
        found |= declared(field.type, path + ".") if section else {path: field}
    return found
