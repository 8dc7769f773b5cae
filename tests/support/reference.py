# SPDX-License-Identifier: Apache-2.0
"""One whole update of replaced-token detection in NumPy and float64, derivatives by hand.

Written for reading: no autodiff, no batch, no padding, no attention mask. A row is cut into its
documents and each runs through both networks alone; what is not part of a document has no part in
anything. Which slots are chosen and what is sampled comes from outside, in `Decisions`.

Parameters, gradients and moments are flat dicts from path to array. Every part of a network
returns its output and a function `back`, which takes the derivative of the loss with respect to
that output, adds to the gradients of the part's parameters, and returns the one with respect to
its input.

Source: Clark et al. 2020, section 2; google-research/electra modeling.py and optimization.py.
"""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Settings:
    """The numbers of the recipe."""

    vocab_size: int
    pad_id: int
    mask_id: int
    peak: float
    steps: int
    warmup_steps: int
    gen_weight: float = 1.0
    disc_weight: float = 50.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0


@dataclasses.dataclass(frozen=True)
class Decisions:
    """What chance decided about a batch."""

    slots_BN: np.ndarray
    used_BN: np.ndarray
    masked_BN: np.ndarray
    sampled_BN: np.ndarray


def update(params, mu, nu, step, ids_BL, marks_BL, decisions, settings):
    """Returns (gen_loss, disc_loss, gradients, norm, params, mu, nu) after one step."""
    s = settings
    gen_loss, disc_loss, gradients = losses(params, ids_BL, marks_BL, decisions, s)
    norm = math.sqrt(sum((g**2).sum() for g in gradients.values()))
    rate = s.peak * (1 - step / s.steps) * min(1, step / s.warmup_steps)
    new_params, new_mu, new_nu = {}, {}, {}
    for path, g in gradients.items():
        g = g * min(1, s.clip_norm / norm)
        m = s.beta1 * mu[path] + (1 - s.beta1) * g
        v = s.beta2 * nu[path] + (1 - s.beta2) * g**2
        direction = m / (np.sqrt(v) + s.epsilon)
        kind = path.split("/")
        if kind[-1] != "bias" and "norm" not in kind:
            direction = direction + s.weight_decay * params[path]
        new_params[path], new_mu[path], new_nu[path] = params[path] - rate * direction, m, v
    return gen_loss, disc_loss, gradients, norm, new_params, new_mu, new_nu


def losses(params, ids_BL, marks_BL, decisions, settings):
    """Returns the two mean losses and the gradients of their weighted sum."""
    d, s = decisions, settings
    gradients = {path: np.zeros_like(x) for path, x in params.items()}
    gen_scale, disc_scale = 1 / d.used_BN.sum(), 1 / (ids_BL != s.pad_id).sum()
    gen_sum = disc_sum = 0.0
    for row, start, ids_L, types_L in documents(ids_BL, marks_BL, s.pad_id):
        masked_L, corrupted_L, chosen = ids_L.copy(), ids_L.copy(), []
        for n, slot in enumerate(d.slots_BN[row] - start):
            if d.used_BN[row, n] and 0 <= slot < len(ids_L):
                chosen.append(slot)
                corrupted_L[slot] = d.sampled_BN[row, n]
                if d.masked_BN[row, n]:
                    masked_L[slot] = s.mask_id
        logits_NV, back = generator(params, gradients, masked_L, types_L, chosen, s.vocab_size)
        logits_NV = logits_NV - logits_NV.max(1, keepdims=True)
        probabilities_NV = np.exp(logits_NV) / np.exp(logits_NV).sum(1, keepdims=True)
        truth_NV = np.eye(s.vocab_size)[ids_L[chosen]]
        gen_sum -= (np.log(probabilities_NV) * truth_NV).sum()
        back(s.gen_weight * gen_scale * (probabilities_NV - truth_NV))

        logits_L, back = discriminator(params, gradients, corrupted_L, types_L)
        replaced_L = (corrupted_L != ids_L).astype(float)
        believed_L = 1 / (1 + np.exp(-logits_L))
        right_L = np.where(replaced_L == 1, believed_L, 1 - believed_L)
        disc_sum -= np.log(right_L).sum()
        back(s.disc_weight * disc_scale * (believed_L - replaced_L))
    return gen_sum * gen_scale, disc_sum * disc_scale, gradients


def documents(ids_BL, marks_BL, pad_id):
    """Cuts rows into documents: (row, start, ids, types) of each."""
    for row, (ids_L, marks_L) in enumerate(zip(ids_BL, marks_BL)):
        end = int((ids_L != pad_id).sum())
        starts = [place for place in range(end) if marks_L[place] & 1]
        for start, stop in zip(starts, [*starts[1:], end]):
            types_L, type_ = np.zeros(stop - start, int), 0
            for place in range(start, stop):
                type_ |= int(marks_L[place] & 2 > 0)
                types_L[place - start] = type_
            yield row, start, ids_L[start:stop], types_L


def generator(p, g, ids_L, types_L, slots, vocab_size):
    """Logits [N, V] at the slots."""
    hidden_LD, back_hidden = body(p, g, "generator", ids_L, types_L)
    dense_NE, back_dense = dense(p, g, "generator/head/dense", hidden_LD[slots])
    gelu_NE, back_gelu = gelu(dense_NE)
    vectors_NE, back_norm = norm(p, g, "generator/head/norm", gelu_NE)
    token_VE = p["embeddings/token"][:vocab_size]
    logits_NV = vectors_NE @ token_VE.T + p["generator/head/bias"][:vocab_size]

    def back(d_logits_NV):
        g["embeddings/token"][:vocab_size] += d_logits_NV.T @ vectors_NE
        g["generator/head/bias"][:vocab_size] += d_logits_NV.sum(0)
        d_hidden_LD = np.zeros_like(hidden_LD)
        d_hidden_LD[slots] = back_dense(back_gelu(back_norm(d_logits_NV @ token_VE)))
        back_hidden(d_hidden_LD)

    return logits_NV, back


def discriminator(p, g, ids_L, types_L):
    """One logit a token."""
    hidden_LD, back_hidden = body(p, g, "discriminator", ids_L, types_L)
    dense_LD, back_dense = dense(p, g, "discriminator/head/dense", hidden_LD)
    gelu_LD, back_gelu = gelu(dense_LD)
    logits_L1, back_output = dense(p, g, "discriminator/head/output", gelu_LD)
    return logits_L1[:, 0], lambda d_L: back_hidden(
        back_dense(back_gelu(back_output(d_L[:, None])))
    )


def body(p, g, network, ids_L, types_L):
    """Embeddings, projection and layers: ids -> hidden states."""
    x, back = embed(p, g, ids_L, types_L)
    backs = [back]
    if f"{network}/projection/kernel" in p:
        x, back = dense(p, g, f"{network}/projection", x)
        backs.append(back)
    stacked = f"{network}/encoder/"
    for number in range(len(p[stacked + "feed_forward/in/bias"])):
        layer_p, layer_g = (
            {path.removeprefix(stacked): x[number] for path, x in t.items() if stacked in path}
            for t in (p, g)
        )
        for part in (attention, feed_forward):
            x, back = part(layer_p, layer_g, x)
            backs.append(back)

    def back_all(d):
        for back in reversed(backs):
            d = back(d)

    return x, back_all


def embed(p, g, ids_L, types_L):
    """Token + position + type, normed."""
    places_L = np.arange(len(ids_L))
    tables = (("token", ids_L), ("position", places_L), ("type", types_L))
    summed_LE = sum(p[f"embeddings/{name}"][rows_L] for name, rows_L in tables)
    normed_LE, back_norm = norm(p, g, "embeddings/norm", summed_LE)

    def back(d_LE):
        d_LE = back_norm(d_LE)
        for name, rows_L in tables:
            np.add.at(g[f"embeddings/{name}"], rows_L, d_LE)

    return normed_LE, back


def attention(p, g, x_LD):
    """Every token sees every token; heads one after another; residual and norm."""
    (query, back_query), (key, back_key), (value, back_value) = (
        dense(p, g, f"attention/{name}", x_LD) for name in ("query", "key", "value")
    )
    heads, size = p["attention/query/bias"].shape
    columns = [slice(head * size, (head + 1) * size) for head in range(heads)]
    mixed, seen = np.zeros_like(value), []
    for c in columns:
        scores_LL = np.exp(query[:, c] @ key[:, c].T / math.sqrt(size))
        seen.append(scores_LL / scores_LL.sum(1, keepdims=True))
        mixed[:, c] = seen[-1] @ value[:, c]
    output_LD, back_output = dense(p, g, "attention/output", mixed)
    normed_LD, back_norm = norm(p, g, "attention/norm", x_LD + output_LD)

    def back(d_LD):
        d_residual_LD = back_norm(d_LD)
        d_mixed = back_output(d_residual_LD)
        d_query, d_key, d_value = (np.zeros_like(value) for _ in range(3))
        for c, seen_LL in zip(columns, seen):
            d_value[:, c] = seen_LL.T @ d_mixed[:, c]
            d_seen_LL = d_mixed[:, c] @ value[:, c].T
            d_scores_LL = seen_LL * (d_seen_LL - (d_seen_LL * seen_LL).sum(1, keepdims=True))
            d_query[:, c] = d_scores_LL @ key[:, c] / math.sqrt(size)
            d_key[:, c] = d_scores_LL.T @ query[:, c] / math.sqrt(size)
        return d_residual_LD + back_query(d_query) + back_key(d_key) + back_value(d_value)

    return normed_LD, back


def feed_forward(p, g, x_LD):
    """Wide, GELU, narrow; residual and norm."""
    wide_LF, back_in = dense(p, g, "feed_forward/in", x_LD)
    gelu_LF, back_gelu = gelu(wide_LF)
    output_LD, back_out = dense(p, g, "feed_forward/out", gelu_LF)
    normed_LD, back_norm = norm(p, g, "feed_forward/norm", x_LD + output_LD)

    def back(d_LD):
        d_residual_LD = back_norm(d_LD)
        return d_residual_LD + back_in(back_gelu(back_out(d_residual_LD)))

    return normed_LD, back


def dense(p, g, name, x):
    """x W + b; heads of a kernel lie side by side."""
    kernel, bias = p[f"{name}/kernel"], p[f"{name}/bias"]
    matrix = kernel.reshape(x.shape[1], -1)

    def back(d):
        g[f"{name}/kernel"] += (x.T @ d).reshape(kernel.shape)
        g[f"{name}/bias"] += d.sum(0).reshape(bias.shape)
        return d @ matrix.T

    return x @ matrix + bias.reshape(-1), back


def norm(p, g, name, x):
    """Layer norm, epsilon 1e-12."""
    scale = p[f"{name}/scale"]
    deviation = np.sqrt(x.var(1, keepdims=True) + 1e-12)
    standard = (x - x.mean(1, keepdims=True)) / deviation

    def back(d):
        g[f"{name}/scale"] += (d * standard).sum(0)
        g[f"{name}/bias"] += d.sum(0)
        d = d * scale
        along = (d * standard).mean(1, keepdims=True)
        return (d - d.mean(1, keepdims=True) - standard * along) / deviation

    return standard * scale + p[f"{name}/bias"], back


def gelu(x):
    """x times the normal distribution up to x."""
    below = 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))
    density = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
    return x * below, lambda d: d * (below + x * density)
