# SPDX-License-Identifier: Apache-2.0
"""Why the Hugging Face Hub does not give files, in one line: for data sets and for weights.

    asked which files there are  ->  an error of huggingface_hub  ->  not_listed
    asked for their content      ->  an error of huggingface_hub  ->  not_downloaded

Both return an error, which the caller raises. An answer of the Hub becomes an error of the caller's
kind; a network or a disk that failed becomes `error_causes.MayPass`.
"""

from electra_jax.data import servers
from electra_jax.host import error_causes


def not_listed(
    error: Exception, address: str, name: str, *, what: str, remedy: str, kind: type[ValueError]
) -> ValueError:
    """Returns the error for a repository whose files the Hub does not list.

    Args:
      error: that huggingface_hub has raised.
      address: what messages call the repository, `hf:...`.
      name: OWNER/NAME.
      what: the repository is, "repository" or "data set".
      remedy: what to do without a network.
      kind: of the error if the Hub has answered; without an answer it is `servers.Unreachable`.
    """
    import huggingface_hub  # noqa: PLC0415 - takes 0.5 s, and only addresses of the Hub need it
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    # Of an unknown repository the Hub may say 401, so this is asked before `refused`.
    # GatedRepoError is a RepositoryNotFoundError too.
    is_gated = isinstance(error, errors.GatedRepoError)
    if isinstance(error, errors.RepositoryNotFoundError) and not is_gated:
        return kind(
            f"{address}: the Hub knows no {what} {name}, or it needs an account whose token is in"
            " HF_TOKEN"
        )
    if is_gated or servers.refused(error):
        return _refused(address, name, "its files", kind)
    endpoint = huggingface_hub.HfApi().endpoint
    return servers.Unreachable(
        f"{address} cannot be reached at {endpoint} ({servers.why(error)}); {remedy}"
    )


def not_downloaded(
    error: Exception, address: str, name: str, *, kind: type[ValueError], file: str = ""
) -> ValueError:
    """Returns the error for files that the Hub lists and that cannot be brought here.

    Args:
      error: that huggingface_hub has raised.
      address: what messages call the repository, `hf:...`.
      name: OWNER/NAME.
      kind: of the error if the Hub refuses; any other is an `error_causes.MayPass`.
      file: the one that was asked for; "" for several.
    """
    if servers.refused(error):
        return _refused(address, name, file or "its files", kind)
    missing = f"{address}: {file}" if file else address
    return error_causes.MayPass(
        f"{missing} cannot be downloaded ({servers.why(error)}); the same command continues with"
        " what is there"
    )


def _refused(address, name, files, kind):
    return kind(
        f"{address}: the Hub refuses {files}; agree to the conditions on the page of {name}, if it"
        " has any, and put a token of that account into HF_TOKEN, or log in with `hf auth login`"
    )
