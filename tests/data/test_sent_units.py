# SPDX-License-Identifier: Apache-2.0
"""Units whose files go through a bucket; `-m bucket` prepares with several processes."""

import types

from electra_jax.data import sent_units, unit_rows
from electra_jax.host import staging


def test_a_second_pass_sends_what_this_process_still_has(tmp_path, monkeypatch):
    """It has built unit 0 before, and of that only the bucket has the file of duplicates."""
    sent = []
    monkeypatch.setattr(staging, "address", lambda folder: "gs://lab/rows")
    monkeypatch.setattr(staging, "send", lambda folder, names: sent.extend(names))
    (tmp_path / "vocab").mkdir()
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "unit-1.duplicates.npy").touch()

    settings = types.SimpleNamespace(deduplicate=True)
    tasks = [
        types.SimpleNamespace(folder=str(tmp_path), name=f"unit-{number}", settings=settings)
        for number in (0, 1)
    ]
    sent_units.before(unit_rows.build, tasks)
    assert sent == ["units/unit-1.duplicates.npy"]
