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
    return _limited() if error == errno.EMFILE else None


def too_few_descriptors() -> Optional[KernelCannotError]:
    """The user's error where the limit is below what `auto` takes; None where it is not.

    libbpf takes a feature of the kernel for missing where it has no descriptor to try it with, and
    what fails then has another errno (kernel_supports() in its src/features.c).
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _limited() if soft < WANTED else None


def _limited() -> KernelCannotError:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    how = f"ulimit -n {WANTED}"
    if hard != resource.RLIM_INFINITY and hard < WANTED:
        how = f"as root, ulimit -n {WANTED} (the hard limit is {hard:,})"
    return KernelCannotError(
        "no-descriptors",
        f"udsprobe may open {soft:,} files here (RLIMIT_NOFILE, EMFILE), and needs more",
        f"raise it for this shell: {how}, or LimitNOFILE= in a unit",
    )
