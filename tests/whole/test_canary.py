# SPDX-License-Identifier: Apache-2.0
"""The canary sings on a CPU, and falls silent where a device computes otherwise."""

import json
import math
import sys
import types

import jax
import numpy as np
import pytest
from jax import lax

from benchmarks import canary
from electra_jax.model import blockwise_attention, encoder_config, fused_attention, residual_norm

ARRAY = np.array([1.0, -4.0, 2.0])


def test_an_error_is_a_share_of_the_largest_value():
    assert canary.error_of([ARRAY], [ARRAY]) == 0
    assert canary.error_of([ARRAY, ARRAY + [0, 0, 0.1]], [ARRAY, ARRAY]) == pytest.approx(0.025)
    assert canary.error_of([np.zeros(2)], [np.zeros(2)]) == 0
    assert canary.error_of([np.array(2.0)], [np.array(1.0)]) == 1


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_is_no_agreement(wrong):
    found = np.array([1.0, wrong, 2.0])
    assert canary.error_of([found], [ARRAY]) == math.inf
    assert canary.error_of([found], [found]) == math.inf


def test_arrays_that_are_missing_are_an_error():
    with pytest.raises(ValueError, match="shorter|longer"):
        canary.error_of([ARRAY], [ARRAY, ARRAY])


@pytest.mark.parametrize("name", canary.COMPUTATIONS)
def test_a_computation_has_finite_results_that_the_forms_of_a_gpu_repeat(name, monkeypatch):
    """An H200 was called wrong because it read the bytes of dropout in another order."""
    compute, tolerance = canary.COMPUTATIONS[name]
    cpu = jax.devices("cpu")[0]
    found = canary.on(cpu, compute)
    assert all(abs(x).max() > 0 for x in found)

    forms_on = encoder_config.forms_on
    monkeypatch.setattr(
        encoder_config, "forms_on", lambda *_, **__: forms_on("gpu", norms_in_kernel=True)
    )
    monkeypatch.setattr(lax, "platform_dependent", lambda *x, default, **_: default(*x))
    monkeypatch.setattr(residual_norm, "KernelSettings", interpreted(residual_norm.KernelSettings))
    assert canary.error_of(canary.on(cpu, compute), found) <= tolerance


def interpreted(form, asked=None):
    """A kernel's form on a CPU; adds to `asked` what it is made with."""

    def make(**given):
        if asked is not None:
            asked.append(given)
        return form(**given, interpret=True)

    return make


@pytest.mark.parametrize(
    ("device", "kernel"),
    [
        (dict(platform="tpu"), fused_attention),
        (dict(platform="gpu", compute_capability="9.0"), blockwise_attention),
    ],
)
def test_a_device_with_a_kernel_is_asked_for_it(device, kernel, monkeypatch):
    """Interpreted here. A CPU is asked for plain products."""
    compute, tolerance = canary.COMPUTATIONS["attention with dropout"]
    cpu, asked = jax.devices("cpu")[0], []
    monkeypatch.setattr(kernel, "KernelSettings", interpreted(kernel.KernelSettings, asked))
    plain = canary.on(cpu, compute)
    assert not asked
    found = canary.on(cpu, lambda _: compute(types.SimpleNamespace(**device)))
    assert asked and canary.error_of(found, plain) <= tolerance


def test_a_tpu_without_a_kernel_is_asked_for_plain_products(monkeypatch):
    compute, _ = canary.COMPUTATIONS["attention with dropout"]
    asked = []
    monkeypatch.setattr(
        fused_attention, "KernelSettings", interpreted(fused_attention.KernelSettings, asked)
    )
    old = types.SimpleNamespace(platform="tpu", device_kind="TPU v3")
    canary.on(jax.devices("cpu")[0], lambda _: compute(old))
    assert not asked


def test_a_coarser_product_does_not_pass():
    """TF32 has 10 bits: its rounding is at least as coarse as this one, and must be noticed."""
    compute, tolerance = canary.COMPUTATIONS["float32 products"]
    (exact,) = canary.on(jax.devices("cpu")[0], compute)
    rounded = np.asarray(exact, np.float16).astype(np.float64)
    assert canary.error_of([rounded], [exact]) > tolerance


def test_a_device_that_computes_otherwise_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [""])
    calls = []

    def otherwise(_):
        calls.append(1)
        return [ARRAY + (0.1 if len(calls) == 1 else 0)]

    made = {"good": (lambda _: [ARRAY], 0.0), "bad": (otherwise, 1e-2)}
    monkeypatch.setattr(canary, "COMPUTATIONS", made)
    with pytest.raises(SystemExit, match=r"jax [\d.]+: bad differ"):
        canary.main()
    found = json.loads(capsys.readouterr().out)["computations"]
    assert found["good"] == {"error": 0.0, "tolerance": 0.0, "agrees": True}
    assert found["bad"]["error"] == pytest.approx(0.025) and not found["bad"]["agrees"]

    made["bad"] = (lambda _: [ARRAY * math.nan], 1e-2)
    with pytest.raises(SystemExit):
        canary.main()
    found = json.loads(capsys.readouterr().out)["computations"]["bad"]
    assert found["error"] is None and not found["agrees"]
