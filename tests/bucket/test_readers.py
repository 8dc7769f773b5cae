# SPDX-License-Identifier: Apache-2.0
"""Commands that read a run in a bucket, and what is refused there in one line."""

import json
import runpy

import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.data import text_remote
from electra_jax.host import buckets, error_causes
from support import bucket_runs

pytestmark = pytest.mark.bucket


def test_a_run_that_orbax_could_not_save_is_refused_before_text_is_read(
    server, config, here, monkeypatch
):
    """Objects may be read and written. For the bucket itself, as for a project, only orbax asks."""
    from google.api_core import exceptions  # noqa: PLC0415 - only in this tier
    from google.cloud import storage  # noqa: PLC0415 - as above

    def refuse(*_, **__):
        raise exceptions.Forbidden("storage.buckets.get is denied")

    settings = runpy.run_path(str(config))["get_config"]()
    with monkeypatch.context() as patch:
        patch.setattr(storage.Client, "get_bucket", refuse)
        role = r"Legacy Bucket Reader \(roles/storage.legacyBucketReader\) on the bucket$"
        with pytest.raises(config_lib.ConfigError, match=rf"gs://lab may not be asked .*{role}"):
            electra_jax.train(settings, "gs://lab/objects_only")

    made = storage.Client

    def without_a_project(project=None):
        if project is None:  # Google's own words
            raise OSError("Project was not passed and could not be determined from the environment")
        return made(project=project)

    buckets._client()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "Client", without_a_project)
        with pytest.raises(config_lib.ConfigError, match="; set GOOGLE_CLOUD_PROJECT to the"):
            electra_jax.train(settings, "gs://lab/objects_only")
    assert server.names("objects_only") == set()


def test_every_command_reads_a_run_from_its_bucket(server, finished, here, tmp_path):
    machine = server.environment(tmp_path / "reader")
    before = server.names("finished")

    shown = bucket_runs.command("show", f"--workdir={finished}", **machine)
    assert f"step {bucket_runs.STEPS}" in shown.stdout and "discriminator" in shown.stdout, (
        shown.stderr
    )

    evaluated = bucket_runs.command("evaluate", f"--workdir={finished}", "--json", **machine)
    last = [row for row in bucket_runs.rows(server, "finished") if row["kind"] == "eval"][-1]
    found = json.loads(evaluated.stdout.splitlines()[-1])
    assert found["step"] == bucket_runs.STEPS
    assert found["disc_auc"] == pytest.approx(last["disc_auc"], rel=1e-5)

    out = tmp_path / "export"
    exported = bucket_runs.command(
        "convert", f"--workdir={finished}", "--to=hugging_face", f"--out={out}", **machine
    )
    assert exported.returncode == 0, exported.stderr
    assert (out / "discriminator" / "model.safetensors").exists()

    apply, params, tokenizer = electra_jax.load_encoder(finished)
    one = apply(params, **tokenizer(["the cat sees the river"])).pooled_BD
    apply, params, tokenizer = electra_jax.load_encoder(str(out / "discriminator"))
    other = apply(params, **tokenizer(["the cat sees the river"])).pooled_BD
    assert (one == other).all()
    assert "gen_masked_loss" in electra_jax.report_page(finished).html

    assert server.names("finished") == before  # readers write nothing


def test_a_reader_fetches_no_training_rows(server, finished, tmp_path):
    cache = tmp_path / "reader"
    result = bucket_runs.command("show", f"--workdir={finished}", **server.environment(cache))
    assert result.returncode == 0, result.stderr
    assert {path.parent.name for path in cache.rglob("*.ids")} == {"heldout"}


def test_a_run_begins_with_weights_from_a_bucket(server, finished, config, tmp_path):
    machine = server.environment(tmp_path / "machine")
    for source in (finished, f"{finished}/checkpoints/{bucket_runs.STEPS}"):
        workdir = tmp_path / source.replace("/", "_")
        result = bucket_runs.command(
            "main", f"--config={config}", f"--workdir={workdir}", "--config.schedule.steps=2",
            f"--config.init.from={source}", **machine,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr[-2000:]
        assert "gs://lab/finished" in result.stderr


def test_tokens_grow_from_a_vocabulary_that_is_in_a_bucket(server, finished, config, tmp_path):
    """It lies beside the checkpoints there, and is on this machine in the copy of the workdir."""
    result = bucket_runs.command(
        "main", f"--config={config}", f"--workdir={tmp_path / 'run'}", "--config.schedule.steps=2",
        f"--config.init.from={finished}", "--config.init.new_tokens=mean",
        "--config.data.vocab=train:wordpiece:80", **server.environment(tmp_path / "machine"),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert "tokens keep their rows" in result.stderr


def test_text_in_a_bucket_that_refuses_is_an_error_that_stays(server, here):
    server.refuse(403)
    try:
        with pytest.raises(ValueError, match="give them the role Storage Object Vie") as raised:
            text_remote.files("gs://lab/closed/*.txt")
    finally:
        server.start()
    assert not error_causes.may_pass(raised.value) and "\n" not in str(raised.value)


def test_a_damaged_copy_of_a_shard_is_fetched_anew(server, finished, tmp_path):
    machine = server.environment(tmp_path / "machine")
    result = bucket_runs.command("evaluate", f"--workdir={finished}", "--json", **machine)
    whole = result.stdout
    for path in (tmp_path / "machine").rglob("*.ids"):
        content = bytearray(path.read_bytes())
        content[5] ^= 1
        path.write_bytes(content)
    result = bucket_runs.command("evaluate", f"--workdir={finished}", "--json", **machine)
    assert result.stdout == whole, result.stderr


def test_fine_tuning_leaves_its_results_in_the_bucket(server, finished, tmp_path):
    rows = "".join(f"the cat sees number {n}\t{n % 2}\n" for n in range(40))
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("text\tlabel\n" + rows)
    result = bucket_runs.command(
        "finetune", f"--workdir={finished}", "--config=configs/finetune.py",
        "--config.tasks=custom", f"--config.data.dir={tmp_path}", "--config.seeds=1",
        "--config.custom.train=train.tsv", "--config.custom.dev=dev.tsv",
        "--config.custom.text=text", "--config.custom.label=label", "--config.recipe.epochs=1",
        **server.environment(tmp_path / "machine"),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert "finetune/finetune/results.json" in server.names("finished")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--workdir=gs://nothing-there/run", "--config=tiny"], "there is no bucket nothing-there"),
        (["--workdir=gs://lab/new"], "there is no workdir gs://lab/new"),
        (["--workdir=gs://lab/new", "--config=tiny", "--config.init.from=gs://lab/none"],
         "gs://lab/none"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said_in_one_line(server, tmp_path, arguments, says):
    result = bucket_runs.command("main", *arguments, **server.environment(tmp_path))
    assert result.returncode in (1, 2)
    assert "Traceback" not in result.stderr
    assert says in result.stderr.splitlines()[-1]
