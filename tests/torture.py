# SPDX-License-Identifier: Apache-2.0
"""Disturbs real runs at random, lets each of them end, and counts what was lost.

    python -m tests.torture --minutes=20 --seed=1
    python -m tests.torture --trials=14 --kinds=kill,flip

One small run is trained without disturbance. Every trial then has a folder of its own, disturbs a
run of the same configuration in one of the ways of `KINDS`, and repeats the same command until the
run has ended, as its user would:

    begin -> disturb -> the same command -> ... -> ended: the same weights and metrics? -> outcome

The outcome of a trial is one of these:

    same      ended with the weights of the undisturbed run, bit for bit, and with its metrics
    refused   a command ended with one line that says what is wrong and what to do; when that was
              done, the run ended as above
    lost      anything else: other weights, a traceback, a hang, a good checkpoint not used

Every draw comes from the seed and the number of the trial, so `--seed=1 --only=17` repeats trial
17. The folder of a trial that lost something is kept and named. Exit code 1 if any did.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from electra_jax.report import writers  # noqa: E402 - the platform must be set before
from electra_jax.workdir import metadata
from tests.support import corpus  # noqa: E402

STEPS = 60
SAVED_EVERY = 5
LIMIT = 300  # seconds after which a command counts as hanging, even beside other work
TIMES = ("tokens_per_second", "step_seconds", "mfu")  # metrics that no two runs share
SIGNALS = (signal.SIGTERM, signal.SIGINT)

CONFIGURATION = f"""
from tests.support import corpus

def get_config():
    return corpus.small_run(
        "text:corpus.txt",
        "",
        schedule__steps={STEPS},
        checkpoint__every={SAVED_EVERY},
        checkpoint__keep_last=3,
        evaluation__every=20,
        logging__every=1,
        logging__report_every=25,
    )
"""


class Lost(Exception):
    """What was promised and did not hold."""


@dataclasses.dataclass
class Trial:
    """One trial: its number, its draws, its folder, and what was done to the run."""

    number: int
    kind: str
    draw: random.Random
    folder: pathlib.Path
    world: "World"
    done: list[str] = dataclasses.field(default_factory=list)
    refused: bool = False

    @property
    def workdir(self) -> pathlib.Path:
        """Of the run that is disturbed."""
        return self.folder / "run"

    def did(self, what: str) -> None:
        """Notes one disturbance."""
        self.done.append(what)


@dataclasses.dataclass
class World:
    """What all trials share."""

    folder: pathlib.Path
    digest: dict = dataclasses.field(default_factory=dict)  # of the undisturbed run's last weights
    rows: list = dataclasses.field(default_factory=list)  # its metrics
    digest_of_two: dict = dataclasses.field(default_factory=dict)  # of one with two processes
    seconds: float = 0.0  # that it took
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class Command:
    """A real command in a process group of its own; what it says is kept line by line."""

    def __init__(self, folder: pathlib.Path, *flags: str, module: str = "electra_jax.main"):
        environment = os.environ | {"PYTHONPATH": str(corpus.ROOT), "PYTHONUNBUFFERED": "1"}
        self.lines: list[str] = []
        self._began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *flags],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._heard = threading.Condition()
        self._ended = False
        threading.Thread(target=self._listen, daemon=True).start()
        self.hung = False
        self.is_early = False  # a signal came while Python was still importing
        self._timer = threading.Timer(LIMIT, self._end_hanging)
        self._timer.daemon = True
        self._timer.start()

    def wait_for(self, pattern: str, seconds: float = LIMIT) -> bool:
        """Until a line matches or the process ends; whether one matched."""
        expression = re.compile(pattern)
        with self._heard:
            self._heard.wait_for(lambda: self._ended or self._has(expression), seconds)
            return self._has(expression)

    def wait(self) -> int:
        """Until it ends: the exit code. Raises Lost for one that hangs or speaks in tracebacks."""
        code = self.process.wait()
        self._timer.cancel()
        with self._heard:
            self._heard.wait_for(lambda: self._ended)
        if self.hung:
            raise Lost(f"no end after {LIMIT} s: {self.lines[-3:]}")
        told = any("Traceback (most recent" in line for line in self.lines)
        if told and code != -signal.SIGKILL and not self.is_early:
            raise Lost(f"a traceback: {[x for x in self.lines if x.strip()][-1]}")
        return code

    def signal(self, number: int) -> None:
        """To the process alone; one that has ended already is left in peace."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    @property
    def resumed_from(self) -> int | None:
        """The step that it said it goes on from."""
        found = [re.search(r"resuming from step (\d+)", line) for line in self.lines]
        return next((int(match[1]) for match in found if match), None)

    def _has(self, expression):
        return any(expression.search(line) for line in self.lines)

    def _listen(self):
        for line in self.process.stdout:
            with self._heard:
                self.lines.append(line.rstrip("\n"))
                self._heard.notify_all()
        with self._heard:
            self._ended = True
            self._heard.notify_all()

    def _end_hanging(self):
        if self.process.poll() is None:
            self.hung = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


def train(folder: pathlib.Path, *flags: str, workdir: str = "run") -> Command:
    """The command that every trial repeats."""
    return Command(folder, "--config=../torture_run.py", f"--workdir={workdir}", *flags)


# How a run is disturbed. Each leaves a run that the same command can take to its end.


def kill(trial: Trial) -> None:
    """SIGKILL at random moments: from the start of Python to the last save."""
    for _ in range(trial.draw.randint(1, 3)):
        command = train(trial.folder)
        _until_a_moment(trial, command)
        trial.did(f"SIGKILL after {command.seconds:.1f} s, {_progress(command)}")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.process.pid, signal.SIGKILL)
        command.wait()


def stop(trial: Trial) -> None:
    """SIGTERM or Ctrl-C at a random moment, sometimes twice."""
    command = train(trial.folder)
    _until_a_moment(trial, command)
    number = trial.draw.choice(SIGNALS)
    times = trial.draw.randint(1, 2)
    trial.did(f"{times} x {number.name} after {command.seconds:.1f} s, {_progress(command)}")
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
            _one_line(command)
        trial.did(f"full disk, {_progress(command)}, exit code {code}")
        _end(trial)
        _same(trial)


def odd_path(trial: Trial) -> None:
    """A workdir whose name has characters that mean something to somebody."""
    odd = [*"[]{}*?#%&=,:;@+~$!'\"() \\^|<>", "%41", "é", "e\u0301", "日", "..", "-", "\t"]
    name = "run" + "".join(trial.draw.choice(odd) for _ in range(trial.draw.randint(1, 6))) + "x"
    before = set(os.listdir(trial.folder))
    command = train(trial.folder, workdir=name)
    command.wait_for(rf"step +{trial.draw.randint(1, STEPS - 1)}/{STEPS}")
    command.signal(signal.SIGKILL)
    trial.did(f"workdir {name!r}, {_progress(command)}")
    if command.wait() == 2:
        _one_line(command)
        trial.refused = True
        if set(os.listdir(trial.folder)) != before:
            raise Lost("refused after something was written")
        return
    last = train(trial.folder, workdir=name)
    if last.wait():
        raise Lost(f"cannot go on: {last.lines[-1:]}")
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
    trial.did(f"moved, text deleted, {_progress(command)}")


def two_processes(trial: Trial) -> None:
    """One of two processes killed or stopped at a random step; both start again."""
    _undisturbed_pair(trial.world)
    pair = _two(trial)
    victim = trial.draw.randrange(2)
    number = trial.draw.choice((signal.SIGKILL, signal.SIGTERM))
    pair[0].wait_for(rf"step +{trial.draw.randint(1, STEPS - 1)}/{STEPS}")
    pair[victim].signal(number)
    trial.did(f"{number.name} to process {victim}, {_progress(pair[0])}")
    codes = [command.wait() for command in pair]
    other = pair[1 - victim]
    if number == signal.SIGKILL and codes[victim] == -number:
        if codes[1 - victim] in (0, -signal.SIGABRT):
            raise Lost(f"the other process ended with {codes[1 - victim]}: {other.lines[-2:]}")
        if f"process {victim} " not in _one_line(other):
            raise Lost(f"the other process does not say who died: {other.lines[-2:]}")
    elif any(codes):
        raise Lost(f"exit codes {codes} after {number.name}: {other.lines[-2:]}")
    if any(command.wait() for command in _two(trial)):
        raise Lost("two processes cannot go on")


def look(trial: Trial) -> None:
    """The commands that look at a run, while one file of it is damaged: right or refused."""
    _copy_begun(trial)
    victim, how = _victim(trial), trial.draw.choice(("flip", "cut", "empty", "delete", "noise"))
    _hurt(trial, victim, how)
    module = trial.draw.choice(("evaluate", "show", "main"))
    flags = ["--workdir=run", *(["--dry_run"] if module == "main" else [])]
    command = Command(trial.folder, *flags, module=f"electra_jax.{module}")
    if command.wait():
        _one_line(command)
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


# A trial, from its folder to its outcome.


def run_trial(world: World, seed: int, number: int, kind: str) -> tuple[str, Trial, str]:
    """(outcome, trial, what was lost)."""
    folder = world.folder / f"trial{number}"
    folder.mkdir()
    shutil.copy(world.folder / "corpus.txt", folder)
    trial = Trial(number, kind, random.Random(f"{seed} {number}"), folder, world)
    try:
        KINDS[kind][0](trial)
        if trial.folder.exists() and trial.workdir.exists():
            _end(trial)
            _same(trial)
    except Lost as lost:
        return "lost", trial, str(lost)
    except Exception:  # a mistake in this program must not pass for a pass
        return "lost", trial, traceback.format_exc(limit=3)
    shutil.rmtree(trial.folder)
    return ("refused" if trial.refused else "same"), trial, ""


def prepare(folder: pathlib.Path) -> World:
    """Trains the undisturbed runs, and one that is stopped halfway, for damage to begin with."""
    world = World(folder)
    (folder / "torture_run.py").write_text(CONFIGURATION)
    corpus.write_corpus(folder / "corpus.txt")
    whole = folder / "whole"
    whole.mkdir()
    shutil.copy(folder / "corpus.txt", whole)
    command = train(whole)
    if command.wait():
        raise SystemExit("the undisturbed run failed:\n" + "\n".join(command.lines[-20:]))
    world.seconds = command.seconds
    world.digest, world.rows = _digest(whole / "run"), _rows(whole / "run")

    begun = folder / "begun"
    begun.mkdir()
    shutil.copy(folder / "corpus.txt", begun)
    command = train(begun)
    command.wait_for(rf"step +{STEPS // 2 + 2}/{STEPS}")
    command.signal(signal.SIGTERM)
    command.wait()
    return world


def main() -> int:
    """Parses, tortures, prints the table."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--minutes", type=float, default=20, help="no trial begins after these")
    arguments.add_argument("--trials", type=int, default=0, help="how many; 0: as time allows")
    arguments.add_argument("--seed", type=int, default=0, help="of all draws")
    arguments.add_argument("--kinds", default=",".join(KINDS), help="some of: %(default)s")
    arguments.add_argument("--only", type=int, default=None, help="the number of one trial")
    arguments.add_argument("--jobs", type=int, default=2, help="trials at a time")
    given = arguments.parse_args()
    kinds = given.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        arguments.error(f"unknown kinds {sorted(unknown)}; known: {', '.join(KINDS)}")

    folder = pathlib.Path(tempfile.mkdtemp(prefix="torture-"))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "programs"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    world = prepare(folder)
    print(f"undisturbed: {STEPS} steps in {world.seconds:.1f} s; seed {given.seed}", flush=True)

    numbers = [given.only] if given.only is not None else range(given.trials or 1_000_000)
    ends = time.monotonic() + 60 * given.minutes
    outcomes = collections.defaultdict(collections.Counter)
    disturbances = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:

        def one(number):
            if time.monotonic() > ends:
                return None
            return run_trial(world, given.seed, number, kind_of(kinds, given.seed, number))

        waiting = collections.deque()
        for number in numbers:
            if time.monotonic() > ends:
                break
            waiting.append(pool.submit(one, number))
            if len(waiting) >= given.jobs:
                _count(waiting.popleft().result(), outcomes, disturbances)
        for left in waiting:
            _count(left.result(), outcomes, disturbances)

    print(table(outcomes, disturbances))
    lost = sum(counts["lost"] for counts in outcomes.values())
    if not lost:
        shutil.rmtree(folder)
    return 1 if lost else 0


def kind_of(kinds: list[str], seed: int, number: int) -> str:
    """The first trials have one kind each, in order; then by their shares."""
    if number < len(kinds):
        return kinds[number]
    shares = [KINDS[kind][1] for kind in kinds]
    return random.Random(f"kind {seed} {number}").choices(kinds, shares)[0]


def table(outcomes: dict, disturbances: collections.Counter) -> str:
    """Markdown: a line per kind, and one for all."""
    heads = ("disturbed by", "trials", "disturbances", "same", "refused", "lost")
    rows = [
        (kind, sum(counts.values()), disturbances[kind], *(counts[name] for name in heads[3:]))
        for kind, counts in outcomes.items()
    ]
    rows.append(("all", *(sum(column) for column in list(zip(*rows))[1:])))
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _count(result, outcomes, disturbances):
    if result is None:
        return
    outcome, trial, why = result
    outcomes[trial.kind][outcome] += 1
    disturbances[trial.kind] += len(trial.done)
    print(f"{trial.number:4d} {trial.kind:14} {outcome:8} {'; '.join(trial.done)}", flush=True)
    if why:
        print(f"     LOST: {why}\n     kept in {trial.folder}", flush=True)


# What the trials share.


def _until_a_moment(trial, command):
    """A moment of any phase: half of them by the clock, half while steps are taken and saved."""
    if trial.draw.random() < 0.5:
        command.wait_for("no line has this", trial.draw.uniform(0, 1.1 * trial.world.seconds))
    else:
        command.wait_for(rf"step +{trial.draw.randint(1, STEPS)}/{STEPS}")
        command.wait_for("no line has this", trial.draw.uniform(0, 0.2))


def _progress(command):
    steps = [re.search(rf"step +(\d+)/{STEPS}", line) for line in list(command.lines)]
    last = [int(match[1]) for match in steps if match][-1:]
    return f"at step {last[0]}" if last else "before step 1"


def _end(trial):
    """The same command once more, to the end of the run."""
    command = train(trial.folder)
    code = command.wait()
    if code:
        raise Lost(f"the same command does not go on (exit code {code}): {command.lines[-1:]}")


def _same(trial):
    """Raises Lost unless the run ended as the undisturbed one did."""
    two = trial.kind == "two_processes"
    if _digest(trial.workdir) != (trial.world.digest_of_two if two else trial.world.digest):
        raise Lost("other weights than without disturbance")
    if two:
        return
    there = _rows(trial.workdir)
    hurt = any("metrics.jsonl" in what for what in trial.done)
    missing = [row for row in trial.world.rows if row not in there]
    if there != trial.world.rows and not hurt:
        raise Lost(f"other metrics: {len(there)} rows, {len(missing)} of the undisturbed missing")
    steps = [(row["step"], row["kind"]) for row in there]
    if len(set(steps)) != len(steps):
        raise Lost("a step stands twice in metrics.jsonl")


def _digest(workdir):
    return metadata.read(str(workdir / "checkpoints" / str(STEPS)))["digest"]


def _rows(workdir):
    rows = writers.read(workdir / "metrics.jsonl")
    return [{name: x for name, x in row.items() if name not in TIMES} for row in rows]


def _one_line(command):
    """The one line of error that a command ends with. Raises Lost if there are none or several."""
    errors = [line for line in command.lines if line.startswith("error: ")]
    if len(errors) != 1:
        raise Lost(f"{len(errors)} lines of error: {errors or command.lines[-3:]}")
    return errors[0]


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
        _one_line(command)
        trial.refused = True
        _put_back(trial, victim)
    elif f"checkpoints/{newest}/" not in str(victim) and command.resumed_from != newest:
        raise Lost(f"went on from {command.resumed_from}, though {newest} is good")


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
            world.digest_of_two = _digest(folder / "run")


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


if __name__ == "__main__":
    sys.exit(main())
