# SPDX-License-Identifier: Apache-2.0
"""Why an error came about: libraries wrap the real one several times."""


def of(error: BaseException, handled: BaseException | None = None) -> list[BaseException]:
    """Returns an error, the error it was raised from, and so on; the innermost is last.

    Args:
      error: that was caught.
      handled: `sys.exception()` from before the work that failed. While an error ends a run, files
        are closed and sent, and Python notes that error as the context of whatever fails then,
        although it is not its cause.
    """
    chain = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) not in (None, handled, *chain):
        chain.append(before)
    return chain
