# SPDX-License-Identifier: Apache-2.0
"""XLA's options as a setting writes them: 'xla_cpu_enable_fast_math=false NAME=VALUE'.

Which names there are is known to the compiler alone, and differs from device to device and from
version to version of jax. A run therefore asks it before it reads text (`plans.make_mesh`).
"""

import re

from electra_jax.config.parsing import ConfigError

_NAME = re.compile(r"xla_\w+")
_WORDS = {"true": True, "false": False}


def parse(text: str) -> dict[str, bool | int | str]:
    """Returns {name: value}; true, false and whole numbers are no strings.

    Raises ConfigError, one line, if the text is not written in this way.
    """
    found: dict[str, bool | int | str] = {}
    for part in text.split():
        name, equals, value = part.partition("=")
        if not _NAME.fullmatch(name) or not equals:
            raise ConfigError(
                f"mesh.compiler_options={text!r}: {part!r} is not NAME=VALUE with a name of XLA's;"
                " try 'xla_gpu_all_reduce_combine_threshold_bytes=4194304', 'auto' or '' for none"
            )
        if name in found:
            raise ConfigError(f"mesh.compiler_options={text!r} names {name} twice")
        found[name] = _value(value)
    return found


def _value(text):
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    return int(text) if re.fullmatch(r"-?\d+", text) else text
