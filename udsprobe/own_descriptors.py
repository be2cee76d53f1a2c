"""The limit of descriptors of udsprobe itself: what to say when it is in the way."""

from __future__ import annotations

import errno
import resource
from typing import Optional

from udsprobe.errors import KernelCannotError

# Programs, their links and maps; the fewest with which `auto` attaches, doubled for its targets.
WANTED = 256


def descriptors_used_up(error: Optional[int]) -> Optional[KernelCannotError]:
    """The user's error for an errno that says that there is no descriptor left; None for others."""
    if error == errno.ENFILE:
        return KernelCannotError(
            "no-descriptors",
            "the host has no file descriptor left for udsprobe (fs.file-max, ENFILE)",
            "stop the process that holds so many, or raise sysctl fs.file-max",
        )
    if error != errno.EMFILE:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    how = f"ulimit -n {WANTED}"
    if hard != resource.RLIM_INFINITY and hard < WANTED:
        how = f"as root, ulimit -n {WANTED} (the hard limit is {hard:,})"
    return KernelCannotError(
        "no-descriptors",
        f"udsprobe may open {soft:,} files here (RLIMIT_NOFILE, EMFILE), and needs more",
        f"raise it for this shell: {how}, or LimitNOFILE= in a unit",
    )
