# SPDX-License-Identifier: Apache-2.0
"""The softmax over the vocabulary in pieces: loss, hits, samples and entropies in one pass.

p_G(x_t | x) = softmax(e(x_t) . h_t): its scores [B, N, V] would be the largest array of a training
step, and softmax, loss and sampling would each read it several times. Here the vocabulary is scored
in pieces of some thousand ids. Of each piece only sums are kept, and for sampling the mass of every
block of 128 ids. The backward pass computes the scores of each piece again, so no [B, N, V] is ever
in memory, neither forward nor backward. Source: equations 1 and 2 of the paper, section 2.

    S  slots of all rows      P  ids of a piece      K  pieces
    G  blocks                 I  ids of a block
    O  ids that are offered at a slot

Samples come from q, the softmax of score / temperature over the ids that may be sampled: without
the forbidden ones and, with `disallow_correct`, without the slot's original. `_SampleDistribution`
holds everything that defines q besides the scores; a new sampling method starts there.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
from jax import lax
from jax import numpy as jnp

from electra_jax.model import layers
from electra_jax.objectives import sampling

# About how many ids are scored at once, by EncoderConfig.products. On CPUs a smaller array is for
# the most part still in a cache when it is read again.
PIECES = {"default": 8192, "cpu": 2048}
_NOTHING = -1e30  # below every score, and still a number


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SlotPredictions:
    """The generator's prediction at each slot, [B, N]."""

    losses_BN: jax.Array  # -log p_G of the original, float32; the only one with a gradient
    hits_BN: jax.Array  # bool: the original scores higher than every other token
    sampled_BN: jax.Array  # int32, sampled from p_G at a temperature, never a forbidden id
    entropies_BN: jax.Array  # of p_G, in nats, float32
    offered_BNO: jax.Array | None = None  # int32, the original and others that are likely


def predict_and_sample(
    table_VE: jax.Array,
    bias_V: jax.Array,
    temperature: jax.Array,
    vectors_BNE: jax.Array,
    originals_BN: jax.Array,
    keys_B: jax.Array,
    *,
    size: int,
    forbidden_ids: tuple[int, ...],
    disallow_correct: bool = False,
    products: str = "default",
    piece: int | None = None,
) -> SlotPredictions:
    """Scores every token at every slot, `table_VE @ vector + bias`, and samples one.

    Products are computed in the dtype of the vectors with float32 sums; everything else is float32.

    Args:
      size: of the vocabulary; the padding of the table behind it has no probability.
      disallow_correct: never samples the original of the slot (the reference's setting).
      products: 'cpu' on CPUs, as in `EncoderConfig`; the result is the same.
      piece: about how many ids are scored at once; None is that of `PIECES`.
    """
    bias_V, static = _without_padding(bias_V, size), _Static(products, piece)
    q = _sample_distribution(
        bias_V, originals_BN.reshape(-1), forbidden_ids, disallow_correct, temperature
    )
    return _predict_and_sample(static, vectors_BNE, table_VE, bias_V, originals_BN, q, keys_B)[0]


def predict_sample_and_offer(
    table_VE: jax.Array,
    bias_V: jax.Array,
    temperature: jax.Array,
    vectors_BNE: jax.Array,
    originals_BN: jax.Array,
    keys_B: jax.Array,
    offer_keys_B: jax.Array,
    *,
    size: int,
    forbidden_ids: tuple[int, ...],
    offered: int,
    disallow_correct: bool = False,
    products: str = "default",
    piece: int | None = None,
) -> SlotPredictions:
    """`predict_and_sample`, and `offered` different ids for each slot, the original first.

    The others are drawn from q without replacement and independently of the sample, which may be
    one of them.
    """
    bias_V, static = _without_padding(bias_V, size), _Static(products, piece)
    q = _sample_distribution(
        bias_V, originals_BN.reshape(-1), forbidden_ids, disallow_correct, temperature
    )
    # A block of which all other ids are taken would be left with those of the table's padding.
    q = q._replace(forbidden_V=q.forbidden_V | (jnp.arange(len(bias_V)) >= size))
    predicted, mass_BNG, mass_of = _predict_and_sample(
        static, vectors_BNE, table_VE, bias_V, originals_BN, q, keys_B
    )

    # Where one id has nearly all of the mass, the others must not vanish beside it.
    drawable_G = ~q.forbidden_V.reshape(-1, sampling.BLOCK).all(-1)
    mass_BNG = sampling.not_vanishing(lax.stop_gradient(mass_BNG), drawable_G)

    offered_BNO = sampling.distinct_from_blocks(
        offer_keys_B, mass_BNG, mass_of, originals_BN, more=offered - 1
    )
    return dataclasses.replace(predicted, offered_BNO=offered_BNO)


def score(
    table_VE: jax.Array,
    bias_V: jax.Array,
    vectors_BNE: jax.Array,
    targets_BN: jax.Array,
    *,
    size: int,
    forbidden_ids: tuple[int, ...] = (),
    products: str = "default",
    piece: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """(-log p of the targets, whether each scores highest), [B, N] each; nothing is sampled.

    Forbidden ids have no probability; the loss of a target that is forbidden is about 1e9.
    """
    b, n, e = vectors_BNE.shape
    vectors_SE, targets_S = vectors_BNE.reshape(b * n, e), targets_BN.reshape(b * n)
    bias_V = _without_padding(bias_V, size)
    bias_V = jnp.where(_is_one_of(forbidden_ids, bias_V), -1e9, bias_V)
    q = _sample_distribution(bias_V, targets_S)  # the block masses are not used here

    losses_S, hits_S, *_ = _scan_vocabulary(
        _Static(products, piece), vectors_SE, table_VE, bias_V, targets_S, q
    )
    return losses_S.reshape(b, n), hits_S.reshape(b, n)


def score_sampled(
    table_VE: jax.Array,
    bias_V: jax.Array,
    temperature: jax.Array | float,
    vectors_BNE: jax.Array,
    sampled_BN: jax.Array,
    originals_BN: jax.Array,
    *,
    size: int,
    forbidden_ids: tuple[int, ...],
    disallow_correct: bool = False,
    products: str = "default",
    piece: int | None = None,
) -> jax.Array:
    """-log q of what `predict_and_sample` sampled, [B, N]; q is exactly what it samples from.

    The mean of the gradient of log q under samples from q is 0; for any other distribution it is
    not.
    """
    b, n, e = vectors_BNE.shape
    vectors_SE, sampled_S = vectors_BNE.reshape(b * n, e), sampled_BN.reshape(b * n)
    bias_V, originals_S = _without_padding(bias_V, size), originals_BN.reshape(b * n)
    q = _sample_distribution(bias_V, originals_S, forbidden_ids, disallow_correct, temperature)

    losses_S, *_ = _scan_vocabulary(
        _Static(products, piece, of_q=True), vectors_SE, table_VE, bias_V, sampled_S, q
    )
    return losses_S.reshape(b, n)


def _predict_and_sample(static, vectors_BNE, table_VE, bias_V, originals_BN, q, keys_B):
    """Returns (predictions, the mass of each block [B, N, G], a function of masses inside blocks).

    The function takes block_BN, and ids that are taken [B, N, O] if there are any, as
    `sampling.distinct_from_blocks` says.
    """
    b, n, e = vectors_BNE.shape
    vectors_SE, originals_S = vectors_BNE.reshape(b * n, e), originals_BN.reshape(b * n)
    losses_S, hits_S, entropies_S, mass_SG = _scan_vocabulary(
        static, vectors_SE, table_VE, bias_V, originals_S, q
    )

    fixed_SE, table_VE, bias_V = lax.stop_gradient((vectors_SE, table_VE, bias_V))

    def mass_of(block_BN, taken_BNO=None):
        excluded_SO, least = q.excluded_S[:, None], 0.0
        if taken_BNO is not None:
            excluded_SO = jnp.concatenate([excluded_SO, taken_BNO.reshape(b * n, -1)], axis=1)
            least = sampling.LEAST
        block_S = block_BN.reshape(-1)
        mass_SI = _masses_of_blocks(fixed_SE, table_VE, bias_V, block_S, q, excluded_SO, least)
        return mass_SI.reshape(b, n, sampling.BLOCK)

    # One uniform number picks a block by the masses above; the scores of this block are computed
    # again, and a second number picks the id.
    mass_BNG = mass_SG.reshape(b, n, -1)
    sampled_BN = sampling.from_blocks(keys_B, mass_BNG, mass_of)
    losses_BN, hits_BN, entropies_BN = (
        x_S.reshape(b, n) for x_S in (losses_S, hits_S, entropies_S)
    )
    return SlotPredictions(losses_BN, hits_BN, sampled_BN, entropies_BN), mass_BNG, mass_of


class _SampleDistribution(NamedTuple):
    """What defines q, the distribution of the samples, besides the scores."""

    forbidden_V: jax.Array  # bool: never sampled
    excluded_S: jax.Array  # int32, one more id of each slot that is never sampled; -1: none
    temperature: jax.Array  # float32

    def excluded(self, first, forbidden_P):
        """Which of the P ids from `first` on are never sampled at a slot: [S, P]."""
        ids_P = first + jnp.arange(len(forbidden_P))
        return forbidden_P | (self.excluded_S[:, None] == ids_P)


def _sample_distribution(
    bias_V, originals_S, forbidden_ids=(), disallow_correct=False, temperature=1.0
):
    """The `_SampleDistribution` of these settings, for slots with these originals."""
    return _SampleDistribution(
        forbidden_V=_is_one_of(forbidden_ids, bias_V),
        excluded_S=originals_S if disallow_correct else jnp.full_like(originals_S, -1),
        temperature=jnp.asarray(temperature, jnp.float32),
    )


def _is_one_of(ids, bias_V):
    """[V] bool, True at these ids."""
    return jnp.isin(jnp.arange(len(bias_V)), jnp.array(ids, jnp.int32))


def _without_padding(bias_V, size):
    """The biases with -1e9 at the table's padding rows, so that padding has no probability."""
    return jnp.where(jnp.arange(len(bias_V)) < size, bias_V, -1e9)


@dataclasses.dataclass(frozen=True)
class _Static:
    """The settings of a scan over the vocabulary, which are known when it is compiled."""

    products: str
    piece: int | None  # None: that of PIECES
    of_q: bool = False  # the losses are -log q, not -log p

    def cut(self, table_VE, bias_V, forbidden_V=None):
        """The pieces of the vocabulary, see `_cut`."""
        return _cut(self.piece or PIECES[self.products], table_VE, bias_V, forbidden_V)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scan_vocabulary(static, vectors_SE, table_VE, bias_V, targets_S, q):
    """Losses [S], hits [S], entropies [S], and the mass of each block [S, G] for sampling.

    Losses and hits are of `targets_S`.
    """
    return _scan_forward(static, vectors_SE, table_VE, bias_V, targets_S, q)[0]


def _scan_forward(static, vectors_SE, table_VE, bias_V, targets_S, q):
    def step(first, pieces):
        table_PE, bias_P, forbidden_P = pieces
        plain_SP = _scores(vectors_SE, table_PE, bias_P)
        excluded_SP = q.excluded(first, forbidden_P)
        tempered_SP = jnp.where(excluded_SP, _NOTHING, plain_SP / q.temperature)
        scores_SP = tempered_SP if static.of_q else plain_SP

        of_softmax = _sums(scores_SP, targets_S - first)
        of_samples = _block_masses(tempered_SP, excluded_SP)
        return first + len(bias_P), (of_softmax, of_samples)

    _, (sums, masses) = lax.scan(step, 0, static.cut(table_VE, bias_V, q.forbidden_V))
    target_S, logsumexp_S, hit_S, entropy_S = _of_all_pieces(sums)
    mass_SG = _masses_of_all_pieces(masses)[:, : len(bias_V) // sampling.BLOCK]

    used_q = q if static.of_q else None
    saved = vectors_SE, table_VE, bias_V, targets_S, logsumexp_S, used_q
    return (logsumexp_S - target_S, hit_S, entropy_S, mass_SG), saved


class _Sums(NamedTuple):
    """What is kept of one piece for loss, hit and entropy: [S] each, of all pieces [K, S]."""

    best: jax.Array  # the highest score; the sums below are relative to it
    tied: jax.Array  # how many ids have it
    exponentials: jax.Array  # sum of exp(score - best)
    weighted: jax.Array  # sum of exp(score - best) (score - best)
    target: jax.Array  # the score of the target; 0 in a piece that does not hold it


def _sums(scores_SP: jax.Array, at_S: jax.Array) -> _Sums:
    """The sums of a piece; `at_S` is the place of the target, which may be outside of it."""
    best_S = scores_SP.max(-1)
    below_SP = scores_SP - best_S[:, None]
    exponentials_SP = jnp.exp(below_SP)
    here_S = (at_S >= 0) & (at_S < scores_SP.shape[-1])
    target_S = jnp.take_along_axis(scores_SP, jnp.where(here_S, at_S, 0)[:, None], 1)[:, 0]
    return _Sums(
        best=best_S,
        tied=(below_SP == 0).sum(-1, dtype=jnp.float32),  # a CPU sums integers slowly
        exponentials=exponentials_SP.sum(-1),
        weighted=(exponentials_SP * below_SP).sum(-1),
        target=jnp.where(here_S, target_S, 0),
    )


def _of_all_pieces(sums_KS: _Sums) -> tuple[jax.Array, ...]:
    """From sums relative to the best score of each piece to sums relative to the best of all.

    Returns (score of the target, log of the sum of exponentials, hit, entropy), [S] each.
    """
    target_S, best_S = sums_KS.target.sum(0), sums_KS.best.max(0)
    below_KS = sums_KS.best - best_S
    weighted_S = ((sums_KS.weighted + sums_KS.exponentials * below_KS) * jnp.exp(below_KS)).sum(0)
    sum_S = (sums_KS.exponentials * jnp.exp(below_KS)).sum(0)
    logsumexp_S = best_S + jnp.log(sum_S)

    # A tie is no hit: a network that scores all tokens alike has predicted nothing.
    tied_S = jnp.where(sums_KS.best == best_S, sums_KS.tied, 0).sum(0)
    hit_S = (target_S == best_S) & (tied_S == 1)
    entropy_S = jnp.log(sum_S) - weighted_S / sum_S  # -sum p log p, from scores below the best
    return target_S, logsumexp_S, hit_S, entropy_S


def _block_masses(tempered_SP, excluded_SP):
    """(the highest score [S], the mass of each block of a piece relative to it [S, G])."""
    top_S = tempered_SP.max(-1)
    mass_SP = jnp.exp(tempered_SP - top_S[:, None]) * ~excluded_SP
    return top_S, mass_SP.reshape(len(top_S), -1, sampling.BLOCK).sum(-1)


def _masses_of_all_pieces(masses):
    """From `_block_masses` of each piece to masses relative to the highest score, [S, G]."""
    top_KS, mass_KSG = masses
    mass_KSG *= jnp.exp(top_KS - top_KS.max(0))[:, :, None]
    return jnp.moveaxis(mass_KSG, 0, 1).reshape(top_KS.shape[1], -1)


def _scan_backward(static, saved, gradients):
    vectors_SE, table_VE, bias_V, targets_S, logsumexp_S, used_q = saved
    gradient_S = gradients[0] / used_q.temperature if used_q else gradients[0]

    def step(carry, pieces):
        first, vectors_gradient_SE = carry
        table_PE, bias_P, *forbidden = pieces
        scores_SP = _scores(vectors_SE, table_PE, bias_P)
        if used_q:
            excluded_SP = used_q.excluded(first, *forbidden)
            scores_SP = jnp.where(excluded_SP, _NOTHING, scores_SP / used_q.temperature)

        probabilities_SP = jnp.exp(scores_SP - logsumexp_S[:, None])
        is_target_SP = targets_S[:, None] == first + jnp.arange(len(bias_P))
        scores_gradient_SP = (probabilities_SP - is_target_SP) * gradient_S[:, None]

        # Matrix products run in the dtype of the vectors, and their sums in float32.
        rounded_SP = scores_gradient_SP.astype(vectors_SE.dtype)
        vectors_gradient_SE += jnp.dot(
            rounded_SP, table_PE.astype(vectors_SE.dtype), preferred_element_type=jnp.float32
        )
        table_gradient_PE = layers.KERNEL_GRADIENTS[static.products](rounded_SP, vectors_SE)
        return (first + len(bias_P), vectors_gradient_SE), (
            table_gradient_PE,
            scores_gradient_SP.sum(0),
        )

    begin = 0, jnp.zeros(vectors_SE.shape, jnp.float32)
    (_, vectors_gradient_SE), (table_gradient_KPE, bias_gradient_KP) = lax.scan(
        step, begin, static.cut(table_VE, bias_V, used_q and used_q.forbidden_V)
    )
    v, e = table_VE.shape
    return (
        vectors_gradient_SE.astype(vectors_SE.dtype),
        table_gradient_KPE.reshape(-1, e)[:v],
        bias_gradient_KP.reshape(-1)[:v],
        None,
        None,
    )


_scan_vocabulary.defvjp(_scan_forward, _scan_backward)


def _scores(vectors_SE, table_PE, bias_P):
    # `vectors @ table.T` is the same product, and in bfloat16 on a CPU it takes four times as long
    # (docs/LOG.md).
    table_PE = table_PE.astype(vectors_SE.dtype)
    f32 = jnp.float32
    return jnp.einsum("se,pe->sp", vectors_SE, table_PE, preferred_element_type=f32) + bias_P


def _cut(piece, table_VE, bias_V, forbidden_V=None):
    """Cuts into equal pieces of whole blocks, [K, P, ...]; ids added at the end have no mass."""
    blocks = len(bias_V) // sampling.BLOCK
    count = -(-blocks * sampling.BLOCK // piece)
    length = -(-blocks // count) * sampling.BLOCK
    more = count * length - len(bias_V)

    table_VE = jnp.pad(table_VE, ((0, more), (0, 0)))
    bias_V = jnp.pad(bias_V, (0, more), constant_values=-1e9)
    pieces = table_VE.reshape(count, length, -1), bias_V.reshape(count, length)
    if forbidden_V is None:
        return pieces
    return *pieces, jnp.pad(forbidden_V, (0, more)).reshape(count, length)


def _masses_of_blocks(vectors_SE, table_VE, bias_V, block_S, q, excluded_SO, least):
    """exp((score - highest) / temperature) of the ids of one block per slot, or `least`: [S, 128].

    Forbidden ids have none, nor have those that are excluded at their slot.
    """
    # Blocks along an axis of their own, in the dtype of the product: a TPU gathers them so, and
    # takes slices that may begin anywhere one by one.
    table_GIE = table_VE.astype(vectors_SE.dtype).reshape(-1, sampling.BLOCK, table_VE.shape[1])
    bias_GI = bias_V.reshape(-1, sampling.BLOCK)
    forbidden_GI = q.forbidden_V.reshape(-1, sampling.BLOCK)

    def one(inputs):
        vector_E, block, excluded_O = inputs
        ids_I = block * sampling.BLOCK + jnp.arange(sampling.BLOCK)
        forbidden_I = forbidden_GI[block] | (ids_I[:, None] == excluded_O).any(-1)

        scores_I = _scores(vector_E[None], table_GIE[block], bias_GI[block])[0]
        tempered_I = jnp.where(forbidden_I, _NOTHING, scores_I / q.temperature)
        return jnp.maximum(jnp.exp(tempered_I - tempered_I.max()), least) * ~forbidden_I

    bytes_per_slot = table_GIE[0].size * table_GIE.dtype.itemsize
    inputs = vectors_SE, block_S, excluded_SO
    return lax.map(one, inputs, batch_size=max(1, 2**24 // bytes_per_slot))
