"""Where a test may make a cgroup with a controller."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import give_up
from udsprobe.kernel.proc.cgroups import mounts


def hierarchy(controller: str) -> tuple[int, Path]:
    """Version 2 if its children may have files of this controller, otherwise version 1."""
    for mount in mounts():
        enabled = mount.path / "cgroup.subtree_control"
        if mount.version == 2 and controller in enabled.read_text().split():
            return 2, mount.path
        if mount.version == 1 and controller in mount.controllers:
            return 1, mount.path
    give_up(f"no cgroup hierarchy with the controller {controller} is mounted")
    raise AssertionError
