"""What this process may do: the capabilities that loading probes needs, and giving them up.

Knows capabilities, users and what they are needed for. No binding of PyPI to
prctl(2) and capset(2) is both maintained and free of a C build: ctypes does.
"""

from __future__ import annotations

import ctypes
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.objects.libbpf import LibbpfError
from udsprobe.kernel.proc.own_namespaces import in_user_namespace

# include/uapi/linux/capability.h
CAP_DAC_READ_SEARCH, CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_SYS_PTRACE = 2, 6, 7, 8, 19
CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF = 21, 38, 39
TO_LOAD = (1 << CAP_PERFMON) | (1 << CAP_BPF)
"""What loading and attaching programs goes on needing: detail auto does it for each window."""
TO_LOOK = (1 << CAP_DAC_READ_SEARCH) | (1 << CAP_SYS_PTRACE)
"""What goes on being needed: the links in /proc/PID of other users' processes
(PTRACE_MODE_READ of fd, ns, root) and the directories that they lead through."""

_VERSION_3 = 0x20080522
# include/uapi/linux/prctl.h
_PR_SET_KEEPCAPS, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 8, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_THREADS_WITHIN_S = 1.0
_STATUS = Path("/proc/self/status")


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    """32 capabilities; capset(2) takes two of these, the lower ones first."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


def missing_capabilities() -> List[str]:
    """Names of the capabilities that tracing lacks, empty when it can start.

    CAP_BPF and CAP_PERFMON (Linux v5.8) suffice; CAP_SYS_ADMIN holds both. Those of a user
    namespace are none to BPF, whoever we are in there.
    """
    if in_user_namespace():
        return [f"{name} in the host's user namespace" for name in ("CAP_BPF", "CAP_PERFMON")]
    return missing_among(effective_set(_STATUS.read_text()))


def missing_among(effective: int) -> List[str]:
    """The same for a given set of capabilities, one bit each."""
    if effective >> CAP_SYS_ADMIN & 1:
        return []
    wanted = {"CAP_BPF": CAP_BPF, "CAP_PERFMON": CAP_PERFMON}
    return [name for name, bit in wanted.items() if not effective >> bit & 1]


def effective_set(status: str) -> int:
    """The effective capabilities in the text of /proc/PID/status; none when it has no such line."""
    return _set_named("CapEff", status)


def permitted_set(status: str) -> int:
    """The same of the permitted ones: what a process can make effective."""
    return _set_named("CapPrm", status)


@dataclass(frozen=True)
class LeastPrivilege:
    """How to go on once everything that takes privileges is open.

    Attributes:
        user: (uid, gid) to become; None to stay who we are.
        places: directories in which files will be made, replaced or removed later.
            A user who may not do that is not taken: root's uid stays, without
            root's capabilities.
        keep: capabilities that go on being needed beside `TO_LOOK`, one bit each.
    """

    user: Optional[Tuple[int, int]]
    places: Sequence[str] = ()
    keep: int = 0

    def take_effect(self, still_works: Callable[[], object]) -> None:
        """Give up for good what is not needed any more; this cannot be undone.

        Args:
            still_works: raises LibbpfError when BPF maps cannot be read without
                CAP_BPF, which is kept then. Before Linux v5.19 that is so where
                kernel.unprivileged_bpf_disabled is set (c8644cd0efe7 "bpf: refine
                kernel.unprivileged_bpf_disabled behaviour").

        Raises:
            KernelCannotError: `privileges-not-dropped`.
        """
        try:
            had = permitted_set(_STATUS.read_text())
            _empty_bounding_set(had)
            if self.user is not None and had >> CAP_SETUID & had >> CAP_SETGID & 1:
                _become(self.user, self.places)
            kept = had & (TO_LOOK | self.keep)
            _set_capabilities(effective=kept, permitted=had)
            if had >> CAP_BPF & 1 and not _succeeds(still_works):
                kept |= 1 << CAP_BPF
            _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
            _set_capabilities(effective=kept, permitted=kept)
            _prctl(_PR_SET_NO_NEW_PRIVS, 1)
            _see_that_all_threads_have_only(kept)
        except OSError as error:
            raise _not_dropped(error.strerror or str(error)) from error


def _set_named(name: str, status: str) -> int:
    for line in status.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1], 16)
    return 0


def _succeeds(still_works: Callable[[], object]) -> bool:
    try:
        still_works()
    except LibbpfError:
        return False
    return True


def _empty_bounding_set(permitted: int) -> None:
    """So that no program we might execute gains any; only CAP_SETPCAP may, others have
    no_new_privs alone for it."""
    if permitted >> CAP_SETPCAP & 1:
        _set_capabilities(effective=permitted, permitted=permitted)
        last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
        for capability in range(last + 1):
            _prctl(_PR_CAPBSET_DROP, capability)


def _become(user: Tuple[int, int], places: Iterable[str]) -> None:
    uid, gid = user
    before = os.geteuid(), os.getegid(), os.getgroups()
    os.setgroups([gid])
    os.setegid(gid)
    os.seteuid(uid)
    may = [os.access(place, os.W_OK | os.X_OK, effective_ids=True) for place in places]
    os.seteuid(before[0])
    if not all(may):
        os.setegid(before[1])
        os.setgroups(before[2])
        return
    # Else the permitted set would go with root's uid.
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _prctl(_PR_SET_KEEPCAPS, 0)


def _set_capabilities(*, effective: int, permitted: int) -> None:
    header = _Header(_VERSION_3, 0)
    low, high = (
        _Sets(effective >> shift & 0xFFFFFFFF, permitted >> shift & 0xFFFFFFFF, 0)
        for shift in (0, 32)
    )
    _checked("capset", ctypes.byref(header), (_Sets * 2)(low, high))


def _prctl(option: int, value: int) -> None:
    _checked("prctl", option, *map(ctypes.c_ulong, (value, 0, 0, 0)))


def _checked(function: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _see_that_all_threads_have_only(kept: int) -> None:
    """The kernel keeps capabilities by thread. One that just ends may still be listed."""
    give_up_at = time.monotonic() + _THREADS_WITHIN_S
    while any(permitted & ~kept for permitted in _permitted_by_thread()):
        if time.monotonic() > give_up_at:
            raise OSError("another thread of this process keeps its own")
        time.sleep(0)


def _permitted_by_thread() -> Iterator[int]:
    for thread in Path("/proc/self/task").iterdir():
        try:
            yield permitted_set((thread / "status").read_text())
        except OSError:
            continue


def _not_dropped(why: str) -> KernelCannotError:
    return KernelCannotError(
        "privileges-not-dropped",
        f"privileges that are no longer needed cannot be dropped ({why})",
        "add --keep-privileges to observe with them",
    )
