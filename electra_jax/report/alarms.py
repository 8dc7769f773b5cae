# SPDX-License-Identifier: Apache-2.0
"""Alarms: what looks wrong in the metrics of a run, in sentences.

    rows of metrics.jsonl, one by one  ->  Watch  ->  alarms, each at the step where it begins

    loss_spike              a loss is far above the losses of the rows before it
    generator_collapse      samples are nearly always the most plausible token, the entropy is far
                            below the loss, or the loss is worse again than that of the word
                            frequencies
    discriminator_collapse  it no longer finds replaced tokens, is no better than chance, or is
                            worse again than a constant guess
    main_network_collapse   a main network that predicts tokens is worse again than the word
                            frequencies

The last three are raised only when something that was learnt is lost. A network that has not begun
to learn raises no alarm; the reports show that anyway. An alarm is raised once, and again only
after its condition was over. Alarms change nothing in the run.
"""

import collections
import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence

from electra_jax.report import baselines, metric_values

WINDOW = 50  # training rows that a loss is compared with
FEWEST = 10  # rows that are needed before the first loss is judged
DEVIATIONS = 10.0  # bound above the median, in MADs scaled to standard deviations
LEAST_RISE = 0.1  # least bound, as a share of the median: the MAD of a smooth curve is nearly zero
IN_A_ROW = 3  # rows, or evaluations, before a network is called collapsed
ALIKE = 0.97  # accuracy of samples / that of best guesses; above it sampling is hardly random
SURE = 0.1  # share of the generator's loss; with an entropy below it the generator is far too sure


@dataclasses.dataclass(frozen=True)
class Alarm:
    """An alarm, with the first step that shows it."""

    step: int
    name: str
    sentence: str


def alarms(rows: Sequence[Mapping]) -> list[Alarm]:
    """All alarms of a run. `rows` are those of its metrics file, in order."""
    watch = Watch()
    return [alarm for row in rows for alarm in watch.see(row)]


class Watch:
    """Looks at rows one by one. Its alarms depend on earlier rows only.

    Args:
      rows: earlier rows of a run that continues; their alarms are not raised again.
    """

    def __init__(self, rows: Sequence[Mapping] = ()):
        self._losses = {name: collections.deque(maxlen=WINDOW) for name in _LOSSES}
        self._streaks: collections.Counter[str] = collections.Counter()
        self._learnt: set[str] = set()
        for row in rows:
            self.see(row)

    def see(self, row: Mapping) -> list[Alarm]:
        """The alarms that begin with this row."""
        step, found = row["step"], []
        checks = self._training(row) if row["kind"] == "train" else self._evaluation(row)
        for key, name, least, sentence in checks:
            self._streaks[key] = self._streaks[key] + 1 if sentence else 0
            if self._streaks[key] == least:
                found.append(Alarm(step, name, sentence))
        return found

    def _training(self, row) -> Iterator[tuple[str, str, int, str]]:
        """The checks of a training row.

        Yields the condition, its alarm, the number of rows that it must last, and the sentence; ''
        if the condition does not hold.
        """
        for name in _LOSSES:
            sentence = self._spike(name, metric_values.value(row, name))
            yield f"{name} spike", "loss_spike", 1, sentence

        # Samples that are right as often as the best guesses are hardly random any more.
        sampled = metric_values.value(row, "gen_sampled_accuracy")
        best = metric_values.value(row, "gen_accuracy")
        sentence = ""
        if (
            sampled is not None
            and best is not None
            and 0.02 < best < 0.9
            and sampled > ALIKE * best
        ):
            sentence = (
                "the generator's samples hardly vary any more: they are right in"
                f" {sampled:.1%} of the slots, its best guesses in {best:.1%}; the discriminator"
                " sees the same errors again and again; raise objective.temperature or lower the"
                " generator's learning rate"
            )
        yield "drawing", "generator_collapse", IN_A_ROW, sentence

    def _spike(self, name, value) -> str:
        """A sentence if a loss is far above the median of those before it, else ''."""
        if value is None:
            return ""

        before = self._losses[name]
        sentence = ""
        if len(before) >= FEWEST:
            median = statistics.median(before)
            spread = 1.4826 * statistics.median(abs(x - median) for x in before)
            bound = median + max(DEVIATIONS * spread, LEAST_RISE * abs(median))
            if value > bound:
                sentence = (
                    f"{name} jumped to {value:.3f}; the median of the {len(before)} rows before is"
                    f" {median:.3f}"
                )

        before.append(value)
        return sentence

    def _evaluation(self, row) -> Iterator[tuple[str, str, int, str]]:
        """The checks of an evaluation, yielded as in `_training`.

        Each figure but the recall is a margin over the baseline: positive if something was learnt.
        """
        auc, margins = metric_values.value(row, "disc_auc"), {}
        for name in ("disc_loss", "gen_masked_loss", "mlm_masked_loss", "selection_loss"):
            value, baseline = metric_values.value(row, name), baselines.of(name, row)
            margins[name] = None if None in (value, baseline) else baseline.margin(value)
        figures = {
            "recall": metric_values.value(row, "disc_recall"),
            "auc": None if auc is None else auc - baselines.CHANCE,
        } | margins

        for key, (name, learnt, gone, words) in _LOST.items():
            figure = figures[key]
            if figure is not None and figure >= learnt:
                self._learnt.add(key)
            lost = figure is not None and key in self._learnt and figure < gone
            yield key, name, IN_A_ROW, words.format(abs(figure)) if lost else ""

        yield "entropy", "generator_collapse", IN_A_ROW, self._certainty(row)

    def _certainty(self, row) -> str:
        """A sentence if the generator is far too sure, else ''.

        Entropy and loss of a well calibrated network are equal on average.
        """
        entropy = metric_values.value(row, "gen_entropy")
        loss = metric_values.value(row, "gen_masked_loss")
        if entropy is None or loss is None or entropy >= SURE * loss:
            return ""
        return (
            f"the generator is sure and wrong: its entropy is {entropy:.3f} nats and its loss"
            f" {loss:.3f}; its samples hardly differ from draw to draw; lower its learning rate or"
            " raise model.dropout"
        )


_LOSSES = ("loss", "gen_loss", "mlm_loss", "disc_loss", "selection_loss")
_LOST = {  # figure -> alarm, value from which on it is learnt, below which it is lost, sentence
    "recall": (
        "discriminator_collapse", 0.05, 0.005,
        "the discriminator finds only {:.1%} of the replaced tokens, and once found many more; it"
        " calls nearly all original",
    ),
    "auc": (
        "discriminator_collapse", 0.05, 0.01,
        "disc_auc is back at chance ({:.3f} from it)",
    ),
    "disc_loss": (
        "discriminator_collapse", 0.01, 0.0,
        "disc_loss is back above that of one guess for every token, by {:.3f}",
    ),
    "selection_loss": (
        "discriminator_collapse", 0.05, 0.0,
        "selection_loss is back above that of guessing among the tokens offered, by {:.3f} nats",
    ),
    "gen_masked_loss": (
        "generator_collapse", 0.05, 0.0,
        "gen_masked_loss is back above that of the word frequencies, by {:.3f} nats",
    ),
    "mlm_masked_loss": (
        "main_network_collapse", 0.05, 0.0,
        "mlm_masked_loss is back above that of the word frequencies, by {:.3f} nats",
    ),
}  # fmt: skip
