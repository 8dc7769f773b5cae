# SPDX-License-Identifier: Apache-2.0
"""Trains the same pair of networks in both programs by turns, and prints the ratio.

    python benchmarks/against_peer.py --config=small --batch_size=16
    python benchmarks/against_peer.py --config=small --batch_size=16 --other=CHECKOUT

All sides start first and stay; while one works the others wait. Each round gives every side the
same number of steps, in an order that turns round. The first step of a turn does not count: the
others have taken caches and pages meanwhile, and no training waits between its steps. The peer
comes in each of its forms and the fastest counts: eager and compiled, and on a CPU with other heaps
too. A side that ends before its work is done, or that has another kind of device than ours, is
named and left out, and the exit code is 1. `--other` holds another checkout of ours against this
one instead, `--variant` ours with another setting.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent))

from electra_jax.configs import base, large, small, tiny_paper  # noqa: E402

CONFIGS = {"tiny_paper": tiny_paper, "small": small, "base": base, "large": large}
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # what `host.huge_pages` asks for
KEPT_HEAP = {  # as fast for the peer, or faster
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_ARENA_MAX": "1",
}
# Of a GPU, whose memory the sides share: jax would reserve three quarters of it for the first.
SHARED_MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Ended(Exception):
    """A side has ended before its work was done, or cannot be compared; the message says why."""


class Side:
    """One program that trains when it is told to."""

    def __init__(self, name, command, environment=None):
        self.name, self.seconds, self.losses = name, [], None
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE.parent,
            env=SHARED_MEMORY | os.environ | (environment or {}),
        )
        self.about = self._answer()

    def run(self, steps):
        """Trains a step that does not count and some that do. Raises Ended."""
        try:
            self._process.stdin.write(f"{steps + 1}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # what there is instead of an answer says why
        answer = self._answer()
        self.seconds += answer["seconds"][1:]
        self.losses = answer["losses"]

    def close(self):
        """Lets the program end; returns its exit code."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        return code

    def kill(self):
        """Ends the program at once."""
        self._process.kill()
        self.close()

    def _answer(self):
        for line in self._process.stdout:
            if line.startswith("{"):  # a library may print something of its own
                return json.loads(line)
        raise Ended(f"ended with exit code {self.close()}")


def forms_of_the_peer(peer, platform):
    """[(name, command, environment)] of all forms that may be the fastest on this platform."""
    if platform != "cpu":
        return [("peer, eager", peer, {}), ("peer, compiled", [*peer, "--compile"], {})]
    return [
        ("peer, eager", peer, {}),
        ("peer, eager, huge pages", peer, HUGE_PAGES),
        ("peer, eager, heap kept", peer, KEPT_HEAP),
        ("peer, compiled, heap kept", [*peer, "--compile"], KEPT_HEAP),
    ]


def shape_of(config, vocab_size, batch_size):
    """What the peer must know of a configuration."""
    model, length = config.model, config.data.sequence_length
    return {
        "vocab": vocab_size,
        "embedding": model.embedding_size,
        "positions": model.max_positions,
        "batch": batch_size,
        "length": length,
        "slots": int((config.objective.mask_rate + 0.005) * length),
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "generator": dict(model.generator),
        "discriminator": dict(model.discriminator),
    }


def main():
    """Starts the sides, lets them train by turns, and prints what they took."""
    given = arguments()
    config, changes = settings(given)
    sides, ended = begin_sides(given, config, changes)
    try:
        by_turns(sides, ended, given.rounds, given.steps)
    except KeyboardInterrupt:  # what was measured until then is printed
        ended["the rest"] = "was interrupted"
        for side in sides:
            side.kill()

    found = summary(sides, tokens=given.batch_size * config.data.sequence_length)
    if given.json:
        print(json.dumps(found | {name: {"error": why} for name, why in ended.items()}))
    else:
        show(given, config, found)
    for name, why in ended.items():
        print(f"left out: {name} {why}", file=sys.stderr)
    sys.exit(1 if ended else 0)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", choices=CONFIGS, default="small")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--length", type=int, default=0, help="0: the configuration's")
    parser.add_argument("--attention_dropout", type=float, default=None)
    parser.add_argument("--vocab_size", type=int, default=30522)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="of a side in one round")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--other", help="another checkout of ours, instead of the peer")
    parser.add_argument(
        "--variant", action="append", default=[], metavar="FIELD=VALUE",
        help="ours with this setting, instead of the peer; may be repeated",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def settings(given):
    """(the configuration, {field: value} of what is changed in it for our side)."""
    changes = {"data.batch_size": given.batch_size, "model.dtype": given.dtype}
    if given.length:
        changes["data.sequence_length"] = given.length
    if given.attention_dropout is not None:
        changes["model.attention_dropout"] = given.attention_dropout

    config = CONFIGS[given.config].get_config()
    for path, value in changes.items():
        section, field = path.split(".")
        config[section][field] = value
    return config, changes


def begin_sides(given, config, changes):
    """(the sides that have begun, {name: why} of those that have not). SystemExit without ours."""
    ours = [HERE / "ours.py", f"--config={given.config}", f"--vocab_size={given.vocab_size}"]
    ours += [f"--set={field}={value}" for field, value in changes.items()]
    try:
        sides, ended = [Side("ours", ours)], {}
    except Ended as error:
        raise SystemExit(f"ours {error}") from error

    platform = sides[0].about["platform"]
    others = [(f"ours, {it}", [*ours, f"--set={it}"], {}) for it in given.variant]
    if given.other:
        others.insert(0, ("other checkout", ours, {"PYTHONPATH": given.other}))
    if not others:
        shape = shape_of(config, given.vocab_size, given.batch_size)
        peer = [HERE / "peer_torch.py", f"--shape={json.dumps(shape)}", f"--dtype={given.dtype}"]
        others = forms_of_the_peer(peer, platform)
    for name, command, environment in others:
        try:
            sides.append(begun(name, command, environment, platform))
        except Ended as error:
            ended[name] = str(error)
    return sides, ended


def summary(sides, tokens):
    """{side: what its steps of so many tokens took}, of sides that have made any."""
    return {
        side.name: {
            "tokens_per_second": tokens / statistics.median(side.seconds),
            "step_seconds": statistics.median(side.seconds),
            "fastest": min(side.seconds),
            "slowest": max(side.seconds),
            "losses": side.losses,
            **side.about,
        }
        for side in sides
        if side.seconds
    }


def by_turns(sides, ended, rounds, steps):
    """Lets the sides train in turn, in the other order every second round, then closes them.

    A side that ends on the way is moved from `sides` to `ended`, {name: why}.
    """
    for number in range(rounds):
        for side in list(sides) if number % 2 == 0 else sides[::-1]:
            try:
                side.run(steps)
            except Ended as error:
                ended[side.name] = str(error)
                sides.remove(side)
    for side in sides:
        side.close()


def begun(name, command, environment, platform):
    """A side that is ready. Raises Ended, also if it does not run on this platform."""
    side = Side(name, command, environment)
    if side.about["platform"] != platform:
        side.close()
        raise Ended(f"runs on {side.about['platform']}, and ours on {platform}")
    return side


def show(arguments, config, found):
    """Prints the table; each side is held against ours, or the first of them if ours has ended."""
    print(f"{arguments.config}, {arguments.batch_size} x {config.data.sequence_length}, ", end="")
    print(f"{arguments.dtype}, {arguments.rounds} rounds of {arguments.steps} steps")
    print(
        f"{'':<28}{'tokens/s':>10}{'step s':>9}{'fastest':>9}{'slowest':>9}{'ours / it':>11}"
        f"{'product GFLOP/s':>17}"
    )
    mine = found.get("ours", next(iter(found.values()), None))
    for name, it in found.items():
        ratio = it["step_seconds"] / mine["step_seconds"]
        print(
            f"{name:<28}{it['tokens_per_second']:>10,.0f}{it['step_seconds']:>9.3f}"
            f"{it['fastest']:>9.3f}{it['slowest']:>9.3f}{ratio:>10.2f}x"
            f"{it['product_rate'] / 1e9:>17,.0f}{_compiling(it)}"
        )


def _compiling(it):
    return f"  compiled in {it['compile_seconds']:.1f} s" if "compile_seconds" in it else ""


if __name__ == "__main__":
    main()
