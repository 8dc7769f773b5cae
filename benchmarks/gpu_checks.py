# SPDX-License-Identifier: Apache-2.0
"""All checks that need a GPU, in one call; a short table comes last.

    python benchmarks/gpu_checks.py --out=FOLDER

Each check leaves FOLDER/NAME.json, and one that went well is not done again by a second call: a
call that was cut short is simply made again. Without a GPU the same checks run on what is there,
which shows that the script works and nothing else.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
TESTS = [f"tests/{name}.py" for name in ("model/test_model", "model/test_layers")]
TESTS += [f"tests/objectives/{name}.py" for name in ("test_vocabulary_softmax", "test_masking")]
RESUME = ["tests/step/test_reference_update.py", "tests/training/test_training.py"]
# The tests ask for a CPU unless something is asked for; nothing at all is the best there is.
ENVIRONMENT = os.environ | {"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "")}
PAIRS = {  # name -> arguments of against_peer.py
    "small_128": ["--config=small", "--batch_size=128"],
    "base_128": ["--config=base", "--batch_size=256", "--length=128"],
    "base_512": ["--config=base", "--batch_size=64", "--length=512"],
}
OPTIONS = {  # of XLA, on one GPU -> against none: `small_128_benchmark`
    "no_graphs": "xla_gpu_enable_command_buffer=",
    "slices_in_fusions": "xla_gpu_enable_dynamic_slice_fusion=true",
    "triton_products": "xla_gpu_triton_gemm_any=true",
    "no_search": "xla_gpu_autotune_level=0",
}


def run(command, seconds):
    """(exit code, output, seconds) of a command; 124 where it took too long."""
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=HERE.parent,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=ENVIRONMENT,
        )
        code, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        code, output = 124, str(error.stdout or b"", "utf-8", "replace")
    return code, output, time.monotonic() - begun


def tests(files):
    """How many of these passed and failed on the device at hand."""
    code, output, seconds = run([sys.executable, "-m", "pytest", *files], 420)
    counts = {
        word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", output[-2000:])
    }
    return {"exit_code": code, "seconds": seconds, **counts, "end": output[-1500:]}


def trains(steps, workdir):
    """`small` in bfloat16 on the builtin corpus: the losses at the beginning and at the end."""
    code, output, seconds = run(
        [
            sys.executable, "-m", "electra_jax.main", "--config=configs/small.py",
            f"--workdir={workdir}", "--config.data.source=builtin",
            "--config.data.vocab=train:sentencepiece:8192", "--config.data.heldout_fraction=0.03",
            "--config.model.dtype=bfloat16", f"--config.schedule.steps={steps}",
            "--config.schedule.warmup_steps=100", f"--config.logging.every={max(1, steps // 10)}",
            f"--config.evaluation.every={steps}", "--config.evaluation.rows=512",
        ],
        420,
    )  # fmt: skip
    rows = workdir / "metrics.jsonl"
    lines = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    train = [line for line in lines if line["kind"] == "train"]
    keep = ("step", "gen_loss", "disc_loss", "tokens_per_second", "mfu", "skipped_steps")
    ends = [{name: line.get(name) for name in keep} for line in (train[:1] + train[-1:])]
    return {"exit_code": code, "seconds": seconds, "ends": ends, "end": output[-1500:]}


def against_peer(arguments, attention_dropout):
    """Both programs by turns, bfloat16."""
    command = [
        sys.executable, "benchmarks/against_peer.py", "--json", "--dtype=bfloat16", "--rounds=4",
        "--steps=20", f"--attention_dropout={attention_dropout}", *arguments,
    ]  # fmt: skip
    code, output, seconds = run(command, 420)
    last = output.strip().splitlines()[-1] if code == 0 else "{}"
    return {"exit_code": code, "seconds": seconds, "sides": json.loads(last), "end": output[-1500:]}


def measure(arguments):
    """The step alone and in parts, bfloat16."""
    command = [sys.executable, "-m", "electra_jax.benchmark", "--json", "--vocab_size=30522"]
    length = [a.replace("--length=", "--config.data.sequence_length=") for a in arguments]
    length = [a.replace("--batch_size=", "--config.data.batch_size=") for a in length]
    length = [re.sub(r"^--config=(\w+)$", r"--config=configs/\1.py", a) for a in length]
    code, output, seconds = run([*command, *length, "--config.model.dtype=bfloat16"], 300)
    found = next((line for line in output.splitlines() if line.startswith("{")), "{}")
    return {"exit_code": code, "seconds": seconds, **json.loads(found), "end": output[-1500:]}


def fused_attention():
    """cuDNN's attention against einsum, bfloat16: errors, seconds and memory of both."""
    code, output, seconds = run([sys.executable, "benchmarks/fused_attention.py"], 300)
    found = next((line for line in output.splitlines() if line.startswith("{")), "{}")
    found = json.loads(found)
    if code == 0 and not found["agree"]:
        code = 1
    return {"exit_code": code, "seconds": seconds, **found, "end": output[-1500:]}


def checks(out):
    """{name: what does it}, cheapest first."""
    found = {
        "tests_of_the_model": lambda: tests(TESTS),
        "tests_of_step_and_resume": lambda: tests(RESUME),
        "fused_attention": fused_attention,
        "small_trains": lambda: trains(300, out / "small"),
    }
    for name, arguments in PAIRS.items():
        found[f"{name}_benchmark"] = lambda arguments=arguments: measure(arguments)
        for rate in (0.0, 0.1):
            found[f"{name}_against_peer_attention_dropout_{rate}"] = (
                lambda arguments=arguments, rate=rate: against_peer(arguments, rate)
            )
    for name, options in OPTIONS.items():
        arguments = [*PAIRS["small_128"], f"--config.mesh.compiler_options={options}"]
        found[f"small_128_benchmark_{name}"] = lambda arguments=arguments: measure(arguments)
    return found


def line_of(name, found):
    """One line of the table."""
    text = "ok" if found["exit_code"] == 0 else f"exit code {found['exit_code']}"
    if "passed" in found:
        text += f", {found['passed']} passed, {found.get('failed', 0)} failed"
    for end in found.get("ends", []):
        text += f", step {end['step']}: gen_loss {end['gen_loss']:.3f}"
    if "tokens_per_second" in found:
        text += f", {found['tokens_per_second']:,.0f} tokens/s, MFU {found['mfu'] or 0:.1%}"
    for way, it in found.get("ways", {}).items():
        error, megabytes = max(it["errors"].values()), it["temporary_mib"]
        text += f", {way}: {1e3 * it['seconds']:.2f} ms, {megabytes:.0f} MiB, off by {error:.1e}"
    if found.get("sides"):
        sides = {side: it["tokens_per_second"] for side, it in found["sides"].items()}
        best = max(rate for side, rate in sides.items() if side != "ours")
        text += f", {sides['ours']:,.0f} tokens/s, {sides['ours'] / best:.2f} x the fastest peer"
    return f"{name:<48}{found['seconds']:>6.0f} s  {text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="checks whose names contain this")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, check in checks(arguments.out).items():
        if arguments.only not in name:
            continue
        path = arguments.out / f"{name}.json"
        if not path.exists() or json.loads(path.read_text())["exit_code"]:
            path.write_text(json.dumps(check(), indent=1))
            print(f"done: {name}", flush=True)
        lines.append(line_of(name, json.loads(path.read_text())))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
