# SPDX-License-Identifier: Apache-2.0
"""Facts for the model card: how the weights were trained, their last metrics, what was left out.

They come from the configuration, the manifest of the data and metrics.jsonl; `formats.card` makes
the text.
"""

import os
from collections.abc import Mapping
from typing import Any

import jax

from electra_jax.config import stages
from electra_jax.report import writers
from electra_jax.step import plans
from electra_jax.weights import hub, trained_weights


def training_facts(found: trained_weights.Weights) -> dict[str, str]:
    """Returns the rows of the card's table in order; {} for weights that were not trained here."""
    c, data = found.config, found.data
    if c is None:
        return {}

    facts = {"objective": c.objective.name, "steps": f"{found.step:,}"}
    if found.began_with:
        facts["began with"] = "weights of " + " and ".join(dict.fromkeys(found.began_with.values()))
    facts["batch"] = _batches(found)
    if tokens := _last_value(found, "tokens_seen"):
        facts["tokens seen"] = f"{tokens:,.0f}, padding not counted"

    vocabulary = found.vocabulary
    flops = training_flops(found)
    if flops is not None:
        facts["FLOPs"] = f"{flops:.3g} in matrix products, of all networks of the run"

    facts["data"] = c.data.source
    if data is not None:
        facts["documents"] = f"{data.totals['documents']:,}"
        facts["tokens in the data"] = f"{data.totals['tokens']:,}"
        facts["hash of the data"] = data.hash[:16]

    facts["vocabulary"] = f"{vocabulary.kind}, {vocabulary.size:,} pieces, {vocabulary.sha256[:16]}"
    facts["optimizer"] = f"{c.optimizer.name}, {_rates(c)}"
    facts["warmup"] = f"{c.schedule.warmup_steps:,} steps, then {c.schedule.shape}"
    if found.environment is not None:
        facts |= _environment_facts(found.environment)
    facts["jax"] = jax.__version__ + " (at conversion)"
    return facts


def base_models(found: trained_weights.Weights, network: str) -> list[str]:
    """Returns OWNER/NAME of the Hub's repository that a network comes from, at most one."""
    began = found.began_with
    name = began.get("main", "")
    if (found.only or network) == "generator":
        name = began.get("generator", name)
    return [hub.parse(name)[0]] if hub.is_address(name) else []


def public(environment: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns what exports say of what weights were trained with; None if it is not known.

    Exports are given away, so the names of hosts are left out.
    """
    if environment is None:
        return None
    return {name: value for name, value in environment.items() if name != "hosts"}


def last_evaluation(found: trained_weights.Weights) -> dict[str, str]:
    """Returns the metrics of the last evaluation up to the weights' step; {} if there is none."""
    rows = [row for row in _metrics_rows(found) if row["kind"] == "eval"]
    if not rows:
        return {}

    # The step is not rounded as the metrics are: 123,456 would be 1.235e+05.
    values = {
        name: f"{value:.4g}"
        for name, value in rows[-1].items()
        if isinstance(value, int | float) and name not in ("step", "tokens_seen")
    }
    return {"step": f"{rows[-1]['step']:,}"} | values


def left_out(found: trained_weights.Weights) -> list[str]:
    """Returns, in words, the trained parts that Hugging Face's ELECTRA has no place for."""
    generator, main = (found.params.get(name, {}) for name in ("generator", "discriminator"))
    parts = {
        "the two towers of the generator": "left" in generator,
        "the baseline of the adversarial generator": "baseline" in generator,
        "the discriminator's head, which has a layer of its own": (
            found.networks.discriminator_head == "own_layer"
        ),
        "the head that finds the original among a few tokens": "selection" in main,
        "the head that corrects replaced tokens": "correction" in main,
        "the copy gate of the main network: what remains is the softmax beneath it": "copy" in main,
    }
    return [part for part, there in parts.items() if there]


def training_flops(found: trained_weights.Weights) -> float | None:
    """Returns the FLOPs of training in matrix products, up to the weights' step, of all networks.

    None if the rows of a stage are not known.
    """
    kinds = stages.of(found.config)
    rows = found.stage_rows
    if len(kinds) == 1 and not rows:
        rows = (kinds[0].batch_size * found.step,)
    if len(rows) != len(kinds):
        return None

    plan = plans.make_plan(trained_weights.portable(found.config), found.vocabulary)
    lengths = [kind.sequence_length for kind in kinds]
    return sum(n * plan.objectives[x].flops(x).train for n, x in zip(rows, lengths))


def _rates(config):
    """The peaks of the learning rates in words, those of the networks apart where they differ."""
    rates = plans.peak_rates(config)
    whose = {
        "learning_rate": "peak rate",
        "gen_learning_rate": "peak rate of generator and embeddings",
        "disc_learning_rate": "peak rate of the discriminator",
        "muon_learning_rate": "peak rate of Muon's matrices",
        "disc_muon_learning_rate": "of the discriminator's among them",
    }
    return ", ".join(
        f"{whose[name]} {share * rates.peak:g}" for name, share in rates.named().items()
    )


def _batches(found):
    """The rows of a step, of every stage that has begun; with its share if rows are not counted."""
    first, *later = stages.of(found.config)
    if not later:
        return stages.describe(first)
    if not found.stage_rows:
        said = [f"from {100 * x.share:g} % of the budget on {stages.describe(x)}" for x in later]
        return "; ".join([stages.describe(first), *said])

    taken = zip((first, *later), found.stage_rows)
    said = [f"{stages.describe(x)} ({rows:,} rows in all)" for x, rows in taken if rows]
    return "; then ".join(said or [stages.describe(first)])


def _environment_facts(environment):
    """The rows of the card about code, versions, devices and the command."""
    said = dict(public(environment))
    command = said.pop("command", None)
    devices = f"{said.pop('devices')}, processes: {said.pop('processes')}"
    facts = {"trained on": devices}
    facts["trained with"] = ", ".join(f"{name} {value}" for name, value in said.items())
    return facts | ({"command": f"`{command}`"} if command else {})


def _metrics_rows(found):
    """Returns the rows of metrics.jsonl up to the weights' step."""
    path = os.path.join(found.source, writers.METRICS)
    if found.config is None or not os.path.exists(path):
        return []
    return [row for row in writers.read(path) if row["step"] <= found.step]


def _last_value(found, name):
    return next((row[name] for row in reversed(_metrics_rows(found)) if row.get(name)), None)
