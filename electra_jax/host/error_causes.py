# SPDX-License-Identifier: Apache-2.0
"""Why an error came about: libraries wrap the real one several times.

`of` finds the real one; `written_for_user` says whether its message is enough, and `may_pass`
whether the same command may succeed later. `disk_full` recognises a full disk in any of them.
"""

import errno
import os


class MayPass(ValueError):
    """What was asked for is right, and something else failed: a disk, a server, a worker process.

    The same command may succeed later, so a launcher may begin it again. One line.
    """


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


def may_pass(error: BaseException) -> bool:
    """Returns whether the same command may succeed later: this error or a cause of it is MayPass.

    Causes count too, because another module may have raised the error again with its own message.
    """
    return any(isinstance(cause, MayPass) for cause in of(error))


def disk_full(error: BaseException) -> bool:
    """Returns whether a disk or a quota was full.

    Errors of tensorstore, safetensors and tokenizers carry no error number, so their text is
    searched too.
    """
    full = (errno.ENOSPC, errno.EDQUOT)
    return any(
        getattr(cause, "errno", None) in full or any(os.strerror(n) in str(cause) for n in full)
        for cause in of(error)
    )


def written_for_user(error: BaseException) -> bool:
    """Returns whether an error is one line for the user; any other one is a bug to be seen.

    It is if it was raised by a line of this package, or is an OSError or of a class of this
    package. The last counts because the module of the command that runs is named __main__.
    """
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    raised_in = trace.tb_frame.f_globals.get("__name__", "") if trace else ""

    ours = any(name.startswith("electra_jax") for name in (raised_in, type(error).__module__))
    return isinstance(error, OSError) or (isinstance(error, ValueError | RuntimeError) and ours)
