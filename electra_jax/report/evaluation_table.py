# SPDX-License-Identifier: Apache-2.0
"""The metrics of an evaluation as a table for the console.

                            wiki               news
    gen_masked_loss         4.312 (5.101)      4.820 (5.377)     nats for a masked token; ...
    disc_auc                0.712 (0.500)      0.655 (0.500)     chance that a replaced ...

There is a row per metric, with its meaning at the end, and a column per text. The number in
brackets is the baseline: the score of a guesser that has learnt nothing (`baselines.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from electra_jax.host import console_table
from electra_jax.report import baselines, metric_values, style, text_units

Column = tuple[str, Mapping[str, Any]]  # title, metrics

_NOT_LEARNT = "!"  # after a value that is no better than its baseline
_MEANING_WIDTH = 60  # characters that are left free for the meanings; longer ones exceed the width
_BESIDE = r"\d\S* \(\d\S*\)"  # a value and its baseline
COLOURS = rf"(?P<green>{_BESIDE})(?=  )|(?P<red>{_BESIDE}{_NOT_LEARNT})"

_TEXT = {
    "documents": "",
    "words": "separated by white space",
    "characters": "one blank between words",
    "tokens": "of the run's vocabulary, special ones apart",
    "rows": "that the networks read",
    "tokens_per_word": "",
    "tokens_per_character": "",
    "unk_rate": "tokens that the vocabulary does not know; they are easily predicted",
    "invalid_utf8": "places that were not UTF-8",
}
_GENERATOR = {
    "gen_masked_loss": "nats for a masked token",
    "gen_masked_perplexity": "the same as a number of equally likely tokens",
    "gen_masked_nats_per_word": "its loss for all tokens of a word, in nats",
    "gen_masked_perplexity_per_word": "the same as a number of equally likely words",
    "gen_masked_nats_per_character": "its loss for the tokens of a character, in nats",
    "gen_masked_bits_per_character": "the same in bits",
    "gen_masked_accuracy": "masked tokens that are its best guess",
    "gen_entropy": "nats, how undecided it is at masked tokens",
    "gen_loss": "nats for a chosen token; some of these keep their token and are easy",
    "gen_accuracy": "chosen tokens that are its best guess",
    "gen_sampled_accuracy": "chosen tokens that it happens to write back",
}
_MAIN = {
    "mlm_masked_loss": "nats for a token that is hidden from it",
    "mlm_masked_perplexity": "the same as a number of equally likely tokens",
    "mlm_masked_nats_per_word": "its loss for all tokens of a word, in nats",
    "mlm_masked_perplexity_per_word": "the same as a number of equally likely words",
    "mlm_masked_nats_per_character": "its loss for the tokens of a character, in nats",
    "mlm_masked_bits_per_character": "the same in bits",
    "mlm_masked_accuracy": "hidden tokens that are its best guess",
    "mlm_loss": "nats for a token that it is trained on",
    "mlm_accuracy": "tokens it is trained on that are its best guess",
    "copy_rate": "tokens at which it copies what it sees",
}
_DISCRIMINATOR = {
    "disc_loss": "nats for a token",
    "disc_accuracy": "tokens judged correctly",
    "disc_precision": "of the tokens that it calls replaced, those that are",
    "disc_recall": "of the replaced tokens, those that it calls so",
    "disc_f1": "harmonic mean of the two",
    "disc_auc": "chance that a replaced token looks more suspicious than an original",
    "disc_recall_at_2": "replaced tokens it finds if 2 % of the originals may be false alarms",
    "selection_loss": "nats for finding the original among the tokens that a slot is offered",
    "selection_accuracy": "slots at which the original scores highest of them",
    "disc_auc_unigram": "the same AUC where replacements are drawn by frequency, for any generator",
}
_CORRUPTION = {
    "masked_rate": "tokens that are chosen",
    "replaced_rate": "tokens that are replaced by another",
    "loss": "the terms of the loss, each by its weight",
    "ema_decay": "of the average of the weights that was evaluated",
}
_SECTIONS = {
    "The text": _TEXT,
    "Generator: fills masked tokens": _GENERATOR,
    "Main network: predicts tokens": _MAIN,
    "Discriminator: tells replaced tokens from original ones": _DISCRIMINATOR,
    "All in all": _CORRUPTION,
}
_MEANINGS = {name: words for known in _SECTIONS.values() for name, words in known.items()}
_IN_BRACKETS = {
    "unigram_entropy",
    "disc_majority",
    "selection_chance",
} | {  # baselines, shown with their metrics
    f"unigram_{figure}" for figure in text_units.FIGURES
}
_IN_JSON_ALONE = {  # figures that repeat another one in a different unit
    f"{prefix}_masked_{figure}"
    for prefix in ("gen", "mlm")
    for figure in ("bits_per_word", "perplexity_per_character")
}


def columns(values: Mapping[str, Any], title: str) -> list[Column]:
    """The metrics of a run's own evaluation as columns: one per source, then all sources together.

    Args:
      values: named `metric`, or `metric/source` for those of one source.
      title: of the only column, if no metric is given per source.
    """
    found: dict[str, dict] = {"": {}}
    for name, value in values.items():
        metric, _, source = name.partition("/")
        found.setdefault(source, {})[metric] = value
    whole = found.pop("")
    return [*found.items(), ("all" if found else title, whole)]


def table(shown: Sequence[Column], width: int = 160) -> str:
    """The columns side by side; those that do not fit into `width` characters follow below."""
    names = _names(shown)
    cells = [[_cell(name, values) for name in names] for _, values in shown]
    widths = [max(map(len, [title, *found])) for (title, _), found in zip(shown, cells)]

    room = width - (max(map(len, names)) + 2) - _MEANING_WIDTH
    groups, taken = [[]], 0
    for number, size in enumerate(widths):
        if groups[-1] and taken + size + 2 > room:
            groups, taken = [*groups, []], 0
        groups[-1].append(number)
        taken += size + 2

    blocks = [_block(shown, cells, names, group) for group in groups]
    return "\n\n".join(filter(None, [*blocks, _legend(shown, names)]))


def _block(shown, cells, names, group):
    """A table of the columns whose numbers are in `group`."""
    rows = [
        [f"  {name}", *(cells[n][at] for n in group), _meaning(name, shown)]
        for at, name in enumerate(names)
    ]
    title, *lines = console_table.lines([["", *(shown[n][0] for n in group), ""], *rows])

    # A heading is not a cell, because it would widen the first column.
    parts, line_of = [title], dict(zip(names, lines))
    for heading, known in _sections(names).items():
        parts += ["", heading, *(line_of[name] for name in known)]
    return "\n".join(parts)


def _legend(shown, names):
    """What the numbers in brackets and the mark mean."""
    found: dict[str, list[str]] = {}
    marked = False
    for name in names:
        for _, values in shown:
            baseline = text_units.baseline(name, values) if name in values else None
            if baseline is not None:
                guesser = baselines.GUESSERS.get(baseline.name, baseline.name)
                found.setdefault(guesser, []).append(name)
                marked = marked or _cell(name, values).endswith(_NOT_LEARNT)
    if not found:
        return ""

    lines = ["In brackets: the score of a guesser that has learnt nothing:"]
    lines += console_table.lines(
        [("  " + ", ".join(_without_figures(of)), guesser) for guesser, of in found.items()]
    )
    if marked:
        lines.append(f"{_NOT_LEARNT} no better than that: not learnt yet.")
    return "\n".join(lines)


def _without_figures(names):
    """The metrics without those that are a loss in another unit; each once."""
    return dict.fromkeys(n for n in names if n.partition("_masked_")[2] not in text_units.FIGURES)


def _names(shown):
    """Every metric of the columns, in the order of the sections; unknown ones last."""
    present = dict.fromkeys(name for _, values in shown for name in values)
    present = [name for name in present if name not in _IN_BRACKETS | _IN_JSON_ALONE]
    return [n for n in _MEANINGS if n in present] + [n for n in present if n not in _MEANINGS]


def _sections(names):
    """The sections with these metrics in them: {heading: metrics}."""
    found = {heading: [n for n in names if n in known] for heading, known in _SECTIONS.items()}
    found["Others"] = [n for n in names if n not in _MEANINGS]
    return {heading: known for heading, known in found.items() if known}


def _cell(name, values):
    """`4.312 (5.101)`, marked if it is no better; empty if this text has no such metric."""
    if name not in values:
        return ""
    if isinstance(values[name], int):
        return f"{values[name]:,}"

    value, baseline = metric_values.value(values, name), text_units.baseline(name, values)
    cell = _number(name, value)
    if baseline is None:
        return cell
    mark = _NOT_LEARNT if value is not None and baseline.margin(value) <= 0 else ""
    return f"{cell} ({_number(name, baseline.value)}){mark}"


def _number(name, value):
    """A value in its usual unit; three digits of a large one, such as a perplexity per word."""
    large = value is not None and abs(value) >= 1000
    return style.count(value) if large else style.metric(name, value)


def _meaning(name, shown):
    """The meaning of a metric, and whether lower or higher is better if it has a baseline."""
    words = _MEANINGS.get(name, "")
    for _, values in shown:
        baseline = text_units.baseline(name, values)
        if baseline is not None:
            return f"{words}; {'lower' if baseline.lower_wins else 'higher'} is better"
    return words
