# SPDX-License-Identifier: Apache-2.0
"""One step of fine-tuning in numbers: what is summed, what is padded, which layer moves how far."""

import dataclasses
import functools
import json
import os
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from electra_jax.finetuning.tuning import rates, tuning_step
from electra_jax.model import networks, task_heads
from electra_jax.step import optimizer
from support import odd
from support.corpus import ROOT

# beta 0 and a large epsilon make Adam's update the clipped gradient over epsilon.
PLAIN = optimizer.Settings(beta1=0, beta2=0, epsilon=1e9, weight_decay=0, clip_norm=0)
SETUP = tuning_step.Setup(
    networks=odd.NETWORKS,
    head=task_heads.HeadConfig("linear", 10, outputs=3, dropout=0.0),
    kind="classification",
    pad_id=odd.PAD,
    optimizer_settings=PLAIN,
    layer_decay=1.0,
)
# With it the first step moves parameters by the gradient.
SCHEDULE = tuning_step.rate_schedule(1e9, 100, 0.0)
KEY = jax.random.key(0)
TRUNK = networks.main_trunk(odd.NETWORKS, odd.weights())
BATCH = {
    "ids": odd.IDS_BL[[0, 1, 4, 5]].astype(np.int32),
    "marks": odd.MARKS_BL[[0, 1, 4, 5]].astype(np.uint8),
    "weight": np.ones(4, np.float32),
    "label": np.array([0, 2, 1, 1], np.int32),
}


# The same networks with dropout, trained by the published optimizer on rows that weigh differently.
DROPPING = dataclasses.replace(
    SETUP,
    networks=dataclasses.replace(
        odd.NETWORKS, discriminator=odd.trunk(2, 10, 2, 14, dropout=0.2, attention_dropout=0.2)
    ),
    head=task_heads.HeadConfig("linear", 10, outputs=3, dropout=0.2),
    optimizer_settings=optimizer.Settings(),
)
UNEVEN = BATCH | {
    "weight": np.array([1, 1, 1, 0], np.float32),
    "tags": np.array([[2] + 10 * [-1], 11 * [1], [0, 2] + 9 * [-1], 11 * [0]], np.int32),
}


@functools.cache
def stepped(setup=SETUP):
    """(state, batch) -> how far one step moved each parameter, by path, and the loss."""

    def run(state, batch):
        after, loss = tuning_step._update(setup, state, batch, SCHEDULE, KEY)
        return jax.tree.map(jnp.subtract, state.params, after.params), loss, after.skipped

    return odd.jit(run)


def moved(setup=SETUP, **changes):
    state = tuning_step._begin(setup, TRUNK, KEY)
    tree, loss, _ = stepped(setup)(state, BATCH | changes)
    return odd.flat(tree), float(loss)


@functools.cache
def trained(setup=DROPPING):
    """(state before, state after three steps, their losses)."""
    shapes = jax.eval_shape(lambda: tuning_step.fresh_trunk(setup.networks, KEY))
    begun = state = tuning_step._begin(setup, odd.random_like(shapes), KEY)
    # The rate is low, because Adam enlarges the rounding of gradients near 0.
    schedule = tuning_step.rate_schedule(1e-4, 4, 0.0)
    step = odd.jit(lambda state: tuning_step._update(setup, state, UNEVEN, schedule, KEY))
    losses = []
    for _ in range(3):
        state, loss = step(state)
        losses.append(float(loss))
    return begun, state, losses


def with_encoder(setup, **changes):
    shape = dataclasses.replace(setup.networks.discriminator, **changes)
    return dataclasses.replace(
        setup, networks=dataclasses.replace(setup.networks, discriminator=shape)
    )


def assert_trained_alike(setup, plain):
    _, one, losses = trained(setup)
    begun, other, expected = trained(plain)
    assert losses == pytest.approx(expected, rel=1e-6)
    before, after = odd.flat(begun.params), odd.flat(other.params)
    for path, x in odd.flat(one.params).items():
        np.testing.assert_allclose(x, after[path], rtol=0, atol=1e-6, err_msg=path)
        assert (after[path] != before[path]).any(), path


@pytest.mark.parametrize(
    ("kind", "head", "parts"),
    [("classification", "linear", 2), ("classification", "linear", 4), ("tagging", "token", 2)],
)
def test_micro_batches_train_as_the_whole_batch(kind, head, parts):
    """Dropout too goes by the row, and a micro-batch counts by the rows or tags that it has."""
    head = dataclasses.replace(DROPPING.head, kind=head)
    plain = dataclasses.replace(DROPPING, kind=kind, head=head)
    assert_trained_alike(dataclasses.replace(plain, accumulation=parts), plain)


@pytest.mark.parametrize(("remat", "scan"), [("dots", False), ("full", False), ("full", True)])
def test_what_is_computed_again_is_the_same(remat, scan):
    assert_trained_alike(with_encoder(DROPPING, remat=remat, scan=scan), DROPPING)


@pytest.mark.parametrize(
    ("frozen", "place", "kept"),
    [
        (1, "post", {"embeddings", "projection"}),
        (1, "pre", {"embeddings", "projection"}),
        (2, "post", {"embeddings", "projection"}),
        (2, "pre", {"embeddings", "projection", "norm"}),  # the last norm goes with the top layer
    ],
)
def test_frozen_layers_and_what_is_below_keep_every_bit(frozen, place, kept):
    """Of two layers. Moments stay 0, and weights do not decay."""
    begun, state, _ = trained(with_encoder(DROPPING, frozen_layers=frozen, norm_place=place))
    before, after = odd.flat(begun.params), odd.flat(state.params)
    moments = odd.flat(optax.tree.get(state.opt_state, "mu"))
    for path, x in after.items():
        part = path.removeprefix("discriminator/").removeprefix("encoder/").split("/")[0]
        layered = part in ("attention", "feed_forward")
        still = frozen if layered else len(x) if part in kept else 0
        np.testing.assert_array_equal(x[:still], before[path][:still], err_msg=path)
        assert (moments[path][:still] == 0).all(), path
        assert still == len(x) or (x[still:] != before[path][still:]).any(), path


def test_the_mean_is_the_sum_over_the_rows():
    """Four rows: the summed loss moves everything four times as far; both report the mean."""
    mean, mean_loss = moved()
    summed, sum_loss = moved(dataclasses.replace(SETUP, loss="sum"))
    assert sum_loss == pytest.approx(mean_loss, rel=1e-6)
    for path, x in mean.items():
        np.testing.assert_allclose(summed[path], 4 * x, rtol=1e-3, atol=1e-5, err_msg=path)


def test_clipping_takes_the_difference_away():
    """Where both are clipped to norm 1, sum and mean move parameters alike."""
    clipped = dataclasses.replace(
        SETUP, optimizer_settings=dataclasses.replace(PLAIN, clip_norm=1e-3)
    )
    mean, _ = moved(clipped)
    summed, _ = moved(dataclasses.replace(clipped, loss="sum"))
    norm = np.sqrt(sum((x**2).sum() for x in mean.values()))
    assert norm == pytest.approx(1e-3, rel=1e-2)
    for path, x in mean.items():
        np.testing.assert_allclose(summed[path], x, atol=1e-6, err_msg=path)


def test_rows_of_weight_0_change_nothing():
    weight = np.array([1, 1, 0, 1], np.float32)
    others = BATCH["ids"].copy()
    others[2] = odd.IDS_BL[3]
    one = moved(weight=weight)
    other = moved(weight=weight, ids=others, label=np.array([0, 2, 2, 1], np.int32))
    assert one[1] == pytest.approx(other[1], rel=1e-6)
    for path, x in one[0].items():
        np.testing.assert_allclose(other[0][path], x, atol=1e-6, err_msg=path)


@pytest.mark.parametrize("rule", ["paper", "released_code"])
def test_layers_move_by_their_factors(rule):
    even, _ = moved()
    decayed, _ = moved(dataclasses.replace(SETUP, layer_decay=0.5, decay_rule=rule))
    tree = tuning_step._begin(SETUP, TRUNK, KEY).params
    factors = odd.flat(rates.factors(tree, 0.5, rule))
    for path, x in even.items():
        np.testing.assert_allclose(decayed[path], factors[path] * x, atol=1e-5, err_msg=path)


def test_seeds_share_the_encoder_and_not_the_head():
    one, other = (tuning_step._begin(SETUP, TRUNK, key).params for key in tuning_step.keys([0, 1]))
    assert (one["head"]["output"]["kernel"] != other["head"]["output"]["kernel"]).all()
    for path, x in odd.flat(TRUNK).items():
        np.testing.assert_array_equal(odd.flat(one)[path], x)
    fresh = [
        odd.jit(lambda key: tuning_step._begin_fresh(SETUP, key).params)(k)
        for k in tuning_step.keys([0, 1])
    ]
    tokens = [params["embeddings"]["token"] for params in fresh]
    assert (tokens[0] != tokens[1]).all()


def test_a_step_that_is_not_finite_is_not_applied():
    state = tuning_step._begin(SETUP, TRUNK, KEY)
    bad = BATCH | {"weight": np.array([1, np.nan, 1, 1], np.float32)}
    tree, _, skipped = stepped()(state, bad)
    assert int(skipped) == 1
    assert all((x == 0).all() for x in odd.flat(tree).values())


def test_the_mean_is_over_the_tokens_that_each_row_has():
    head = task_heads.HeadConfig("mean", 10, outputs=3, dropout=0.0)
    setup = dataclasses.replace(SETUP, head=head)
    state = tuning_step._begin(setup, TRUNK, KEY)
    _, loss, _ = stepped(setup)(state, BATCH)
    real_BL = BATCH["ids"] != odd.PAD
    assert 0 < real_BL.sum() < real_BL.size  # rows of several lengths

    @odd.jit
    def scores(params):
        rows = odd.batch(BATCH["ids"], BATCH["marks"])
        hidden_BLD = networks.hidden(odd.NETWORKS, params, rows)
        means = [x[real].mean(0) for x, real in zip(hidden_BLD, real_BL, strict=True)]
        output = params["head"]["output"]
        return jnp.stack(means) @ output["kernel"] + output["bias"]

    log_BC = jax.nn.log_softmax(scores(state.params))
    expected = -np.mean([log_BC[row, label] for row, label in enumerate(BATCH["label"])])
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


def test_a_step_moves_what_matches_both_texts():
    """The half of the layer that reads |u - v| and u v, of which a single text has none."""
    head = task_heads.HeadConfig("matched_means", 10, outputs=3, dropout=0.0)
    setup = dataclasses.replace(SETUP, head=head)
    kernel, _ = moved(setup)
    kernel = kernel["head/output/kernel"].reshape(4, 10, 3)
    assert (abs(kernel).max((1, 2)) > 0).all()

    apart, _ = moved(setup, marks=BATCH["marks"] & 1)  # no text B
    apart = apart["head/output/kernel"].reshape(4, 10, 3)
    assert (apart[[1, 3]] == 0).all() and abs(apart[0]).max() > 0


def test_the_loss_of_tags_counts_tokens_that_have_one():
    setup = dataclasses.replace(
        SETUP, kind="tagging", head=task_heads.HeadConfig("token", 10, outputs=3, dropout=0.0)
    )
    tags = np.full(BATCH["ids"].shape, -1, np.int32)
    tags[0, 1], tags[1, 1:3] = 2, 0
    state = tuning_step._begin(setup, TRUNK, KEY)
    batch = BATCH | {"tags": tags}
    _, loss, _ = stepped(setup)(state, batch)
    rows = odd.batch(BATCH["ids"], BATCH["marks"])

    @odd.jit
    def scores(params):
        hidden_BLD = networks.hidden(odd.NETWORKS, params, rows)
        return task_heads.token(setup.head, params["head"], hidden_BLD, rows, None)

    log_BLC = jax.nn.log_softmax(scores(state.params))
    expected = -(log_BLC[0, 1, 2] + log_BLC[1, 1, 0] + log_BLC[1, 2, 0]) / 3
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("impossible", [False, True])
def test_the_loss_of_an_answer_is_the_mean_of_its_ends(impossible):
    """The end is scored from the true start; whether there is an answer counts half."""
    head = task_heads.HeadConfig("span_joint", 10, hidden=7, impossible=impossible)
    setup = dataclasses.replace(SETUP, kind="span", head=head)
    state = tuning_step._begin(setup, TRUNK, KEY)
    allowed = BATCH["ids"] != odd.PAD
    spans = {
        "allowed": allowed,
        "start": np.array([1, 2, 0, 3], np.int32),
        "end": np.array([2, 2, 0, 4], np.int32),
        "impossible": np.array([0, 0, 1, 0], np.float32),
    }
    _, loss, _ = stepped(setup)(state, BATCH | spans)
    rows = odd.batch(BATCH["ids"], BATCH["marks"])

    @odd.jit
    def scores(params):
        hidden_BLD = networks.hidden(odd.NETWORKS, params, rows)
        return task_heads.span_joint(params["head"], hidden_BLD, allowed, spans["start"])

    start_BL, end_BL, judged_B = scores(state.params)
    expected = 0
    for row in range(4):
        expected -= 0.5 * jax.nn.log_softmax(start_BL[row])[spans["start"][row]]
        expected -= 0.5 * jax.nn.log_softmax(end_BL[row])[spans["end"][row]]
        if impossible:
            sign = 1 if spans["impossible"][row] else -1
            expected -= 0.5 * jax.nn.log_sigmoid(sign * judged_B[row])
    assert float(loss) == pytest.approx(float(expected) / 4, rel=1e-5)


@pytest.fixture(scope="module")
def layouts():
    """{devices and seeds: losses and norms after three steps}, in a process of its own."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0",
    }
    command = [sys.executable, str(ROOT / "tests" / "workers" / "finetuning_worker.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    ["4 devices", "2 seeds", "2 seeds on 4 devices", "2 seeds on 2 devices, 2 micro-batches"],
)
def test_devices_and_seeds_beside_change_nothing_but_rounding(layouts, layout):
    """Losses of both seeds at three steps, with dropout, then what the tuned heads say."""
    for name, expected in layouts["1 device"].items():
        np.testing.assert_allclose(layouts[layout][name], expected, rtol=2e-4, atol=2e-5)
    assert layouts["1 device"]["losses"][0] != layouts["1 device"]["losses"][1]
