"""What reads a stranger's file may not: more memory, time or privileges than that takes.

Knows limits, users and capabilities of the process that is confined, which is udsprobe's child.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from contextlib import suppress

MEMORY_BYTES_MAX = 256 << 20
"""Beside files that are mapped: compressed sections are expanded there."""

NAME = b"udsprobe-names"
_NOBODY = 65534
# include/uapi/linux/prctl.h and capability.h
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_NO_NEW_PRIVS = 1, 4, 15, 38
_VERSION_3 = 0x20080522


def confine(seconds: int) -> None:
    """For good, the process that calls it; what is not allowed is left out.

    Args:
        seconds: of CPU time, after which the kernel ends it.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, ctypes.c_char_p(NAME), 0, 0, 0)
    # Where memory is short it is the one to go.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    _limit(resource.RLIMIT_DATA, MEMORY_BYTES_MAX)
    _limit(resource.RLIMIT_CPU, max(1, seconds))
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    with suppress(OSError):
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    libc.capset((ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)())
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _limit(what: int, most: int) -> None:
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, bound))
