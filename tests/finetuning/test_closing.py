# SPDX-License-Identifier: Apache-2.0
"""The last words of a fine-tuning lead to what it has written."""

import types

from electra_jax.finetuning.results import closing


def test_the_last_words_name_the_page_the_predictions_and_the_weights(monkeypatch):
    monkeypatch.chdir("/")
    tasks = [types.SimpleNamespace(task=name) for name in ("mrpc", "sst2")]
    first, *others = closing.text("runs/a b/finetune/x", tasks, "hugging_face").splitlines()
    assert first == "report       file:///runs/a%20b/finetune/x/results.html"
    assert others == [
        "predictions  runs/a b/finetune/x/mrpc/seed_*",
        "predictions  runs/a b/finetune/x/sst2/seed_*",
        "use          electra_jax.load_tuned('runs/a b/finetune/x/sst2')",
        "new texts    python -m electra_jax.predict --from='runs/a b/finetune/x/sst2' FILE",
        "export       python -m electra_jax.convert --from='runs/a b/finetune/x/sst2'"
        " --to=hugging_face --out=exports/sst2",
    ]


def test_tasks_of_ones_own_are_exported_by_the_name_of_their_fine_tuning():
    tasks = [types.SimpleNamespace(task="custom")]
    last = closing.text("runs/a/finetune/my genes", tasks, "orbax").splitlines()[-1]
    assert last.endswith("--to=orbax --out='exports/my genes'")


def test_the_predictions_of_a_grid_lie_in_the_folders_of_its_points(tmp_path):
    (tmp_path / "sst2" / "rate_0.0003_epochs_3" / "seed_0").mkdir(parents=True)
    tasks = [types.SimpleNamespace(task="sst2")]
    _, line = closing.text(str(tmp_path), tasks, None).splitlines()
    assert line == f"predictions  {tmp_path}/sst2/rate_*/seed_*"


def test_weights_that_were_not_kept_are_not_spoken_of():
    tasks = [types.SimpleNamespace(task="sst2")]
    assert closing.text("/x", tasks, None).splitlines() == [
        "report       file:///x/results.html",
        "predictions  /x/sst2/seed_*",
    ]
