# SPDX-License-Identifier: Apache-2.0
"""A config.json that is not a run's is told from one that is damaged."""

import json

import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.workdir import saved_config
from support.corpus import small_run

THEIRS = json.dumps({"model_type": "electra", "architectures": ["ElectraForPreTraining"]})


def test_a_folder_of_hugging_face_is_no_workdir(tmp_path):
    (tmp_path / "config.json").write_text(THEIRS)
    with pytest.raises(
        config_lib.ConfigError, match="is no workdir of a run: its config.json is"
    ) as found:
        saved_config.of_run(str(tmp_path))
    assert f"--config.init.from={tmp_path}" in str(found.value)
    assert not isinstance(found.value, saved_config.DamagedError)


def test_a_run_never_begins_where_it_would_take_the_place_of_weights(tmp_path):
    (tmp_path / "config.json").write_text(THEIRS)
    with pytest.raises(config_lib.ConfigError, match="give another folder, or begin a run with"):
        electra_jax.train(small_run("builtin", "", schedule__steps=1), tmp_path)
    assert (tmp_path / "config.json").read_text() == THEIRS
    assert not list(tmp_path.glob("config.json.*"))
