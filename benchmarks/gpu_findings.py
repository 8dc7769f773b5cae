# SPDX-License-Identifier: Apache-2.0
"""What a check of gpu_checks.py has found: from what it printed to numbers, a line and a table.

    Done, folder -> {name: number} -> record -> line -> table

A record has exit_code, seconds, the end of what was printed, and what the check has found; `error`
says why nothing could be read. A number may be missing or None: MFU is, on a device whose peak is
not known, and a loss that is not finite.
"""

import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping

from benchmarks import bounded

Read = Callable[[bounded.Done, pathlib.Path], dict]
NAMES = 3  # of tests that failed, in a line
REASON = 200  # characters of why a check failed, in a line


def json_line(text: str) -> dict | None:
    """The last line of a text that is a JSON object; None if there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None


def of_json(done: bounded.Done, _: pathlib.Path) -> dict:
    """The object that a program has printed. Raises ValueError if it ended well without one."""
    found = json_line(done.stdout)
    if found is None and done.code == 0:
        raise ValueError("exit code 0, but no line of its output is a JSON object")
    return found or {}


def of_peer(done: bounded.Done, folder: pathlib.Path) -> dict:
    """What against_peer.py has printed: {side: its numbers, or why it ended}."""
    return {"sides": of_json(done, folder)}


def of_attention(done: bounded.Done, folder: pathlib.Path) -> dict:
    """What fused_attention.py has printed; that the ways do not agree is a failure."""
    found = of_json(done, folder)
    return found if found.get("agree", True) else found | {"exit_code": done.code or 1}


def of_tests(done: bounded.Done, _: pathlib.Path) -> dict:
    """How many tests passed and failed, and the names of those that failed."""
    counts = re.findall(r"(\d+) (passed|failed|errors?)\b", done.stdout[-2000:])
    # `error` of a record says why nothing could be read.
    found = {"errors" if word == "error" else word: int(count) for count, word in counts}
    return found | {"failed_tests": re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)}


def of_training(done: bounded.Done, folder: pathlib.Path) -> dict:
    """The losses and the speed of a run, at its first and at its last line of metrics."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        if done.code == 0:
            raise ValueError("exit code 0, but there is no metrics.jsonl")
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "train"]
    keep = ("step", "gen_loss", "disc_loss", "tokens_per_second", "mfu", "skipped_steps")
    return {"ends": [{name: row.get(name) for name in keep} for row in rows[:1] + rows[-1:]]}


def shown(value: float | None, form: str) -> str:
    """A number as `format` writes it, or ? for None."""
    return "?" if value is None else format(value, form)


def line(name: str, record: Mapping) -> str:
    """One line of the table: name, seconds, and what was found."""
    code = record["exit_code"]
    words = ["ok" if code == 0 else "cut at its limit" if code == bounded.OVERDUE
             else f"exit code {code}"]  # fmt: skip
    for say in (_tests, _computations, _ends, _step, _trace, _ways, _sides):
        words += say(record)
    if "error" in record:
        words.append(" ".join(record["error"].split())[:REASON])
    elif code and len(words) == 1:
        words.append(record.get("end", "").rstrip().rpartition("\n")[2][:REASON])
    return f"{name:<47}{shown(record.get('seconds'), '.0f'):>5} s  {', '.join(words)}"


def table(device: str, records: Mapping[str, Mapping], names: Iterable[str]) -> str:
    """A line for each check of these names that has a record, and the names of the others."""
    names = list(names)
    done = [name for name in names if name in records]
    good = sum(records[name]["exit_code"] == 0 for name in done)
    lines = [f"{device or 'no NVIDIA GPU'}: {good} of {len(names)} checks went well"]
    computed = records.get("canary", {}).get("computations", {}).values()
    if not all(it["agrees"] for it in computed):
        lines.append("the canary failed: this device may compute wrongly, so trust no figure below")
    lines += [line(name, records[name]) for name in done]
    left = [name for name in names if name not in records]
    if left:
        lines.append(f"left to do by the same command: {', '.join(left)}")
    return "\n".join(lines)


def _tests(record) -> list[str]:
    if "failed_tests" not in record:
        return []
    names = [name.rpartition("::")[2] or name for name in record["failed_tests"]]
    more = [f"and {len(names) - NAMES} more"] if len(names) > NAMES else []
    return [
        f"{record.get('passed', 0)} passed",
        *(f"{record[word]} {word}" for word in ("failed", "errors") if record.get(word)),
        *names[:NAMES],
        *more,
    ]


def _computations(record) -> list[str]:
    return [
        f"{name} off by {shown(it['error'], '.1e')}{'' if it['agrees'] else ': WRONG'}"
        for name, it in record.get("computations", {}).items()
    ]


def _ends(record) -> list[str]:
    return [
        f"step {end['step']}: gen_loss {shown(end['gen_loss'], '.3f')} disc_loss"
        f" {shown(end['disc_loss'], '.4f')} {shown(end['tokens_per_second'], ',.0f')} tokens/s"
        for end in record.get("ends", [])
    ]


def _step(record) -> list[str]:
    if "tokens_per_second" not in record:
        return []
    return [
        f"{shown(record['tokens_per_second'], ',.0f')} tokens/s",
        f"MFU {shown(record.get('mfu'), '.1%')}",
        f"{shown(record.get('share_of_product_rate'), '.1%')} of a large product's rate",
        f"compiled in {shown(record.get('compile_seconds'), '.0f')} s",
    ]


def _trace(record) -> list[str]:
    if "trace" not in record:
        return []
    it = record["trace"]
    return [
        f"{1e3 * it['step_seconds']:.2f} ms per step, with a trace"
        f" {1e3 * it['span_seconds']:.2f}, in {1e3 * it['busy_seconds']:.2f} of which a kernel"
        f" runs, {it['launches']:,.0f} launches",
        *(f"{kind} {1e3 * seconds:.2f} ms" for kind, _, seconds in it["kinds"][:NAMES]),
    ]


def _ways(record) -> list[str]:
    return [
        f"{way}: {shown(it['seconds'], '.5f')} s {shown(it['temporary_mib'], ',.0f')} MiB"
        f" off by {max(it['errors'].values()):.1e}"
        for way, it in record.get("ways", {}).items()
    ]


def _sides(record) -> list[str]:
    sides = record.get("sides", {})
    ended = [f"{side}: {it['error']}" for side, it in sides.items() if "error" in it]
    rates = {side: it["tokens_per_second"] for side, it in sides.items() if "error" not in it}
    ours = rates.pop("ours", None)
    if ours is None:
        return ended
    words = [f"{ours:,.0f} tokens/s"]
    if rates:
        best = max(rates, key=rates.get)
        words.append(f"{ours / rates[best]:.2f} x the fastest peer ({best})")
    return words + ended
