# SPDX-License-Identifier: Apache-2.0
"""Uploading an export of `exporting.to_hugging_face` to the Hugging Face Hub: `convert --push`.

    OUT/discriminator/*  ->  OWNER/NAME/*              what AutoModel.from_pretrained reads
    OUT/generator/*      ->  OWNER/NAME/generator/*

The order is `check`, then the export, then `push`: what can be refused is refused before weights
are read. An upload is one commit; files of an earlier one that are not in it any more are deleted,
others stay. `hub` is the other direction.
"""

import fnmatch
import glob
import os
import shutil
import tempfile

from electra_jax import config as config_lib
from electra_jax.data import servers, text_files
from electra_jax.host import error_causes
from electra_jax.weights import hub
from electra_jax.weights.formats import modern_electra

# What an export may hold, at the top or in `generator`; files of these names are replaced.
_OURS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    modern_electra.CODE.name,
    "tokenizer*.json",
    "vocab.txt",
    "curves.png",
    "README.md",
)
_FOLDERS = ("", "vocab", "generator", "generator/vocab")


def check(name: str, public: bool) -> None:
    """Asks the Hub whether this account may push there; makes nothing.

    Args:
      name: OWNER/NAME.
      public: whether the repository may be seen by all.

    Raises ConfigError, in one line, without a token, with one that the Hub does not know, or if the
    repository is there and `public` says otherwise than it is; error_causes.MayPass, in one line
    too, without an answer within `servers.SECONDS`.
    """
    import huggingface_hub  # noqa: PLC0415 - takes 0.5 s, and only --push needs it

    if not hub.NAME.fullmatch(name):
        raise config_lib.ConfigError(f"--push={name} is not OWNER/NAME, as my-account/my-electra")
    if huggingface_hub.get_token() is None:
        raise config_lib.ConfigError(
            f"--push={name} needs a token of the Hub with the right to write: put it into HF_TOKEN,"
            " or log in with `hf auth login`"
        )

    api = huggingface_hub.HfApi()
    try:
        private = servers.in_time(lambda: _is_private(api, name))
    except Exception as error:  # many kinds: no network, a token that is not valid
        kind = error_causes.MayPass if servers.may_pass(error) else config_lib.ConfigError
        raise kind(
            f"--push={name}: {api.endpoint} refuses or does not answer"
            f" ({servers.why(error)}); look at HF_TOKEN and the network"
        ) from error
    if private is False and not public:
        raise config_lib.ConfigError(
            f"--push={name}: that repository is public; add --public, or name another"
        )
    if private is True and public:
        raise config_lib.ConfigError(
            f"--push={name}: that repository is private; leave --public out, and change it in the"
            " settings of the Hub"
        )


def push(out: str, name: str, public: bool) -> str:
    """Uploads an export as one commit and returns its address.

    The repository is made if it is not there. Raises error_causes.MayPass, one line, if that fails.
    """
    import huggingface_hub  # noqa: PLC0415 - as above

    api = huggingface_hub.HfApi()
    try:
        with tempfile.TemporaryDirectory() as folder:
            as_repository(out, folder)
            made = api.create_repo(name, private=not public, exist_ok=True)
            # Exact names, since the Hub's patterns take `*.json` for files of all folders.
            earlier = [glob.escape(file) for file in api.list_repo_files(name) if _is_ours(file)]
            api.upload_folder(
                repo_id=name,
                folder_path=folder,
                commit_message="Weights exported by electra_jax",
                delete_patterns=earlier or None,
            )
    except Exception as error:  # many kinds: no right to write, no network, a full disk
        raise error_causes.MayPass(
            f"--push={name}: the upload failed ({_reason(error)}); the same command"
            " tries again, with another --out if there is one"
        ) from error
    return made.url


def as_repository(out: str, folder: str) -> None:
    """Copies an export to a folder in which its files lie as in a repository.

    The main network is at the top, where `from_pretrained("OWNER/NAME")` looks for it.
    """
    if os.path.exists(os.path.join(out, "config.json")):  # a tuned task, or one folder
        shutil.copytree(out, folder, dirs_exist_ok=True)
        return

    names = sorted(entry.name for entry in os.scandir(out) if entry.is_dir())
    main = next((name for name in names if name != "generator"), "generator")
    shutil.copytree(os.path.join(out, main), folder, dirs_exist_ok=True)
    for name in set(names) - {main}:
        shutil.copytree(os.path.join(out, name), os.path.join(folder, name))


def _is_ours(file):
    """Whether an earlier export may have left this file of a repository there."""
    folder, name = os.path.split(file)
    if folder not in _FOLDERS:
        return False
    return folder.endswith("vocab") or any(fnmatch.fnmatchcase(name, one) for one in _OURS)


def _is_private(api, name):
    """Returns whether a repository is private; None if there is none. Raises for a bad token."""
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    api.whoami()
    try:
        return api.model_info(name).private
    except errors.RepositoryNotFoundError:
        return None


def _reason(error):
    """Returns an error and what caused it, as a part of a line."""
    cause = f", {text_files.reason(error.__cause__)}" if error.__cause__ else ""
    return text_files.reason(error) + cause
