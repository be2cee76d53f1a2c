"""The first file system of a guest: busybox, the modules that reach the host's files, `init`.

Knows the cpio format (Linux Documentation/driver-api/early-userspace/buffer-format.rst).
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Iterator, Mapping, Tuple

MAGIC = "070701"
TRAILER = "TRAILER!!!"


def initramfs(programs: Mapping[str, bytes], files: Mapping[str, bytes]) -> bytes:
    """An uncompressed archive.

    Args:
        programs: path → content, executable.
        files: path → content.
    """
    return b"".join(_entries(programs, files))


def _entries(programs: Mapping[str, bytes], files: Mapping[str, bytes]) -> Iterator[bytes]:
    number = 1
    for folder in sorted({str(parent) for name in (*programs, *files) for parent in _above(name)}):
        yield _entry(folder, stat.S_IFDIR | 0o755, b"", number)
        number += 1
    for mode, content in ((0o755, programs), (0o644, files)):
        for name, body in content.items():
            yield _entry(name, stat.S_IFREG | mode, body, number)
            number += 1
    yield _entry(TRAILER, 0, b"", 0)


def _above(name: str) -> Tuple[Path, ...]:
    return tuple(Path(name).parents)[:-1]


def _entry(name: str, mode: int, body: bytes, number: int) -> bytes:
    path = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, len(body), 0, 0, 0, 0, len(path), 0]
    head = (MAGIC + "".join(f"{field:08X}" for field in fields)).encode() + path
    return _padded(head) + _padded(body)


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
