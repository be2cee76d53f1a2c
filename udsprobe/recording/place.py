"""The file of a recording: made by us alone, and the invoking user's afterwards."""

from __future__ import annotations

import os
from contextlib import suppress

from udsprobe.errors import UsageError
from udsprobe.written_files import StrangersFileError, open_new


class OwnFile:
    """A new, empty file with mode 0600, never one that was there or that a link leads to.

    Its descriptor stays open until `close`: as long as it does, closing would
    take SQLite's locks of the same file away.

    Raises:
        UsageError: `recording-exists`, `recording-not-writable`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = open_new(path)
        except FileExistsError:
            raise UsageError(
                "recording-exists",
                f"{path!r} already exists",
                "give another name, or remove it first",
            ) from None
        except (OSError, ValueError) as error:
            raise _not_writable(path, str(getattr(error, "strerror", error))) from error

    def check_opened(self) -> None:
        """See that what was opened by the path since is this file.

        Raises:
            UsageError: `recording-not-writable`, somebody put another in its place.
        """
        ours = os.fstat(self._descriptor)
        opened = 0
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                opened += os.path.samestat(os.fstat(int(name)), ours)
        if opened < 2:
            raise _not_writable(self.path, "another file was put in its place")

    def check_companions(self) -> None:
        """See that SQLite's files beside it are not what somebody else has put there.

        Raises:
            OSError: they are.
        """
        owners = {os.geteuid(), os.fstat(self._descriptor).st_uid}
        for ending in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                if os.lstat(self.path + ending).st_uid not in owners:
                    raise StrangersFileError(f"{self.path + ending!r}")

    def remove(self) -> None:
        """Nothing was recorded."""
        with suppress(OSError):
            os.unlink(self.path)
        self.close()

    def close(self) -> None:
        """Let go of it; SQLite must have."""
        with suppress(OSError):
            os.close(self._descriptor)


def _not_writable(path: str, why: str) -> UsageError:
    return UsageError(
        "recording-not-writable",
        f"cannot make the recording {path!r}: {why}",
        "give it a name in a directory you can write to",
    )
