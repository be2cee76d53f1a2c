"""Files as another process sees them: below its root, links followed as it would.

Reads regular files only, never waits (a FIFO, a device) and never more than asked.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from dataclasses import dataclass
from typing import List, Optional, Tuple

from udsprobe.host_facts import Identity
from udsprobe.kernel.proc.path_view import resolved

_MATCHES_MAX = 10_000
# include/uapi/linux/xattr.h; mode bits do not tell where a list of others decides.
_ACCESS_LIST = "system.posix_acl_access"
_WRITE, _SEARCH = 0o2, 0o1


class Unreadable(Exception):
    """A file, or a directory on the way, cannot be read; says why."""


@dataclass(frozen=True)
class Content:
    """Bytes of a file and when they were last changed, seconds since the epoch."""

    raw: bytes
    changed_s: float


@dataclass(frozen=True)
class Barrier:
    """What keeps a process from a socket.

    Attributes:
        path: as the process sees it.
    """

    path: str
    mode: int
    uid: int
    gid: int


class TargetFiles:
    """The files of one process.

    Args:
        pid: of the process; its root and working directory are used.
        proc: where procfs is mounted.
    """

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self._process = os.fsencode(f"{proc}/{pid}")

    def read(self, path: str, most: int) -> Content:
        """A regular file.

        Raises:
            Unreadable: missing, forbidden, no regular file, or longer than `most` bytes.
        """
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW
            descriptor = os.open(self._resolved(path), flags)
        except (OSError, ValueError) as error:
            raise Unreadable(_why(error)) from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable("it is not a regular file")
            with os.fdopen(os.dup(descriptor), "rb") as file:
                raw = file.read(most + 1)
            if len(raw) > most:
                raise Unreadable(f"it is longer than {most} bytes")
            return Content(raw, found.st_mtime)
        except OSError as error:
            raise Unreadable(_why(error)) from None
        finally:
            os.close(descriptor)

    def names(self, path: str) -> Tuple[str, ...]:
        """What is in a directory, sorted.

        Raises:
            Unreadable: it is missing or forbidden.
        """
        try:
            return tuple(sorted(os.fsdecode(name) for name in os.listdir(self._resolved(path))))
        except (OSError, ValueError) as error:
            raise Unreadable(_why(error)) from None

    def matching(self, pattern: str) -> Tuple[str, ...]:
        """Absolute paths that match, as glob(3) finds them: none is no error with a wildcard.

        Raises:
            Unreadable: a directory on the way is forbidden, or there are too many.
        """
        if not any(wildcard in pattern for wildcard in "*?["):
            return (pattern,)
        found: List[str] = [""]
        for part in pattern.lstrip("/").split("/"):
            found = [f"{base}/{name}" for base in found for name in self._like(base, part)]
            if len(found) > _MATCHES_MAX:
                raise Unreadable(f"matches more than {_MATCHES_MAX} files")
        return tuple(path for path in found if self.status(path) is not None)

    def _like(self, directory: str, part: str) -> Tuple[str, ...]:
        if not any(wildcard in part for wildcard in "*?["):
            return (part,)
        status = self.status(directory or "/")
        if status is None or not stat.S_ISDIR(status.st_mode):
            return ()
        hidden = part.startswith(".")
        return tuple(
            name
            for name in self.names(directory or "/")
            if fnmatch.fnmatchcase(name, part) and (hidden or not name.startswith("."))
        )

    def status(self, path: str) -> Optional[os.stat_result]:
        """stat() of what is there; None when nothing is.

        Raises:
            Unreadable: we may not look.
        """
        try:
            return os.stat(self._resolved(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise Unreadable(_why(error)) from None

    def barrier(self, path: str, who: Identity) -> Optional[Barrier]:
        """What keeps `who` from connecting to the socket file; None when nothing does.

        unix_find_bsd() asks for write permission on it, path look-up for search
        permission in each directory.

        Raises:
            Unreadable: it cannot be told: forbidden to us, or lists of access are in use.
        """
        if who.overrides:
            return None
        try:
            whole = self._resolved(path)
            base = self._process + b"/root"
            if not whole.startswith(base + b"/"):
                raise Unreadable("a relative path")
            at = base
            for step in [b"", *whole[len(base) + 1 :].split(b"/")]:
                at = at + b"/" + step if step else at
                found = os.stat(at)
                wanted = _WRITE if at == whole else _SEARCH
                if not _allows(found, who, wanted):
                    _refuse_access_list(at)
                    shown = os.fsdecode(at[len(base) :]) or "/"
                    return Barrier(shown, found.st_mode & 0o7777, found.st_uid, found.st_gid)
        except (OSError, ValueError) as error:
            raise Unreadable(_why(error)) from None
        return None

    def _resolved(self, path: str) -> bytes:
        if path.strip("/") == "":
            return self._process + b"/root"
        # Whether we may look below its root at all; look-up itself goes on in silence.
        os.stat(self._process + b"/root/")
        whole = resolved(self._process, os.fsencode(path))
        if whole is None:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return whole


def _allows(found: os.stat_result, who: Identity, wanted: int) -> bool:
    if found.st_uid == who.uid:
        return bool(found.st_mode >> 6 & wanted)
    if found.st_gid in (who.gid, *who.gids):
        return bool(found.st_mode >> 3 & wanted)
    return bool(found.st_mode & wanted)


def _refuse_access_list(path: bytes) -> None:
    try:
        os.getxattr(path, _ACCESS_LIST)
    except OSError:
        return
    raise Unreadable("an access control list (ACL) decides")


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    if isinstance(error, PermissionError):
        return "it is not accessible to this user"
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else "its name is not a file name"
