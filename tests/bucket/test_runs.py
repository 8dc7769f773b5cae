# SPDX-License-Identifier: Apache-2.0
"""Runs whose workdir is in a bucket, disturbed in many ways: they end as on a disk."""

import signal

import pytest

from electra_jax.report import writers
from support import bucket_runs
from support.commands import free_port, read_until

pytestmark = pytest.mark.bucket


def test_a_finished_run_is_in_the_bucket_as_on_a_disk(server, finished, undisturbed, tmp_path):
    bucket_runs.same(finished, undisturbed, server)
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
    """Killed twice, once while it saves; each time another machine with an empty disk continues."""
    address = "gs://lab/killed"
    for number, step in enumerate((16, 35)):
        machine = server.environment(tmp_path / f"machine {number}")
        process = bucket_runs.start("main", f"--config={config}", f"--workdir={address}", **machine)
        read_until(process, f"step {step}/{bucket_runs.STEPS}")
        process.kill()
        process.communicate()

        # What the run has written is there since the last save, not only since its end.
        there = server._folder / "lab" / "killed"
        saved = step - step % 7 - 7  # the newest save may just have begun
        assert f"/{bucket_runs.STEPS}  gen_masked_loss " in (there / "log.txt").read_text()
        assert saved in [row["step"] for row in writers.read(there / "metrics.jsonl")]
        assert len(list((there / "tensorboard").rglob("*tfevents*"))) == number + 1
        assert "</html>" in (there / "report.html").read_text()

    # The last one needs no configuration: it is in the bucket too.
    last = server.environment(tmp_path / "last machine")
    result = bucket_runs.command("main", f"--workdir={address}", **last)
    assert result.returncode == 0, result.stderr[-2000:]
    assert f"resuming from step {35 - 35 % 7}" in result.stderr or "resuming from step 28" in (
        result.stderr
    )
    bucket_runs.same(address, undisturbed, server)


def test_sigterm_leaves_everything_in_the_bucket(server, config, undisturbed, tmp_path):
    """The machine that continues has a server that is merely slow, of which nobody is warned."""
    address = "gs://lab/terminated"
    machine = server.environment(tmp_path / "one")
    process = bucket_runs.start("main", f"--config={config}", f"--workdir={address}", **machine)
    read_until(process, f"step 10/{bucket_runs.STEPS}")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-2000:]

    other = server.environment(tmp_path / "other")
    with server.slow():
        result = bucket_runs.command("main", f"--workdir={address}", **other)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "waiting" not in result.stderr  # the lock was left free
    assert "cannot be reached" not in result.stderr and "no answer" not in result.stderr
    bucket_runs.same(address, undisturbed, server)


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
    process = bucket_runs.start("main", f"--config={config}", f"--workdir={address}", **machine)
    read_until(process, f"step 15/{bucket_runs.STEPS}")
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
    bucket_runs.same(address, undisturbed, server)


def test_a_server_that_lets_the_run_in_no_more(server, config, undisturbed, tmp_path):
    """Its rights are taken away in the middle of the run, and given back after its end."""
    address = "gs://lab/forbidden"
    machine = server.environment(tmp_path / "machine")
    process = bucket_runs.start("main", f"--config={config}", f"--workdir={address}", **machine)
    read_until(process, f"step 15/{bucket_runs.STEPS}")
    server.refuse(403)
    try:
        _, errors = process.communicate()
    finally:
        server.start()
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "may not be read or written with these credentials (403 Forbidden)" in errors
    assert errors.splitlines()[-1] == (
        f"error: step {bucket_runs.STEPS} is not saved; the same command continues from the newest"
        " checkpoint"
    )

    other = server.environment(tmp_path / "other")
    result = bucket_runs.command("main", f"--workdir={address}", **other)
    assert result.returncode == 0, result.stderr[-2000:]
    # The save of step 14 was perhaps not at its end when the rights were taken away.
    assert any(f"resuming from step {step}" in result.stderr for step in (7, 14))
    bucket_runs.same(address, undisturbed, server)


def test_a_server_that_dies_inside_a_checkpoint(server, config, undisturbed, tmp_path):
    """It is killed as soon as it has the first object of step 21, and comes back."""
    address = "gs://lab/inside"
    machine = server.environment(tmp_path / "machine")
    process = bucket_runs.start("main", f"--config={config}", f"--workdir={address}", **machine)
    read_until(process, f"step 20/{bucket_runs.STEPS}")
    while not any(name.startswith("21") for name in server.names("inside/checkpoints")):
        assert process.poll() is None
    server.stop()
    there = server.names("inside/checkpoints")
    server.start()
    said = process.communicate()[1]
    assert process.returncode == 0, said[-2000:]
    assert "Traceback" not in said
    assert "21/commit_success.txt" not in there, "killed too late to be inside of it"
    bucket_runs.same(address, undisturbed, server)


def test_two_processes_that_share_nothing_but_the_bucket(server, config, undisturbed, tmp_path):
    """One of them is killed; a single process on a third machine finishes what they have begun."""
    address, port = "gs://lab/two", free_port()
    both = [
        bucket_runs.start(
            "main", f"--config={config}", f"--workdir={address}", "--num_processes=2",
            f"--coordinator_address=127.0.0.1:{port}", f"--process_id={number}",
            **server.environment(tmp_path / f"host {number}"),
        )
        for number in range(2)
    ]  # fmt: skip
    read_until(both[0], f"step 30/{bucket_runs.STEPS}")
    both[1].kill()
    _, errors = both[0].communicate()
    both[1].communicate()
    assert both[0].returncode == 1
    (said,) = (line for line in errors.splitlines() if line.startswith("error: "))
    assert "process 1 " in said

    result = bucket_runs.command(
        "main", f"--workdir={address}", **server.environment(tmp_path / "third")
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "resuming from step 28" in result.stderr or "resuming from step 21" in result.stderr
    for mine, theirs in zip(
        bucket_runs.rows(server, "two"), writers.read(undisturbed / "metrics.jsonl"), strict=True
    ):
        assert mine["step"] == theirs["step"]
        # Sums over two devices are rounded otherwise, and a sampled token may change by that.
        assert mine["gen_masked_loss"] == pytest.approx(theirs["gen_masked_loss"], abs=1e-2)


def test_the_second_run_is_refused(server, config, tmp_path):
    address, one = "gs://lab/locked", server.environment(tmp_path / "one")
    first = bucket_runs.start(
        "main",
        f"--config={config}",
        f"--workdir={address}",
        "--config.schedule.steps=100000",
        **one,
    )
    read_until(first, " 10/100000")
    second = bucket_runs.command(
        "main", f"--workdir={address}", **server.environment(tmp_path / "other")
    )
    first.send_signal(signal.SIGTERM)
    first.communicate()
    assert first.returncode == 0
    assert second.returncode == 1
    assert "workdir gs://lab/locked is in use by another run (process " in second.stderr
    assert "Traceback" not in second.stderr
