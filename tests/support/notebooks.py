# SPDX-License-Identifier: Apache-2.0
"""The notebook of launch/ as its cells, and executed as a reader executes it, without a browser."""

import dataclasses
import json
import os
import pathlib
import signal
from collections.abc import Callable, Mapping, Sequence

from .corpus import ROOT

NOTEBOOK = ROOT / "launch" / "colab_tpu.ipynb"
SIZES = ("small", "tiny", "trial")


def content() -> dict:
    """The notebook as it is in its file."""
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def cells() -> dict[str, str]:
    """{id: source} of the cells with code, in their order."""
    found = [cell for cell in content()["cells"] if cell["cell_type"] == "code"]
    return {cell["id"]: "".join(cell["source"]) for cell in found}


def of_size(size: str) -> list[str]:
    """The sources of the cells with code; the one that chooses the size chooses this one."""
    found = cells()
    assert found["size"] == 'SIZE = "small"', "one line, which tests change"
    return [*(found | {"size": f'SIZE = "{size}"'}).values()]


@dataclasses.dataclass
class Executed:
    """What became of the cells."""

    outputs: Mapping[str, Sequence[Mapping]]  # of each cell that was begun, by its first line
    redrawn: int = 0  # how often an output was replaced by a newer one
    killed: bool = False

    def text(self, begin: str, kind: str = "text/plain") -> str:
        """The one value of this kind that a cell shows."""
        (found,) = [out["data"][kind] for out in self.outputs[begin] if kind in out.get("data", ())]
        return found


def execute(
    sources: Sequence[str], where: pathlib.Path, kill: Callable[[], bool] = lambda: False
) -> Executed:
    """Executes cells one after the other in a kernel of their own.

    Args:
      sources: the cells.
      where: the folder in which the kernel runs.
      kill: asked at each message of the kernel; if it says so, the kernel is killed.

    Raises nbclient's CellExecutionError for an error in a cell.
    """
    import nbclient  # noqa: PLC0415 - this and the next: the extra parity
    import nbformat  # noqa: PLC0415

    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in sources]
    )
    done = Executed({})

    class Client(nbclient.NotebookClient):
        def process_message(self, msg, cell, cell_index):
            done.redrawn += msg["msg_type"] == "update_display_data"
            if not done.killed and kill():
                done.killed = True
                os.kill(self.km.provisioner.pid, signal.SIGKILL)
            return super().process_message(msg, cell, cell_index)

    client = Client(notebook, timeout=None, resources={"metadata": {"path": str(where)}})
    try:
        client.execute()
    except nbclient.exceptions.DeadKernelError:
        assert done.killed, "the kernel died by itself"
    done.outputs = {cell.source.split("\n")[0]: cell.outputs for cell in notebook.cells}
    return done
