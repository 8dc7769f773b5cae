# SPDX-License-Identifier: Apache-2.0
"""The end of a branch in one kernel: bias, dropout, residual and layer norm; Pallas, for GPUs.

    forward    sum = before + dropout(branch + bias)      result = norm(sum)
    backward   gradient of the result -> of before and branch, of the norm's scale and bias, of bias

Vectors are read once and written once in each pass. XLA's compiler for GPUs needs three kernels for
the forward pass and nine for the backward pass, and stores float32 products between them
(docs/LOG.md, 2026-11-27). One program of the kernel handles 32 tokens, a few at a time. For the
gradients of the parameters it writes sums over its tokens, which XLA then adds up.

    S  tokens of all rows     T  tokens of one step of a program
    P  programs               C  columns: D, rounded up to a power of 2
"""

import dataclasses
import functools

import jax
from jax import lax
from jax import numpy as jnp
from jax.experimental import pallas as pl

from electra_jax.model import layers, pallas_triton

_TOKENS = 32  # tokens per program


@dataclasses.dataclass(frozen=True)
class KernelSettings:
    """What is known before the kernels are compiled."""

    drop_below: int = 0  # a random number below this drops an element; 0: none is dropped
    bits: int = 8  # of a random number
    tokens: int = _TOKENS  # per program
    elements: int = 2048  # of each array that a program holds in registers at a time
    warps: int = 2
    interpret: bool = False  # run by XLA on any device, for tests

    @property
    def keep_probability(self) -> float:
        """The probability that an element is kept."""
        return 1 - self.drop_below / 2**self.bits


def refused(length: int) -> str:
    """Returns why rows of this length have no kernel, or ''."""
    if reason := pallas_triton.missing():
        return reason
    if length % _TOKENS:
        return f"needs rows of a multiple of {_TOKENS} tokens, not of {length}"
    return ""


def with_end(params: dict, last: str) -> dict:
    """Returns the stacked parameters of a branch with `end` for the kernel, [layers, 3, D].

    `end` replaces the norm and the bias of the last product.
    """
    norm, product = params["norm"], params[last]
    end = jnp.stack([norm["scale"], norm["bias"], product["bias"]], axis=1)
    others = {name: x for name, x in params.items() if name not in ("norm", last)}
    return others | {last: {"kernel": product["kernel"]}, "end": end}


def end_of_branch(
    parameters_3D: jax.Array,
    before_BLD: jax.Array,
    branch_BLD: jax.Array,
    drawn_BLD: jax.Array | None = None,
    *,
    dropout: float,
) -> jax.Array:
    """Returns norm(before + dropout(branch + bias)), [B, L, D].

    Args:
      parameters_3D: scale and bias of the norm, bias of the branch; float32.
      drawn_BLD: random numbers from `layers.draw`, uint8 or uint32; None drops nothing.
      dropout: the share of elements that are dropped.
    """
    settings = KernelSettings()
    if drawn_BLD is not None:
        bits = 8 * drawn_BLD.dtype.itemsize
        settings = KernelSettings(drop_below=layers.drop_threshold(dropout, bits), bits=bits)
    merged = (
        None if x is None else x.reshape(-1, x.shape[-1])
        for x in (before_BLD, branch_BLD, drawn_BLD)
    )
    return add_and_norm(settings, parameters_3D, *merged).reshape(before_BLD.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def add_and_norm(
    settings: KernelSettings,
    parameters_3D: jax.Array,
    before_SD: jax.Array,
    branch_SD: jax.Array,
    drawn_SD: jax.Array | None,
) -> jax.Array:
    """What `end_of_branch` does for merged rows [S, D]; S is a multiple of `settings.tokens`."""
    return _forward(settings, parameters_3D, before_SD, branch_SD, drawn_SD)[0]


def _forward(settings, parameters_3D, before_SD, branch_SD, drawn_SD):
    call = _Call.of(settings, before_SD)
    sum_SD, result_SD = call.run(
        _residual_norm, [before_SD] * 2, parameters_3D, before_SD, branch_SD, drawn_SD
    )
    return result_SD, (parameters_3D, sum_SD, drawn_SD)


def _backward(settings, saved, gradient_SD):
    parameters_3D, sum_SD, drawn_SD = saved
    call = _Call.of(settings, sum_SD)
    sums_P3D = jax.ShapeDtypeStruct((call.programs, 3, call.width), jnp.float32)
    of_before_SD, of_branch_SD, sums_P3D = call.run(
        _residual_norm_gradients,
        [sum_SD, sum_SD, sums_P3D],
        parameters_3D,
        sum_SD,
        gradient_SD,
        drawn_SD,
    )
    return sums_P3D.sum(0), of_before_SD, of_branch_SD, None


add_and_norm.defvjp(_forward, _backward)


@dataclasses.dataclass(frozen=True)
class _Call:
    """How the work is cut: a program for some tokens, in steps of a few of them."""

    settings: KernelSettings
    programs: int
    width: int  # D
    columns: int  # the power of 2 that holds D
    step: int  # tokens of a step

    @classmethod
    def of(cls, settings, x_SD):
        tokens, width = x_SD.shape
        columns = pl.next_power_of_2(width)
        step = min(max(settings.elements // columns, 1), settings.tokens)
        return cls(settings, tokens // settings.tokens, width, columns, step)

    @property
    def steps(self):
        """Steps per program."""
        return self.settings.tokens // self.step

    def run(self, kernel, results, parameters_3D, *arrays):
        """Runs a kernel on all tokens; results have the shapes and dtypes of `results`."""
        arrays = [x for x in arrays if x is not None]
        of_tokens = pl.BlockSpec((self.settings.tokens, self.columns), lambda program: (program, 0))
        of_program = pl.BlockSpec((None, 3, self.columns), lambda program: (program, 0, 0))
        whole = pl.BlockSpec((3, self.columns), lambda program: (0, 0))
        params = pallas_triton.triton.CompilerParams(num_warps=self.settings.warps, num_stages=1)
        return pl.pallas_call(
            functools.partial(kernel, self),
            out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results],
            grid=(self.programs,),
            in_specs=[whole] + [of_tokens] * len(arrays),
            out_specs=[of_tokens if len(x.shape) == 2 else of_program for x in results],
            compiler_params=params,
            interpret=self.settings.interpret,
        )(parameters_3D, *arrays)

    # Parts of both kernels. The columns beyond the width are 0, and are not written.

    def rows(self, array, first, count):
        """A reference to `count` rows from `first` on, and the mask of the columns that exist."""
        inside_1C = jnp.arange(self.columns)[None, :] < self.width
        inside_TC = jnp.broadcast_to(inside_1C, (count, self.columns))
        return array.at[pl.ds(first, count)], inside_TC

    def read(self, array, first, count):
        """Reads `count` rows from `first` on: random numbers as uint32, all else as float32."""
        rows, inside = self.rows(array, first, count)
        is_random = jnp.issubdtype(array.dtype, jnp.integer)
        found = pallas_triton.triton.load(rows, mask=inside, other=0 if is_random else 0.0)
        return found.astype(jnp.uint32 if is_random else jnp.float32)

    def write(self, array, first, x_TC):
        """Writes as many rows as x has, in the dtype of the array."""
        rows, inside = self.rows(array, first, len(x_TC))
        pallas_triton.triton.store(rows, x_TC.astype(array.dtype), mask=inside)

    def normed(self, sum_TC):
        """(x - mean) / standard deviation of each vector, and 1 / standard deviation [T, 1]."""
        inside = jnp.arange(self.columns)[None, :] < self.width
        mean_T1 = sum_TC.sum(1, keepdims=True) / self.width
        centred_TC = jnp.where(inside, sum_TC - mean_T1, 0.0)
        variance_T1 = (centred_TC * centred_TC).sum(1, keepdims=True) / self.width
        inverse_T1 = lax.rsqrt(variance_T1 + layers.NORM_EPSILON)
        return centred_TC * inverse_T1, inverse_T1

    def dropped(self, drawn, first, x_TC):
        """x divided by the share that is kept, and 0 where it is dropped."""
        if not drawn:
            return x_TC
        drawn_TC = self.read(drawn[0], first, self.step)
        kept_TC = drawn_TC >= jnp.uint32(self.settings.drop_below)
        return jnp.where(kept_TC, x_TC * (1 / self.settings.keep_probability), 0.0)


def _residual_norm(call, parameters, before, branch, *drawn_and_results):
    *drawn, sum_, result = drawn_and_results
    scale_1C, shift_1C, bias_1C = (call.read(parameters, row, 1) for row in range(3))

    def go(number, _):
        first = number * call.step
        branch_TC = call.read(branch, first, call.step) + bias_1C
        added_TC = call.read(before, first, call.step) + call.dropped(drawn, first, branch_TC)
        # As it is kept, so that the backward pass finds the same deviations.
        sum_TC = added_TC.astype(sum_.dtype)
        call.write(sum_, first, sum_TC)
        normed_TC, _ = call.normed(sum_TC.astype(jnp.float32))
        call.write(result, first, normed_TC * scale_1C + shift_1C)
        return ()

    lax.fori_loop(0, call.steps, go, ())


def _residual_norm_gradients(call, parameters, sum_, gradient, *drawn_and_results):
    *drawn, of_before, of_branch, sums = drawn_and_results
    scale_1C = call.read(parameters, 0, 1)
    zeros_TC = jnp.zeros((call.step, call.columns), jnp.float32)

    def go(number, carry):
        of_scale_TC, of_shift_TC, of_bias_TC = carry
        first = number * call.step
        normed_TC, inverse_T1 = call.normed(call.read(sum_, first, call.step))
        gradient_TC = call.read(gradient, first, call.step)

        # The gradient of the norm, and so of what came before it.
        of_normed_TC = gradient_TC * scale_1C
        mean_T1 = of_normed_TC.sum(1, keepdims=True) / call.width
        along_T1 = (of_normed_TC * normed_TC).sum(1, keepdims=True) / call.width
        of_sum_TC = inverse_T1 * (of_normed_TC - mean_T1 - normed_TC * along_T1)
        call.write(of_before, first, of_sum_TC)
        of_branch_TC = call.dropped(drawn, first, of_sum_TC)
        call.write(of_branch, first, of_branch_TC)

        return (
            of_scale_TC + gradient_TC * normed_TC,
            of_shift_TC + gradient_TC,
            of_bias_TC + of_branch_TC,
        )

    made = lax.fori_loop(0, call.steps, go, (zeros_TC,) * 3)
    for row, x_TC in enumerate(made):
        call.write(sums, row, x_TC.sum(0, keepdims=True))
