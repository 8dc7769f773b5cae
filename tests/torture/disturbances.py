# SPDX-License-Identifier: Apache-2.0
"""The ways to disturb a run. Each leaves one that the same command can take to its end."""

import collections
import contextlib
import os
import random
import shutil
import signal
import subprocess

from electra_jax.workdir import metadata
from tests.support import outcomes
from tests.support.commands import free_port

from .runs import STEPS, Command, Lost, one_line, progress, train
from .trials import Trial, end, same

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def kill(trial: Trial) -> None:
    """SIGKILL at random moments: from the start of Python to the last save."""
    for _ in range(trial.draw.randint(1, 3)):
        command = train(trial.folder)
        _until_a_moment(trial, command)
        trial.did(f"SIGKILL after {command.seconds:.1f} s, {progress(command)}")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.process.pid, signal.SIGKILL)
        command.wait()


def stop(trial: Trial) -> None:
    """SIGTERM or Ctrl-C at a random moment, sometimes twice."""
    command = train(trial.folder)
    _until_a_moment(trial, command)
    number = trial.draw.choice(SIGNALS)
    times = trial.draw.randint(1, 2)
    trial.did(f"{times} x {number.name} after {command.seconds:.1f} s, {progress(command)}")
    command.is_early = not command.lines
    for _ in range(times):
        command.signal(number)
        command.wait_for("no line has this", 1.2)  # within a second two count as one
    code = command.wait()
    # Python itself, before the command has begun, ends by the signal or with a KeyboardInterrupt.
    if code not in (0, 128 + number, *((-number, 1) if command.is_early else ())):
        raise Lost(f"exit code {code} after {number.name}")


def flip(trial: Trial) -> None:
    """One bit of one file."""
    _damage(trial, "flip")


def damage(trial: Trial) -> None:
    """One file cut, emptied, deleted, filled with noise, or a folder in its place."""
    _damage(trial, trial.draw.choice(("cut", "empty", "delete", "noise", "folder")))


def full_disk(trial: Trial) -> None:
    """A file system that is full from a random step on, until the command has ended."""
    with _small_disk(trial) as fill:
        command = train(trial.folder)
        command.wait_for(rf"step +{trial.draw.randint(1, STEPS - 1)}/{STEPS}")
        fill(trial.draw.choice((0, 4, 64, 256)))
        code = command.wait()
        fill(None)
        if code:
            one_line(command)
        trial.did(f"full disk, {progress(command)}, exit code {code}")
        end(trial)
        same(trial)


def odd_path(trial: Trial) -> None:
    """A workdir whose name has characters that mean something to somebody."""
    odd = [*"[]{}*?#%&=,:;@+~$!'\"() \\^|<>", "%41", "é", "e\u0301", "日", "..", "-", "\t"]
    name = "run" + "".join(trial.draw.choice(odd) for _ in range(trial.draw.randint(1, 6))) + "x"
    before = set(os.listdir(trial.folder))
    command = train(trial.folder, workdir=name)
    command.wait_for(rf"step +{trial.draw.randint(1, STEPS - 1)}/{STEPS}")
    command.signal(signal.SIGKILL)
    trial.did(f"workdir {name!r}, {progress(command)}")
    if command.wait() == 2:
        one_line(command)
        trial.refused = True
        if set(os.listdir(trial.folder)) != before:
            raise Lost("refused after something was written")
        return
    last = train(trial.folder, workdir=name)
    if last.wait():
        raise Lost(f"cannot continue: {last.lines[-1:]}")
    os.rename(trial.folder / name, trial.workdir)


def move(trial: Trial) -> None:
    """The workdir moved to another folder, the text that it was made of deleted."""
    command = train(trial.folder)
    command.wait_for(rf"step +{trial.draw.randint(1, STEPS - 1)}/{STEPS}")
    command.signal(trial.draw.choice((signal.SIGTERM, signal.SIGKILL)))
    command.wait()
    moved = trial.folder.with_name(trial.folder.name + "-moved")
    moved.mkdir()
    os.rename(trial.workdir, moved / "run")
    shutil.rmtree(trial.folder)
    trial.folder = moved
    trial.did(f"moved, text deleted, {progress(command)}")


def two_processes(trial: Trial) -> None:
    """One of two processes killed or stopped at a random step; both start again."""
    _undisturbed_pair(trial.world)
    pair = _two(trial)
    victim = trial.draw.randrange(2)
    number = trial.draw.choice((signal.SIGKILL, signal.SIGTERM))
    pair[0].wait_for(rf"step +{trial.draw.randint(1, STEPS - 1)}/{STEPS}")
    pair[victim].signal(number)
    trial.did(f"{number.name} to process {victim}, {progress(pair[0])}")
    codes = [command.wait() for command in pair]
    other = pair[1 - victim]
    if number == signal.SIGKILL and codes[victim] == -number:
        if codes[1 - victim] in (0, -signal.SIGABRT):
            raise Lost(f"the other process ended with {codes[1 - victim]}: {other.lines[-2:]}")
        if f"process {victim} " not in one_line(other):
            raise Lost(f"the other process does not say who died: {other.lines[-2:]}")
    elif any(codes):
        raise Lost(f"exit codes {codes} after {number.name}: {other.lines[-2:]}")
    if any(command.wait() for command in _two(trial)):
        raise Lost("two processes cannot continue")


def look(trial: Trial) -> None:
    """The commands that look at a run, while one file of it is damaged: right or refused."""
    _copy_begun(trial)
    victim, how = _victim(trial), trial.draw.choice(("flip", "cut", "empty", "delete", "noise"))
    _hurt(trial, victim, how)
    module = trial.draw.choice(("evaluate", "show", "main"))
    flags = ["--workdir=run", *(["--dry_run"] if module == "main" else [])]
    command = Command(trial.folder, *flags, module=f"electra_jax.{module}")
    if command.wait():
        one_line(command)
        trial.refused = True
    _put_back(trial, victim)
    trial.did(module)


KINDS = {
    "kill": (kill, 4),  # with its share of the trials
    "stop": (stop, 3),
    "flip": (flip, 5),
    "damage": (damage, 4),
    "look": (look, 2),
    "full_disk": (full_disk, 1),
    "odd_path": (odd_path, 2),
    "move": (move, 1),
    "two_processes": (two_processes, 2),
}


# What the disturbances share.


def _until_a_moment(trial, command):
    """A moment of any phase: half of them by the clock, half while steps are taken and saved."""
    if trial.draw.random() < 0.5:
        command.wait_for("no line has this", trial.draw.uniform(0, 1.1 * trial.world.seconds))
    else:
        command.wait_for(rf"step +{trial.draw.randint(1, STEPS)}/{STEPS}")
        command.wait_for("no line has this", trial.draw.uniform(0, 0.2))


def _copy_begun(trial):
    shutil.copytree(trial.world.folder / "begun" / "run", trial.workdir, symlinks=True)


def _damage(trial, how):
    """Hurts a file of a run that was stopped halfway, and sees what the next start makes of it."""
    _copy_begun(trial)
    newest = max(metadata.steps(str(trial.workdir / "checkpoints")))
    victim = _victim(trial)
    _hurt(trial, victim, how)
    command = train(trial.folder)
    code = command.wait()
    if code:
        one_line(command)
        trial.refused = True
        _put_back(trial, victim)
    elif f"checkpoints/{newest}/" not in str(victim) and command.resumed_from != newest:
        raise Lost(f"continued from {command.resumed_from}, though {newest} is good")


def _victim(trial):
    """A file of the run, each kind of file as likely as another."""
    files = sorted(p.relative_to(trial.workdir) for p in trial.workdir.rglob("*") if p.is_file())
    by_kind = collections.defaultdict(list)
    for path in files:
        kind = path.parts[0] if path.parts[0] != "data" else "/".join(path.parts[2:-1] or ["data"])
        by_kind[kind].append(path)
    kind = trial.draw.choice(sorted(by_kind))
    if kind == "checkpoints":  # most often the newest, which everything depends on
        newest = max(metadata.steps(str(trial.workdir / "checkpoints")))
        mine = [path for path in by_kind[kind] if path.parts[1] == str(newest)]
        if trial.draw.random() < 0.8:
            return trial.draw.choice(mine)
    return trial.draw.choice(by_kind[kind])


def _hurt(trial, victim, how):
    path = trial.workdir / victim
    data = bytearray(path.read_bytes())
    if how == "flip" and data:
        place, bit = trial.draw.randrange(len(data)), trial.draw.randrange(8)
        data[place] ^= 1 << bit
        path.write_bytes(data)
        how = f"flip bit {bit} of byte {place} in"
    elif how == "cut":
        path.write_bytes(data[: trial.draw.randrange(len(data) + 1)])
    elif how == "noise":
        path.write_bytes(trial.draw.randbytes(max(len(data), 1)))
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
    trial.did(f"{how} {victim}")


def _put_back(trial, victim):
    """What a user does who has a copy: the file as it was, whatever became of it."""
    path = trial.workdir / victim
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(trial.world.folder / "begun" / "run" / victim, path)


def _two(trial):
    port = free_port()
    return [
        train(
            trial.folder,
            f"--coordinator_address=127.0.0.1:{port}",
            "--num_processes=2",
            f"--process_id={number}",
        )
        for number in range(2)
    ]


def _undisturbed_pair(world):
    """The weights that two processes end with, once for all trials."""
    with world.lock:
        if not world.digest_of_two:
            folder = world.folder / "whole_two"
            folder.mkdir()
            shutil.copy(world.folder / "corpus.txt", folder)
            trial = Trial(-1, "two_processes", random.Random(0), folder, world)
            if any(command.wait() for command in _two(trial)):
                raise Lost("the undisturbed pair failed")
            world.digest_of_two = outcomes.digest(folder / "run", STEPS)


@contextlib.contextmanager
def _small_disk(trial):
    """Puts the workdir on a disk of its own; gives `fill(KiB to leave, or None to free all)`."""
    trial.workdir.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", trial.workdir]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise Lost("this machine may not mount a file system; leave out --kinds=full_disk")
    filler = trial.workdir / "filler"

    def fill(leave):
        filler.unlink(missing_ok=True)
        if leave is None:
            return
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        size = max(0, filler.stat().st_size - 1024 * leave)
        os.truncate(filler, size)

    try:
        yield fill
    finally:
        subprocess.run(["umount", trial.workdir], check=True)
        trial.workdir.rmdir()
