# SPDX-License-Identifier: Apache-2.0
"""Prints the requirements of setup.py at their lower bounds, a line each, for `pip install -r`.

setup.py is read, not run, so the list is always that of the checkout, installed or not.
"""

import ast
import pathlib

from packaging import requirements

SETUP = pathlib.Path(__file__).resolve().parent.parent / "setup.py"


def lowest() -> list[str]:
    """Returns `NAME[EXTRAS]==BOUND` for every requirement; ValueError for one without a bound."""
    return [_at_its_bound(requirements.Requirement(line)) for line in _requires()]


def _requires():
    """The list REQUIRES of setup.py."""
    for node in ast.parse(SETUP.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REQUIRES":
            return ast.literal_eval(node.value)
    raise ValueError(f"{SETUP} has no list REQUIRES")


def _at_its_bound(requirement):
    bounds = [part.version for part in requirement.specifier if part.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"{requirement} in {SETUP} needs one lower bound, as in 'jax>=0.10'")

    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}=={bounds[0]}"


if __name__ == "__main__":
    print("\n".join(lowest()))
