# SPDX-License-Identifier: Apache-2.0
"""The configurations that come with the package, as `electra_jax.configs.tiny` and so on.

Their files are in the folder `configs` at the top of a checkout; a wheel has copies of them here.
`--config=tiny` finds them from any folder, and a configuration file of your own may begin with
`from electra_jax.configs import small`.
"""

import os

_HERE = os.path.dirname(os.path.abspath(__file__))
_OF_A_CHECKOUT = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "configs")

FOLDER = _HERE if os.path.exists(os.path.join(_HERE, "base.py")) else _OF_A_CHECKOUT
__path__ = [FOLDER]


def names() -> list[str]:
    """Returns the names of all configurations, sorted: `base` for base.py."""
    files = (os.path.splitext(file) for file in os.listdir(FOLDER))
    return sorted(name for name, kind in files if kind == ".py" and not name.startswith("_"))


def path(given: str) -> str | None:
    """Returns the file that `--config` names, or None if there is none.

    An existing file counts first. Otherwise `tiny`, `tiny.py` and `configs/tiny.py` name a
    configuration of the package.
    """
    if os.path.isfile(given):
        return given
    name = given.removeprefix("configs/").removesuffix(".py")
    return os.path.join(FOLDER, f"{name}.py") if name in names() else None
