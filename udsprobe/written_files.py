"""Files that udsprobe makes: mode 0600, the invoking user's, and never a stranger's.

udsprobe runs as root, often in directories that others can write to. In those
nothing is followed, opened or overwritten that somebody else has put there,
whatever fs.protected_symlinks and fs.protected_regular say.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import List, Optional, Set, Tuple

LINKS_MAX = 40
"""MAXSYMLINKS of the kernel."""
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_WRITING = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY


class StrangersFileError(PermissionError):
    """What somebody else has put into a directory that is open to all."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EPERM, f"another user has put {what} into a directory open to all")


def invoking_user() -> Optional[Tuple[int, int]]:
    """(uid, gid) who called sudo; None when we are not root, or nobody or root did."""
    if os.geteuid() != 0:
        return None
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if not (user.isdecimal() and group.isdecimal()) or int(user) == 0:
        return None
    return int(user), int(group)


def open_new(path: str) -> int:
    """A descriptor of a file that was not there, to read and write.

    Raises:
        OSError: FileExistsError, StrangersFileError and others of open(2).
    """
    at, name = _directory_of(path, follow_last=False)
    try:
        return _made(name, at, os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(at)


def open_to_write(path: str, *, empty: bool = True) -> int:
    """A descriptor of the file, made if it is not there; of a link the one it leads to.

    Args:
        empty: take away what a regular file holds.

    Raises:
        OSError: StrangersFileError and others of open(2).
    """
    at, name = _directory_of(path, follow_last=True)
    try:
        try:
            return _made(name, at, _WRITING)
        except FileExistsError:
            descriptor = _opened(name, at)
        if empty and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, 0)
        return descriptor
    finally:
        os.close(at)


def _made(name: str, at: int, flags: int) -> int:
    flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(name, flags, 0o600, dir_fd=at)
    owner = invoking_user()
    if owner is not None:
        with suppress(OSError):  # a file system without owners
            os.fchown(descriptor, *owner)
    return descriptor


def _opened(name: str, at: int) -> int:
    found = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode) and _is_proc(at):
        return os.open(name, _WRITING, dir_fd=at)
    if _is_shared(at):
        if found.st_uid not in _trusted(at):
            raise StrangersFileError("a file")
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            raise StrangersFileError("perhaps a hard link")
    descriptor = os.open(name, _WRITING | os.O_NOFOLLOW, dir_fd=at)
    if not os.path.samestat(found, os.fstat(descriptor)):
        os.close(descriptor)
        raise StrangersFileError("another file in its place")
    return descriptor


def _directory_of(path: str, *, follow_last: bool) -> Tuple[int, str]:
    """The directory, opened, and the name in it; each link on the way is looked at."""
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    ahead, links = _steps(path), 0
    at = os.open("/" if path.startswith("/") else ".", _DIRECTORY)
    try:
        while ahead:
            name = ahead.pop()
            target = _link_target(name, at) if ahead or follow_last else None
            if target is None and not ahead and not path.endswith("/"):
                return at, name
            if target is not None:
                links += 1
                if links > LINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                ahead += _steps(target)
                name = "/" if target.startswith("/") else "."
            inner = _entered(name, at)
            os.close(at)
            at = inner
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except BaseException:
        os.close(at)
        raise


def _entered(name: str, at: int) -> int:
    # It may have become a link since we looked; those of procfs are the kernel's own.
    return os.open(name, _DIRECTORY | (0 if _is_proc(at) else os.O_NOFOLLOW), dir_fd=at)


def _steps(path: str) -> List[str]:
    """The components, the last one first."""
    return [step for step in reversed(path.split("/")) if step not in ("", ".")]


def _link_target(name: str, at: int) -> Optional[str]:
    """Where a link leads; None when it is none, or one of procfs, which leads to what a
    process has open whatever it says."""
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(found.st_mode):
        return None
    if _is_shared(at) and found.st_uid not in _trusted(at):
        raise StrangersFileError("a link")
    return None if _is_proc(at) else os.readlink(name, dir_fd=at)


def _is_proc(directory: int) -> bool:
    return os.fstat(directory).st_dev == os.stat("/proc").st_dev


def _is_shared(directory: int) -> bool:
    """Whether others may put something into it."""
    mode = os.fstat(directory).st_mode
    return bool(mode & stat.S_IWOTH) or bool(mode & stat.S_ISVTX and mode & stat.S_IWGRP)


def _trusted(directory: int) -> Set[int]:
    user = invoking_user()
    return {0, os.geteuid(), os.fstat(directory).st_uid, *(user or ())[:1]}
