# SPDX-License-Identifier: Apache-2.0
"""All checks that need a GPU, the most valuable first, in calls that may be cut short.

    python benchmarks/gpu_checks.py --out=FOLDER --seconds=560

Each check is a command of its own. It begins only if its limit, above which it is ended, fits into
what is left of --seconds; its line is printed as soon as it ends, and last comes the table of all
with the names of those that are left. The same call continues: first with those that no call has
begun, then with those that failed.

FOLDER gets two files, written anew after every check: checks.json, all that was found by device
and check, and table.txt. Where FOLDER is emptied between two calls, `--workdir=OTHER` keeps a copy
of checks.json, from which the next call knows what is done; on a new machine, put the copy that
came back into OTHER. OTHER is also where the checks work. Without it they work in a temporary
folder, and FOLDER knows what is done. Results of another device do not count as done.

Exit code 1 says that a check failed. Without a GPU the same checks run on what is there, which
shows that the script works and nothing else.
"""

import argparse
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from benchmarks import bounded, gpu_findings  # noqa: E402 - ROOT must be known before
from electra_jax.host import safe_files  # noqa: E402 - as above

TESTS = [f"tests/{name}.py" for name in ("model/test_model", "model/test_layers")]
TESTS += [f"tests/objectives/{name}.py" for name in ("test_vocabulary_softmax", "test_masking")]
RESUME = ["tests/step/test_reference_update.py", "tests/training/test_training.py"]
WORKERS = 4  # of pytest: they share the device, and compiling takes most of their time
SHAPES = {  # name -> configuration, rows of a step, tokens of a row
    "small_128": ("small", 128, 128),
    "base_128": ("base", 256, 128),
    "base_512": ("base", 64, 512),
}
OPTIONS = {  # of XLA, on one GPU -> against none: `small_128_benchmark`
    "no_graphs": "xla_gpu_enable_command_buffer=",
    "slices_in_fusions": "xla_gpu_enable_dynamic_slice_fusion=true",
    "no_triton_products": "xla_gpu_enable_triton_gemm=false",
    "no_search": "xla_gpu_autotune_level=0",
}
# The tests ask for a CPU unless something is asked for; nothing at all is the best there is, and
# leaves the CPU to the canary.
ASKED = os.environ.get("JAX_PLATFORMS", "")
BEST_DEVICE = {"JAX_PLATFORMS": ASKED if not ASKED or "cpu" in ASKED else f"{ASKED},cpu"}
# Products of float32 are TF32 on a GPU by default, which is too coarse for what tests expect; and
# the first of several processes would reserve three quarters of the memory.
EXACT = {"JAX_DEFAULT_MATMUL_PRECISION": "highest", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
REPEATABLE = {  # bit for bit, which a GPU is only if asked
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
}
SCRATCH = "{scratch}"  # in a command: an empty folder, removed afterwards
GRACE = 10  # seconds before a limit's end in which a stopped check prints what it has
END = 3000  # characters of what a check printed last that are kept


@dataclasses.dataclass(frozen=True)
class Check:
    """A command and how its output is read."""

    name: str
    seconds: float  # its limit
    words: Sequence[str]  # of the command, after `python`
    read: gpu_findings.Read
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def checks() -> list[Check]:
    """All of them, in the order in which they are worth their time."""
    canary = Check("canary", 120, ["benchmarks/canary.py"], gpu_findings.of_json)
    alone = ["benchmarks/fused_attention.py"]
    return [
        canary,
        small_trains(300),
        step("small_128", 180),
        step_trace("small_128", 180),
        against_peer("small_128", 0.1, 300),
        tests("tests_of_the_model", TESTS, EXACT, 300),
        tests("tests_of_step_and_resume", RESUME, EXACT | REPEATABLE, 400),
        step("base_512", 210),
        step_trace("base_512", 210),
        *(step(shape, 210, attention="einsum") for shape in ("base_512", "small_128")),
        Check("fused_attention", 120, alone, gpu_findings.of_attention),
        against_peer("small_128", 0.0, 300),
        step("base_128", 210),
        *(against_peer("base_128", rate, 360) for rate in (0.1, 0.0)),
        *(against_peer("base_512", rate, 360) for rate in (0.1, 0.0)),
        step("small_128", 360, parts=True),
        *(step("small_128", 180, option=name) for name in OPTIONS),
    ]


def small_trains(seconds: float) -> Check:
    """`small` in bfloat16 on the builtin corpus: the losses at the beginning and at the end."""
    words = [
        "-m", "electra_jax.main", "--config=configs/small.py", f"--workdir={SCRATCH}",
        "--config.data.source=builtin", "--config.data.vocab=train:sentencepiece:8192",
        "--config.data.heldout_fraction=0.03", "--config.model.dtype=bfloat16",
        "--config.schedule.steps=300", "--config.schedule.warmup_steps=100",
        "--config.logging.every=30", "--config.evaluation.every=300",
        "--config.evaluation.rows=512",
    ]  # fmt: skip
    return Check("small_trains", seconds, words, gpu_findings.of_training)


def tests(name: str, files: Sequence[str], environment: Mapping, seconds: float) -> Check:
    """Test files on the device at hand; a warning that only a GPU gives is no failure there."""
    words = ["-m", "pytest", "-W", "default", "-rfE", "--tb=short", *files]
    if importlib.util.find_spec("xdist"):
        words += ["-n", str(WORKERS), "--dist", "loadfile"]
    return Check(name, seconds, words, gpu_findings.of_tests, environment)


def step(
    shape: str, seconds: float, attention: str = "", parts: bool = False, option: str = ""
) -> Check:
    """The training step in bfloat16: alone, or also its parts."""
    config, rows, length = SHAPES[shape]
    name = f"{shape}_{'parts' if parts else 'benchmark'}"
    words = [
        "-m", "electra_jax.benchmark", "--json", f"--config=configs/{config}.py", "--steps=20",
        "--vocab_size=30522", f"--config.data.batch_size={rows}",
        f"--config.data.sequence_length={length}", "--config.model.dtype=bfloat16",
        "--parts" if parts else "--noparts",
    ]  # fmt: skip
    if attention:
        name += f"_{attention}"
        words.append(f"--config.model.attention={attention}")
    if option:
        name += f"_{option}"
        words += [f"--config.mesh.compiler_options={OPTIONS[option]}"]
    return Check(name, seconds, words, gpu_findings.of_json)


def step_trace(shape: str, seconds: float) -> Check:
    """Where the seconds of a step go, bfloat16."""
    config, rows, length = SHAPES[shape]
    words = [
        "benchmarks/step_trace.py", "--json", "--dtype=bfloat16", f"--config={config}",
        f"--batch_size={rows}", f"--length={length}",
    ]  # fmt: skip
    return Check(f"{shape}_trace", seconds, words, gpu_findings.of_json)


def against_peer(shape: str, attention_dropout: float, seconds: float) -> Check:
    """Both programs by turns, bfloat16."""
    config, rows, length = SHAPES[shape]
    words = [
        "benchmarks/against_peer.py", "--json", "--dtype=bfloat16", "--rounds=4", "--steps=20",
        f"--attention_dropout={attention_dropout}", f"--config={config}", f"--batch_size={rows}",
        f"--length={length}",
    ]  # fmt: skip
    name = f"{shape}_against_peer_attention_dropout_{attention_dropout}"
    return Check(name, seconds, words, gpu_findings.of_peer)


def attempt(check: Check, workdir: pathlib.Path | None) -> dict:
    """The record of a check, whatever becomes of it."""
    record = {"exit_code": 1, "seconds": None}
    begun = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(dir=workdir, ignore_cleanup_errors=True) as scratch:
            words = [word.replace(SCRATCH, scratch) for word in check.words]
            done = bounded.run(
                [sys.executable, *words],
                check.seconds - GRACE,
                GRACE,
                BEST_DEVICE | dict(check.environment),
            )
            record["exit_code"] = done.code
            record["end"] = f"{done.stdout[-END:]}\n--- stderr\n{done.stderr[-END:]}"
            record |= check.read(done, pathlib.Path(scratch))
    except Exception as error:  # one check never ends the others
        record["exit_code"] = record["exit_code"] or 1
        record["error"] = f"{type(error).__name__}: {error}"
    record["seconds"] = time.monotonic() - begun
    return record


def chosen(every: Sequence[Check], only: str) -> list[Check]:
    """Checks in the order of the words of `only`: those of these names, or with a word in theirs.

    All without a word. Raises SystemExit for a word that no name has.
    """
    found = {}
    for word in only.split(","):
        named = [check for check in every if check.name == word]
        these = named or [check for check in every if word in check.name]
        if not these or (only and not word):
            raise SystemExit(f"--only={only}: no check has {word!r} in its name")
        found |= {check.name: check for check in these}
    return list(found.values())


def in_turn(wanted: Sequence[Check], records: Mapping[str, Mapping]) -> list[Check]:
    """The checks that are not done: those that no call has begun, then those that failed."""
    fresh = [check for check in wanted if check.name not in records]
    return fresh + [check for check in wanted if records.get(check.name, {}).get("exit_code")]


def device_name() -> str:
    """What nvidia-smi calls the GPUs; '' if there is no such program or no such GPU."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ", ".join(done.stdout.split("\n")[:-1]) if done.returncode == 0 else ""


def known(folders: Sequence[pathlib.Path]) -> dict:
    """{device: {check: record}} of the first folder that has results; {} if none has."""
    for folder in folders:
        path = folder / "checks.json"
        if path.exists():
            try:
                return json.loads(path.read_text())
            except ValueError as error:
                raise SystemExit(f"{path} is no list of results ({error}); delete it") from error
    return {}


def main() -> None:
    """Does what is not done yet and fits into the time, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="for the two files")
    parser.add_argument("--workdir", type=pathlib.Path, help="kept from one call to the next")
    parser.add_argument("--seconds", type=float, default=math.inf, help="that this call has")
    parser.add_argument("--only", default="", help="checks by name, joined by commas; or a part")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    bounded.end_on_sigterm()

    folders = [folder.resolve() for folder in (given.workdir, given.out) if folder]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    results, device = known(folders), device_name()
    records = results.setdefault(device, {})
    wanted = chosen(checks(), given.only)
    names = [check.name for check in wanted]

    def keep() -> str:
        table = gpu_findings.table(device, records, names)
        for folder in folders:
            safe_files.write(folder / "checks.json", json.dumps(results, indent=1).encode())
        safe_files.write(folders[-1] / "table.txt", f"{table}\n".encode())
        return table

    for check in in_turn(wanted, records):
        if check.seconds > end - time.monotonic():
            print(f"{check.name:<47}not begun: may take {check.seconds:.0f} s", flush=True)
            continue
        records[check.name] = attempt(check, folders[0] if given.workdir else None)
        keep()
        print(gpu_findings.line(check.name, records[check.name]), flush=True)

    print(f"\n{keep()}")
    sys.exit(int(any(records.get(name, {}).get("exit_code") for name in names)))


if __name__ == "__main__":
    main()
