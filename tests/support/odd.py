# SPDX-License-Identifier: Apache-2.0
"""Small networks, a batch and weights. All sizes differ, so that no dimension is mistaken."""

import functools

import jax
import numpy as np
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import streams, trees
from electra_jax.model import encoder_config, networks
from electra_jax.objectives import replaced_token_detection, sampling
from electra_jax.objectives.objective import Objective

PAD, UNK, CLS, SEP, MASK = range(5)
D, B = batch_lib.DOCUMENT_START, batch_lib.SEGMENT_B_START


# Every layer of the trunk that has an alternative, in that alternative.
MODERN = dict(
    positions="rotary",
    rotary_base=100.0,
    feed_forward_kind="geglu",
    norm_place="pre",
    norm_kind="rms",
    biases=False,
    local_window=2,
    global_every=2,
)


def trunk(layers: int, width: int, heads: int, feed_forward: int, **changes):
    """An encoder of this shape with the paper's trunk, but for these changes."""
    settings = dict(
        dropout=0.1, attention_dropout=0.1, dropout_bits=8, initial_scale=0.02,
        positions="learned", rotary_base=10_000.0, feed_forward_kind="gelu", norm_place="post",
        norm_kind="layer", biases=True, local_window=0, global_every=3,
        **encoder_config.PORTABLE,
    )  # fmt: skip
    return encoder_config.EncoderConfig(layers, width, heads, feed_forward, **settings | changes)


def pair(vocab_size: int, embedding_size: int, max_positions: int, generator, discriminator):
    """Two such networks that share their embeddings, in float32, with the paper's head."""
    return networks.NetworksConfig(
        vocab_size, embedding_size, max_positions, generator, discriminator,
        dtype="float32", sharing="embeddings", discriminator_head="token",
    )  # fmt: skip


NETWORKS = pair(
    vocab_size=37,
    embedding_size=6,
    max_positions=13,
    generator=trunk(2, 8, 2, 12, dropout=0, attention_dropout=0),
    discriminator=trunk(2, 10, 2, 14, dropout=0, attention_dropout=0),
)
SLOTS = 3


def jit(function, **options):
    """jax.jit that compiles fast, since compiling takes most of the time of tests.

    The results stay the same, machine code gets slower. XLA's compiler for GPUs has no such level.
    """
    level = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=level, **options)


IDS_BL = np.array(
    [
        [CLS, 11, 12, SEP, 13, 14, SEP, CLS, 15, SEP, PAD],  # two documents, the first with a B
        [CLS, 16, 17, 18, 19, 20, 21, 22, 36, 24, SEP],  # one, without padding
        [PAD] * 11,
        [CLS, SEP] + [PAD] * 9,  # nothing to choose
        [CLS, 5, 6, 7, SEP, 8, 9, 10, SEP, PAD, PAD],
        [CLS, 25, SEP, CLS, 26, 27, SEP, CLS, 28, 29, SEP],
    ]
)
MARKS_BL = np.array(
    [
        [D, 0, 0, 0, B, 0, 0, D, 0, 0, 0],
        [D, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0] * 11,
        [D] + [0] * 10,
        [D, 0, 0, 0, 0, B, 0, 0, 0, 0, 0],
        [D, 0, 0, D, 0, 0, 0, D, 0, 0, 0],
    ]
)
LANES = {"ids": IDS_BL, "marks": MARKS_BL}


def objective(kind=replaced_token_detection.ReplacedTokenDetection, **changes) -> Objective:
    """An objective over the networks above; three slots a row."""
    settings = dict(
        networks=NETWORKS,
        special_ids=(PAD, CLS, SEP, MASK),
        mask_id=MASK,
        slots=SLOTS,
        mask_rate=0.3,
        first_mask_rate=0.0,
        mask_token_rate=0.6,
        random_token_rate=0.0,
        mask_unit="token",
        span_words=3.8,
        temperature=1.0,
        first_temperature=0.0,
        temperature_decay=0.1,
        disallow_correct=False,
        gen_weight=1.0,
        disc_weight=50.0,
        mlm_weight=1.0,
        selection_weight=2.0,
        selection_size=4,
    )
    return kind(**settings | changes)


def gradients(objective: Objective, params: dict, term: str) -> dict[str, np.ndarray]:
    """The gradients of one term of the loss on `batch()`, by path."""
    made, key = batch(), jax.random.key(2)
    keys = streams.keys(key, 0, made.row_B, dropout=True)

    def loss(params):
        return objective.loss(params, made, keys, objective.knobs(0))[0][term]

    return flat(jit(jax.grad(loss))(params))


def learning(gradients: dict[str, np.ndarray]) -> set[str]:
    """The parts that are not 0 anywhere: those of the discriminator, and the other subtrees."""
    paths = [path for path, x in gradients.items() if np.any(x != 0)]
    return {path.removeprefix("discriminator/").partition("/")[0] for path in paths}


def batch(ids_BL=IDS_BL, marks_BL=MARKS_BL, first_row: int = 0) -> batch_lib.Batch:
    """A batch of the rows above, or of others."""
    rows = np.arange(first_row, first_row + len(ids_BL), dtype=np.uint32)
    return batch_lib.from_lanes(*map(jnp.asarray, (ids_BL, marks_BL, rows)), PAD)


def weights(config: networks.NetworksConfig = NETWORKS, seed: int = 3) -> dict:
    """Random parameters: no bias is 0, no scale is 1, and the embeddings of all tokens differ."""
    return random_like(jax.eval_shape(lambda: networks.init(config, jax.random.key(0))), seed)


def random_like(shapes: dict, seed: int = 3) -> dict:
    """Random numbers as in `weights`, for a tree of shapes."""
    draw = np.random.default_rng(seed)

    def leaf(path, shape):
        name = trees.path_name(path)
        table, small = "embeddings" in name, name.endswith(("bias", "scale"))
        spread = 0.1 if small else 0.6 if table else 0.3
        values = name.endswith("scale") + spread * draw.standard_normal(shape.shape)
        return jnp.asarray(values, jnp.float32)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


@functools.cache
def forward(config: networks.NetworksConfig = NETWORKS):
    """(params, batch) -> generator logits at every token, hidden states, discriminator logits."""

    def run(params, batch):
        every_BL = jnp.broadcast_to(jnp.arange(batch.ids_BL.shape[1]), batch.ids_BL.shape)
        gen_logits_BLV = networks.generator_logits(config, params, batch, every_BL)
        hidden_BLD, disc_logits_BL = networks.discriminator_outputs(config, params, batch)
        return gen_logits_BLV, hidden_BLD, disc_logits_BL

    return jit(run)


def sample(keys_B, logits_BNV, temperature, forbidden_ids) -> jax.Array:
    """int32 [B, N]: samples from whole logits, as `predict_and_sample` takes them from pieces."""
    forbidden_V = jnp.isin(jnp.arange(logits_BNV.shape[2]), jnp.array(forbidden_ids, jnp.int32))
    logits_BNV = jnp.where(forbidden_V, -jnp.inf, logits_BNV.astype(jnp.float32) / temperature)
    mass_BNV = jnp.exp(logits_BNV - logits_BNV.max(-1, keepdims=True))
    mass_BNGI = mass_BNV.reshape(*mass_BNV.shape[:2], -1, sampling.BLOCK)

    def mass_of(block_BN):
        return jnp.take_along_axis(mass_BNGI, block_BN[..., None, None], axis=2)[:, :, 0]

    return sampling.from_blocks(keys_B, mass_BNGI.sum(-1), mass_of)


def flat(tree, dtype=None) -> dict[str, np.ndarray]:
    """A tree as a dict from path to array."""
    return {path: np.asarray(x, dtype) for path, x in trees.flat(tree).items()}
