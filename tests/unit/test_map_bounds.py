"""How many connections there is room for, from the host's limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from udsprobe.kernel.objects import map_bounds

PAGE_BYTES = 4096


@pytest.mark.parametrize(
    ("loadavg", "threads_max", "room"),
    [
        ("0.10 0.20 0.30 2/500 4711\n", "100000\n", 8192 + 4 * 500),
        ("0.10 0.20 0.30 2/500 4711\n", "3000\n", 3000),
        ("", "", 8192),
    ],
)
def test_room_for_threads(
    loadavg: str, threads_max: str, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("LOADAVG", loadavg), ("THREADS_MAX", threads_max)):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(map_bounds, name, tmp_path / name)
    assert map_bounds.threads_max() == room


@pytest.mark.parametrize(
    ("memory_gib", "files", "files_max", "room"),
    [
        (64, 1_000, 1 << 30, 131_072),
        (64, 60_000, 1 << 30, 131_072),
        (64, 100_000, 1 << 30, 262_144),
        (64, 10_000_000, 1 << 30, map_bounds.CONNECTIONS_MAX),
        (1, 100_000, 1 << 30, 65_536),
        (64, 1_000, 20_000, 16_384),
        (0.01, 100, 1 << 30, map_bounds.CONNECTIONS_MIN),
    ],
)
def test_room_for_connections(
    memory_gib: float,
    files: int,
    files_max: int,
    room: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"SC_PHYS_PAGES": int(memory_gib * 2**30) // PAGE_BYTES, "SC_PAGE_SIZE": PAGE_BYTES}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    for name, text in (("FILE_NR", f"{files}\t0\t{files_max}\n"), ("FILE_MAX", f"{files_max}\n")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(map_bounds, name, tmp_path / name)
    assert map_bounds.connections_max(allocates_late=True) == room


def test_without_the_host_limits_there_is_the_usual_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_bounds, "FILE_NR", tmp_path / "none")
    monkeypatch.setattr(map_bounds, "FILE_MAX", tmp_path / "none")
    assert map_bounds.connections_max(allocates_late=True) <= map_bounds.CONNECTIONS_USUAL
    assert map_bounds.connections_max(allocates_late=False) == map_bounds.CONNECTIONS_PREALLOCATED
