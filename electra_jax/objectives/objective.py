# SPDX-License-Identifier: Apache-2.0
"""What every objective is: settings, phases, and the functions that a training step calls.

    init(key) -> params                          only the subtrees that the objective needs
    knobs(progress) -> {name: value}             what changes in a run: mask rate, temperature
    denominators(batch, knobs) -> {term: count}  from the ids of a whole batch, before any gradient
    loss(params, batch, keys, knobs) -> ({term: sum}, metrics)
    phases                                       where there are several losses: each with a
                                                     loss(params, batch, keys, knobs, handover)
                                                     -> ({term: sum}, metrics, handover)
    total(means) -> scalar                       from {term: sum / denominator}
    intermediates(params, batch, keys, knobs)    everything that happened to a batch, to be shown
    evaluate(params, batch, keys, knobs, probe) -> metrics
    flops(length)                                of one row, by part
    token_scores, masked_scores, detects,
    correction_scores, generator_scores          how natural a text is, see `scoring.py`

Operations that objectives share are defined here: choosing slots, masking them, and running a
function of rows on the devices that hold the rows.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar

import jax
from jax import numpy as jnp

from electra_jax.core import batch as batch_lib
from electra_jax.core import metrics, placing, streams
from electra_jax.model import accounting, networks
from electra_jax.objectives import masking, sampling, unigram_probe, vocabulary_softmax

# An array, or None if the objective does not produce it. It is typed as Any, so that code that is
# written for one objective need not check for None.
ArrayOrNone = jax.Array | Any

Kind = TypeVar("Kind", bound="Corrupted")


@dataclasses.dataclass(frozen=True)
class Phase:
    """One backward pass of a step, with an optimizer state of its own.

    `loss(params, batch, keys, knobs, handover)` returns ({term: sum}, metrics, handover), of
    which the last goes to the next phase. `trains` names the subtrees of the parameters that learn;
    None is all.
    """

    name: str
    loss: Callable
    trains: tuple[str, ...] | None = None

    def trained(self, params: dict) -> dict:
        """The part of the parameters that this phase updates."""
        return params if self.trains is None else {part: params[part] for part in self.trains}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Corrupted:
    """A batch with other tokens at some slots; a field that is not produced is None."""

    chosen: masking.Chosen
    masked_BL: jax.Array  # ids that the predicting network saw
    sampled_BN: ArrayOrNone  # ids that a generator wrote at the slots
    corrupted_BL: jax.Array  # ids that the discriminator sees
    replaced_BL: jax.Array  # bool: differs from the original
    gen_losses_BN: ArrayOrNone = None  # float32, -log p_G of the originals
    gen_hits_BN: ArrayOrNone = None  # bool: the original scored highest
    gen_entropies_BN: ArrayOrNone = None  # float32, of p_G, in nats
    vectors_BNE: ArrayOrNone = None  # the generator's output at each slot
    offered_BNO: ArrayOrNone = None  # ids among which the original, the first, is to be found

    def further(self, kind: type[Kind], **fields: Any) -> Kind:
        """The same batch further on its way: a `kind`, which has these fields as well."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return kind(**own, **fields)


@dataclasses.dataclass(frozen=True)
class Objective(abc.ABC):
    """The settings of an objective, and what all objectives share.

    `mask_rate` and `temperature` change over a run where their first values are given: the rate
    linearly from `first_mask_rate` (arXiv:2305.15273), the temperature exponentially from
    `first_temperature`, with `temperature_decay` of the run as time constant (Fast-ELECTRA,
    arXiv:2310.07347).
    """

    networks: networks.NetworksConfig
    special_ids: tuple[int, ...]  # never chosen and never sampled
    mask_id: int
    slots: int  # N
    mask_rate: float
    first_mask_rate: float  # 0: mask_rate from the start
    mask_token_rate: float
    random_token_rate: float
    mask_unit: str  # 'token', 'word', 'span'
    span_words: float
    temperature: float
    first_temperature: float  # 0: temperature from the start
    temperature_decay: float
    disallow_correct: bool
    gen_weight: float
    disc_weight: float
    mlm_weight: float
    selection_weight: float
    selection_size: int
    placement: placing.Placement = placing.ONE_DEVICE

    terms: ClassVar[tuple[str, ...]] = ()  # names of the losses that are summed
    masks: ClassVar[bool] = True  # whether a network is shown [MASK] at the chosen slots

    # (params, batch) -> [B, L], where one pass scores a text
    token_scores: ClassVar[Callable[..., jax.Array] | None] = None
    # (params, batch, places_B) -> [B], where each pass scores one token
    masked_scores: ClassVar[Callable[..., jax.Array] | None] = None
    detects: ClassVar[bool] = False  # whether token_scores are log P(original) of a discriminator
    # As token_scores, of a second head that predicts; as masked_scores, of the generator
    correction_scores: ClassVar[Callable[..., jax.Array] | None] = None
    generator_scores: ClassVar[Callable[..., jax.Array] | None] = None

    @abc.abstractmethod
    def init(self, key: jax.Array) -> dict:
        """Returns fresh parameters."""

    @abc.abstractmethod
    def denominators(self, batch: batch_lib.Batch, knobs: dict) -> dict[str, jax.Array]:
        """How many slots or tokens the loss of each term is a mean over."""

    @abc.abstractmethod
    def loss(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> tuple[dict[str, jax.Array], metrics.Sums]:
        """The losses as sums by term, and the metrics."""

    @abc.abstractmethod
    def intermediates(
        self, params: dict, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict
    ) -> Corrupted:
        """Everything that happens to a batch, to be shown."""

    @abc.abstractmethod
    def flops(self, length: int) -> accounting.Flops:
        """Operations of a row of `length` tokens."""

    def evaluate(
        self,
        params: dict,
        batch: batch_lib.Batch,
        keys: streams.Keys,
        knobs: dict,
        probe: unigram_probe.Probe,
    ) -> metrics.Sums:
        """The metrics of held-out rows, without dropout: those of a step, or more."""
        del probe
        return self.loss(params, batch, keys, knobs)[1]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The backward passes of a step; one with all losses, unless an objective has several."""
        return (Phase("joint", self._only_loss),)

    def _only_loss(self, params, batch, keys, knobs, handover):
        """`loss` in the form of a phase, for a step of one phase: nothing is handed on."""
        return *self.loss(params, batch, keys, knobs), handover

    @property
    def term_weights(self) -> dict[str, float]:
        """The factor of each term in the total loss."""
        return {
            "gen": self.gen_weight,
            "disc": self.disc_weight,
            "mlm": self.mlm_weight,
            "selection": self.selection_weight,
        }

    def total(self, means: Mapping[str, Any]) -> Any:
        """The sum of the terms that are given, each times its factor."""
        return sum(self.term_weights[term] * means[term] for term in means)

    def scored_places(self, length: int) -> int:
        """At how many positions of a row of `length` tokens the whole vocabulary is scored."""
        del length
        return self.slots

    @property
    def filled_share(self) -> float:
        """Of the tokens that a discriminator judges, the share that the generator filled in without
        seeing what stood there, at the end of a run."""
        return float(self.knobs(1.0)["mask_rate"]) * (self.mask_token_rate + self.random_token_rate)

    def placed(self, placement: placing.Placement = placing.ONE_DEVICE) -> Self:
        """The same objective, computed elsewhere."""
        return dataclasses.replace(self, placement=placement)

    def knobs(self, progress: jax.Array | float) -> dict:
        """Mask rate and temperature when the share `progress` of the run is done."""
        progress = jnp.asarray(progress, jnp.float32)
        mask_rate, temperature = jnp.float32(self.mask_rate), jnp.float32(self.temperature)

        if self.first_mask_rate:
            mask_rate += (self.first_mask_rate - mask_rate) * (1 - progress)
        if self.first_temperature:
            decay = jnp.exp(-progress / self.temperature_decay)
            temperature += (self.first_temperature - temperature) * decay

        return {"mask_rate": mask_rate, "temperature": temperature}

    def count(self, batch: batch_lib.Batch, knobs: dict) -> jax.Array:
        """k of each row, the number of slots that are used: int32 [B]."""
        candidates_BL = masking.candidates(batch.ids_BL, self.special_ids)
        return masking.count(candidates_BL, batch.real_BL, knobs["mask_rate"], self.slots)

    def choose(self, batch: batch_lib.Batch, keys: streams.Keys, knobs: dict) -> masking.Chosen:
        """m: the slots of each row, chosen by token, by word or by span."""
        candidates_BL = masking.candidates(batch.ids_BL, self.special_ids)
        starts_BL = self._unit_starts(batch, candidates_BL, keys)
        return self.placement.rowwise(
            masking.choose,
            (keys.mask_B, candidates_BL, self.count(batch, knobs), starts_BL),
            n=self.slots,
            mask_token_rate=self.mask_token_rate if self.masks else 0.0,
            random_token_rate=self.random_token_rate if self.masks else 0.0,
        )

    def _unit_starts(self, batch, candidates_BL, keys):
        """Where a word or span begins; None where each token is chosen by itself."""
        if self.mask_unit == "token":
            return None
        borders_BL = masking.borders(candidates_BL, batch)
        if self.mask_unit == "word":
            return batch.word_starts_BL | borders_BL
        if self.mask_unit == "span":
            words_BL = batch.word_starts_BL
            return masking.span_starts(keys.mask_B, words_BL, borders_BL, self.span_words)
        raise ValueError(f"mask_unit={self.mask_unit!r} is none of 'token', 'word', 'span'")

    def mask(
        self, batch: batch_lib.Batch, chosen: masking.Chosen, keys: streams.Keys
    ) -> batch_lib.Batch:
        """REPLACE(x, m, [MASK]): what a network that predicts is shown."""
        random_ids_BN = None
        if self.random_token_rate:
            equal_V = jnp.arange(self.networks.padded_vocab_size) < self.networks.vocab_size
            random_ids_BN = self.draw(equal_V, streams.part(keys.mask_B, "mask", "random_tokens"))

        masked_BL = masking.mask(batch.ids_BL, chosen, self.mask_id, random_ids_BN)
        return dataclasses.replace(batch, ids_BL=masked_BL)

    def draw(self, weights_V: jax.Array, keys_B: jax.Array) -> jax.Array:
        """Ids [B, N] from one distribution for all slots, never a special id."""
        return self.placement.rowwise(
            sampling.from_weights,
            (keys_B,),
            shared=(weights_V,),
            n=self.slots,
            forbidden_ids=self.special_ids,
        )

    def predict_and_sample(
        self,
        params: dict,
        vectors_BNE: jax.Array,
        originals_BN: jax.Array,
        keys: streams.Keys,
        temperature: jax.Array | float,
        *,
        disallow_correct: bool,
    ) -> vocabulary_softmax.SlotPredictions:
        """p_G at every slot: -log p_G(x_t | x_masked), and a sample from it."""
        return self.placement.rowwise(
            vocabulary_softmax.predict_and_sample,
            (vectors_BNE, originals_BN, keys.sample_B),
            shared=(*networks.generator_table(self.networks, params), temperature),
            size=self.networks.vocab_size,
            forbidden_ids=self.special_ids,
            disallow_correct=disallow_correct,
            products=self.networks.discriminator.products,
        )

    def predict(
        self,
        params: dict,
        batch: batch_lib.Batch,
        slots_BN: jax.Array,
        targets_BN: jax.Array,
        keys_B: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """What a main network that predicts tokens says at the slots; dropout if keys are given.

        Returns (-log p of the targets [B, N], whether each scores highest, its vectors [B, N, E]).
        """
        vectors_BNE = networks.predictor_vectors(
            self.networks, params, batch, slots_BN, keys_B, self.placement
        )
        table = networks.predictor_table(self.networks, params)
        return *self.score(table, vectors_BNE, targets_BN), vectors_BNE

    def score(
        self,
        table: tuple[jax.Array, jax.Array],
        vectors_BNE: jax.Array,
        targets_BN: jax.Array,
        forbidden_ids: tuple[int, ...] = (),
    ) -> tuple[jax.Array, jax.Array]:
        """-log p of the targets under a token table with its bias, and whether each scores higher
        than every other token."""
        return self.placement.rowwise(
            vocabulary_softmax.score,
            (vectors_BNE, targets_BN),
            shared=table,
            size=self.networks.vocab_size,
            forbidden_ids=forbidden_ids,
            products=self.networks.discriminator.products,
        )
