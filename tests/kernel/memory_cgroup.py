"""A memory cgroup of our own, of whichever version is mounted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List

from tests.conftest import give_up

MOUNT = Path("/sys/fs/cgroup")


class MemoryCgroup:
    """Made at the beginning of the block and removed at its end, when its processes are gone."""

    def __init__(self) -> None:
        self._version = 1 if (MOUNT / "memory").is_dir() else 2
        above = MOUNT / "memory" if self._version == 1 else MOUNT
        self._path = above / f"udsprobe-test-{os.getpid()}"

    def __enter__(self) -> MemoryCgroup:
        try:
            self._path.mkdir()
        except OSError as error:
            give_up(f"no memory cgroup can be made: {error}")
        if not self._limit_file().exists():
            self._path.rmdir()
            give_up("the cgroup hierarchy has no memory controller here")
        return self

    def __exit__(self, *_: object) -> None:
        self._path.rmdir()

    def add(self, pid: int) -> None:
        (self._path / "cgroup.procs").write_text(str(pid))

    def prefix(self) -> List[str]:
        """A command that runs another one inside."""
        return ["sh", "-c", f'echo $$ >{self._path}/cgroup.procs && exec "$@"', "sh"]

    def limit(self, size_bytes: int) -> None:
        """What its processes use above is reclaimed, or they are killed."""
        self._limit_file().write_text(str(size_bytes))

    def used_bytes(self) -> int:
        """What its processes use now."""
        name = "memory.usage_in_bytes" if self._version == 1 else "memory.current"
        return int((self._path / name).read_text())

    def kills(self) -> int:
        """How many processes the limit has killed."""
        name = "memory.oom_control" if self._version == 1 else "memory.events"
        words = (self._path / name).read_text().split()
        return int(words[words.index("oom_kill") + 1])

    def _limit_file(self) -> Path:
        return self._path / ("memory.limit_in_bytes" if self._version == 1 else "memory.max")
