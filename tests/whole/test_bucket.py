# SPDX-License-Identifier: Apache-2.0
"""Runs whose workdir is in a bucket: a real server on loopback, real processes, real checkpoints.

A machine is a folder of copies here. What another machine needs can only come from the bucket.
"""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading

import pytest

import electra_jax
from electra_jax import config as config_lib
from electra_jax.data import text_remote
from electra_jax.host import bucket_lock, buckets, causes, owners, staging
from electra_jax.report import writers
from support.commands import free_port, read_until
from support.corpus import ROOT, small_run, write_corpus
from support.digests import digests
from support.outcomes import TIMES

pytestmark = pytest.mark.bucket

STEPS = 60
QUICK = bucket_lock.Timing(sign_of_life=0.02, silence=0.2)  # seconds


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with the bucket `lab`."""
    pytest.importorskip("gcsfs")
    from support.bucket_server import BucketServer  # noqa: PLC0415 - only in this tier

    found = BucketServer(tmp_path_factory.mktemp("server"))
    yield found
    found.stop()


@pytest.fixture
def here(server, tmp_path, monkeypatch):
    """This process as a machine of its own."""
    for name, value in server.environment(tmp_path / "this machine").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TENSORSTORE_GCS_HTTP_URL", raising=False)
    staging._own_root.cache_clear()
    buckets._client.cache_clear()
    yield
    staging._own_root.cache_clear()
    buckets._client().close()


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """The settings of all runs here, as a file."""
    base = tmp_path_factory.mktemp("settings")
    source = f"text:{write_corpus(base / 'corpus.txt')}"
    tree = small_run(
        source,
        "",
        schedule__steps=STEPS,
        checkpoint__every=7,
        checkpoint__keep_last=2,
        evaluation__every=20,
        logging__every=1,
        logging__report_every=30,
    )
    file = base / "settings.py"
    file.write_text(
        "import ml_collections\n\n\ndef get_config():\n"
        f"    return ml_collections.ConfigDict({tree.to_dict()!r})\n"
    )
    return file


@pytest.fixture(scope="module")
def undisturbed(config, tmp_path_factory):
    """The workdir of a run on this machine's own disk."""
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    result = _command("main", f"--config={config}", f"--workdir={workdir}")
    assert result.returncode == 0, result.stderr[-2000:]
    return workdir


@pytest.fixture(scope="module")
def finished(server, config, tmp_path_factory):
    """The address of a finished run; the machine that made it is gone."""
    machine = server.environment(tmp_path_factory.mktemp("first machine"))
    result = _command("main", f"--config={config}", "--workdir=gs://lab/finished", **machine)
    assert result.returncode == 0, result.stderr[-2000:]
    return "gs://lab/finished"


def _start(module, *arguments, **machine):
    return subprocess.Popen(
        [sys.executable, "-m", f"electra_jax.{module}", *arguments],
        cwd=ROOT,
        env=os.environ | machine,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _command(module, *arguments, **machine):
    process = _start(module, *arguments, **machine)
    output, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _same(address, workdir, server, tmp_path):
    """The run in the bucket has the metrics and the last arrays of the other, bit for bit."""
    folder = server._folder / address.removeprefix("gs://")
    mine, theirs = (
        [
            {name: value for name, value in row.items() if name not in TIMES}
            for row in writers.read(place / "metrics.jsonl")
        ]
        for place in (folder, workdir)
    )
    assert mine == theirs
    digests = [
        json.loads((place / "checkpoints" / str(STEPS) / "_CHECKPOINT_METADATA").read_text())[
            "custom_metadata"
        ]["digest"]
        for place in (folder, workdir)
    ]
    assert digests[0] == digests[1]


def test_a_finished_run_is_in_the_bucket_as_on_a_disk(server, finished, undisturbed, tmp_path):
    _same(finished, undisturbed, server, tmp_path)
    on_disk = {
        str(path.relative_to(undisturbed)) for path in undisturbed.rglob("*") if path.is_file()
    }
    kept = {
        name for name in on_disk if not name.startswith(("checkpoints", "tensorboard", "data/"))
    }
    assert kept <= server.names("finished")
    assert any(name.startswith("tensorboard/") for name in server.names("finished"))
    assert {name for name in server.names("finished") if name.endswith("manifest.json")}


def test_killed_and_continued_by_machines_that_have_nothing(server, config, undisturbed, tmp_path):
    """Killed twice, once while it saves; each time another machine with an empty disk goes on."""
    address = "gs://lab/killed"
    for number, step in enumerate((16, 35)):
        machine = server.environment(tmp_path / f"machine {number}")
        process = _start("main", f"--config={config}", f"--workdir={address}", **machine)
        read_until(process, f"step {step}/{STEPS}")
        process.kill()
        process.communicate()

        # What the run has written is there since the last save, not only since its end.
        there = server._folder / "lab" / "killed"
        saved = step - step % 7 - 7  # the newest save may just have begun
        assert f"/{STEPS}  gen_masked_loss " in (there / "log.txt").read_text()
        assert saved in [row["step"] for row in writers.read(there / "metrics.jsonl")]
        assert len(list((there / "tensorboard").rglob("*tfevents*"))) == number + 1
        assert "</html>" in (there / "report.html").read_text()

    # The last one needs no configuration: it is in the bucket too.
    last = server.environment(tmp_path / "last machine")
    result = _command("main", f"--workdir={address}", **last)
    assert result.returncode == 0, result.stderr[-2000:]
    assert f"resuming from step {35 - 35 % 7}" in result.stderr or "resuming from step 28" in (
        result.stderr
    )
    _same(address, undisturbed, server, tmp_path)


def test_sigterm_leaves_everything_in_the_bucket(server, config, undisturbed, tmp_path):
    """The machine that goes on has a server that is merely slow, of which nobody is warned."""
    address = "gs://lab/terminated"
    machine = server.environment(tmp_path / "one")
    process = _start("main", f"--config={config}", f"--workdir={address}", **machine)
    read_until(process, f"step 10/{STEPS}")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-2000:]

    other = server.environment(tmp_path / "other")
    with server.slow():
        result = _command("main", f"--workdir={address}", **other)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "waiting" not in result.stderr  # the lock was left free
    assert "cannot be reached" not in result.stderr and "no answer" not in result.stderr
    _same(address, undisturbed, server, tmp_path)


@pytest.mark.parametrize(
    ("disturb", "mend", "words"),
    [
        ("stop", "start", "cannot be reached"),
        ("pause", "resume", "no answer of the bucket for 10 s; it is waited for"),
        ("overload", "start", "cannot be reached (503 "),
    ],
)
def test_a_server_that_is_away_for_a_while(
    disturb, mend, words, server, config, undisturbed, tmp_path
):
    """Dead, silent with its connections open, or answering 503: the run waits and loses nothing."""
    address = f"gs://lab/{disturb}"
    machine = server.environment(tmp_path / "machine")
    process = _start("main", f"--config={config}", f"--workdir={address}", **machine)
    read_until(process, f"step 15/{STEPS}")
    getattr(server, disturb)()
    try:
        said = read_until(process, words)
    finally:
        getattr(server, mend)()
    said += process.communicate()[1]
    assert process.returncode == 0, said[-2000:]
    assert "Traceback" not in said
    if disturb == "stop":
        assert "it is tried again for 120 s" in said
    _same(address, undisturbed, server, tmp_path)


def test_a_server_that_lets_the_run_in_no_more(server, config, undisturbed, tmp_path):
    """Its rights are taken away in the middle of the run, and given back after its end."""
    address = "gs://lab/forbidden"
    machine = server.environment(tmp_path / "machine")
    process = _start("main", f"--config={config}", f"--workdir={address}", **machine)
    read_until(process, f"step 15/{STEPS}")
    server.refuse(403)
    try:
        _, errors = process.communicate()
    finally:
        server.start()
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "may not be read or written with these credentials (403 Forbidden)" in errors
    assert errors.splitlines()[-1] == (
        f"error: step {STEPS} is not saved; the same command goes on from the newest checkpoint"
    )

    other = server.environment(tmp_path / "other")
    result = _command("main", f"--workdir={address}", **other)
    assert result.returncode == 0, result.stderr[-2000:]
    # The save of step 14 was perhaps not at its end when the rights were taken away.
    assert any(f"resuming from step {step}" in result.stderr for step in (7, 14))
    _same(address, undisturbed, server, tmp_path)


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


def test_a_server_that_dies_inside_a_checkpoint(server, config, undisturbed, tmp_path):
    """It is killed as soon as it has the first object of step 21, and comes back."""
    address = "gs://lab/inside"
    machine = server.environment(tmp_path / "machine")
    process = _start("main", f"--config={config}", f"--workdir={address}", **machine)
    read_until(process, f"step 20/{STEPS}")
    while not any(name.startswith("21") for name in server.names("inside/checkpoints")):
        assert process.poll() is None
    server.stop()
    there = server.names("inside/checkpoints")
    server.start()
    said = process.communicate()[1]
    assert process.returncode == 0, said[-2000:]
    assert "Traceback" not in said
    assert "21/commit_success.txt" not in there, "killed too late to be inside of it"
    _same(address, undisturbed, server, tmp_path)


def test_two_processes_that_share_nothing_but_the_bucket(server, config, undisturbed, tmp_path):
    """One of them is killed; a single process on a third machine finishes what they have begun."""
    address, port = "gs://lab/two", free_port()
    both = [
        _start(
            "main", f"--config={config}", f"--workdir={address}", "--num_processes=2",
            f"--coordinator_address=127.0.0.1:{port}", f"--process_id={number}",
            **server.environment(tmp_path / f"host {number}"),
        )
        for number in range(2)
    ]  # fmt: skip
    read_until(both[0], f"step 30/{STEPS}")
    both[1].kill()
    _, errors = both[0].communicate()
    both[1].communicate()
    assert both[0].returncode == 1
    (said,) = (line for line in errors.splitlines() if line.startswith("error: "))
    assert "process 1 " in said

    result = _command("main", f"--workdir={address}", **server.environment(tmp_path / "third"))
    assert result.returncode == 0, result.stderr[-2000:]
    assert "resuming from step 28" in result.stderr or "resuming from step 21" in result.stderr
    for mine, theirs in zip(_rows(server, "two"), _rows_of(undisturbed), strict=True):
        assert mine["step"] == theirs["step"]
        # Sums over two devices are rounded otherwise, and a sampled token may change by that.
        assert mine["gen_masked_loss"] == pytest.approx(theirs["gen_masked_loss"], abs=1e-2)


def test_two_processes_prepare_together_and_another_machine_goes_on(server, tmp_path):
    """The second is killed in the middle of its share. What is finished is in the bucket."""
    for number in range(12):
        write_corpus(tmp_path / f"{number:02d}.txt", 1000, seed=max(1, number))
    settings = [
        "--config=configs/tiny.py",
        f"--config.data.source=text:{tmp_path}/*.txt",
        "--config.data.vocab=train:wordpiece:100",
        "--config.data.deduplicate=True",
        "--config.data.workers=1",  # the process does its share itself, and can be halted
        "--config.data.heldout_fraction=0.000001",  # one unit is built twice
    ]
    result = _command("prepare", *settings, f"--workdir={tmp_path / 'alone'}")
    assert result.returncode == 0, result.stderr[-2000:]
    alone = digests(tmp_path / "alone" / "data")

    def start(address):
        port = free_port()
        return [
            _start(
                "prepare", *settings, f"--workdir={address}", "--num_processes=2",
                f"--coordinator_address=127.0.0.1:{port}", f"--process_id={number}",
                **server.environment(tmp_path / f"host {number}"),
            )
            for number in range(2)
        ]  # fmt: skip

    both = start("gs://lab/together")
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "cutting rows: 6 of 12 units in this process" in said[1]
    assert server.digests("together/data") == alone

    both = start("gs://lab/halted")
    read_until(both[1], "cutting rows: 6 of 12 units in this process")
    both[1].send_signal(signal.SIGSTOP)
    read_until(both[0], "waiting for process 1")  # its own six units are done
    both[1].kill()
    for process in both:
        process.communicate()
    machine = server.environment(tmp_path / "third")
    result = _command("prepare", *settings, "--workdir=gs://lab/halted", **machine)
    assert result.returncode == 0, result.stderr[-2000:]
    there = next(line for line in result.stderr.splitlines() if "are there already" in line)
    assert 6 <= int(there.split()[1]) < 12
    assert server.digests("halted/data") == alone


def test_every_command_reads_a_run_from_its_bucket(server, finished, here, tmp_path):
    machine = server.environment(tmp_path / "reader")
    before = server.names("finished")

    shown = _command("show", f"--workdir={finished}", **machine)
    assert f"step {STEPS}" in shown.stdout and "discriminator" in shown.stdout, shown.stderr

    evaluated = _command("evaluate", f"--workdir={finished}", "--json", **machine)
    last = [row for row in _rows(server, "finished") if row["kind"] == "eval"][-1]
    found = json.loads(evaluated.stdout.splitlines()[-1])
    assert found["step"] == STEPS
    assert found["disc_auc"] == pytest.approx(last["disc_auc"], rel=1e-5)

    out = tmp_path / "export"
    exported = _command(
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


def _rows(server, name):
    return _rows_of(server._folder / "lab" / name)


def _rows_of(workdir):
    return writers.read(workdir / "metrics.jsonl")


def test_a_reader_fetches_no_training_rows(server, finished, tmp_path):
    cache = tmp_path / "reader"
    result = _command("show", f"--workdir={finished}", **server.environment(cache))
    assert result.returncode == 0, result.stderr
    assert {path.parent.name for path in cache.rglob("*.ids")} == {"heldout"}


def test_a_run_begins_with_weights_from_a_bucket(server, finished, config, tmp_path):
    machine = server.environment(tmp_path / "machine")
    for source in (finished, f"{finished}/checkpoints/{STEPS}"):
        workdir = tmp_path / source.replace("/", "_")
        result = _command(
            "main", f"--config={config}", f"--workdir={workdir}", "--config.schedule.steps=2",
            f"--config.init.from={source}", **machine,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr[-2000:]
        assert "gs://lab/finished" in result.stderr


def test_tokens_grow_from_a_vocabulary_that_is_in_a_bucket(server, finished, config, tmp_path):
    """It lies beside the checkpoints there, and is on this machine in the copy of the workdir."""
    result = _command(
        "main", f"--config={config}", f"--workdir={tmp_path / 'run'}", "--config.schedule.steps=2",
        f"--config.init.from={finished}", "--config.init.new_tokens=mean",
        "--config.data.vocab=train:wordpiece:80", **server.environment(tmp_path / "machine"),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert "tokens keep their rows" in result.stderr


def test_text_and_prepared_data_in_a_bucket(server, config, here, undisturbed, tmp_path):
    """Text and vocabulary are read from the bucket; the rows go there and are those of a disk."""
    tree = json.loads((undisturbed / "config.json").read_text())
    buckets.upload(tree["data"]["source"].removeprefix("text:"), "gs://lab/text/corpus.txt")
    (own,) = (undisturbed / "data").iterdir()
    (words,) = (path for path in (own / "vocab").iterdir() if path.suffix in (".model", ".txt"))
    buckets.upload(str(words), f"gs://lab/text/{words.name}")

    def prepare(name):
        return _command(
            "prepare", f"--config={config}", f"--workdir={tmp_path / name}",
            "--config.data.source=text:gs://lab/text/corpus.txt",
            "--config.data.dir=gs://lab/rows", f"--config.data.vocab=gs://lab/text/{words.name}",
            **server.environment(tmp_path / f"machine of {name}"),
        )  # fmt: skip

    result = prepare("run")
    assert result.returncode == 0, result.stderr[-2000:]
    (manifest,) = (name for name in server.names("rows") if name.endswith("manifest.json"))
    rows = server._folder / "lab" / "rows" / os.path.dirname(manifest) / "records"
    for path in sorted(rows.rglob("*.*")):
        assert path.read_bytes() == (own / "records" / path.relative_to(rows)).read_bytes()

    # As long as one prepares them, another machine is refused.
    buckets.remove(f"gs://lab/rows/{manifest}")
    folder = f"gs://lab/rows/{os.path.dirname(manifest)}"
    with bucket_lock.hold(f"{folder}/prepare.lock", "it", timing=QUICK):
        result = prepare("other")
    assert result.returncode == 1, result.stderr[-2000:]
    refusal = result.stderr.splitlines()[-1]
    owner = f"process {os.getpid()} on {socket.gethostname()}, last sign of life 20"
    assert refusal.startswith(f"error: the data folder {folder} is in use by another run ({owner}")
    assert not (tmp_path / "other").exists()


def test_text_in_a_bucket_that_refuses_is_an_error_that_stays(server, here):
    server.refuse(403)
    try:
        with pytest.raises(ValueError, match="give them the role Storage Object Vie") as raised:
            text_remote.files("gs://lab/closed/*.txt")
    finally:
        server.start()
    assert not causes.may_pass(raised.value) and "\n" not in str(raised.value)


def test_a_damaged_copy_of_a_shard_is_fetched_anew(server, finished, tmp_path):
    machine = server.environment(tmp_path / "machine")
    result = _command("evaluate", f"--workdir={finished}", "--json", **machine)
    whole = result.stdout
    for path in (tmp_path / "machine").rglob("*.ids"):
        content = bytearray(path.read_bytes())
        content[5] ^= 1
        path.write_bytes(content)
    result = _command("evaluate", f"--workdir={finished}", "--json", **machine)
    assert result.stdout == whole, result.stderr


def test_fine_tuning_leaves_its_results_in_the_bucket(server, finished, tmp_path):
    rows = "".join(f"the cat sees number {n}\t{n % 2}\n" for n in range(40))
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("text\tlabel\n" + rows)
    result = _command(
        "finetune", f"--workdir={finished}", "--config=configs/finetune.py",
        "--config.tasks=custom", f"--config.data.dir={tmp_path}", "--config.seeds=1",
        "--config.custom.train=train.tsv", "--config.custom.dev=dev.tsv",
        "--config.custom.text=text", "--config.custom.label=label", "--config.recipe.epochs=1",
        **server.environment(tmp_path / "machine"),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert "finetune/finetune/results.json" in server.names("finished")


def test_the_second_run_is_refused(server, config, tmp_path):
    address, one = "gs://lab/locked", server.environment(tmp_path / "one")
    first = _start(
        "main",
        f"--config={config}",
        f"--workdir={address}",
        "--config.schedule.steps=100000",
        **one,
    )
    read_until(first, " 10/100000")
    second = _command("main", f"--workdir={address}", **server.environment(tmp_path / "other"))
    first.send_signal(signal.SIGTERM)
    first.communicate()
    assert first.returncode == 0
    assert second.returncode == 1
    assert "workdir gs://lab/locked is in use by another run (process " in second.stderr
    assert "Traceback" not in second.stderr


def test_the_lock_of_a_machine_that_vanished_is_taken(here):
    address = "gs://lab/locks/vanished"
    gone = {"host": "another-machine", "pid": 1, "at": 0}
    buckets.write(address, json.dumps(gone).encode())
    with bucket_lock.hold(address, "it", timing=QUICK) as held:
        assert not held.is_lost()
    assert buckets.read(address) == b"free\n"


def test_the_lock_of_a_process_that_died_here_is_taken_at_once(here):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    address = "gs://lab/locks/died"
    owner = json.loads(bucket_lock._me("a")) | {"pid": process.pid}
    buckets.write(address, json.dumps(owner).encode())
    forever = bucket_lock.Timing(sign_of_life=1000.0, silence=1000.0)
    with bucket_lock.hold(address, "it", timing=forever):
        pass


def test_an_owner_that_lives_keeps_its_lock(here, monkeypatch):
    """Signs of life come from a thread; who asks sees one and gives up."""
    address = "gs://lab/locks/kept"
    monkeypatch.setattr(owners, "runs", lambda pid, began: True)
    with bucket_lock.hold(address, "it", timing=QUICK) as held:
        with pytest.raises(causes.MayPass, match="it is in use by another run .process "):
            with bucket_lock.hold(address, "it", timing=bucket_lock.Timing(0.02, 1000.0)):
                pass
        assert not held.is_lost()


def test_who_lost_the_lock_writes_nothing_any_more(here, tmp_path):
    """Another process has taken the lock over: no file is sent, and the error says why."""
    address = "gs://lab/lost"
    noticed = threading.Event()

    with pytest.raises(bucket_lock.Lost, match="was taken over by another process"):
        with staging.opened(address) as workdir:
            os.makedirs(workdir)
            with staging.locked(workdir, workdir, "the run"):
                held = staging._copies[workdir].held
                buckets.write(f"{address}/run.lock", b'{"host": "b", "pid": 1, "at": 1}')
                held._generation = buckets.replace(f"{address}/run.lock", b"mine", held._generation)
                assert held.is_lost()
                with open(os.path.join(workdir, "metrics.jsonl"), "w") as file:
                    file.write("{}\n")
                staging.push(workdir)
                noticed.set()
    assert not noticed.is_set()
    assert "metrics.jsonl" not in buckets.listing(address)


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
    result = _command("main", *arguments, **server.environment(tmp_path))
    assert result.returncode in (1, 2)
    assert "Traceback" not in result.stderr
    assert says in result.stderr.splitlines()[-1]
