# SPDX-License-Identifier: Apache-2.0
"""The evaluation of a run on its held-out rows, on all processes together.

    held-out rows of the stage, state of the run -> metrics

The first evaluation of a stage compiles its program, which a signal may interrupt.
"""

from collections.abc import Callable

from electra_jax.host import signals
from electra_jax.training import run_data, runs


class HeldOutEvaluation:
    """Evaluates a run. The rows of the stage that was evaluated last are kept."""

    def __init__(self, run: runs.Run, stop: signals.Stop, doing: Callable[[str], None]):
        self._run, self._stop, self._doing = run, stop, doing
        self._rows = {}  # stage -> its held-out rows
        self._compiled: set[int] = set()  # the stages whose evaluation was compiled

    def metrics(self) -> dict[str, float | None]:
        """The held-out metrics of the present state.

        Raises processes.Stopped if a signal comes before the evaluation of this stage is compiled.
        """
        run, compiled = self._run, self._run.stage_number in self._compiled
        self._doing("evaluating" if compiled else "compiling the evaluation")
        if run.stage_number not in self._rows:
            self._rows = {
                run.stage_number: run_data.heldout(run.stage.records, run.config.evaluation.rows)
            }

        return run.stage.evaluator.of_sources(
            run.state.evaluated,
            self._rows[run.stage_number],
            progress=lambda rows: self._batch_done(),
            stops=None if compiled else self._stop.is_asked,
        )

    def _batch_done(self):
        if self._run.stage_number not in self._compiled:
            self._compiled.add(self._run.stage_number)
            self._doing("evaluating")
        self._stop.moves_on()
