# SPDX-License-Identifier: Apache-2.0
"""Sizes as published, a tree that keeps its names, and rows that keep to themselves."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from electra_jax.core import streams
from electra_jax.model import accounting, layers, networks
from support import corpus, odd, small_objectives
from support.published import VOCABULARY, shapes_of, tree_of


@pytest.mark.parametrize(
    ("name", "discriminator", "generator"),
    [
        ("small", 13_549_057, 4_620_026),
        ("base", 109_483_009, None),
        ("large", 335_142_913, None),  # 334,092,288 without the head
    ],
)
def test_sizes_are_the_published_ones(name, discriminator, generator):
    config, shapes = shapes_of(name)
    parts = accounting.parameters(shapes)
    tail = config.padded_vocab_size - VOCABULARY
    tables = parts["embeddings"] - tail * config.embedding_size
    assert tables + parts["discriminator"] == discriminator
    if generator:
        assert tables + parts["generator"] - tail == generator


def test_the_tree_keeps_its_names_and_shapes():
    """Checkpoints rely on them. Where a change is meant:
    python -m tests.support.make_golden parameters.
    """
    golden = json.loads((corpus.ROOT / "tests" / "golden" / "parameters.json").read_text())
    assert {path: list(shape) for path, shape in tree_of("small").items()} == golden


def test_a_projection_stands_only_where_sizes_differ():
    network = odd.trunk(1, 8, 2, 4)
    for size, projected in ((8, False), (6, True)):
        config = odd.pair(37, size, 13, network, network)
        shapes = jax.eval_shape(lambda c=config: networks.init(c, jax.random.key(0)))
        for part in ("generator", "discriminator"):
            assert ("projection" in shapes[part]) is projected


def test_first_weights_believe_nothing_in_particular():
    """Losses begin near ln V and ln 2: 45.0 in all with the published vocabulary."""
    init = odd.jit(lambda key: networks.init(odd.NETWORKS, key))
    params = init(jax.random.key(0))
    gen_logits_BLV, _, disc_logits_BL = odd.forward()(params, odd.batch())
    log_probabilities_BLV = jax.nn.log_softmax(gen_logits_BLV)[..., : odd.NETWORKS.vocab_size]
    assert float(-log_probabilities_BLV.mean()) == pytest.approx(math.log(37), abs=0.02)
    assert abs(disc_logits_BL).max() < 0.3
    other = odd.flat(init(jax.random.key(1)))
    kernels = {path: x for path, x in odd.flat(params).items() if path.endswith("kernel")}
    assert all((x != other[path]).all() for path, x in kernels.items())


# Rows and documents


@pytest.fixture(scope="module")
def outputs():
    return odd.forward()(odd.weights(), odd.batch())


def test_outputs_are_float32_and_the_padded_tail_never_wins(outputs):
    gen_logits_BLV, hidden_BLD, disc_logits_BL = outputs
    assert {x.dtype.name for x in outputs} == {"float32"}
    assert gen_logits_BLV.shape == (6, 11, 128)
    assert hidden_BLD.shape == (6, 11, 10)
    assert disc_logits_BL.shape == (6, 11)
    assert (gen_logits_BLV[..., 37:] == -1e9).all()
    assert abs(gen_logits_BLV[..., :37]).max() < 100


def test_rows_of_padding_alone_stay_finite(outputs):
    assert all(np.isfinite(x).all() for x in outputs)


def test_what_stands_in_the_padding_moves_nothing(outputs):
    batch = odd.batch()
    ids_BL = jnp.where(batch.real_BL, batch.ids_BL, 9)
    moved = odd.forward()(odd.weights(), dataclasses.replace(batch, ids_BL=ids_BL))
    for old, new in zip(outputs, moved):
        assert (old[batch.real_BL] == new[batch.real_BL]).all()
    assert (outputs[1][~batch.real_BL] != moved[1][~batch.real_BL]).any()


def test_documents_of_one_row_do_not_see_each_other(outputs):
    batch = odd.batch()
    ids_BL = batch.ids_BL.at[0, 8].set(30)  # in the second of two
    moved = odd.forward()(odd.weights(), dataclasses.replace(batch, ids_BL=ids_BL))
    same_BL = jnp.ones((6, 11), bool).at[0, 7:].set(False)
    for old, new in zip(outputs, moved):
        assert (old[same_BL] == new[same_BL]).all()
        assert (old[0, 7:10] != new[0, 7:10]).any(axis=-1).all()


def test_packed_documents_run_as_if_alone(outputs):
    """Rows 0 and 5 hold two and three documents; here each has a row of its own."""
    cuts = [(0, 0, 7), (0, 7, 10), (5, 0, 3), (5, 3, 7), (5, 7, 11), (4, 0, 9)]
    ids_BL, marks_BL = np.zeros((2, 6, 11), int)
    for row, (source, start, stop) in enumerate(cuts):
        ids_BL[row, : stop - start] = odd.IDS_BL[source, start:stop]
        marks_BL[row, : stop - start] = odd.MARKS_BL[source, start:stop]
    alone = odd.forward()(odd.weights(), odd.batch(ids_BL, marks_BL))
    for row, (source, start, stop) in enumerate(cuts):
        for packed, single in zip(outputs, alone):
            # Rounding alone, which grows with the number: some CPUs add up other rows otherwise.
            np.testing.assert_allclose(
                packed[source, start:stop], single[row, : stop - start], rtol=1e-6, atol=2e-6
            )


def test_every_input_is_used(outputs):
    """Types and positions move what they should."""
    batch = odd.batch()
    for change in (
        {"types_BL": 1 - batch.types_BL},
        {"positions_BL": batch.positions_BL + 1},
    ):
        moved = odd.forward()(odd.weights(), dataclasses.replace(batch, **change))
        for old, new in zip(outputs, moved):
            assert abs(old - new)[batch.real_BL].max() > 1e-2


def test_the_context_head_hears_the_cls_of_its_own_document():
    config = dataclasses.replace(small_objectives.SHALLOW, discriminator_head="cls_context")
    params = odd.weights(config)
    assert "discriminator/head/norm/scale" in odd.flat(params)
    batch = odd.batch()
    hidden_BLD, logits_BL = networks.discriminator_outputs(config, params, batch)
    head = jax.tree.map(np.asarray, params["discriminator"]["head"])
    #                  [CLS] of each token's document in the first row, padding left out
    for token, cls in enumerate([0, 0, 0, 0, 0, 0, 0, 7, 7, 7]):
        heard_D = np.asarray(hidden_BLD[0, token] + hidden_BLD[0, cls])
        heard_D = (heard_D - heard_D.mean()) / np.sqrt(heard_D.var() + 1e-12)
        heard_D = heard_D * head["norm"]["scale"] + head["norm"]["bias"]
        scored_D = np.asarray(
            jax.nn.gelu(
                heard_D @ head["dense"]["kernel"] + head["dense"]["bias"], approximate=False
            )
        )
        expected = scored_D @ head["output"]["kernel"][:, 0] + head["output"]["bias"][0]
        assert float(logits_BL[0, token]) == pytest.approx(float(expected), abs=1e-4)


# Dropout


@pytest.mark.parametrize("network", ["generator", "discriminator"])
def test_every_place_of_dropout_has_numbers_of_its_own(network, monkeypatch):
    """After the embeddings, and three in each of two layers; none in a head."""
    shape = dataclasses.replace(odd.NETWORKS.generator, dropout=0.1, attention_dropout=0.2)
    config = dataclasses.replace(odd.NETWORKS, generator=shape, discriminator=shape)
    batch, rates = odd.batch(), []

    def run(params):
        begins = []

        def record(rate, drawn):
            rates.append(rate)
            begins.append(drawn.reshape(len(drawn), -1)[:, :8])
            return jnp.ones(drawn.shape, bool), 1.0

        monkeypatch.setattr(layers, "keeps", record)
        keys_B = streams.row_keys(jax.random.key(0), 0, batch.row_B)
        if network == "generator":
            networks.generator_vectors(config, params, batch, batch.positions_BL[:, :3], keys_B)
        else:
            networks.discriminate(config, params, batch, keys_B)
        return jnp.stack(begins)

    begins = odd.jit(run)(odd.weights(config))
    assert rates == [0.1, *[0.2, 0.1, 0.1] * 2]
    assert len({tuple(begin) for begin in begins.reshape(-1, 8).tolist()}) == 7 * 6  # and by row


# Speed settings change nothing

PLAIN = (False, "none")
OTHERS = [
    (False, "dots", False),
    (False, "full", False),
    (True, "none", False),
    (True, "full", True),
    (False, "none", True),
]


@pytest.fixture(scope="module")
def judge():
    """Runs the discriminator forward and backward, with dropout: (logits, gradients)."""
    params, batch = odd.weights(), odd.batch()
    keys_B = streams.row_keys(jax.random.key(0), 0, batch.row_B)
    direction_BL = jnp.array(np.random.default_rng(0).standard_normal((6, 11)), jnp.float32)

    def run(scan, remat, joined=False):
        shape = dataclasses.replace(
            odd.NETWORKS.discriminator, scan=scan, remat=remat, joined_projections=joined,
            dropout=0.1, attention_dropout=0.2,
        )  # fmt: skip
        config = dataclasses.replace(odd.NETWORKS, discriminator=shape)

        @odd.jit
        def both(params):
            logits_BL, back = jax.vjp(
                lambda params: networks.discriminate(config, params, batch, keys_B), params
            )
            return logits_BL, back(direction_BL)[0]

        return both({part: params[part] for part in ("embeddings", "discriminator")})

    return run


@pytest.fixture(scope="module")
def plain(judge):
    return judge(*PLAIN)


@pytest.mark.parametrize(("scan", "remat", "joined"), OTHERS)
def test_settings_of_speed_change_nothing(judge, plain, scan, remat, joined):
    """Nor what is dropped: a layer's dropout goes by its number."""
    for path, x in odd.flat(judge(scan, remat, joined)).items():
        want = odd.flat(plain)[path]
        assert abs(x - want).max() <= 5e-6 * max(1, abs(want).max()), path


@pytest.mark.parametrize(
    ("scan", "remat", "frozen", "expected"),
    [(False, "full", 0, 2), (False, "full", 1, 1), (False, "none", 0, 0), (True, "full", 0, 0)],
)
def test_unrolled_layers_that_compute_again_finish_their_gradients_one_by_one(
    scan, remat, frozen, expected
):
    """Else a GPU has what all of them computed again in memory at a time (docs/LOG.md).

    Frozen layers have no backward pass.
    """
    shape = dataclasses.replace(
        odd.NETWORKS.discriminator, scan=scan, remat=remat, frozen_layers=frozen
    )
    config, params = dataclasses.replace(odd.NETWORKS, discriminator=shape), odd.weights()

    def total(params):
        return networks.discriminate(config, params, odd.batch(), None).sum()

    backward = jax.make_jaxpr(jax.grad(total))(params)
    barriers = [one for one in backward.eqns if one.primitive.name == "optimization_barrier"]
    assert len(barriers) == expected  # one a layer that is trained

    # The gradient of the layer's input, and those of all its weights.
    layer = jax.tree.leaves(params["discriminator"]["encoder"])
    assert {len(one.outvars) for one in barriers} <= {1 + len(layer)}


def test_dropout_is_at_work_there(plain, outputs):
    assert abs(plain[0] - outputs[2]).max() > 0.1


def test_bfloat16_stays_close_and_ends_in_float32(outputs):
    config = dataclasses.replace(odd.NETWORKS, dtype="bfloat16")
    found = odd.forward(config)(odd.weights(), odd.batch())
    assert [x.dtype.name for x in found] == ["float32", "bfloat16", "float32"]
    real_BL = odd.batch().real_BL
    for exact, rounded in zip(outputs, found):
        error = abs(exact - rounded.astype(jnp.float32))[real_BL]
        assert 0 < error.mean() < 0.02 and error.max() < 0.15


def shared(count, layers=(3, 2)):
    """Networks of one width, the discriminator and the generator with so many layers."""
    main, small = (dataclasses.replace(odd.NETWORKS.discriminator, layers=n) for n in layers)
    return dataclasses.replace(
        odd.NETWORKS, discriminator=main, generator=small, shared_layers=count
    )


def test_networks_that_share_their_lowest_layers_compute_what_copies_of_these_would():
    config, plain = shared(1), shared(0)
    params, batch = odd.weights(config), odd.batch()
    assert "projection" not in params["generator"]
    assert params["generator"]["upper_layers"]["attention"]["query"]["kernel"].shape[0] == 1

    def copied(lower, upper):
        return jax.tree.map(lambda x, y: jnp.concatenate([x[:1], y]), lower, upper)

    main, own = params["discriminator"], params["generator"]
    encoder = {part: copied(main["encoder"][part], x) for part, x in own["upper_layers"].items()}
    unshared = params | {"generator": own | {"encoder": encoder, "projection": main["projection"]}}
    slots_BN = jnp.tile(jnp.arange(3), (len(batch.ids_BL), 1))
    np.testing.assert_array_equal(
        networks.generator_vectors(config, params, batch, slots_BN),
        networks.generator_vectors(plain, unshared, batch, slots_BN),
    )
    np.testing.assert_array_equal(
        networks.discriminate(config, params, batch), networks.discriminate(plain, unshared, batch)
    )


def test_layers_that_are_shared_hear_both_losses_and_the_others_one():
    config = shared(1)
    objective, batch, params = odd.objective(networks=config), odd.batch(), odd.weights(config)
    keys = streams.keys(jax.random.key(0), 0, batch.row_B, dropout=True)

    def sums(params):
        return objective.loss(params, batch, keys, objective.knobs(0))[0]

    moved = {}
    for term in ("gen", "disc"):
        found = odd.jit(jax.grad(lambda params, term=term: sums(params)[term]))(params)
        for network, part in (("discriminator", "encoder"), ("generator", "upper_layers")):
            kernel = found[network][part]["feed_forward"]["in"]["kernel"]
            moved[term, network] = [bool(np.any(layer != 0)) for layer in np.asarray(kernel)]
    assert moved == {
        ("gen", "discriminator"): [True, False, False],
        ("gen", "generator"): [True],
        ("disc", "discriminator"): [True, True, True],
        ("disc", "generator"): [False],
    }
