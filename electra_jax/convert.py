# SPDX-License-Identifier: Apache-2.0
"""Reads and writes weights in other formats: Hugging Face, plain orbax parameters, StableHLO.

    python -m electra_jax.convert --workdir=runs/small --to=hugging_face --out=exports/small
    python -m electra_jax.convert --workdir=runs/small --to=hugging_face --push=OWNER/NAME
    python -m electra_jax.convert --workdir=runs/small --to=orbax --out=exports/params
    python -m electra_jax.convert --workdir=runs/small --to=stablehlo --out=exports/program
    python -m electra_jax.convert --from=FOLDER --workdir=runs/continued --config=configs/small.py
    python -m electra_jax.convert --from=FOLDER --to=orbax --out=exports/params
    python -m electra_jax.convert --from=runs/small/finetune/NAME/TASK --to=hugging_face --out=...

With --to weights are exported: from the newest checkpoint of a workdir (or from that of --step), or
from the folder that --from names; a fine-tuned task is exported with its head. With --from alone
weights are imported into a new workdir, and `python -m electra_jax.main --workdir=runs/continued`
continues with them. The folder is a Hugging Face folder of an ELECTRA or a BERT, one that contains
a discriminator and a generator, a checkpoint of Google's with its vocab.txt, or hf:OWNER/NAME, a
repository of the Hugging Face Hub. --push uploads the export there, to a private repository without
--public. docs/weights.md has the details.
"""

if __name__ == "__main__":
    from electra_jax.cli import usage

    # Before all other imports, so that help answers at once.
    usage.answer(__file__)

import contextlib
import json
import os
import sys
import tempfile

from absl import flags
from ml_collections import ConfigDict

from electra_jax import config as config_lib
from electra_jax.cli import command
from electra_jax.finetuning.tuning import export
from electra_jax.host import program, safe_files
from electra_jax.weights import exporting, importing, publishing, trained_weights
from electra_jax.weights.formats import card

_TO = flags.DEFINE_enum("to", None, list(exporting.FORMATS), "What to write.")
_FROM = flags.DEFINE_string(
    "from", None, "A folder, or hf:OWNER/NAME, to read instead of a workdir.", allow_override=True
)
_OUT = flags.DEFINE_string(
    "out", None, "The folder to write; it must not be there yet.", allow_override=True
)
_ONLY = flags.DEFINE_enum(
    "only", None, list(trained_weights.NETWORKS), "One network instead of all.", allow_override=True
)
_STEP = flags.DEFINE_integer(
    "step", None, "Which checkpoint; the newest without it.", allow_override=True
)
_PUSH = flags.DEFINE_string(
    "push", None, "OWNER/NAME on the Hugging Face Hub to upload to; --out may be left out then."
)
_PUBLIC = flags.DEFINE_bool("public", False, "Make a repository that --push creates public.")
_LICENCE = flags.DEFINE_string("license", "", "For the model card, as apache-2.0.")
_LANGUAGES = flags.DEFINE_list(
    "language", [], "For the model card: codes of ISO 639 of the text's languages, as de or de,nds."
)
_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object as the last line.", allow_override=True
)

IMPORT_CONFIG = "base"  # settings of a run that imports weights, if --config names none


def main(config: config_lib.Config | None, workdir: str | None) -> None:
    """Exports or imports, and prints what was written."""
    command.check_alone("convert")
    done = (export_weights if _TO.value else import_weights)(config, workdir)
    if _JSON.value:
        print(json.dumps(done))
        return

    if "pushed" in done:
        print(f"pushed: {done['pushed']} ({'public' if _PUBLIC.value else 'private'})")
    if done.get("out") or "workdir" in done:
        print(f"written: {done.get('out') or done['workdir']}")
    networks = done["networks"]
    for name in networks:
        about = networks[name] if isinstance(networks, dict) else {}
        print("  " + ", ".join([name, *(f"{key} {value}" for key, value in about.items())]))
    for part in done.get("left_out", ()):
        print(f"  left out: {part}")
    if "workdir" in done:
        print(f"  continues with: {program.command('main')} --workdir={workdir}")


def export_weights(config: config_lib.Config | None, workdir: str | None) -> dict:
    """Exports weights from a workdir or a folder to a new folder or the Hub, or to both.

    Returns what was written.
    """
    _check_export_flags(config)
    try:
        publication = card.Publication(_LICENCE.value, _LANGUAGES.value, _PUSH.value or "")
    except ValueError as error:
        raise config_lib.ConfigError(f"--language: {error}") from None

    if not _PUSH.value:
        return _export_to(_OUT.value, config, workdir, publication)

    publishing.check(_PUSH.value, _PUBLIC.value)
    with contextlib.ExitStack() as stack:
        out = _OUT.value
        if not out:
            out = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "export")
        done = _export_to(out, config, workdir, publication)
        done["pushed"] = publishing.push(out, _PUSH.value, _PUBLIC.value)
    return done if _OUT.value else {name: done[name] for name in done if name != "out"}


def _check_export_flags(config):
    """Raises ConfigError if the flags of an export do not fit together."""
    if not _OUT.value and not _PUSH.value:
        raise config_lib.ConfigError("--out names no folder; say where to write")
    safe_files.check_path(_OUT.value or "", "--out", config_lib.ConfigError)
    if _PUSH.value and _TO.value != "hugging_face":
        raise config_lib.ConfigError(f"--push={_PUSH.value} goes with --to=hugging_face")
    if _PUBLIC.value and not _PUSH.value:
        raise config_lib.ConfigError("--public goes with --push=OWNER/NAME")
    if bool(_FROM.value) == bool(config):
        raise config_lib.ConfigError("weights come from --workdir or from --from; give one of them")
    if _STEP.value is not None and _FROM.value:
        raise config_lib.ConfigError("--step chooses a checkpoint of --workdir; leave it out")
    if _LICENCE.value and _TO.value != "hugging_face":
        raise config_lib.ConfigError("--license is for the model card of --to=hugging_face")
    if _LANGUAGES.value and _TO.value != "hugging_face":
        raise config_lib.ConfigError("--language is for the model card of --to=hugging_face")


def _export_to(out, config, workdir, publication) -> dict:
    """Exports weights to a new folder; returns what was written."""
    return export.write(
        _FROM.value or workdir,
        out,
        _TO.value,
        _ONLY.value,
        _STEP.value,
        config.data.dir if config else "",
        publication,
    )


def import_weights(config: config_lib.Config | None, workdir: str | None) -> dict:
    """Imports weights from a folder into a new workdir; returns what was written."""
    if not _FROM.value:
        raise config_lib.ConfigError("give --to=hugging_face, orbax or stablehlo, or --from=FOLDER")
    for flag in (_OUT, _ONLY, _STEP, _LICENCE, _LANGUAGES, _PUSH, _PUBLIC):
        if flag.value not in (None, "", []) and flag.value is not False:
            raise config_lib.ConfigError(f"--{flag.name} goes with --to; here --workdir is written")

    if config is None:
        raise config_lib.ConfigError("--workdir names no folder; say which workdir to make")

    return importing.to_workdir(_FROM.value, config, workdir)


def parse_import_config(tree: ConfigDict) -> config_lib.Config:
    """Parses the settings of a run that begins with the weights of --from."""
    # Fields of `init` are checked against `init.from`, which the import will set to --from.
    tree.init["from"] = _FROM.value or ""
    return config_lib.parse(tree)


if __name__ == "__main__":
    # absl takes a flag with one dash as well.
    exports = any(argument.partition("=")[0] in ("--to", "-to") for argument in sys.argv)
    if exports:
        command.run(main, config_needed=False)
    else:
        command.run(main, config_needed=False, config_file=IMPORT_CONFIG, parse=parse_import_config)
