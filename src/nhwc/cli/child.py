"""``python -m nhwc.cli.child ...``: the ``nhwc`` command as a process that ends with the one that started it."""

from __future__ import annotations

import ctypes
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


def end_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends, so that no orphan goes on measuring; elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    from nhwc.cli.main import main

    main()
