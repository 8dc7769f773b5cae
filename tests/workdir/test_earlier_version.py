# SPDX-License-Identifier: Apache-2.0
"""A run of an earlier version, which did not have all settings of today, continues and is read."""

import json
import shutil

import pytest

import electra_jax
from electra_jax.workdir import metadata, saved_config
from support.corpus import finished_config

CAME_LATER = (("model", "residual_norm"), ("optimizer", "ema_decay"), ("data", "documents"))


@pytest.fixture
def earlier(finished, tmp_path):
    """A copy of the finished run, whose config.json and checkpoints lack some settings."""
    workdir = tmp_path / "earlier"
    shutil.copytree(finished[0], workdir)

    config_json = workdir / "config.json"
    config_json.write_text(json.dumps(without(json.loads(config_json.read_text()))))
    for path in workdir.glob("checkpoints/*/_CHECKPOINT_METADATA"):
        content = json.loads(path.read_text())
        about = metadata.read(str(path.parent))
        about["config"] = without(about["config"])
        path.write_text(json.dumps(content | {"custom_metadata": metadata.sealed(about)}))
    return workdir


def without(tree):
    for section, name in CAME_LATER:
        del tree[section][name]
    return tree


def test_its_settings_are_read_from_the_file_and_from_a_checkpoint(finished, earlier):
    settings = saved_config.of_run(str(finished[0]))
    assert saved_config.of_run(str(earlier)) == settings
    assert saved_config.of_newest_checkpoint(str(earlier)) == (6, settings)


def test_it_goes_on_and_its_weights_are_read(text, earlier):
    config = finished_config(text)
    config.schedule.steps = 7
    electra_jax.train(config, earlier)
    assert metadata.steps(metadata.directory(str(earlier)))[-1] == 7
    assert "changed since the last start: schedule.steps" in (earlier / "log.txt").read_text()

    electra_jax.load_encoder(earlier / "checkpoints" / "6")  # as it was saved then
